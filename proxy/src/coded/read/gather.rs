//! Some columns of any fragments that are enough.
//!
//! As many are asked for as are needed. One that fails is made up for by the next at once; one that is
//! late is followed by another as far as hedges are allowed, and whoever comes first counts.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use martlet_erasure::FragmentIndex;
use martlet_protocol::{Error, Result};
use tokio::time::{Instant, sleep_until, timeout};

use super::stripe::{ANSWER_TIME, Place, Stripe};

/// How long those who are waited for may all be silent while others might be sought.
const SILENCE_MAX: Duration = Duration::from_secs(1);

/// Bytes of a fragment.
pub(super) type Gathered = (FragmentIndex, Bytes);

struct Gathering {
    stripe: Arc<Stripe>,
    columns: Range<u64>,
    /// Yet to be asked, the last of them first.
    queue: Vec<Place>,
    pending: Vec<Pending>,
    reads: FuturesUnordered<BoxFuture<'static, (Place, Result<Bytes>)>>,
    gathered: Vec<Gathered>,
    /// When something happened last.
    moved_at: Instant,
}

struct Pending {
    place: Place,
    since: Instant,
    /// When to ask somebody else too; none if that was done.
    check_at: Option<Instant>,
}

/// `columns` of as many fragments as `wanted` can be made of. Those who are not `patient` give up when
/// all who are waited for have been silent for a while.
pub(super) async fn gather(
    stripe: &Arc<Stripe>,
    wanted: FragmentIndex,
    columns: &Range<u64>,
    patient: bool,
) -> Result<Vec<Gathered>> {
    let mut queue = stripe.sources(wanted, columns.start);
    queue.reverse();
    let gathering = Gathering {
        stripe: stripe.clone(),
        columns: columns.clone(),
        queue,
        pending: Vec::new(),
        reads: FuturesUnordered::new(),
        gathered: Vec::new(),
        moved_at: Instant::now(),
    };
    gathering.run(stripe.needed(columns.start), patient).await
}

impl Gathering {
    async fn run(mut self, needed: usize, patient: bool) -> Result<Vec<Gathered>> {
        loop {
            while self.gathered.len() + self.pending.len() < needed && self.ask_next() {}
            if self.gathered.len() >= needed {
                self.note_late();
                return Ok(self.gathered);
            }
            let hopeful = self.gathered.len() + self.pending.len();
            let silent = self.queue.is_empty() && self.moved_at.elapsed() >= SILENCE_MAX;
            if hopeful < needed || (silent && !patient) {
                return Err(Error::unavailable(format!(
                    "{hopeful} fragments of extent {} answer of the {needed} that it takes",
                    self.stripe.id()
                )));
            }
            let check_at = self.check_at();
            tokio::select! {
                biased;
                Some((place, read)) = self.reads.next() => self.note(place, read),
                () = sleep_until(check_at) => self.hedge(),
            }
        }
    }

    /// Asks the next of the queue, if there is one.
    fn ask_next(&mut self) -> bool {
        let Some(place) = self.queue.pop() else { return false };
        self.ask(place);
        true
    }

    fn ask(&mut self, place: Place) {
        let since = Instant::now();
        let check_at = Some(since + self.stripe.health().patience(place.device));
        self.pending.push(Pending { place, since, check_at });
        self.moved_at = since;
        let (stripe, columns) = (self.stripe.clone(), self.columns.clone());
        self.reads.push(async move { (place, read(&stripe, place, columns).await) }.boxed());
    }

    fn note(&mut self, place: Place, read: Result<Bytes>) {
        self.pending.retain(|pending| pending.place != place);
        self.moved_at = Instant::now();
        match read {
            Ok(bytes) => self.gathered.push((place.fragment, bytes)),
            // It may be elsewhere: while it moves there are two places.
            Err(_) => {
                if let Some(place) = self.stripe.places(place.fragment).first() {
                    self.ask(*place);
                }
            }
        }
    }

    /// When somebody is late, or nothing has moved for too long.
    fn check_at(&self) -> Instant {
        let next = self.pending.iter().filter_map(|pending| pending.check_at).min();
        let silence_at = (self.moved_at + SILENCE_MAX).max(Instant::now() + SILENCE_MAX / 4);
        next.map_or(silence_at, |next| next.min(silence_at))
    }

    /// Asks somebody else too for each that is late, as far as that is allowed.
    fn hedge(&mut self) {
        let (now, health) = (Instant::now(), &self.stripe.health());
        let mut hedges = 0;
        for Pending { place: Place { device, .. }, since, check_at } in &mut self.pending {
            if check_at.is_none_or(|check_at| check_at > now) {
                continue;
            }
            health.overtaken(*device, since.elapsed());
            let is_hedged =
                hedges < self.queue.len() && (health.is_shunned(*device) || health.may_hedge());
            hedges += usize::from(is_hedged);
            *check_at = (!is_hedged).then(|| now + health.patience(*device));
        }
        for _ in 0..hedges {
            self.ask_next();
        }
    }

    /// Notes who is late and was not needed.
    fn note_late(&self) {
        let health = self.stripe.health();
        for Pending { place, since, .. } in &self.pending {
            let waited = since.elapsed();
            if waited >= health.patience(place.device) {
                health.overtaken(place.device, waited);
            }
        }
    }
}

/// Columns of a fragment, as many of them as it has.
async fn read(stripe: &Stripe, place: Place, columns: Range<u64>) -> Result<Bytes> {
    let end = columns.end.min(stripe.geometry.stored_bytes(place.fragment));
    let length = end - columns.start;
    let flow = stripe.open(place, columns.start..end).await?;
    let silent = |_| Error::unavailable(format!("device {} gives too little", place.device));
    let read = timeout(ANSWER_TIME, flow.collect(length)).await.map_err(silent);
    read.and_then(|read| read).inspect_err(|error| stripe.fail(place, error))
}

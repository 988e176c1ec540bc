//! Collects columns from any fragments that suffice to decode.
//!
//! As many fragments are requested as are needed. A failed one is replaced at once by the next. A
//! late one is hedged by another within the hedging budget; the first replies count.

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

use super::stripe::{FragmentLocation, REPLY_TIME, Stripe};

/// Longest time without a reply, once no more fragments are queued, for callers with another
/// resort.
const SILENCE_MAX: Duration = Duration::from_secs(1);

/// A fragment and its bytes.
pub(super) type CollectedFragment = (FragmentIndex, Bytes);

struct FragmentCollector {
    stripe: Arc<Stripe>,
    columns: Range<u64>,
    /// Places to request, the next one last.
    queue: Vec<FragmentLocation>,
    pending: Vec<Pending>,
    reads: FuturesUnordered<BoxFuture<'static, (FragmentLocation, Result<Bytes>)>>,
    collected: Vec<CollectedFragment>,
    /// Time of the last request or reply.
    moved_at: Instant,
}

struct Pending {
    location: FragmentLocation,
    since: Instant,
    /// Time at which to hedge this request; none if it was hedged.
    check_at: Option<Instant>,
}

/// Reads `columns` of as many fragments as decoding `wanted` needs. Unless `patient`, fails once
/// the queue is empty and no reply has arrived for [`SILENCE_MAX`].
pub(super) async fn collect_fragments(
    stripe: &Arc<Stripe>,
    wanted: FragmentIndex,
    columns: &Range<u64>,
    patient: bool,
) -> Result<Vec<CollectedFragment>> {
    let mut queue = stripe.sources(wanted, columns.start);
    queue.reverse();
    let collector = FragmentCollector {
        stripe: stripe.clone(),
        columns: columns.clone(),
        queue,
        pending: Vec::new(),
        reads: FuturesUnordered::new(),
        collected: Vec::new(),
        moved_at: Instant::now(),
    };
    collector.run(stripe.needed(columns.start), patient).await
}

impl FragmentCollector {
    async fn run(mut self, needed: usize, patient: bool) -> Result<Vec<CollectedFragment>> {
        loop {
            while self.collected.len() + self.pending.len() < needed && self.request_next() {}
            if self.collected.len() >= needed {
                self.note_late();
                return Ok(self.collected);
            }
            let hopeful = self.collected.len() + self.pending.len();
            let silent = self.queue.is_empty() && self.moved_at.elapsed() >= SILENCE_MAX;
            if hopeful < needed || (silent && !patient) {
                return Err(Error::unavailable(format!(
                    "only {hopeful} of the {needed} fragments needed of extent {} are readable",
                    self.stripe.id()
                )));
            }
            let check_at = self.check_at();
            tokio::select! {
                biased;
                Some((location, read)) = self.reads.next() => self.note(location, read),
                () = sleep_until(check_at) => self.hedge(),
            }
        }
    }

    /// Requests the next queued location; returns false if the queue is empty.
    fn request_next(&mut self) -> bool {
        let Some(location) = self.queue.pop() else { return false };
        self.request(location);
        true
    }

    fn request(&mut self, location: FragmentLocation) {
        let since = Instant::now();
        let check_at = Some(since + self.stripe.health().patience(location.device));
        self.pending.push(Pending { location, since, check_at });
        self.moved_at = since;
        let (stripe, columns) = (self.stripe.clone(), self.columns.clone());
        self.reads.push(async move { (location, read(&stripe, location, columns).await) }.boxed());
    }

    fn note(&mut self, location: FragmentLocation, read: Result<Bytes>) {
        self.pending.retain(|pending| pending.location != location);
        self.moved_at = Instant::now();
        match read {
            Ok(bytes) => self.collected.push((location.fragment, bytes)),
            // The fragment may have a second location while it moves.
            Err(_) => {
                if let Some(location) = self.stripe.locations(location.fragment).first() {
                    self.request(*location);
                }
            }
        }
    }

    /// Time of the next check for late replies or for silence.
    fn check_at(&self) -> Instant {
        let next = self.pending.iter().filter_map(|pending| pending.check_at).min();
        let silence_at = (self.moved_at + SILENCE_MAX).max(Instant::now() + SILENCE_MAX / 4);
        next.map_or(silence_at, |next| next.min(silence_at))
    }

    /// Hedges each late request with the next queued location, within the hedging budget.
    fn hedge(&mut self) {
        let (now, health) = (Instant::now(), &self.stripe.health());
        let mut hedges = 0;
        for Pending { location: FragmentLocation { device, .. }, since, check_at } in
            &mut self.pending
        {
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
            self.request_next();
        }
    }

    /// Records late devices whose replies were not needed.
    fn note_late(&self) {
        let health = self.stripe.health();
        for Pending { location, since, .. } in &self.pending {
            let waited = since.elapsed();
            if waited >= health.patience(location.device) {
                health.overtaken(location.device, waited);
            }
        }
    }
}

/// Reads columns of a fragment, up to its end.
async fn read(stripe: &Stripe, location: FragmentLocation, columns: Range<u64>) -> Result<Bytes> {
    let end = columns.end.min(stripe.geometry.stored_bytes(location.fragment));
    let length = end - columns.start;
    let reader = stripe.open(location, columns.start..end).await?;
    let silent = |_| Error::unavailable(format!("device {} sent too few bytes", location.device));
    let read = timeout(REPLY_TIME, reader.collect(length)).await.map_err(silent);
    read.and_then(|read| read).inspect_err(|error| stripe.fail(location, error))
}

//! Writing an extent: all its copies at once, acknowledged by a majority (rule X5).
//!
//! ```text
//!            ┌── another device, if all bytes are still there ◀──┐
//!            ▼                                                    │ full, out, stalled, cut
//! begin ── copy ── write_extent ──────────────────────────────────┤
//!                                                                 ▼ written
//!                         undecided ── majority ── grace ── laggards go on behind
//!                             └── too few are left: the write fails
//! ```
//!
//! A write that is dropped drops its copies, which breaks them off; what they left is deleted by
//! [`Unclaimed`](crate::unclaimed::Unclaimed).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use martlet_protocol::backend::NewExtent;
use martlet_protocol::extent::ExtentRef;
use martlet_protocol::{DeviceId, Error, ErrorKind, PolicyId, Result};
use martlet_ring::Ring;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::fanout::{EndedAt, Fanout, GRACE_MAX, GRACE_MIN};
use super::laggards;
use super::placement::{Placement, has_nodes, same_node};
use super::seek::worse;
use super::tally::{CopyTally, Verdict};
use crate::pipe::{Gauge, Input, Tap, pipe};
use crate::store::Inner;
use crate::unclaimed::Placed;

/// How long a device may take no bytes while others do.
const STALL_MAX: Duration = Duration::from_secs(5);
/// The same of a device that can't be done without, and for which another could be taken.
const STALL_REPLACEABLE_MAX: Duration = Duration::from_secs(10);
/// The same where there is no other. A disk at its limit may take that long to sync.
const STALL_NEEDED_MAX: Duration = Duration::from_mins(2);
/// How long other devices are tried for a copy, from the first that refused.
const REPLACING_TIME: Duration = Duration::from_secs(15);

/// What became of a copy.
pub(super) type Written = Result<(DeviceId, ExtentRef)>;
/// Copies under way.
pub(super) type Copies = FuturesUnordered<BoxFuture<'static, Written>>;

/// One extent that is being written.
pub(super) struct ExtentWrite {
    pub(super) inner: Arc<Inner>,
    policy: PolicyId,
    extent: NewExtent,
    pub(super) placed: Arc<Placed>,
    placement: Mutex<Placement>,
    pub(super) gauges: Vec<Gauge>,
    /// Copies that make a majority.
    needed: usize,
    ended_at: EndedAt,
    /// Until when other devices may be tried; none while nobody refused.
    replace_until: Mutex<Option<Instant>>,
    /// There are enough copies: no more devices are tried.
    settled: AtomicBool,
}

/// Begins an extent: bytes go into the fanout, and the future says when enough devices have them.
pub(crate) fn begin(
    inner: &Arc<Inner>,
    policy: PolicyId,
    extent: NewExtent,
    placed: Arc<Placed>,
) -> Result<(Fanout, BoxFuture<'static, Result<ExtentRef>>)> {
    let cluster = inner.cluster();
    let placement = Placement::new(cluster.data(policy)?, &inner.extents.health, extent.id);
    let devices = placement.devices().to_vec();
    let (pipes, taps): (Vec<_>, Vec<_>) = devices.iter().map(|_| pipe()).unzip();
    let needed = devices.len() / 2 + 1;
    let ended_at = EndedAt::default();
    let write = Arc::new(ExtentWrite {
        inner: inner.clone(),
        policy,
        extent,
        placed,
        placement: Mutex::new(placement),
        gauges: taps.iter().map(Tap::gauge).collect(),
        needed,
        ended_at: ended_at.clone(),
        replace_until: Mutex::default(),
        settled: AtomicBool::new(false),
    });
    let copies = devices.into_iter().zip(taps);
    let copies: Copies =
        copies.map(|(device, tap)| Box::pin(write.clone().copy(tap, device)) as _).collect();
    Ok((Fanout::new(pipes, needed, ended_at), Box::pin(write.gather(copies))))
}

impl ExtentWrite {
    /// Waits for a majority of the copies, and a little longer for the rest.
    async fn gather(self: Arc<Self>, mut copies: Copies) -> Result<ExtentRef> {
        let mut tally = CopyTally::new(copies.len(), self.needed);
        let mut failure = None;
        let chosen = loop {
            let verdict = match copies.next().await {
                Some(written) => self.count(&mut tally, written, &mut failure)?,
                None => tally.verdict(),
            };
            match verdict {
                Verdict::Undecided => {}
                Verdict::Enough(extent) => break extent,
                Verdict::TooFew => return Err(too_few(&tally, failure)),
            }
        };
        let begun = Instant::now();
        let took = self.ended_at.lock().map_or(Duration::ZERO, |ended| begun - ended);
        let grace_ends = begun + took.clamp(GRACE_MIN, GRACE_MAX);
        while let Ok(Some(written)) = timeout_at(grace_ends, copies.next()).await {
            self.count(&mut tally, written, &mut failure)?;
        }
        self.settled.store(true, Ordering::Release);
        self.discard(tally.differing(&chosen).collect());
        if !copies.is_empty() {
            let waited = begun.elapsed();
            let late = self.placement.lock().devices().to_vec();
            for device in late.into_iter().filter(|device| !tally.holds(*device)) {
                self.inner.extents.health.overtaken(device, waited);
            }
            laggards::leave(self, copies, chosen);
        }
        Ok(chosen)
    }

    fn count(
        &self,
        tally: &mut CopyTally,
        written: Written,
        failure: &mut Option<Error>,
    ) -> Result<Verdict> {
        match written {
            Ok((device, extent)) => {
                let cluster = self.inner.cluster();
                let domain = self.domain(cluster.data(self.policy)?, device);
                Ok(tally.written(device, domain, extent))
            }
            Err(error) => {
                *failure = Some(worse(failure.take(), error));
                Ok(tally.failed())
            }
        }
    }

    /// A device that stands for all that fail together with this one: its node, where there are
    /// enough nodes to demand a node of its own for each copy.
    fn domain(&self, ring: &Ring, device: DeviceId) -> DeviceId {
        if !has_nodes(ring, self.needed) {
            return device;
        }
        let mut devices = ring.devices().iter().map(|other| other.id);
        devices.find(|other| same_node(ring, *other, device)).unwrap_or(device)
    }

    /// Deletes copies that are not what the others are.
    pub(super) fn discard(&self, devices: Vec<DeviceId>) {
        for device in &devices {
            tracing::warn!(extent = %self.extent.id, %device, "a copy differs from the others");
        }
        let id = self.extent.id;
        self.inner.delete_soon(devices.into_iter().map(|device| (device, id)).collect());
    }

    /// Writes one copy, to the next device where one doesn't take it.
    async fn copy(self: Arc<Self>, tap: Tap, mut device: DeviceId) -> Written {
        loop {
            match self.attempt(&tap, device).await {
                Ok(extent) => return Ok((device, extent)),
                Err(error) => {
                    let Some(next) = self.next(&tap, device, &error) else { return Err(error) };
                    tracing::debug!(%device, %next, %error, "an extent goes to the next device");
                    device = next;
                }
            }
        }
    }

    /// Writes one copy to a device.
    async fn attempt(&self, tap: &Tap, device: DeviceId) -> Result<ExtentRef> {
        let health = &self.inner.extents.health;
        let node = self.inner.cluster().node(device)?.clone();
        self.placed.note(device, self.extent.id);
        let begun = Instant::now();
        let gauge = tap.gauge();
        let written = tokio::select! {
            biased;
            written = node.write_extent(device, self.extent.clone(), tap.stream()) => written,
            () = tap.cut() => {
                health.overtaken(device, begun.elapsed());
                return Err(Error::unavailable(format!("device {device} is too slow")));
            }
            () = self.stalled(&gauge) => {
                Err(Error::unavailable(format!("device {device} takes no more bytes")))
            }
        };
        let standing = gauge.standing();
        match &written {
            Ok(extent)
                if extent.id != self.extent.id
                    || u64::from(extent.length) != standing.taken_bytes =>
            {
                Err(Error::corrupt(format!("device {device} wrote something else")))
            }
            Ok(_) => {
                health.answered(device);
                written
            }
            Err(error) => {
                match error.kind() {
                    _ if standing.input == Input::Broken => {}
                    ErrorKind::Full => health.full(device),
                    ErrorKind::Invalid => health.answered(device),
                    _ => health.failed(device),
                }
                written
            }
        }
    }

    /// The next device in place of one that failed, where there is one and all bytes are still there.
    fn next(&self, tap: &Tap, failed: DeviceId, error: &Error) -> Option<DeviceId> {
        let now = Instant::now();
        let until = *self.replace_until.lock().get_or_insert(now + REPLACING_TIME);
        let mut placement = self.placement.lock();
        placement.release(failed);
        let hopeless = error.kind() == ErrorKind::Invalid || now > until;
        if hopeless || self.settled.load(Ordering::Acquire) || !tap.rewind() {
            return None;
        }
        let cluster = self.inner.cluster();
        placement.next(cluster.data(self.policy).ok()?, &self.inner.extents.health)
    }

    /// Whether there is a device that could take a copy instead.
    fn has_next(&self) -> bool {
        let cluster = self.inner.cluster();
        cluster.data(self.policy).is_ok_and(|ring| self.placement.lock().has_next(ring))
    }

    /// Comes back when a device has stood still for too long.
    async fn stalled(&self, gauge: &Gauge) {
        loop {
            let standing = gauge.standing();
            let now = Instant::now();
            // While the pipe is empty the client is the one to be waited for.
            let is_up_to_client = standing.waiting_cost == 0 && standing.input == Input::Open;
            let since = if is_up_to_client { now } else { standing.moved_at };
            let until = since + self.patience(gauge);
            if until <= now {
                return;
            }
            sleep_until(until.min(now + STALL_MAX)).await;
        }
    }

    /// How long a device may stand still.
    fn patience(&self, gauge: &Gauge) -> Duration {
        let standing = gauge.standing();
        let others = self.gauges.iter().map(Gauge::standing).filter(|other| {
            !other.abandoned && (other.waiting_cost == 0 || other.moved_at > standing.moved_at)
        });
        let may_be_missed = if standing.waiting_cost > 0 {
            others.count() >= self.needed
        } else {
            self.settled.load(Ordering::Acquire)
        };
        if may_be_missed {
            STALL_MAX
        } else if standing.waiting_cost > 0 && gauge.can_rewind() && self.has_next() {
            STALL_REPLACEABLE_MAX
        } else {
            STALL_NEEDED_MAX
        }
    }
}

/// Why too few copies were written.
fn too_few(tally: &CopyTally, failure: Option<Error>) -> Error {
    match failure {
        Some(failure) => failure,
        None if tally.differ() => Error::corrupt("the copies of an extent differ"),
        None => Error::unavailable("too few nodes took the extent"),
    }
}

//! Bringing the pieces of an extent to devices: each copy or fragment to one, the next where one doesn't
//! take it.
//!
//! ```text
//!            ┌── another device, if all bytes are still there ◀──┐
//!            ▼                                                    │ full, out, stalled, cut
//! begin ── deliver ── write_extent ───────────────────────────────┤
//!                                                                 ▼ stored: counted by `durable`
//! ```
//!
//! A device is asked when the first byte of its piece is there, so a fragment that is far from its turn
//! keeps nobody waiting. A write that is dropped drops its pieces, which breaks them off; what they left
//! is deleted by [`Unclaimed`](crate::unclaimed::Unclaimed).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use martlet_protocol::backend::NewExtent;
use martlet_protocol::extent::ExtentRef;
use martlet_protocol::{DeviceId, Error, ErrorKind, ExtentId, PolicyId, Result};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use super::fanout::{EndedAt, Fanout};
use super::placement::Placement;
use crate::pipe::{Gauge, Input, Keep, Tap, pipe};
use crate::store::Inner;
use crate::unclaimed::Placed;

/// How long a device may take no bytes while others do.
const STALL_MAX: Duration = Duration::from_secs(5);
/// The same of a device that can't be done without, and for which another could be taken.
const STALL_REPLACEABLE_MAX: Duration = Duration::from_secs(10);
/// The same where there is no other. A disk at its limit may take that long to sync.
const STALL_NEEDED_MAX: Duration = Duration::from_mins(2);
/// How long other devices are tried for a piece, from the first that refused.
const REPLACING_TIME: Duration = Duration::from_secs(15);

/// What became of a piece: who has it, and what it is a copy or a fragment of.
pub(super) type Written = Result<(DeviceId, ExtentRef)>;
/// Pieces under way.
pub(super) type Pieces = FuturesUnordered<BoxFuture<'static, Written>>;

/// What one device is to hold.
pub(crate) struct Piece {
    /// Which replica of the partition it is.
    pub(crate) replica: u8,
    pub(crate) new: NewExtent,
    /// None for a copy.
    pub(crate) fragment: Option<Fragment>,
}

/// What makes a piece a fragment.
pub(crate) struct Fragment {
    /// What its extent is counted as: the same for all fragments.
    pub(crate) whole: ExtentRef,
    /// Its BLAKE3, known when its last byte has gone into its pipe. Copies are compared with each
    /// other; a fragment has none to be compared with.
    pub(crate) blake3: Arc<OnceLock<[u8; 32]>>,
}

/// An extent that is about to be written.
pub(crate) struct Plan {
    pub(crate) policy: PolicyId,
    pub(crate) id: ExtentId,
    pub(crate) pieces: Vec<Piece>,
    /// Pieces that have to be durable.
    pub(crate) needed: usize,
    pub(crate) placed: Arc<Placed>,
}

/// One extent that is being written.
pub(super) struct ExtentWrite {
    pub(super) inner: Arc<Inner>,
    pub(super) policy: PolicyId,
    pub(super) id: ExtentId,
    pub(super) placed: Arc<Placed>,
    pub(super) placement: Mutex<Placement>,
    pub(super) gauges: Vec<Gauge>,
    pub(super) needed: usize,
    pub(super) ended_at: EndedAt,
    /// There are enough pieces: no more devices are tried.
    pub(super) settled: AtomicBool,
}

/// Begins an extent: bytes go into the fanout, whose pipes are in the order of the pieces, and the
/// future says when enough devices have them.
pub(crate) fn begin(
    inner: &Arc<Inner>,
    plan: Plan,
) -> Result<(Fanout, BoxFuture<'static, Result<ExtentRef>>)> {
    let Plan { policy, id, pieces, needed, placed } = plan;
    let cluster = inner.cluster();
    let wanted = |replica| pieces.iter().any(|piece| usize::from(piece.replica) == replica);
    let placement = Placement::new(cluster.data(policy)?, &inner.extents.health, id, wanted);
    let devices = placement.devices().to_vec();
    if devices.len() != pieces.len() {
        return Err(Error::internal("a ring has fewer replicas than an extent has pieces"));
    }
    // Copies are the same bytes in all pipes.
    let kept = |piece: &Piece| match piece.fragment {
        Some(_) => Keep { bytes: inner.extents.kept.clone(), pipes: 1 },
        None => Keep { bytes: inner.extents.kept_copies.clone(), pipes: pieces.len() },
    };
    let pipes = pieces.iter().map(|piece| pipe(Some(kept(piece))));
    let (pipes, taps): (Vec<_>, Vec<_>) = pipes.unzip();
    let ended_at = EndedAt::default();
    let write = Arc::new(ExtentWrite {
        inner: inner.clone(),
        policy,
        id,
        placed,
        placement: Mutex::new(placement),
        gauges: taps.iter().map(Tap::gauge).collect(),
        needed,
        ended_at: ended_at.clone(),
        settled: AtomicBool::new(false),
    });
    let under_way = pieces.into_iter().zip(taps).zip(devices);
    let under_way: Pieces = under_way
        .map(|((piece, tap), device)| Box::pin(write.clone().deliver(piece, tap, device)) as _)
        .collect();
    Ok((Fanout::new(pipes, needed, ended_at), Box::pin(write.gather(under_way))))
}

impl Piece {
    /// Whether a node has written what it was given.
    fn is(&self, written: &ExtentRef, bytes: u64) -> bool {
        let sum = self.fragment.as_ref().map(|fragment| fragment.blake3.get());
        let is_right = sum.is_none_or(|sum| sum == Some(&written.blake3));
        written.id == self.new.id && u64::from(written.length) == bytes && is_right
    }
}

impl ExtentWrite {
    /// Writes one piece, to the next device where one doesn't take it.
    async fn deliver(self: Arc<Self>, piece: Piece, tap: Tap, mut device: DeviceId) -> Written {
        tap.begun().await;
        let mut replace_until = None;
        loop {
            match self.attempt(&piece, &tap, device).await {
                Ok(written) => {
                    tap.stored();
                    return Ok((device, piece.fragment.map_or(written, |fragment| fragment.whole)));
                }
                Err(error) => {
                    let until = *replace_until.get_or_insert(Instant::now() + REPLACING_TIME);
                    let Some(next) = self.next(&tap, device, &error, until) else {
                        return Err(error);
                    };
                    tracing::debug!(%device, %next, %error, "an extent goes to the next device");
                    device = next;
                }
            }
        }
    }

    /// Writes one piece to a device.
    async fn attempt(&self, piece: &Piece, tap: &Tap, device: DeviceId) -> Result<ExtentRef> {
        let health = &self.inner.extents.health;
        let gauge = tap.gauge();
        if gauge.standing().input == Input::Broken {
            return Err(Error::unavailable("the body broke off"));
        }
        let node = self.inner.cluster().node(device)?.clone();
        self.placed.note(device, piece.new.id);
        let begun = Instant::now();
        let written = tokio::select! {
            biased;
            written = node.write_extent(device, piece.new.clone(), tap.stream()) => written,
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
            Ok(extent) if !piece.is(extent, standing.taken_bytes) => {
                tracing::warn!(extent = %piece.new.id, %device, "it isn't what the device was sent");
                if piece.fragment.is_some() {
                    self.inner.release_soon(device, piece.new.id);
                }
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

    /// Lets go of copies that are not what the others are. The extent is wanted: a mark of a delete
    /// would keep the right bytes away from these devices, and stop repair (rule X4).
    pub(super) fn discard(&self, devices: &[DeviceId]) {
        for device in devices {
            tracing::warn!(extent = %self.id, %device, "a copy differs from the others");
            self.inner.release_soon(*device, self.id);
        }
    }

    /// The next device in place of one that failed, where there is one and all bytes are still there.
    fn next(&self, tap: &Tap, failed: DeviceId, error: &Error, until: Instant) -> Option<DeviceId> {
        let mut placement = self.placement.lock();
        placement.release(failed);
        let hopeless = error.kind() == ErrorKind::Invalid || Instant::now() > until;
        if hopeless || self.settled.load(Ordering::Acquire) || !tap.rewind() {
            return None;
        }
        let cluster = self.inner.cluster();
        placement.next(cluster.data(self.policy).ok()?, &self.inner.extents.health)
    }

    /// Whether there is a device that could take a piece instead.
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
            // Whose turn hasn't come has shown nothing yet.
            let keeps_up = other.waiting_cost == 0 && other.taken_bytes > 0;
            let moves = keeps_up || other.moved_at > standing.moved_at;
            other.stored || (!other.abandoned && moves)
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

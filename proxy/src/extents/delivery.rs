//! Delivery of an extent's copies or fragments to devices, with another device after a refusal.
//!
//! ```text
//!            ┌── another device, if all bytes are still kept ◀────┐
//!            ▼                                                    │ full, out, stalled, cut
//! begin ── deliver ── write_extent ───────────────────────────────┤
//!                                                                 ▼ stored: counted by `durable`
//! ```
//!
//! A device is called once the first byte of its piece has arrived, so later fragments occupy no
//! device early. Dropping a write drops its pieces, which aborts them;
//! [`OrphanGuard`](crate::orphan_guard::OrphanGuard) deletes what they stored.

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

use super::client::ExtentClient;
use super::fanout::{EndedAt, Fanout};
use super::placed::Placed;
use super::placement::Placement;
use crate::channel::{Gauge, Input, Keep, Receiver, channel};

/// Time for which a dispensable device may accept no bytes.
const STALL_MAX: Duration = Duration::from_secs(5);
/// Limit for a device that is needed, but that another device can replace.
const STALL_REPLACEABLE_MAX: Duration = Duration::from_secs(10);
/// Limit for a device that is needed and can't be replaced. A disk at its limit may take this long
/// to sync.
const STALL_NEEDED_MAX: Duration = Duration::from_mins(2);
/// Time for which further devices are tried for a piece, from the first refusal.
const REPLACING_TIME: Duration = Duration::from_secs(15);

/// Result of a piece: its device, and the extent that it counts for.
pub(super) type Written = Result<(DeviceId, ExtentRef)>;
/// Pieces in delivery.
pub(super) type Pieces = FuturesUnordered<BoxFuture<'static, Written>>;

/// One copy or fragment, for one device.
pub(crate) struct Piece {
    /// Its replica number in the partition.
    pub(crate) replica: u8,
    pub(crate) new: NewExtent,
    /// The fragment; none for a copy.
    pub(crate) fragment: Option<Fragment>,
}

/// Additional data of a fragment.
pub(crate) struct Fragment {
    /// The extent that all its fragments count for.
    pub(crate) whole: ExtentRef,
    /// BLAKE3 of the fragment, set once its last byte is in the channel. Copies are compared with
    /// each other; a fragment has no other copy.
    pub(crate) blake3: Arc<OnceLock<[u8; 32]>>,
}

/// Parameters of an extent write.
pub(crate) struct Plan {
    pub(crate) policy: PolicyId,
    pub(crate) id: ExtentId,
    pub(crate) pieces: Vec<Piece>,
    /// Number of pieces that must be durable.
    pub(crate) needed: usize,
    pub(crate) placed: Arc<Placed>,
}

/// State of an extent write.
pub(super) struct ExtentWrite {
    pub(super) client: Arc<ExtentClient>,
    pub(super) policy: PolicyId,
    pub(super) id: ExtentId,
    pub(super) placed: Arc<Placed>,
    pub(super) placement: Mutex<Placement>,
    pub(super) gauges: Vec<Gauge>,
    pub(super) needed: usize,
    pub(super) ended_at: EndedAt,
    /// True once enough pieces are durable: no further devices are tried.
    pub(super) settled: AtomicBool,
}

/// Begins an extent. The fanout has one channel for each piece, in order; the future completes once
/// enough devices have stored theirs.
pub(crate) fn begin(
    client: &Arc<ExtentClient>,
    plan: Plan,
) -> Result<(Fanout, BoxFuture<'static, Result<ExtentRef>>)> {
    let Plan { policy, id, pieces, needed, placed } = plan;
    let cluster = client.cluster();
    let wanted = |replica| pieces.iter().any(|piece| usize::from(piece.replica) == replica);
    let placement = Placement::new(cluster.data(policy)?, &client.health, id, wanted);
    let devices = placement.devices().to_vec();
    if devices.len() != pieces.len() {
        return Err(Error::internal("a ring has fewer replicas than an extent has pieces"));
    }
    // All channels of copies share their bytes.
    let kept = |piece: &Piece| match piece.fragment {
        Some(_) => Keep { bytes: client.kept.clone(), channels: 1 },
        None => Keep { bytes: client.kept_copies.clone(), channels: pieces.len() },
    };
    let channels = pieces.iter().map(|piece| channel(Some(kept(piece))));
    let (channels, receivers): (Vec<_>, Vec<_>) = channels.unzip();
    let ended_at = EndedAt::default();
    let write = Arc::new(ExtentWrite {
        client: client.clone(),
        policy,
        id,
        placed,
        placement: Mutex::new(placement),
        gauges: receivers.iter().map(Receiver::gauge).collect(),
        needed,
        ended_at: ended_at.clone(),
        settled: AtomicBool::new(false),
    });
    let under_way = pieces.into_iter().zip(receivers).zip(devices);
    let under_way: Pieces = under_way
        .map(|((piece, receiver), device)| {
            Box::pin(write.clone().deliver(piece, receiver, device)) as _
        })
        .collect();
    Ok((Fanout::new(channels, needed, ended_at), Box::pin(write.gather(under_way))))
}

impl Piece {
    /// Returns true if the node stored the bytes that it was sent.
    fn is(&self, written: &ExtentRef, bytes: u64) -> bool {
        let sum = self.fragment.as_ref().map(|fragment| fragment.blake3.get());
        let is_right = sum.is_none_or(|sum| sum == Some(&written.blake3));
        written.id == self.new.id && u64::from(written.length) == bytes && is_right
    }
}

impl ExtentWrite {
    /// Writes one piece; tries further devices after refusals.
    async fn deliver(
        self: Arc<Self>,
        piece: Piece,
        receiver: Receiver,
        mut device: DeviceId,
    ) -> Written {
        receiver.begun().await;
        let mut replace_until = None;
        loop {
            match self.attempt(&piece, &receiver, device).await {
                Ok(written) => {
                    receiver.stored();
                    return Ok((device, piece.fragment.map_or(written, |fragment| fragment.whole)));
                }
                Err(error) => {
                    let until = *replace_until.get_or_insert(Instant::now() + REPLACING_TIME);
                    let Some(next) = self.next(&receiver, device, &error, until) else {
                        return Err(error);
                    };
                    tracing::debug!(%device, %next, %error, "sending an extent to the next device");
                    device = next;
                }
            }
        }
    }

    /// Writes one piece to one device.
    async fn attempt(
        &self,
        piece: &Piece,
        receiver: &Receiver,
        device: DeviceId,
    ) -> Result<ExtentRef> {
        let health = &self.client.health;
        let gauge = receiver.gauge();
        if gauge.standing().input == Input::Broken {
            return Err(Error::unavailable("the body ended early"));
        }
        let node = self.client.cluster().node(device)?.clone();
        self.placed.note(device, piece.new.id);
        let begun = Instant::now();
        let written = tokio::select! {
            biased;
            written = node.write_extent(device, piece.new.clone(), receiver.stream()) => written,
            () = receiver.cut() => {
                health.overtaken(device, begun.elapsed());
                return Err(Error::unavailable(format!("device {device} is too slow")));
            }
            () = self.stalled(&gauge) => {
                Err(Error::unavailable(format!("device {device} stopped receiving bytes")))
            }
        };
        let standing = gauge.standing();
        match &written {
            Ok(extent) if !piece.is(extent, standing.taken_bytes) => {
                tracing::warn!(extent = %piece.new.id, %device, "a device stored other bytes than \
                                                                 sent");
                if piece.fragment.is_some() {
                    self.client.release_soon(device, piece.new.id);
                }
                Err(Error::corrupt(format!("device {device} stored other bytes than sent")))
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

    /// Deletes copies that differ from the majority. The extent stays wanted, so no delete mark is
    /// written: it would keep valid copies off these devices and stop repair (rule X4).
    pub(super) fn discard(&self, devices: &[DeviceId]) {
        for device in devices {
            tracing::warn!(extent = %self.id, %device, "a copy differs from the others");
            self.client.release_soon(*device, self.id);
        }
    }

    /// The next device after a failure; none if no device is left, time is up, or the bytes are no
    /// longer kept.
    fn next(
        &self,
        receiver: &Receiver,
        failed: DeviceId,
        error: &Error,
        until: Instant,
    ) -> Option<DeviceId> {
        let mut placement = self.placement.lock();
        placement.release(failed);
        let hopeless = error.kind() == ErrorKind::Invalid || Instant::now() > until;
        if hopeless || self.settled.load(Ordering::Acquire) || !receiver.rewind() {
            return None;
        }
        let cluster = self.client.cluster();
        placement.next(cluster.data(self.policy).ok()?, &self.client.health)
    }

    /// Returns true if another device could take a piece.
    fn has_next(&self) -> bool {
        let cluster = self.client.cluster();
        cluster.data(self.policy).is_ok_and(|ring| self.placement.lock().has_next(ring))
    }

    /// Returns once a device has accepted no bytes for too long.
    async fn stalled(&self, gauge: &Gauge) {
        loop {
            let standing = gauge.standing();
            let now = Instant::now();
            // With an empty channel, the client is the slow side.
            let is_up_to_client = standing.waiting_cost == 0 && standing.input == Input::Open;
            let since = if is_up_to_client { now } else { standing.moved_at };
            let until = since + self.patience(gauge);
            if until <= now {
                return;
            }
            sleep_until(until.min(now + STALL_MAX)).await;
        }
    }

    /// Time for which a device may accept no bytes.
    fn patience(&self, gauge: &Gauge) -> Duration {
        let standing = gauge.standing();
        let others = self.gauges.iter().map(Gauge::standing).filter(|other| {
            // A device that has received nothing yet proves nothing.
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

//! Delivery of an extent's copies or fragments to devices, with another device after a refusal.
//!
//! ```text
//!            ┌── another device, if all bytes are still kept ◀────┐
//!            ▼                                                    │ full, out, stalled, cut
//! begin ── deliver ── write_extent ───────────────────────────────┤
//!                                                                 ▼ stored: counted by `durable`
//! ```
//!
//! A device is called once the first byte of its replica has arrived, so later fragments occupy no
//! device early. Dropping a write drops its replicas, which aborts them;
//! [`OrphanGuard`](crate::orphan_guard::OrphanGuard) deletes what they stored.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use martlet_protocol::backend::{NewExtent, SentHashes};
use martlet_protocol::extent::ExtentRef;
use martlet_protocol::{DeviceId, Error, ErrorKind, ExtentId, PolicyId, Result};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use super::client::ExtentClient;
use super::fanout::{EndedAt, Fanout};
use super::placement::Placement;
use super::uncommitted::UncommittedExtents;
use crate::channel::{Gauge, Input, Receiver, ReplayBudget, channel};

/// Time for which a dispensable device may accept no bytes.
const STALL_MAX: Duration = Duration::from_secs(5);
/// Limit for a device that is needed, but that another device can replace.
const STALL_REPLACEABLE_MAX: Duration = Duration::from_secs(10);
/// Limit for a device that is needed and can't be replaced. A disk at its limit may take this long
/// to sync.
const STALL_NEEDED_MAX: Duration = Duration::from_mins(2);
/// Time for which further devices are tried for a replica, from the first refusal.
const REPLACING_TIME: Duration = Duration::from_secs(15);

/// Result of a replica: its device, and the extent that it counts for.
pub(super) type ReplicaResult = Result<(DeviceId, ExtentRef)>;
/// Replicas in delivery.
pub(super) type ReplicaWrites = FuturesUnordered<BoxFuture<'static, ReplicaResult>>;

/// One copy or fragment, for one device.
pub(crate) struct ReplicaWrite {
    /// Its number in the partition.
    pub(crate) number: u8,
    pub(crate) new: NewExtent,
    /// The fragment; none for a copy.
    pub(crate) fragment: Option<Fragment>,
}

/// Additional data of a fragment.
pub(crate) struct Fragment {
    /// The extent that all its fragments count for.
    pub(crate) whole: ExtentRef,
    /// Hashes of the fragment. Copies are compared with each other; a fragment has no other copy.
    pub(crate) hashes: SentHashes,
}

/// Parameters of an extent write.
pub(crate) struct ExtentPlan {
    pub(crate) policy: PolicyId,
    pub(crate) id: ExtentId,
    pub(crate) replicas: Vec<ReplicaWrite>,
    /// Number of replicas that must be durable.
    pub(crate) needed: usize,
    pub(crate) uncommitted: Arc<UncommittedExtents>,
}

/// State of an extent write.
pub(super) struct ExtentWrite {
    pub(super) client: Arc<ExtentClient>,
    pub(super) policy: PolicyId,
    pub(super) id: ExtentId,
    pub(super) uncommitted: Arc<UncommittedExtents>,
    pub(super) placement: Mutex<Placement>,
    pub(super) gauges: Vec<Gauge>,
    pub(super) needed: usize,
    pub(super) ended_at: EndedAt,
    /// True once enough replicas are durable: no further devices are tried.
    pub(super) settled: AtomicBool,
}

/// Begins an extent. The fanout has one channel for each replica, in order; the future completes
/// once enough devices have stored theirs.
pub(crate) fn begin(
    client: &Arc<ExtentClient>,
    plan: ExtentPlan,
) -> Result<(Fanout, BoxFuture<'static, Result<ExtentRef>>)> {
    let ExtentPlan { policy, id, replicas, needed, uncommitted } = plan;
    let cluster = client.cluster();
    let is_written = |number| replicas.iter().any(|replica| usize::from(replica.number) == number);
    let placement = Placement::new(cluster.data(policy)?, &client.health, id, is_written);
    let devices = placement.devices().to_vec();
    if devices.len() != replicas.len() {
        return Err(Error::internal("a ring has fewer replicas than an extent needs"));
    }
    // All channels of copies share their bytes.
    let kept = |replica: &ReplicaWrite| match replica.fragment {
        Some(_) => ReplayBudget { bytes: client.kept.clone(), channels: 1 },
        None => ReplayBudget { bytes: client.kept_copies.clone(), channels: replicas.len() },
    };
    let channels = replicas.iter().map(|replica| channel(Some(kept(replica))));
    let (channels, receivers): (Vec<_>, Vec<_>) = channels.unzip();
    let ended_at = EndedAt::default();
    let write = Arc::new(ExtentWrite {
        client: client.clone(),
        policy,
        id,
        uncommitted,
        placement: Mutex::new(placement),
        gauges: receivers.iter().map(Receiver::gauge).collect(),
        needed,
        ended_at: ended_at.clone(),
        settled: AtomicBool::new(false),
    });
    let under_way = replicas.into_iter().zip(receivers).zip(devices);
    let under_way: ReplicaWrites = under_way
        .map(|((replica, receiver), device)| {
            Box::pin(write.clone().deliver(replica, receiver, device)) as _
        })
        .collect();
    Ok((Fanout::new(channels, needed, ended_at), Box::pin(write.until_durable(under_way))))
}

impl ReplicaWrite {
    /// Returns true if the node stored the bytes that it was sent.
    fn is(&self, written: &ExtentRef, bytes: u64) -> bool {
        let hashes = self.fragment.as_ref().map(|fragment| fragment.hashes.get());
        let is_right =
            hashes.is_none_or(|hashes| hashes.is_ok_and(|it| it.blake3 == written.blake3));
        written.id == self.new.id && u64::from(written.length) == bytes && is_right
    }
}

impl ExtentWrite {
    /// Writes one replica; tries further devices after refusals.
    async fn deliver(
        self: Arc<Self>,
        replica: ReplicaWrite,
        receiver: Receiver,
        mut device: DeviceId,
    ) -> ReplicaResult {
        receiver.begun().await;
        let mut replace_until = None;
        loop {
            match self.attempt(&replica, &receiver, device).await {
                Ok(written) => {
                    receiver.stored();
                    return Ok((
                        device,
                        replica.fragment.map_or(written, |fragment| fragment.whole),
                    ));
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

    /// Writes one replica to one device.
    async fn attempt(
        &self,
        replica: &ReplicaWrite,
        receiver: &Receiver,
        device: DeviceId,
    ) -> Result<ExtentRef> {
        let health = &self.client.health;
        let gauge = receiver.gauge();
        if gauge.status().input == Input::Broken {
            return Err(Error::unavailable("the body ended early"));
        }
        let node = self.client.cluster().node(device)?.clone();
        self.uncommitted.note(device, replica.new.id);
        let begun = Instant::now();
        let written = tokio::select! {
            biased;
            written = node.write_extent(device, replica.new.clone(), receiver.stream()) => written,
            () = receiver.cut() => {
                health.overtaken(device, begun.elapsed());
                return Err(Error::unavailable(format!("device {device} is too slow")));
            }
            () = self.stalled(&gauge) => {
                Err(Error::unavailable(format!("device {device} stopped receiving bytes")))
            }
        };
        let status = gauge.status();
        match &written {
            Ok(extent) if !replica.is(extent, status.taken_bytes) => {
                tracing::warn!(extent = %replica.new.id, %device, "a device stored other bytes than \
                                                                 sent");
                if replica.fragment.is_some() {
                    let wrong = ExtentRef { id: replica.new.id, ..*extent };
                    self.client.release_soon(device, wrong);
                }
                Err(Error::corrupt(format!("device {device} stored other bytes than sent")))
            }
            Ok(_) => {
                health.answered(device);
                written
            }
            Err(error) => {
                match error.kind() {
                    _ if status.input == Input::Broken => {}
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
    pub(super) fn discard(&self, copies: impl IntoIterator<Item = (DeviceId, ExtentRef)>) {
        for (device, copy) in copies {
            tracing::warn!(extent = %self.id, %device, "a copy differs from the others");
            self.client.release_soon(device, ExtentRef { id: self.id, ..copy });
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

    /// Returns true if another device could take a replica.
    fn has_next(&self) -> bool {
        let cluster = self.client.cluster();
        cluster.data(self.policy).is_ok_and(|ring| self.placement.lock().has_next(ring))
    }

    /// Returns once a device has accepted no bytes for too long.
    async fn stalled(&self, gauge: &Gauge) {
        loop {
            let status = gauge.status();
            let now = Instant::now();
            // With an empty channel, the client is the slow side.
            let is_up_to_client = status.waiting_cost == 0 && status.input == Input::Open;
            let since = if is_up_to_client { now } else { status.moved_at };
            let until = since + self.patience(gauge);
            if until <= now {
                return;
            }
            sleep_until(until.min(now + STALL_MAX)).await;
        }
    }

    /// Time for which a device may accept no bytes.
    fn patience(&self, gauge: &Gauge) -> Duration {
        let status = gauge.status();
        let others = self.gauges.iter().map(Gauge::status).filter(|other| {
            // A device that has received nothing yet proves nothing.
            let keeps_up = other.waiting_cost == 0 && other.taken_bytes > 0;
            let moves = keeps_up || other.moved_at > status.moved_at;
            other.stored || (!other.abandoned && moves)
        });
        let may_be_missed = if status.waiting_cost > 0 {
            others.count() >= self.needed
        } else {
            self.settled.load(Ordering::Acquire)
        };
        if may_be_missed {
            STALL_MAX
        } else if status.waiting_cost > 0 && gauge.can_rewind() && self.has_next() {
            STALL_REPLACEABLE_MAX
        } else {
            STALL_NEEDED_MAX
        }
    }
}

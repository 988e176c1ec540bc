//! Search for an extent: likely devices with hedging, then all handoffs before the extent counts as
//! lost.
//!
//! * After a device replies "not found", fails or is unreachable, the next one is queried at once.
//! * A late device is followed by a *hedge*: the next one is queried too, and the first reply wins.
//!   Hedges are a small share of all reads, except after a failure.
//! * All handoffs are queried, a few at a time, once the likely devices have failed. One failure
//!   suffices if the rest is silent for one second. A late handoff loses its turn, but its reply
//!   still counts.
//!
//! Requests that lose are dropped, which cancels them.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use martlet_protocol::extent::ExtentRef;
use martlet_protocol::{Backend, DeviceId, Error, ErrorKind, PolicyId, Result};
use martlet_topology::Cluster;
use tokio::time::{Instant, timeout};

use super::client::ExtentClient;
use super::holders;
use crate::health::Health;

/// Timeout of a likely device.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// Timeout of a device that is the only one: a disk at its limit may take this long.
const ANSWER_TIME_ALONE: Duration = Duration::from_mins(1);
/// Timeout of a handoff.
const ANSWER_TIME_HANDOFF: Duration = Duration::from_secs(5);
/// Longest silence of the likely devices before handoffs are queried.
const SILENCE_MAX: Duration = Duration::from_secs(1);
/// Concurrent requests to handoffs.
const HANDOFFS_AT_ONCE: usize = 4;
/// Time for which a handoff keeps its turn.
const TURN: Duration = Duration::from_millis(250);

/// Parameters of a search.
pub(crate) struct ReplicaSelection<'a> {
    pub(crate) policy: PolicyId,
    pub(crate) extent: ExtentRef,
    /// Devices that are not queried because they failed earlier.
    pub(crate) barred: &'a [DeviceId],
    /// An earlier error, returned if no device has the extent.
    pub(crate) failure: Option<Error>,
}

/// Device, result and duration of one request.
type Reply<T> = (DeviceId, Result<T>, Duration);

struct Search<'a, T, Call> {
    health: &'a Health,
    cluster: &'a Cluster,
    call: Call,
    /// Devices to query, the next one last.
    queue: Vec<DeviceId>,
    /// True if these are the handoffs.
    everybody: bool,
    reply_time: Duration,
    pending: Vec<(DeviceId, Instant)>,
    replies: FuturesUnordered<BoxFuture<'static, Reply<T>>>,
    /// Number of devices that failed or don't have the extent.
    failed: usize,
    failure: Option<Error>,
}

impl ExtentClient {
    /// Calls `call` on candidate devices of an extent; returns the first success.
    pub(crate) async fn seek<T: Send + 'static>(
        &self,
        selection: ReplicaSelection<'_>,
        call: impl Fn(DeviceId, Arc<dyn Backend>) -> BoxFuture<'static, Result<T>>,
    ) -> Result<(DeviceId, T)> {
        let ReplicaSelection { policy, extent, barred, failure } = selection;
        let health = &self.health;
        let cluster = self.cluster();
        let ring = cluster.data(policy)?;
        let mut likely = holders::likely(ring, health, extent.id);
        let mut queue: Vec<_> = likely.iter().rev().copied().collect();
        queue.retain(|device| !barred.contains(device));
        let is_alone = likely.len() == 1 && ring.replicas() == 1;
        let reply_time = if is_alone { ANSWER_TIME_ALONE } else { ANSWER_TIME };
        health.count_read();
        let mut search = Search {
            health,
            cluster: &cluster,
            call,
            queue,
            everybody: false,
            reply_time,
            pending: Vec::new(),
            replies: FuturesUnordered::new(),
            failed: 0,
            failure,
        };
        if let Some(found) = search.run().await {
            return Ok(found);
        }
        likely.extend_from_slice(barred);
        search.queue = holders::others(ring, extent.id, &likely).collect();
        search.queue.reverse();
        search.everybody = true;
        search.reply_time = ANSWER_TIME_HANDOFF;
        if let Some(found) = search.run().await {
            tracing::debug!(extent = %extent.id, device = %found.0, "found an extent on a handoff");
            return Ok(found);
        }
        Err(search.failure.take().unwrap_or_else(|| holders::lost(&extent)))
    }
}

impl<T, Call> Search<'_, T, Call>
where
    T: Send + 'static,
    Call: Fn(DeviceId, Arc<dyn Backend>) -> BoxFuture<'static, Result<T>>,
{
    /// Queries the queued devices. None if all failed, or the rest is silent for too long.
    async fn run(&mut self) -> Option<(DeviceId, T)> {
        let mut queried_at = Instant::now();
        loop {
            while self.may_query() && self.query_next() {
                queried_at = Instant::now();
            }
            if self.replies.is_empty() {
                return None;
            }
            match timeout(self.patience(), self.replies.next()).await {
                Ok(Some((device, Ok(found), took))) => {
                    self.note_late();
                    self.health.first_byte(device, took);
                    return Some((device, found));
                }
                Ok(Some((device, Err(error), _))) => self.note_failure(device, error),
                Ok(None) => {}
                Err(_) if self.everybody => {}
                Err(_) if !self.queue.is_empty() => {
                    self.note_silence();
                    if self.failed > 0 || self.is_known_to_fail() || self.health.may_hedge() {
                        self.query_next();
                        queried_at = Instant::now();
                    }
                }
                Err(_) => {
                    if self.failed > 0 && queried_at.elapsed() >= SILENCE_MAX {
                        return None;
                    }
                }
            }
        }
    }

    /// Returns true if the next request is not a hedge.
    fn may_query(&self) -> bool {
        if !self.everybody {
            return self.pending.is_empty();
        }
        let in_turn = self.pending.iter().filter(|(_, since)| since.elapsed() < TURN);
        in_turn.count() < HANDOFFS_AT_ONCE
    }

    /// Returns true if the awaited device was shunned since it was queried.
    fn is_known_to_fail(&self) -> bool {
        self.pending.last().is_some_and(|(device, _)| self.health.is_shunned(*device))
    }

    /// Wait before another device is queried too.
    fn patience(&self) -> Duration {
        match self.pending.last() {
            Some((device, _)) if !self.everybody => self.health.patience(*device),
            _ => TURN,
        }
    }

    /// Queries the next queued device; returns false if the queue is empty.
    fn query_next(&mut self) -> bool {
        let Some(device) = self.queue.pop() else { return false };
        let node = match self.cluster.node(device) {
            Ok(node) => node.clone(),
            Err(error) => {
                self.failed += 1;
                self.failure = Some(worse(self.failure.take(), error));
                return true;
            }
        };
        let begun = Instant::now();
        self.pending.push((device, begun));
        let (calling, reply_time) = ((self.call)(device, node), self.reply_time);
        let reply = async move {
            let reply = timeout(reply_time, calling).await.unwrap_or_else(|_| {
                Err(Error::unavailable(format!("device {device} doesn't answer")))
            });
            (device, reply, begun.elapsed())
        };
        self.replies.push(reply.boxed());
        true
    }

    fn note_failure(&mut self, device: DeviceId, error: Error) {
        self.pending.retain(|(other, _)| *other != device);
        self.failed += 1;
        match error.kind() {
            ErrorKind::NotFound | ErrorKind::Corrupt => self.health.answered(device),
            _ => self.health.failed(device),
        }
        if error.kind() != ErrorKind::NotFound {
            self.failure = Some(worse(self.failure.take(), error));
        }
    }

    /// Records that the device queried last is late. So a stopped device is detected even without
    /// hedges.
    fn note_silence(&self) {
        if let Some((device, since)) = self.pending.last() {
            self.health.overtaken(*device, since.elapsed());
        }
    }

    /// Records late devices that were queried before the one that replied.
    fn note_late(&self) {
        for (device, since) in &self.pending {
            let waited = since.elapsed();
            if waited >= self.health.patience(*device) {
                self.health.overtaken(*device, waited);
            }
        }
    }
}

/// Of two errors, the more informative one: an unavailable copy is a reason to retry.
pub(super) fn worse(before: Option<Error>, error: Error) -> Error {
    match before {
        Some(before) if before.kind() == ErrorKind::Unavailable => before,
        _ => error,
    }
}

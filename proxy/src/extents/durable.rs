//! Durability of an extent: enough of its replicas are stored on distinct devices (rule X5).
//!
//! ```text
//! undecided ── enough ── grace for the others ── late copies go on in background
//!     └── too few are left: the write fails
//! ```
//!
//! Enough is a majority of equal copies, or k+1 fragments of a code with k data fragments.
//!
//! The grace is as long as the faster devices took after the last byte, for devices that usually
//! meet it. A write doesn't wait for habitually late devices, so they don't set its latency. Their
//! replicas go on in background; their measured lag shows when they are faster again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::StreamExt;
use martlet_protocol::extent::ExtentRef;
use martlet_protocol::{DeviceId, Error, Result};
use martlet_ring::Ring;
use tokio::time::{Instant, timeout_at};

use super::background_writes;
use super::delivery::{ExtentWrite, ReplicaResult, ReplicaWrites};
use super::fanout::{GRACE_MAX, GRACE_MIN};
use super::placement::{has_nodes, same_node};
use super::replica_selection::worse;
use super::tally::{CopyTally, Verdict};

/// Minimum grace for a device that is known to keep up.
const GRACE_KNOWN_MIN: Duration = Duration::from_millis(20);

impl ExtentWrite {
    /// Waits until enough replicas are durable, plus the grace for the rest.
    pub(super) async fn until_durable(
        self: Arc<Self>,
        mut replicas: ReplicaWrites,
    ) -> Result<ExtentRef> {
        let mut tally = CopyTally::new(replicas.len(), self.needed);
        let mut failure = None;
        let chosen = loop {
            let verdict = match replicas.next().await {
                Some(written) => {
                    self.note_lag(&written, Instant::now());
                    self.count(&mut tally, written, &mut failure)?
                }
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
        loop {
            let grace_ends = begun + self.grace(&tally, took);
            let Ok(Some(written)) = timeout_at(grace_ends, replicas.next()).await else { break };
            self.note_lag(&written, begun);
            self.count(&mut tally, written, &mut failure)?;
        }
        self.settled.store(true, Ordering::Release);
        self.discard(tally.differing(&chosen));
        if !replicas.is_empty() {
            let waited = begun.elapsed();
            for device in self.late(&tally) {
                self.client.health.overtaken(device, waited);
            }
            background_writes::leave(self, replicas, chosen, begun);
        }
        Ok(chosen)
    }

    /// Devices whose replicas are not stored yet.
    fn late(&self, tally: &CopyTally) -> Vec<DeviceId> {
        let mut late = self.placement.lock().devices().to_vec();
        late.retain(|device| !tally.holds(*device));
        late
    }

    /// Longest grace of the late devices. `took` is the time from the last byte until enough
    /// replicas were durable.
    fn grace(&self, tally: &CopyTally, took: Duration) -> Duration {
        let usual = took.clamp(GRACE_KNOWN_MIN, GRACE_MAX);
        let grace = |device| match self.client.health.lag(device) {
            None => took.clamp(GRACE_MIN, GRACE_MAX),
            Some(lag) if lag <= usual => usual,
            Some(_) => Duration::ZERO,
        };
        self.late(tally).into_iter().map(grace).max().unwrap_or_default()
    }

    /// Records the lag of a replica behind the time when enough others were durable.
    pub(super) fn note_lag(&self, written: &ReplicaResult, enough_at: Instant) {
        if let Ok((device, _)) = written {
            self.client.health.lagged(*device, enough_at.elapsed());
        }
    }

    fn count(
        &self,
        tally: &mut CopyTally,
        written: ReplicaResult,
        failure: &mut Option<Error>,
    ) -> Result<Verdict> {
        match written {
            Ok((device, extent)) => {
                let cluster = self.client.cluster();
                let domain = self.domain(cluster.data(self.policy)?, device);
                Ok(tally.written(device, domain, extent))
            }
            Err(error) => {
                *failure = Some(worse(failure.take(), error));
                Ok(tally.failed())
            }
        }
    }

    /// Representative of a device's failure domain: its node, if the ring has enough nodes to
    /// require distinct nodes for copies. Fragments count by device: otherwise a code with as many
    /// nodes as fragments could not be written while nodes are out.
    fn domain(&self, ring: &Ring, device: DeviceId) -> DeviceId {
        let is_coded = ring.identity().redundancy.fragments().is_some();
        if is_coded || !has_nodes(ring, self.needed) {
            return device;
        }
        let mut devices = ring.devices().iter().map(|other| other.id);
        devices.find(|other| same_node(ring, *other, device)).unwrap_or(device)
    }
}

/// The error for a write with too few replicas.
fn too_few(tally: &CopyTally, failure: Option<Error>) -> Error {
    match failure {
        Some(failure) => failure,
        None if tally.differ() => Error::corrupt("the copies of an extent differ"),
        None => Error::unavailable("too few nodes stored the extent"),
    }
}

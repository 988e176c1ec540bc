//! When an extent is durable: enough of its pieces are on devices of their own (rule X5).
//!
//! ```text
//! undecided ── enough ── grace for the others ── laggards go on behind
//!     └── too few are left: the write fails
//! ```
//!
//! Enough is a majority of copies that are alike, or of an extent that d fragments give back, d+1.
//!
//! The grace is as long again as the others took, for devices that usually keep it. One that is later by
//! habit is not waited for, so it doesn't set the latency; its piece goes on behind, and what that took
//! is how it is known to be faster again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::StreamExt;
use martlet_protocol::extent::ExtentRef;
use martlet_protocol::{DeviceId, Error, Result};
use martlet_ring::Ring;
use tokio::time::{Instant, timeout_at};

use super::delivery::{ExtentWrite, Pieces, Written};
use super::fanout::{GRACE_MAX, GRACE_MIN};
use super::laggards;
use super::placement::{has_nodes, same_node};
use super::seek::worse;
use super::tally::{CopyTally, Verdict};

/// The least that a write waits for a piece whose device is known to keep up.
const GRACE_KNOWN_MIN: Duration = Duration::from_millis(20);

impl ExtentWrite {
    /// Waits until enough pieces are durable, and a little longer for the rest.
    pub(super) async fn gather(self: Arc<Self>, mut pieces: Pieces) -> Result<ExtentRef> {
        let mut tally = CopyTally::new(pieces.len(), self.needed);
        let mut failure = None;
        let chosen = loop {
            let verdict = match pieces.next().await {
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
            let Ok(Some(written)) = timeout_at(grace_ends, pieces.next()).await else { break };
            self.note_lag(&written, begun);
            self.count(&mut tally, written, &mut failure)?;
        }
        self.settled.store(true, Ordering::Release);
        let differing: Vec<_> = tally.differing(&chosen).collect();
        self.discard(&differing);
        if !pieces.is_empty() {
            let waited = begun.elapsed();
            for device in self.late(&tally) {
                self.inner.extents.health.overtaken(device, waited);
            }
            laggards::leave(self, pieces, (chosen, begun));
        }
        Ok(chosen)
    }

    /// The devices whose pieces are still under way.
    fn late(&self, tally: &CopyTally) -> Vec<DeviceId> {
        let mut late = self.placement.lock().devices().to_vec();
        late.retain(|device| !tally.holds(*device));
        late
    }

    /// How long those are waited for that are late, when the others took so long from the last byte on.
    fn grace(&self, tally: &CopyTally, took: Duration) -> Duration {
        let known = took.clamp(GRACE_KNOWN_MIN, GRACE_MAX);
        let grace = |device| match self.inner.extents.health.lag(device) {
            None => took.clamp(GRACE_MIN, GRACE_MAX),
            Some(lag) if lag <= known => known,
            Some(_) => Duration::ZERO,
        };
        self.late(tally).into_iter().map(grace).max().unwrap_or_default()
    }

    /// Learns by how much a piece came after enough others, which were there at a time.
    pub(super) fn note_lag(&self, written: &Written, enough_at: Instant) {
        if let Ok((device, _)) = written {
            self.inner.extents.health.lagged(*device, enough_at.elapsed());
        }
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
    /// enough nodes to demand a node of its own for each copy. Fragments count by devices: a code on
    /// as many nodes as it has fragments could take no writes otherwise once some are out.
    fn domain(&self, ring: &Ring, device: DeviceId) -> DeviceId {
        let is_coded = ring.identity().redundancy.fragments().is_some();
        if is_coded || !has_nodes(ring, self.needed) {
            return device;
        }
        let mut devices = ring.devices().iter().map(|other| other.id);
        devices.find(|other| same_node(ring, *other, device)).unwrap_or(device)
    }
}

/// Why too few pieces were written.
fn too_few(tally: &CopyTally, failure: Option<Error>) -> Error {
    match failure {
        Some(failure) => failure,
        None if tally.differ() => Error::corrupt("the copies of an extent differ"),
        None => Error::unavailable("too few nodes took the extent"),
    }
}

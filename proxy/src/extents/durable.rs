//! When an extent is durable: enough of its pieces are on devices of their own (rule X5).
//!
//! ```text
//! undecided ── enough ── grace for the others ── laggards go on behind
//!     └── too few are left: the write fails
//! ```
//!
//! Enough is a majority of copies that are alike, or of an extent that d fragments give back, d+1.

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

impl ExtentWrite {
    /// Waits until enough pieces are durable, and a little longer for the rest.
    pub(super) async fn gather(self: Arc<Self>, mut pieces: Pieces) -> Result<ExtentRef> {
        let mut tally = CopyTally::new(pieces.len(), self.needed);
        let mut failure = None;
        let chosen = loop {
            let verdict = match pieces.next().await {
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
        while let Ok(Some(written)) = timeout_at(grace_ends, pieces.next()).await {
            self.count(&mut tally, written, &mut failure)?;
        }
        self.settled.store(true, Ordering::Release);
        let differing: Vec<_> = tally.differing(&chosen).collect();
        self.discard(&differing);
        if !pieces.is_empty() {
            let waited = begun.elapsed();
            let late = self.placement.lock().devices().to_vec();
            for device in late.into_iter().filter(|device| !tally.holds(*device)) {
                self.inner.extents.health.overtaken(device, waited);
            }
            laggards::leave(self, pieces, chosen);
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

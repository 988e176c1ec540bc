//! Copies the newer of two registers to the device that lacks it (rule R6).
//!
//! A read register is sent at once or not at all, and replicas refuse later copies anyway.
//! Otherwise a process that was suspended for longer than tombstones are kept could bring back a
//! deleted object (rule T1).

use futures::StreamExt;
use martlet_protocol::backend::{Want, WriteReply};
use martlet_protocol::{
    BackendExt, Clock, DeviceId, Error, RegisterKey, Result, Stamp, StampSource, Term,
};

use super::compare::Difference;
use crate::cluster::{StepTopology, in_time};
use crate::identity::{Candidate, ReadCandidate, run_round};
use crate::worker::StepProgress;

/// Registers copied concurrently.
const AT_ONCE: usize = 16;
/// Age in milliseconds after which a register must be read again.
const READ_AGE_MS_MAX: u64 = 60_000;

/// Context of repairs.
#[derive(Clone, Copy)]
pub(super) struct RegisterRepair<'a> {
    pub(super) cluster: &'a StepTopology,
    pub(super) stamps: &'a StampSource,
    pub(super) clock: &'a dyn Clock,
}

/// Outcome of a copy from one device to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BringOutcome {
    /// The first device holds nothing.
    Nothing,
    /// The second device holds the entry of the first.
    Brought,
    /// The second device holds a newer entry.
    Superseded,
}

/// Reply of a device to a copy.
enum CopyReply {
    Holds,
    Superseded,
    /// A promise refuses it.
    Behind(Stamp),
}

impl RegisterRepair<'_> {
    /// Copies the newer of two devices' entries to the other, register by register.
    pub(super) async fn repair_all(
        &self,
        device: DeviceId,
        peer: DeviceId,
        found: Vec<Difference>,
    ) -> StepProgress {
        let mut ways = Vec::with_capacity(found.len());
        for Difference { key, mine, theirs } in found {
            let (from, to) = if mine >= theirs { (device, peer) } else { (peer, device) };
            ways.push(async move {
                let brought = self.repair_both(&key, from, to).await;
                brought.inspect_err(|error| {
                    tracing::debug!(?key, %from, %to, %error, "could not repair a register, \
                                                               retrying later");
                })
            });
        }
        let mut progress = StepProgress::default();
        let mut ways = futures::stream::iter(ways).buffer_unordered(AT_ONCE);
        while let Some(brought) = ways.next().await {
            match brought {
                Ok(brought) => progress.repaired += u64::from(brought),
                Err(_) => progress.kept += 1,
            }
        }
        progress.done = progress.repaired;
        progress
    }

    /// Copies an entry from `from` to `to`. If `to` holds a newer one, that one is copied back: devices
    /// don't compare marked tombstones, so an entry beside one looks like the newer. Returns true if a
    /// device held an entry.
    async fn repair_both(&self, key: &RegisterKey, from: DeviceId, to: DeviceId) -> Result<bool> {
        match self.bring(key, from, to).await? {
            BringOutcome::Superseded => {
                self.bring(key, to, from).await.map(|back| back != BringOutcome::Nothing)
            }
            brought => Ok(brought != BringOutcome::Nothing),
        }
    }

    /// Copies an entry from `from` to `to`; returns true if `from` held one.
    pub(super) async fn repair(
        &self,
        key: &RegisterKey,
        from: DeviceId,
        to: DeviceId,
    ) -> Result<bool> {
        self.bring(key, from, to).await.map(|brought| brought != BringOutcome::Nothing)
    }

    async fn bring(&self, key: &RegisterKey, from: DeviceId, to: DeviceId) -> Result<BringOutcome> {
        let read_ms = self.clock.now_ms();
        let node = self.cluster.node(from)?;
        let view = in_time(node.read(from, key, Want::EntryAndInline, Term::ANY)).await?;
        if view.entry.is_none() {
            return Ok(BringOutcome::Nothing);
        }
        let candidate = Candidate::of(view)
            .ok_or_else(|| Error::unavailable(format!("device {from} lacks bytes of {key:?}")))?;
        let above = match self.copy(key, to, &candidate, read_ms).await? {
            CopyReply::Holds => return Ok(BringOutcome::Brought),
            CopyReply::Superseded => return Ok(BringOutcome::Superseded),
            CopyReply::Behind(above) => above,
        };
        let known = ReadCandidate { candidate, read_ms };
        self.settle_and_copy(key, &[from, to], known, above).await?;
        Ok(BringOutcome::Brought)
    }

    /// Settles a register whose repair a promise refuses, and copies the outcome to devices that
    /// may have been outside the quorum.
    async fn settle_and_copy(
        &self,
        key: &RegisterKey,
        devices: &[DeviceId],
        known: ReadCandidate,
        above: Stamp,
    ) -> Result<()> {
        let read_ms = self.clock.now_ms();
        let settled = run_round(self.cluster, self.stamps, key, Some(known), above).await?;
        let settled = settled.ok_or_else(|| Error::internal("a known write was not found"))?;
        for device in devices {
            self.copy(key, *device, &settled, read_ms).await?;
        }
        Ok(())
    }

    /// Sends a write to a device.
    async fn copy(
        &self,
        key: &RegisterKey,
        to: DeviceId,
        candidate: &Candidate,
        read_ms: u64,
    ) -> Result<CopyReply> {
        if self.clock.now_ms().saturating_sub(read_ms) > READ_AGE_MS_MAX {
            return Err(Error::unavailable("the read is too old for a repair"));
        }
        let repair = candidate.repair(key, read_ms, self.cluster.named()?);
        let reply = in_time(self.cluster.node(to)?.write(to, repair)).await;
        match reply.inspect_err(|error| self.cluster.learn(error))? {
            WriteReply::Stored | WriteReply::Unvoted => Ok(CopyReply::Holds),
            WriteReply::Superseded => Ok(CopyReply::Superseded),
            WriteReply::Behind(floor) => Ok(CopyReply::Behind(floor)),
            WriteReply::OutOfTime => {
                Err(Error::unavailable(format!("a repair reached device {to} too late")))
            }
            WriteReply::Fenced => {
                Err(Error::internal(format!("device {to} handles a repair like a first write")))
            }
        }
    }
}

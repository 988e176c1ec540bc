//! Identity round (rule R6): settles a register at a fresh ballot, under the write's own id.
//!
//! ```text
//! promise(b) at a quorum ──▶ the newest of known and held writes ──▶ the same write at b
//! ```
//!
//! A quorum contains a quorum of each set of devices that decides at the named term (rule P2). A
//! caller that receives a newer term begins anew, with the promises too: earlier promises bind
//! other devices.
//!
//! The second half is sent as a repair whose order is the ballot. A repair obeys promises as an
//! accept does. It checks neither the bucket's generation, which this process doesn't know, nor the
//! write's age. Replicas refuse a repair that was read more than ten minutes ago. A process may be
//! suspended between promise and accept for longer than tombstones are kept; it must not bring back
//! a deleted object (rule T2).
//!
//! [`replace`] adds a decision in the middle: it writes another value instead of the one found
//! (rule M1).

use bytes::Bytes;
use futures::future::join_all;
use martlet_protocol::Term;
use martlet_protocol::backend::{EntryWrite, PromiseReply, RegisterView, WriteReply};
use martlet_protocol::entry::Body;
use martlet_protocol::limits::FIRST_HAND_AGE_MS_MAX;
use martlet_protocol::register::WriteMode;
use martlet_protocol::{
    BackendExt, DeviceId, Entry, Error, RegisterKey, Result, Stamp, StampSource,
};
use martlet_ring::Sets;

use crate::cluster::{StepTopology, in_time};

/// Number of ballots tried before the register is left to competing ballots.
const TRIES: usize = 4;

/// A write that may become a register's entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) entry: Entry,
    pub(crate) inline: Option<Bytes>,
    /// Flag as in [`EntryWrite::keep_body`].
    pub(crate) keep_body: bool,
}

impl Candidate {
    /// Returns the entry that a register holds, if it is complete with its inline bytes.
    ///
    /// The replaced entry's extents become a record of garbage, which is checked before any
    /// deletion.
    pub(crate) fn of(view: RegisterView) -> Option<Self> {
        let RegisterView { entry, inline, .. } = view;
        let entry = entry?;
        let is_whole = inline.is_some() || !matches!(entry.value.body(), Some(Body::Inline { .. }));
        is_whole.then_some(Self { entry, inline, keep_body: false })
    }

    /// Converts the write to a repair for a replica that may lack it. `read_ms` is a time before
    /// the first reply that contained the write, in milliseconds since 1970. `term` is one of the ring
    /// by which the replica was chosen: a replica of a later term refuses, because devices that
    /// only the old ring has are asked no more before tombstones are collected (rules P1, T1).
    pub(crate) fn repair(&self, key: &RegisterKey, read_ms: u64, term: Term) -> EntryWrite {
        EntryWrite {
            key: key.clone(),
            entry: self.entry.clone(),
            inline: self.inline.clone(),
            mode: WriteMode::Repair,
            generation: u64::MAX,
            commit_by_ms: read_ms.saturating_add(FIRST_HAND_AGE_MS_MAX),
            keep_body: self.keep_body,
            term,
        }
    }
}

/// A write that was read before a round begins.
#[derive(Clone, Debug)]
pub(crate) struct ReadCandidate {
    pub(crate) candidate: Candidate,
    /// A time before the first reply that contained the write, in milliseconds since 1970.
    pub(crate) read_ms: u64,
}

/// Returns the candidate of the higher order; either may be missing.
pub(crate) fn newest(one: Option<Candidate>, other: Option<Candidate>) -> Option<Candidate> {
    let order = |candidate: &Option<Candidate>| candidate.as_ref().map(|it| it.entry.order);
    if order(&other) > order(&one) { other } else { one }
}

/// Settles a register. Afterwards a quorum holds the newest of `known` and of the quorum's entries,
/// at a ballot above `above`. None if there is nothing to settle.
pub(crate) async fn run_round(
    cluster: &StepTopology,
    stamps: &StampSource,
    key: &RegisterKey,
    known: Option<ReadCandidate>,
    above: Stamp,
) -> Result<Option<Candidate>> {
    let (known, read_ms) = match known {
        Some(ReadCandidate { candidate, read_ms }) => (Some(candidate), read_ms),
        None => (None, u64::MAX),
    };
    let ballots = Ballots { cluster, stamps, key, read_ms };
    ballots.run(above, |found| newest(known.clone(), found)).await
}

/// Writes the result of `decide` on the newest entry of a quorum, unless another write interferes.
/// None if `decide` returns none: then nothing was written, and the caller must read again to be
/// sure.
pub(crate) async fn replace(
    cluster: &StepTopology,
    stamps: &StampSource,
    key: &RegisterKey,
    decide: impl Fn(Option<Candidate>) -> Option<Candidate>,
) -> Result<Option<Candidate>> {
    Ballots { cluster, stamps, key, read_ms: u64::MAX }.run(Stamp::ZERO, decide).await
}

/// Ballots for one register.
struct Ballots<'a> {
    cluster: &'a StepTopology,
    stamps: &'a StampSource,
    key: &'a RegisterKey,
    /// Time at which the known write was read.
    read_ms: u64,
}

/// Devices that agreed to one half of a ballot.
struct BallotReplies<T> {
    yes: Vec<(DeviceId, T)>,
    /// Highest stamp in refusals.
    above: Stamp,
    /// True if a device returned a newer term.
    is_outdated: bool,
}

impl Ballots<'_> {
    async fn run(
        &self,
        mut above: Stamp,
        decide: impl Fn(Option<Candidate>) -> Option<Candidate>,
    ) -> Result<Option<Candidate>> {
        for _ in 0..TRIES {
            let read_ms = self.stamps.now_ms().min(self.read_ms);
            let ballot = self.stamps.issue_above(above);
            let term = self.cluster.named()?;
            let sets = self.cluster.sets(self.key.placement());
            let promised = self.promise(&sets, ballot, term).await;
            above = above.max(promised.above);
            if !sets.has_quorum(|id| promised.yes.iter().any(|(device, _)| *device == id)) {
                promised.check_retry("no quorum of primaries promises")?;
                continue;
            }
            let devices: Vec<DeviceId> = promised.yes.iter().map(|(device, _)| *device).collect();
            // An entry without its inline bytes was replaced meanwhile: this ballot has lost.
            let views = promised.yes.into_iter().map(|(_, view)| view);
            let found = views.map(|view| (view.entry.is_some(), Candidate::of(view)));
            let (found, broken): (Vec<_>, Vec<_>) =
                found.partition(|(holds, candidate)| *holds == candidate.is_some());
            if !broken.is_empty() {
                continue;
            }
            let found = found.into_iter().map(|(_, candidate)| candidate);
            let Some(mut chosen) = decide(found.fold(None, newest)) else { return Ok(None) };
            chosen.entry.order = ballot;
            let stored = self.accept(&devices, &chosen.repair(self.key, read_ms, term)).await;
            above = above.max(stored.above);
            if sets.has_quorum(|id| stored.yes.iter().any(|(device, ())| *device == id)) {
                return Ok(Some(chosen));
            }
            stored.check_retry("no quorum of primaries accepts")?;
        }
        Err(Error::conflict("concurrent writes to the register"))
    }

    /// Returns the promising devices with their entries.
    async fn promise(&self, sets: &Sets, ballot: Stamp, term: Term) -> BallotReplies<RegisterView> {
        let calls = sets.members().map(|device| async move {
            let node = self.cluster.node(device)?;
            let reply = in_time(node.promise(device, self.key, ballot, term)).await;
            reply.map(|reply| (device, reply))
        });
        let mut round = BallotReplies::default();
        for reply in join_all(calls).await {
            match reply {
                Ok((device, PromiseReply::Promised(view))) => round.yes.push((device, view)),
                Ok((_, PromiseReply::Behind(floor))) => round.above = round.above.max(floor),
                Err(error) => round.record_error(self.cluster, &error),
            }
        }
        round
    }

    /// Returns the devices that hold the write now.
    async fn accept(&self, devices: &[DeviceId], write: &EntryWrite) -> BallotReplies<()> {
        let calls = devices.iter().map(|device| {
            let write = write.clone();
            async move {
                let reply = in_time(self.cluster.node(*device)?.write(*device, write)).await;
                reply.map(|reply| (*device, reply))
            }
        });
        let mut round = BallotReplies::default();
        for reply in join_all(calls).await {
            match reply {
                Ok((device, WriteReply::Stored)) => round.yes.push((device, ())),
                Ok((_, WriteReply::Behind(floor))) => round.above = round.above.max(floor),
                Ok((_, WriteReply::Superseded)) => {
                    round.above = round.above.max(write.entry.order);
                }
                Ok((_, WriteReply::Fenced | WriteReply::OutOfTime | WriteReply::Unvoted)) => {}
                Err(error) => round.record_error(self.cluster, &error),
            }
        }
        round
    }
}

impl<T> Default for BallotReplies<T> {
    fn default() -> Self {
        Self { yes: Vec::new(), above: Stamp::ZERO, is_outdated: false }
    }
}

impl<T> BallotReplies<T> {
    fn record_error(&mut self, cluster: &StepTopology, error: &Error) {
        cluster.learn(error);
        self.is_outdated |= error.newer_term().is_some();
    }

    /// Returns an error if a retry can't help, because only silence caused the failure.
    fn check_retry(&self, message: &str) -> Result<()> {
        let helps = self.above > Stamp::ZERO || self.is_outdated;
        if helps { Ok(()) } else { Err(Error::unavailable(message)) }
    }
}

#[cfg(test)]
mod tests;

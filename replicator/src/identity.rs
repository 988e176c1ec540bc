//! The identity round (rule R6): what replicas hold, settled at a fresh ballot under its own write id.
//!
//! ```text
//! promise(b) at a quorum ──▶ the newest of what is known and what they hold ──▶ the same write at b
//! ```
//!
//! A quorum is one of each set of devices that decides at the term that is named (rule P2); whoever is
//! told of a newer one begins anew, with the promises too: those given before bind other devices.
//!
//! The second half goes as a repair whose order is the ballot: it obeys promises as an accept does,
//! and asks neither for the bucket's generation, which nobody here knows, nor for the write's age.
//! Replicas refuse a repair that was read more than ten minutes ago: a process that was stopped between
//! promise and accept, for longer than tombstones are kept, brings no deleted object back (rule T2).
//!
//! [`replace`] is the same with a decision in the middle: another value instead of what was found
//! (rule M1).

use bytes::Bytes;
use futures::future::join_all;
use martlet_protocol::Term;
use martlet_protocol::backend::{EntryWrite, PromiseReply, RegisterView, WriteReply};
use martlet_protocol::entry::Body;
use martlet_protocol::limits::FIRST_HAND_AGE_MS_MAX;
use martlet_protocol::register::WriteMode;
use martlet_protocol::{DeviceId, Entry, Error, RegisterKey, Result, Stamp, StampSource};
use martlet_ring::Sets;

use crate::cluster::{Cluster, in_time};

/// Ballots that are tried before whoever else is at it is left alone.
const TRIES: usize = 4;

/// A write that may end up in a register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) entry: Entry,
    pub(crate) inline: Option<Bytes>,
    /// As in [`EntryWrite::keep_body`].
    pub(crate) keep_body: bool,
}

impl Candidate {
    /// What a register holds, if it holds anything whole.
    ///
    /// What the entry that it replaces leaves behind becomes a record of garbage, which is looked into
    /// before anything is deleted.
    pub(crate) fn of(view: RegisterView) -> Option<Self> {
        let RegisterView { entry, inline, .. } = view;
        let entry = entry?;
        let is_whole = inline.is_some() || !matches!(entry.value.body(), Some(Body::Inline { .. }));
        is_whole.then_some(Self { entry, inline, keep_body: false })
    }

    /// As it is brought to a replica that may not hold it; `read_ms` is a time before the first reply
    /// that told of it, in milliseconds since 1970.
    pub(crate) fn repair(&self, key: &RegisterKey, read_ms: u64) -> EntryWrite {
        EntryWrite {
            key: key.clone(),
            entry: self.entry.clone(),
            inline: self.inline.clone(),
            mode: WriteMode::Repair,
            generation: u64::MAX,
            commit_by_ms: read_ms.saturating_add(FIRST_HAND_AGE_MS_MAX),
            keep_body: self.keep_body,
            term: Term::ANY,
        }
    }
}

/// A write that was read before a round begins.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) candidate: Candidate,
    /// A time before the first reply that told of it, in milliseconds since 1970.
    pub(crate) read_ms: u64,
}

/// The higher of two orders, where either may be missing.
pub(crate) fn newest(one: Option<Candidate>, other: Option<Candidate>) -> Option<Candidate> {
    let order = |candidate: &Option<Candidate>| candidate.as_ref().map(|it| it.entry.order);
    if order(&other) > order(&one) { other } else { one }
}

/// Settles a register: the newest of `known` and what a quorum holds is what a quorum holds
/// afterwards, at a ballot above `above`. None when there is nothing to settle.
pub(crate) async fn settle(
    cluster: &Cluster,
    stamps: &StampSource,
    key: &RegisterKey,
    known: Option<Known>,
    above: Stamp,
) -> Result<Option<Candidate>> {
    let (known, read_ms) = match known {
        Some(Known { candidate, read_ms }) => (Some(candidate), read_ms),
        None => (None, u64::MAX),
    };
    let ballots = Ballots { cluster, stamps, key, read_ms };
    ballots.run(above, |found| newest(known.clone(), found)).await
}

/// Writes what `decide` makes of the newest that a quorum holds, unless anybody else comes between.
/// None when it makes nothing of it: then nothing was written, and it must look again to be sure.
pub(crate) async fn replace(
    cluster: &Cluster,
    stamps: &StampSource,
    key: &RegisterKey,
    decide: impl Fn(Option<Candidate>) -> Option<Candidate>,
) -> Result<Option<Candidate>> {
    Ballots { cluster, stamps, key, read_ms: u64::MAX }.run(Stamp::ZERO, decide).await
}

/// Ballots about one register.
struct Ballots<'a> {
    cluster: &'a Cluster,
    stamps: &'a StampSource,
    key: &'a RegisterKey,
    /// When what is known besides the replies was read.
    read_ms: u64,
}

/// Who said yes to one half of a ballot.
struct Round<T> {
    yes: Vec<(DeviceId, T)>,
    /// The highest of what refusals named.
    above: Stamp,
    /// Whether somebody named a newer term.
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
            // Something that is held, but not whole, was replaced since: its ballot has lost.
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
            let stored = self.accept(&devices, &chosen.repair(self.key, read_ms), term).await;
            above = above.max(stored.above);
            if sets.has_quorum(|id| stored.yes.iter().any(|(device, ())| *device == id)) {
                return Ok(Some(chosen));
            }
            stored.check_retry("no quorum of primaries accepts")?;
        }
        Err(Error::conflict("others are writing the register"))
    }

    /// Who promised and what they hold.
    async fn promise(&self, sets: &Sets, ballot: Stamp, term: Term) -> Round<RegisterView> {
        let calls = sets.members().map(|device| async move {
            let node = self.cluster.node(device)?;
            let reply = in_time(node.promise(device, self.key, ballot, term)).await;
            reply.map(|reply| (device, reply))
        });
        let mut round = Round::default();
        for reply in join_all(calls).await {
            match reply {
                Ok((device, PromiseReply::Promised(view))) => round.yes.push((device, view)),
                Ok((_, PromiseReply::Behind(floor))) => round.above = round.above.max(floor),
                Err(error) => round.note(self.cluster, &error),
            }
        }
        round
    }

    /// Who holds it now.
    async fn accept(&self, devices: &[DeviceId], write: &EntryWrite, term: Term) -> Round<()> {
        let write = EntryWrite { term, ..write.clone() };
        let calls = devices.iter().map(|device| {
            let write = write.clone();
            async move {
                let reply = in_time(self.cluster.node(*device)?.write(*device, write)).await;
                reply.map(|reply| (*device, reply))
            }
        });
        let mut round = Round::default();
        for reply in join_all(calls).await {
            match reply {
                Ok((device, WriteReply::Stored)) => round.yes.push((device, ())),
                Ok((_, WriteReply::Behind(floor))) => round.above = round.above.max(floor),
                Ok((_, WriteReply::Superseded)) => {
                    round.above = round.above.max(write.entry.order);
                }
                Ok((_, WriteReply::Fenced | WriteReply::OutOfTime | WriteReply::Unvoted)) => {}
                Err(error) => round.note(self.cluster, &error),
            }
        }
        round
    }
}

impl<T> Default for Round<T> {
    fn default() -> Self {
        Self { yes: Vec::new(), above: Stamp::ZERO, is_outdated: false }
    }
}

impl<T> Round<T> {
    fn note(&mut self, cluster: &Cluster, error: &Error) {
        cluster.term.learn(error);
        self.is_outdated |= error.newer_term().is_some();
    }

    /// Nothing gets better by itself where only silence is in the way.
    fn check_retry(&self, message: &str) -> Result<()> {
        let helps = self.above > Stamp::ZERO || self.is_outdated;
        if helps { Ok(()) } else { Err(Error::unavailable(message)) }
    }
}

#[cfg(test)]
mod tests;

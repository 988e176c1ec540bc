//! Ballots: read a register under a promise, and replace its entry only if nothing came between
//! (rule R7). Exact under concurrent writes, across all proxies.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use martlet_protocol::backend::{Backend, PromiseReply, RegisterView};
use martlet_protocol::entry::Entry;
use martlet_protocol::id::random_bytes;
use martlet_protocol::register::WriteMode;
use martlet_protocol::stamp::StampSource;
use martlet_protocol::{BackendExt, Error, RegisterKey, RegisterKind, Result, Stamp};
use tokio::time::Instant;

use super::calls::{Calls, call_in_time};
use super::intent::{
    Intent, Proposal, ROUNDS, Step, WriteError, WriteOutcome, entry_write, unknown_outcome,
};
use super::judge::{ByView, Judge, Round};
use super::replica_set::{ReplicaSet, Role};
use super::replica_votes::{ReplicaVotes, put};
use super::replicas::ReplicaClient;
use crate::latch::{Turn, Turns};
use crate::quorum::{Progress, QuorumTally};

/// Result of a round of promise requests.
enum Promised {
    /// A quorum has promised; the winning view, and true if all agree on it.
    By(RegisterView, bool),
    /// A replica has seen a higher ballot or write.
    Behind(Stamp),
}

/// Ballots on registers.
pub(crate) struct BallotClient {
    pub(super) replicas: Arc<ReplicaClient>,
    stamps: Arc<StampSource>,
    /// Turns at ballots on a register.
    turns: Turns,
}

impl BallotClient {
    pub(super) fn new(replicas: Arc<ReplicaClient>, stamps: Arc<StampSource>) -> Self {
        Self { replicas, stamps, turns: Turns::new() }
    }

    /// Runs a ballot (rule R7): reads the register under a promise, calls `evaluate`, and writes
    /// its proposal only if nothing came between. Exact under concurrent writes.
    pub(crate) async fn decide(
        &self,
        intent: Intent<'_>,
        evaluate: &mut (dyn FnMut(&RegisterView) -> crate::Result<Step> + Send),
    ) -> Result<WriteOutcome, WriteError> {
        self.decide_by(intent, Stamp::ZERO, &mut ByView(evaluate)).await
    }

    /// Runs a ballot above `floor`, with a judge that may write beside the register.
    pub(crate) async fn decide_by(
        &self,
        intent: Intent<'_>,
        mut floor: Stamp,
        judge: &mut dyn Judge,
    ) -> Result<WriteOutcome, WriteError> {
        let deadline = Instant::now() + self.replicas.operation_time();
        let _turn = self.turn(intent.key).await;
        let (mut maybe_written, mut failure) = (false, None);
        for round in 0..ROUNDS {
            if round > 0 && !back_off(round, deadline).await {
                break;
            }
            let clean = |error: Error| WriteError { maybe_written, ..WriteError::clean(error) };
            let replica_set = self.replicas.replica_set_of(intent.key).map_err(clean)?;
            let ballot = self.stamps.issue_above(floor);
            let (view, agree) = match self.promise(&replica_set, intent.key, ballot).await {
                Ok(Promised::By(view, agree)) => (view, agree),
                Ok(Promised::Behind(above)) => {
                    floor = above;
                    continue;
                }
                // Promises of different terms don't combine.
                Err(error)
                    if self.replicas.has_moved_on_after(&replica_set, Some(&error)).await =>
                {
                    continue;
                }
                Err(error) => return Err(clean(error)),
            };
            let round = Round { intent, replica_set: &replica_set, ballot, view: &view };
            let proposal = match weigh(round, agree, &mut maybe_written, judge).await {
                Next::Propose(proposal) => proposal,
                Next::Again(above) => {
                    floor = floor.max(above);
                    continue;
                }
                Next::Finish => {
                    self.finish(&replica_set, intent, ballot, view).await;
                    continue;
                }
                Next::GiveUp => break,
                Next::Keep => return Ok(WriteOutcome::Kept(view)),
                Next::End(end) => return end,
            };
            let write = entry_write(intent, replica_set.term, ballot, WriteMode::Accept, proposal);
            intent.claim();
            let votes = self.replicas.send(&replica_set, &write).await;
            if votes.is_stored() {
                return Ok(WriteOutcome::At(ballot));
            }
            if !votes.untouched() {
                maybe_written = true;
                put(&mut failure, votes.into_error());
                continue;
            }
            match self.go_on(&replica_set, votes, maybe_written).await? {
                ControlFlow::Continue(above) => floor = floor.max(above),
                ControlFlow::Break(landed) => return Ok(landed),
            }
        }
        if maybe_written {
            return Err(WriteError::unknown(failure.unwrap_or_else(unknown_outcome)));
        }
        Err(WriteError::contended())
    }

    /// The turn at a register. Registers beside a head have none: their ballots only settle
    /// differences, and may run within the head's ballot.
    async fn turn(&self, key: &RegisterKey) -> Option<Turn<'_>> {
        match key.kind {
            RegisterKind::Version => None,
            _ => Some(self.turns.wait(key, self.replicas.turn_deadline()).await),
        }
    }

    /// Decides after a round that no replica accepted: another round above the ballots met, or the
    /// end. A write that an earlier round stored stays written.
    async fn go_on(
        &self,
        replica_set: &ReplicaSet,
        votes: ReplicaVotes<'_>,
        maybe_written: bool,
    ) -> Result<ControlFlow<WriteOutcome, Stamp>, WriteError> {
        match votes {
            ReplicaVotes { fenced: true, .. } if !maybe_written => {
                Ok(ControlFlow::Break(WriteOutcome::Fenced))
            }
            ReplicaVotes { behind: Some(above), fenced: false, .. } => {
                Ok(ControlFlow::Continue(above))
            }
            ReplicaVotes { outdated, fenced: false, .. }
                if self.replicas.has_moved_on_after(replica_set, outdated.as_ref()).await =>
            {
                Ok(ControlFlow::Continue(Stamp::ZERO))
            }
            votes => {
                let (fenced, error) = (votes.fenced, votes.into_error());
                Err(WriteError { maybe_written, fenced, ..WriteError::clean(error) })
            }
        }
    }

    async fn promise(
        &self,
        replica_set: &ReplicaSet,
        key: &RegisterKey,
        ballot: Stamp,
    ) -> Result<Promised> {
        let mut calls = Calls::new();
        for device in replica_set.members() {
            let (key, term) = (key.clone(), replica_set.term);
            let call = move |node: Arc<dyn Backend>| async move {
                node.promise(device, &key, ballot, term).await
            };
            calls.push(
                device,
                Role::Member,
                call_in_time(&replica_set.cluster, device, self.replicas.call_time(), call),
            );
        }
        let began = Instant::now();
        let mut tally = QuorumTally::new(&replica_set.sets);
        let (mut views, mut behind, mut failure) = (Vec::new(), None, None);
        while tally.progress() == Progress::Undecided {
            let deadline = self.replicas.give_up_at(&calls, began);
            let Ok(Some((device, _, reply))) = self.replicas.reply(&mut calls, deadline).await
            else {
                self.replicas.note_silence(&calls, began);
                break;
            };
            tally.push(device, reply.is_ok());
            match reply {
                Ok(PromiseReply::Promised(view)) => views.push(view),
                Ok(PromiseReply::Behind(floor)) => behind = behind.max(Some(floor)),
                Err(error) => failure = Some(error),
            }
        }
        if tally.progress() != Progress::Met {
            let none = || Error::unavailable("too few replicas of the register answer");
            return Err(failure.unwrap_or_else(none));
        }
        if let Some(floor) = behind {
            return Ok(Promised::Behind(floor));
        }
        let (view, agree) = winner(views);
        Ok(Promised::By(view, agree))
    }

    /// Accepts the found entry at the ballot, under its own write id. The next round reads the
    /// result.
    async fn finish(
        &self,
        replica_set: &ReplicaSet,
        intent: Intent<'_>,
        ballot: Stamp,
        found: RegisterView,
    ) {
        let Some(Entry { write_id, value, .. }) = found.entry else { return };
        let proposal = Proposal::again(value, found.inline);
        let theirs = Intent { write_id, ..intent };
        let write = entry_write(theirs, replica_set.term, ballot, WriteMode::Accept, proposal);
        let votes = self.replicas.send(replica_set, &write).await;
        if !votes.is_stored() {
            let error = votes.into_error();
            tracing::debug!(%error, "could not finish another client's write");
        }
    }
}

/// The winning view, and true if all agree on it.
fn winner(views: Vec<RegisterView>) -> (RegisterView, bool) {
    let id = |view: &RegisterView| view.entry.as_ref().map(|entry| (entry.order, entry.write_id));
    let agree = views.windows(2).all(|pair| id(&pair[0]) == id(&pair[1]));
    (views.into_iter().max_by_key(id).unwrap_or_default(), agree)
}

/// Next step of a round after its promise.
enum Next {
    Propose(Proposal),
    /// Accept the found entry at the ballot first.
    Finish,
    /// Another round, above this ballot.
    Again(Stamp),
    /// Nothing to write.
    Keep,
    End(Result<WriteOutcome, WriteError>),
    /// The result of an earlier round is unknowable.
    GiveUp,
}

async fn weigh(
    round: Round<'_>,
    agree: bool,
    maybe_written: &mut bool,
    judge: &mut dyn Judge,
) -> Next {
    let Round { view, intent, .. } = round;
    let own = view.entry.as_ref().filter(|entry| entry.write_id == intent.write_id);
    if let Some(own) = own {
        // Written by an earlier round: the caller may no longer report it as absent.
        *maybe_written = true;
        judge.found(own);
        if agree {
            return Next::End(Ok(WriteOutcome::At(own.order)));
        }
        return Next::Propose(Proposal::again(own.value.clone(), view.inline.clone()));
    }
    if !agree && (*maybe_written || judge.needs_agreement()) {
        return Next::Finish;
    }
    if *maybe_written {
        return Next::GiveUp;
    }
    match judge.judge(round).await {
        // An overwritten entry needs no round of its own.
        Ok(Step::Write(proposal)) => Next::Propose(proposal),
        Ok(Step::Above(above)) => Next::Again(above),
        Ok(Step::Fenced) => Next::End(Ok(WriteOutcome::Fenced)),
        _ if !agree => Next::Finish,
        Ok(Step::Keep) => Next::Keep,
        Err(error) => Next::End(Err(WriteError::clean(error))),
    }
}

/// Sleeps a random time that grows with the rounds lost, at most about 1 s. Returns true if time is
/// left.
async fn back_off(round: u32, deadline: Instant) -> bool {
    let most_us = 250u64 << round.min(12);
    let chance = u64::from(u16::from_be_bytes(random_bytes()));
    tokio::time::sleep(Duration::from_micros(most_us * chance / u64::from(u16::MAX))).await;
    Instant::now() <= deadline
}

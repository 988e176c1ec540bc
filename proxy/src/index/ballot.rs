//! Ballots: what a register holds is read under a promise, and replaced only if nothing came between
//! (rule R7). Exact among all racers, through whatever proxies.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use martlet_protocol::backend::{Backend, PromiseReply, RegisterView, Want};
use martlet_protocol::entry::Entry;
use martlet_protocol::id::random_bytes;
use martlet_protocol::register::WriteMode;
use martlet_protocol::{Error, Level, RegisterKey, RegisterKind, Result, Stamp};
use tokio::time::Instant;

use super::judge::{ByView, Judge, Round};
use super::place::{Calls, Place, Role};
use super::read::is_absent;
use super::verdicts::{Verdicts, put};
use super::{Failed, Intent, Landed, Proposal, ROUNDS, Step, entry_write, unknown_outcome, winner};
use crate::latch::Turn;
use crate::quorum::{Progress, QuorumTally};
use crate::store::Inner;

/// What came of asking for promises.
enum Promised {
    /// A quorum gave theirs; the view that wins, and whether all agree on it.
    By(RegisterView, bool),
    /// A higher ballot or write is about.
    Behind(Stamp),
}

impl Inner {
    /// A ballot (rule R7): what is held is read under a promise, `evaluate` decides about it, and
    /// what it proposes is accepted only if nothing came between. Exact among all racers.
    pub(crate) async fn decide(
        &self,
        intent: Intent<'_>,
        evaluate: &mut (dyn FnMut(&RegisterView) -> crate::Result<Step> + Send),
    ) -> Result<Landed, Failed> {
        self.decide_by(intent, Stamp::ZERO, &mut ByView(evaluate)).await
    }

    /// The same, above a floor, by a judge who may write beside the register.
    pub(crate) async fn decide_by(
        &self,
        intent: Intent<'_>,
        mut floor: Stamp,
        judge: &mut dyn Judge,
    ) -> Result<Landed, Failed> {
        let deadline = Instant::now() + self.operation_time();
        let _turn = self.turn(intent.key).await;
        let (mut maybe_written, mut failure) = (false, None);
        for round in 0..ROUNDS {
            if round > 0 && !back_off(round, deadline).await {
                break;
            }
            let clean = |error: Error| Failed { maybe_written, ..Failed::clean(error) };
            let place = self.place_of(intent.key).map_err(clean)?;
            let ballot = self.stamps.issue_above(floor);
            let (view, agree) = match self.promise(&place, intent.key, ballot).await {
                Ok(Promised::By(view, agree)) => (view, agree),
                Ok(Promised::Behind(above)) => {
                    floor = above;
                    continue;
                }
                // Promises of one term say nothing at another.
                Err(error) if self.has_moved_on_after(&place, Some(&error)).await => continue,
                Err(error) => return Err(clean(error)),
            };
            let round = Round { intent, place: &place, ballot, view: &view };
            let proposal = match weigh(round, agree, &mut maybe_written, judge).await {
                Next::Propose(proposal) => proposal,
                Next::Again(above) => {
                    floor = floor.max(above);
                    continue;
                }
                Next::Finish => {
                    self.finish(&place, intent, ballot, view).await;
                    continue;
                }
                Next::GiveUp => break,
                Next::Keep => return Ok(Landed::Kept(view)),
                Next::End(end) => return end,
            };
            let write = entry_write(intent, place.term, (ballot, WriteMode::Accept), proposal);
            intent.claim();
            let verdicts = self.tell(&place, &write).await;
            if verdicts.is_stored() {
                return Ok(Landed::At(ballot));
            }
            if !verdicts.untouched() {
                maybe_written = true;
                put(&mut failure, verdicts.into_error());
                continue;
            }
            match self.go_on(&place, verdicts, maybe_written).await? {
                ControlFlow::Continue(above) => floor = floor.max(above),
                ControlFlow::Break(landed) => return Ok(landed),
            }
        }
        if maybe_written {
            return Err(Failed::unknown(failure.unwrap_or_else(unknown_outcome)));
        }
        Err(Failed::contended())
    }

    /// What a register holds, if a quorum agrees that nothing is there: neither an entry nor, on the
    /// replicas that a quorum read asks, one that is on its way. None where something is, or nobody can
    /// tell.
    ///
    /// What absence decides (a write over any object, a delete, tags) is answered by this look, and needs
    /// no ballot: that would leave a row on every replica that holds nothing but a promise. The answer is
    /// that of the moment of the look (rule R5). What was acknowledged before it is on a quorum, and one
    /// of those asked has it. What is accepted by fewer has not been acknowledged, and comes after it.
    pub(crate) async fn absence(&self, key: &RegisterKey) -> Option<RegisterView> {
        let view = self.read(key, Want::Entry, Level::Strict).await.ok()?;
        is_absent(&view).then_some(view)
    }

    /// The turn at a register. Those beside a head have none: their ballots, which only settle what
    /// replicas differ on, may be in the middle of the head's.
    async fn turn(&self, key: &RegisterKey) -> Option<Turn<'_>> {
        match key.kind {
            RegisterKind::Version => None,
            _ => Some(self.ballots.wait(key, self.turn_deadline()).await),
        }
    }

    /// What a round that no replica took comes to: another one, above what was met; or the end. What an
    /// earlier round stored stays written, whatever all say by now.
    async fn go_on(
        &self,
        place: &Place,
        verdicts: Verdicts<'_>,
        maybe_written: bool,
    ) -> Result<ControlFlow<Landed, Stamp>, Failed> {
        match verdicts {
            Verdicts { fenced: true, .. } if !maybe_written => {
                Ok(ControlFlow::Break(Landed::Fenced))
            }
            Verdicts { behind: Some(above), fenced: false, .. } => Ok(ControlFlow::Continue(above)),
            Verdicts { outdated, fenced: false, .. }
                if self.has_moved_on_after(place, outdated.as_ref()).await =>
            {
                Ok(ControlFlow::Continue(Stamp::ZERO))
            }
            verdicts => {
                let (fenced, error) = (verdicts.fenced, verdicts.into_error());
                Err(Failed { maybe_written, fenced, ..Failed::clean(error) })
            }
        }
    }

    async fn promise(&self, place: &Place, key: &RegisterKey, ballot: Stamp) -> Result<Promised> {
        let mut calls = Calls::new();
        for device in place.members() {
            let (key, term) = (key.clone(), place.term);
            let call = move |node: Arc<dyn Backend>| async move {
                node.promise(device, &key, ballot, term).await
            };
            calls.push(device, Role::Member, place.call(device, self.call_time(), call));
        }
        let began = Instant::now();
        let mut tally = QuorumTally::new(&place.sets);
        let (mut views, mut behind, mut failure) = (Vec::new(), None, None);
        while tally.progress() == Progress::Undecided {
            let deadline = self.give_up_at(&calls, began);
            let Ok(Some((device, _, reply))) = self.reply(&mut calls, deadline).await else {
                self.note_silence(&calls, began);
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

    /// Gives what was found the ballot, under its own write id. Whether that worked, the next round
    /// finds out.
    async fn finish(&self, place: &Place, intent: Intent<'_>, ballot: Stamp, found: RegisterView) {
        let Some(Entry { write_id, value, .. }) = found.entry else { return };
        let proposal = Proposal::again(value, found.inline);
        let theirs = Intent { write_id, ..intent };
        let write = entry_write(theirs, place.term, (ballot, WriteMode::Accept), proposal);
        let verdicts = self.tell(place, &write).await;
        if !verdicts.is_stored() {
            let error = verdicts.into_error();
            tracing::debug!(%error, "a write of another could not be finished");
        }
    }
}

/// How a round goes on after its promise.
enum Next {
    Propose(Proposal),
    /// What was found is given the ballot first.
    Finish,
    /// Another round, above this.
    Again(Stamp),
    /// Nothing is written.
    Keep,
    End(Result<Landed, Failed>),
    /// Nobody can tell what became of an earlier round.
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
        // A write of these rounds or of those before: from now on nobody can say that it isn't there.
        *maybe_written = true;
        judge.found(own);
        if agree {
            return Next::End(Ok(Landed::At(own.order)));
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
        // What is found needs no round of its own if it is overwritten.
        Ok(Step::Write(proposal)) => Next::Propose(proposal),
        Ok(Step::Above(above)) => Next::Again(above),
        Ok(Step::Fenced) => Next::End(Ok(Landed::Fenced)),
        _ if !agree => Next::Finish,
        Ok(Step::Keep) => Next::Keep,
        Err(error) => Next::End(Err(Failed::clean(error))),
    }
}

/// Waits a random while that grows with the rounds lost: up to a second in the end. Whether there is
/// time left after it.
async fn back_off(round: u32, deadline: Instant) -> bool {
    let most_us = 250u64 << round.min(12);
    let chance = u64::from(u16::from_be_bytes(random_bytes()));
    tokio::time::sleep(Duration::from_micros(most_us * chance / u64::from(u16::MAX))).await;
    Instant::now() <= deadline
}

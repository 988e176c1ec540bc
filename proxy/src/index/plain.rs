//! Plain writes: the last one wins (rules R3, R4).
//!
//! All primaries are told at once. The write is acknowledged as soon as a quorum has it; the others
//! get it all the same. Where no quorum of them answers, handoffs keep it for them, if the level
//! allows that.
//!
//! A write is stamped by the clock alone, in the hope that nothing newer is there. At a key where
//! that hope failed lately it is made by a ballot, which is exact.

use bytes::Bytes;
use martlet_protocol::backend::{EntryWrite, RegisterView};
use martlet_protocol::entry::Value;
use martlet_protocol::register::WriteMode;
use martlet_protocol::{Error, Given, Level, Stamp};

use super::place::{Place, place_of};
use super::verdicts::Verdicts;
use super::{Failed, Intent, Landed, Proposal, ROUNDS, Step, entry_write, unknown_outcome};
use crate::store::Inner;

impl Inner {
    /// A plain write (rules R3, R4): the last one wins.
    pub(crate) async fn write(
        &self,
        intent: Intent<'_>,
        value: &Value,
        inline: Option<&Bytes>,
        keep_body: bool,
    ) -> Result<Landed, Failed> {
        let place = place_of(self.cluster(), intent.key);
        let proposal = || Proposal { value: value.clone(), inline: inline.cloned(), keep_body };
        if place.primaries.len() > 1 && self.contended.is_marked(intent.key) {
            let landed = self.decide(intent, &mut |_| Ok(Step::Write(proposal()))).await;
            // Short of a quorum, handoffs may yet take it.
            match landed {
                Err(Failed { maybe_written: false, .. }) => {}
                landed => return landed,
            }
        }
        let mut floor = Stamp::ZERO;
        for _ in 0..ROUNDS {
            let order = self.stamps.issue_above(floor);
            let write = entry_write(intent, order, WriteMode::Fresh, proposal());
            intent.claim();
            let verdicts = self.tell(&place, &write).await;
            if verdicts.is_met_by(verdicts.stored + verdicts.superseded) {
                return Ok(Landed::At(order));
            }
            if verdicts.behind.is_some() && verdicts.replicas > 1 {
                self.contended.mark(intent.key);
            }
            if !verdicts.untouched() {
                if verdicts.is_met_by(verdicts.answered) && verdicts.replicas > 1 {
                    return self.settle_plain(intent, order, &proposal()).await;
                }
                return self.write_degraded(&place, intent, &write, verdicts).await;
            }
            match verdicts {
                Verdicts { fenced: true, .. } => return Ok(Landed::Fenced),
                Verdicts { behind: Some(above), .. } => floor = above,
                verdicts @ Verdicts {
                    unreached: Some(_),
                    refused: None,
                    out_of_time: false,
                    ..
                } => {
                    return self.write_degraded(&place, intent, &write, verdicts).await;
                }
                verdicts => return Err(Failed::clean(verdicts.into_error())),
            }
        }
        Err(Failed::clean(Error::unavailable("too many writes at once to this key")))
    }

    /// A plain write that no quorum of primaries has said anything about.
    ///
    /// One that a primary refused as too low is not stamped again: those who are silent may have
    /// taken it, and it would come back over what they take next (rule R4).
    async fn write_degraded(
        &self,
        place: &Place,
        intent: Intent<'_>,
        write: &EntryWrite,
        verdicts: Verdicts,
    ) -> Result<Landed, Failed> {
        if let Some(above) = verdicts.behind {
            // The next write of this proxy shall not meet the same.
            self.stamps.issue_above(above);
        }
        if intent.level == Level::Strict || verdicts.fenced || verdicts.behind.is_some() {
            let (fenced, maybe_written) = (verdicts.fenced, !verdicts.untouched());
            return Err(Failed { error: verdicts.into_error().into(), maybe_written, fenced });
        }
        match self.hand_off(place, write, verdicts.holders.clone()).await {
            Ok(()) => {
                self.note(Given::Degraded);
                Ok(Landed::At(write.entry.order))
            }
            Err(error) => {
                tracing::debug!(%error, "a write could not be handed off");
                Err(Failed::unknown(verdicts.into_error()))
            }
        }
    }

    /// A plain write that some replicas may hold and a quorum does not: only a ballot can tell
    /// whether something came between (rule R4).
    ///
    /// What is found at or below `order` is written over: nothing came between. Of anything above,
    /// nobody can tell whether it came before the write (its order may have been raised since),
    /// after someone had seen the write, or on a condition that the write would have broken.
    async fn settle_plain(
        &self,
        intent: Intent<'_>,
        order: Stamp,
        proposal: &Proposal,
    ) -> Result<Landed, Failed> {
        let mut evaluate = |view: &RegisterView| match &view.entry {
            Some(held) if held.order > order => Err(unknown_outcome().into()),
            _ => Ok(Step::Write(proposal.clone())),
        };
        match self.decide(intent, &mut evaluate).await {
            Ok(landed @ Landed::At(_)) => Ok(landed),
            Ok(Landed::Kept(_)) => Err(Failed::unknown(unknown_outcome())),
            Ok(Landed::Fenced) => {
                let error = Error::unavailable("the bucket changed under the write");
                Err(Failed { fenced: true, ..Failed::unknown(error) })
            }
            Err(failed) => Err(Failed { maybe_written: true, ..failed }),
        }
    }
}

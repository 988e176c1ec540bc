//! Ballots: what a register holds is read under a promise, and replaced only if nothing came between
//! (rule R7). Exact among all racers, through whatever proxies.

use std::time::Duration;

use martlet_protocol::backend::{PromiseReply, RegisterView};
use martlet_protocol::entry::Entry;
use martlet_protocol::id::random_bytes;
use martlet_protocol::register::WriteMode;
use martlet_protocol::{RegisterKey, Result, Stamp};

use super::verdicts::Verdicts;
use super::{Failed, Intent, Landed, Proposal, ROUNDS, Step, entry_write, unknown_outcome, winner};
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
        let _turn = self.ballots.lock(intent.key).await;
        let mut maybe_written = false;
        let mut failure = None;
        let mut floor = Stamp::ZERO;
        for round in 0..ROUNDS {
            if round > 0 {
                back_off(round).await;
            }
            let ballot = self.stamps.issue_above(floor);
            let promised = self.promise(intent.key, ballot).await;
            let promised =
                promised.map_err(|error| Failed { error: error.into(), maybe_written })?;
            let (view, agree) = match promised {
                Promised::By(view, agree) => (view, agree),
                Promised::Behind(above) => {
                    floor = above;
                    continue;
                }
            };
            let own = view.entry.as_ref().filter(|entry| entry.write_id == intent.write_id);
            let proposal = match (own, agree) {
                (Some(own), true) => return Ok(Landed::At(own.order)),
                (_, true) if maybe_written => break,
                (_, true) => match evaluate(&view).map_err(Failed::clean)? {
                    Step::Keep => return Ok(Landed::Kept(view)),
                    Step::Write(proposal) => proposal,
                },
                (_, false) => {
                    self.finish(intent, ballot, view).await;
                    continue;
                }
            };
            let write = entry_write(intent, ballot, WriteMode::Accept, proposal);
            intent.claim();
            let verdicts = self.tell(write).await.map_err(Failed::clean)?;
            if verdicts.is_met_by(verdicts.stored) {
                return Ok(Landed::At(ballot));
            }
            if !verdicts.untouched() {
                maybe_written = true;
                failure = verdicts.unknown;
                continue;
            }
            match verdicts {
                Verdicts { fenced: true, .. } => return Ok(Landed::Fenced),
                Verdicts { behind: Some(above), .. } => floor = above,
                verdicts => return Err(Failed::clean(verdicts.into_error())),
            }
        }
        if maybe_written {
            return Err(Failed::unknown(failure.unwrap_or_else(unknown_outcome)));
        }
        Err(Failed::clean(crate::Error::ConditionalConflict))
    }

    async fn promise(&self, key: &RegisterKey, ballot: Stamp) -> Result<Promised> {
        let replies = self
            .gather(key, |device, node| async move { node.promise(device, key, ballot).await })
            .await?;
        let mut views = Vec::with_capacity(replies.len());
        for reply in replies {
            match reply {
                PromiseReply::Promised(view) => views.push(view),
                PromiseReply::Behind(floor) => return Ok(Promised::Behind(floor)),
            }
        }
        let (view, agree) = winner(views);
        Ok(Promised::By(view, agree))
    }

    /// Gives what was found the ballot, under its own write id. Whether that worked, the next round
    /// finds out.
    async fn finish(&self, intent: Intent<'_>, ballot: Stamp, found: RegisterView) {
        let Some(Entry { write_id, value, .. }) = found.entry else { return };
        let proposal = Proposal { value, inline: found.inline, keep_body: false };
        let theirs = Intent { write_id, ..intent };
        if let Err(error) =
            self.tell(entry_write(theirs, ballot, WriteMode::Accept, proposal)).await
        {
            tracing::debug!(%error, "a write of another could not be finished");
        }
    }
}

/// Waits a random while that grows with the rounds lost: up to a second in the end.
async fn back_off(round: u32) {
    let most_us = 250u64 << round.min(12);
    let chance = u64::from(u16::from_be_bytes(random_bytes()));
    tokio::time::sleep(Duration::from_micros(most_us * chance / u64::from(u16::MAX))).await;
}

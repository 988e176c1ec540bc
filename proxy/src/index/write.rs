//! Plain writes: the last write wins (rules R3, R4).
//!
//! A write is sent to all primaries at once, and acknowledged once a quorum has it. The rest
//! receive it in the background. Without a quorum of primaries, handoffs keep it, if the level
//! allows.
//!
//! The stamp comes from the clock alone, on the assumption that no newer entry exists. Keys where
//! that failed lately are written by a ballot, which is exact.
//!
//! A write that met a newer term is sent once more with its stamp and write id, to the members at
//! that term.

use bytes::Bytes;
use martlet_protocol::backend::{EntryWrite, RegisterView};
use martlet_protocol::entry::Value;
use martlet_protocol::register::WriteMode;
use martlet_protocol::{AchievedLevel, Error, Level, Stamp};
use tokio::time::Instant;

use super::client::RegisterClient;
use super::intent::{
    Intent, Proposal, ROUNDS, Step, WriteError, WriteOutcome, entry_write, unknown_outcome,
};
use super::replica_set::ReplicaSet;
use super::replica_votes::ReplicaVotes;
use crate::context::RequestContext;

impl RegisterClient {
    /// A plain write (rules R3, R4): the last write wins.
    pub(crate) async fn write(
        &self,
        context: &RequestContext,
        intent: Intent<'_>,
        value: &Value,
        inline: Option<&Bytes>,
        keep_body: bool,
    ) -> Result<WriteOutcome, WriteError> {
        let mut replica_set =
            self.replicas.replica_set_of(intent.key).map_err(WriteError::clean)?;
        let proposal = || Proposal { value: value.clone(), inline: inline.cloned(), keep_body };
        if !replica_set.is_alone() && self.contended.is_marked(intent.key) {
            let landed = self.ballots.decide(intent, &mut |_| Ok(Step::Write(proposal()))).await;
            // Without a quorum, handoffs may still take it.
            match landed {
                Err(WriteError { maybe_written: false, .. }) => {}
                landed => return landed,
            }
        }
        let deadline = Instant::now() + self.replicas.operation_time();
        let (mut floor, mut sent) = (Stamp::ZERO, None);
        for _ in 0..ROUNDS {
            let order = sent.unwrap_or_else(|| self.stamps.issue_above(floor));
            let write = entry_write(intent, replica_set.term, order, WriteMode::Fresh, proposal());
            intent.claim();
            let mut votes = self.replicas.send(&replica_set, &write).await;
            if votes.is_taken() {
                return Ok(WriteOutcome::At(order));
            }
            if sent.is_some() {
                votes.were_sent_before();
            }
            if Instant::now() < deadline
                && self.replicas.has_moved_on_after(&replica_set, votes.outdated.as_ref()).await
            {
                sent = (!votes.untouched()).then_some(order);
                replica_set = self
                    .replicas
                    .replica_set_of(intent.key)
                    .map_err(|error| given_up(sent, error))?;
                continue;
            }
            if votes.behind.is_some() && !replica_set.is_alone() {
                self.contended.mark(intent.key);
            }
            if !votes.untouched() {
                if votes.is_answered() && !replica_set.is_alone() {
                    return Box::pin(self.settle_plain(intent, order, &proposal())).await;
                }
                let degraded = self.write_degraded(context, &replica_set, intent, &write, votes);
                return Box::pin(degraded).await;
            }
            match votes {
                ReplicaVotes { fenced: true, .. } => return Ok(WriteOutcome::Fenced),
                ReplicaVotes { behind: Some(above), .. } => floor = above,
                votes @ ReplicaVotes {
                    unreached: Some(_),
                    refused: None,
                    out_of_time: false,
                    ..
                } => {
                    let degraded =
                        self.write_degraded(context, &replica_set, intent, &write, votes);
                    return Box::pin(degraded).await;
                }
                votes => return Err(WriteError::clean(votes.into_error())),
            }
        }
        Err(WriteError { maybe_written: sent.is_some(), ..WriteError::contended() })
    }

    /// Hands off a plain write that no quorum of primaries has answered.
    ///
    /// A write that a device at a later term refused is not handed off: the members of that term
    /// are reachable, but missing from this proxy's ring. A write refused as too low is not stamped
    /// again: silent replicas may have taken it, and it would overwrite their next entries (rule
    /// R4).
    async fn write_degraded(
        &self,
        context: &RequestContext,
        replica_set: &ReplicaSet,
        intent: Intent<'_>,
        write: &EntryWrite,
        votes: ReplicaVotes<'_>,
    ) -> Result<WriteOutcome, WriteError> {
        if let Some(above) = votes.behind {
            // The next write of this proxy is stamped above it.
            self.stamps.issue_above(above);
        }
        let is_refused = votes.fenced || votes.behind.is_some() || votes.outdated.is_some();
        if intent.level == Level::Strict || is_refused {
            let (fenced, maybe_written) = (votes.fenced, !votes.untouched());
            return Err(WriteError {
                maybe_written,
                fenced,
                ..WriteError::clean(votes.into_error())
            });
        }
        match self.hand_off(replica_set, write, votes.holders()).await {
            Ok(()) => {
                context.note(AchievedLevel::Degraded);
                Ok(WriteOutcome::At(write.entry.order))
            }
            Err(error) => {
                tracing::debug!(%error, "could not hand off a write");
                Err(WriteError::unknown(votes.into_error()))
            }
        }
    }

    /// Settles a plain write that some replicas may hold and no quorum does, by a ballot (rule R4).
    ///
    /// An entry at or below `order` is overwritten: nothing came between. An entry above is
    /// undecidable. It may have preceded the write, since its order may have been raised later. It
    /// may have followed a read of the write, or depended on a condition that the write breaks.
    async fn settle_plain(
        &self,
        intent: Intent<'_>,
        order: Stamp,
        proposal: &Proposal,
    ) -> Result<WriteOutcome, WriteError> {
        let mut evaluate = |view: &RegisterView| match &view.entry {
            Some(held) if held.order > order => Err(unknown_outcome().into()),
            _ => Ok(Step::Write(proposal.clone())),
        };
        match self.ballots.decide(intent, &mut evaluate).await {
            Ok(landed @ WriteOutcome::At(_)) => Ok(landed),
            Ok(WriteOutcome::Kept(_)) => Err(WriteError::unknown(unknown_outcome())),
            Ok(WriteOutcome::Fenced) => {
                let error = Error::unavailable("the bucket changed during the write");
                Err(WriteError { fenced: true, ..WriteError::unknown(error) })
            }
            Err(failed) => Err(WriteError { maybe_written: true, ..failed }),
        }
    }
}

/// The failure of a write that is not retried; a replica may have it if it was sent at an earlier
/// term.
fn given_up(sent: Option<Stamp>, error: Error) -> WriteError {
    WriteError { maybe_written: sent.is_some(), ..WriteError::clean(error) }
}

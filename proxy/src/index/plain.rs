//! Plain writes: the last one wins (rules R3, R4).

use bytes::Bytes;
use martlet_protocol::entry::Value;
use martlet_protocol::register::WriteMode;
use martlet_protocol::{Error, Stamp};

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
        let mut floor = Stamp::ZERO;
        for _ in 0..ROUNDS {
            let order = self.stamps.issue_above(floor);
            let proposal = Proposal { value: value.clone(), inline: inline.cloned(), keep_body };
            let write = entry_write(intent, order, WriteMode::Fresh, proposal);
            intent.claim();
            let verdicts = self.tell(write).await.map_err(Failed::clean)?;
            if verdicts.is_met_by(verdicts.stored + verdicts.superseded) {
                return Ok(Landed::At(order));
            }
            if !verdicts.untouched() {
                if verdicts.replicas == 1 {
                    return Err(Failed::unknown(verdicts.into_error()));
                }
                let proposal =
                    Proposal { value: value.clone(), inline: inline.cloned(), keep_body };
                return self.settle_plain(intent, order, &verdicts, &proposal).await;
            }
            match verdicts {
                Verdicts { fenced: true, .. } => return Ok(Landed::Fenced),
                Verdicts { behind: Some(above), .. } => floor = above,
                verdicts => return Err(Failed::clean(verdicts.into_error())),
            }
        }
        Err(Failed::clean(Error::unavailable("too many writes at once to this key")))
    }

    /// A plain write that some replicas may hold and a quorum does not: only a ballot can tell
    /// whether something came between (rule R4).
    ///
    /// What is found below `order` is written over. What is found above everything that a quorum
    /// held when the write came there has come since, and has overwritten it. What lies between may
    /// be older than the write or newer than a reader's sight of it: nobody can tell.
    async fn settle_plain(
        &self,
        intent: Intent<'_>,
        order: Stamp,
        verdicts: &Verdicts,
        proposal: &Proposal,
    ) -> Result<Landed, Failed> {
        let seen = verdicts.behind.unwrap_or(order).max(order);
        let knows_before = verdicts.is_met_by(verdicts.answered);
        let landed = self
            .decide(intent, &mut |view| match &view.entry {
                Some(held) if held.order <= order => Ok(Step::Write(proposal.clone())),
                None => Ok(Step::Write(proposal.clone())),
                Some(held) if held.order > seen && knows_before => Ok(Step::Keep),
                Some(_) => Err(unknown_outcome().into()),
            })
            .await;
        match landed {
            Ok(Landed::Kept(_)) => Ok(Landed::At(order)),
            Ok(Landed::Fenced) => {
                Err(Failed::unknown(Error::unavailable("the bucket changed under the write")))
            }
            Ok(landed) => Ok(landed),
            Err(failed) => Err(Failed { maybe_written: true, ..failed }),
        }
    }
}

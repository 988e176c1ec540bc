//! Writes beside a register during its ballot: to the ballot's devices, at its order (rule R8).
//!
//! A later ballot on the register has a higher order, and so have its writes beside. So later
//! writes of a slower ballot are refused, both beside the register and in it.

use martlet_protocol::register::WriteMode;
use martlet_protocol::{RegisterKey, Stamp, WriteId};

use super::compare_and_set::BallotClient;
use super::intent::{Intent, Proposal, Step, entry_write};
use super::judge::Round;
use crate::error::Result;

impl BallotClient {
    /// Writes beside the register of a round. None once a quorum has the write; otherwise the next
    /// step of the ballot.
    pub(crate) async fn write_beside(
        &self,
        round: Round<'_>,
        key: &RegisterKey,
        write_id: WriteId,
        proposal: Proposal,
    ) -> Result<Option<Step>> {
        let Round { replica_set, ballot, intent, .. } = round;
        debug_assert_eq!(
            key.placement(),
            intent.key.placement(),
            "both registers must have the same devices"
        );
        let intent = Intent { key, write_id, claim: None, ..intent };
        let write = entry_write(intent, replica_set.term, ballot, WriteMode::Fresh, proposal);
        let votes = self.replicas.send(replica_set, &write).await;
        if votes.is_stored() {
            return Ok(None);
        }
        if votes.fenced {
            return Ok(Some(Step::Fenced));
        }
        if let Some(above) = votes.behind {
            return Ok(Some(Step::Above(above)));
        }
        if self.replicas.has_moved_on_after(replica_set, votes.outdated.as_ref()).await {
            return Ok(Some(Step::Above(ballot)));
        }
        Err(votes.into_error().into())
    }

    /// Writes beside the register after its ballot: a single attempt at the ballot's order, below
    /// anything later.
    pub(crate) async fn write_once(
        &self,
        intent: Intent<'_>,
        order: Stamp,
        proposal: Proposal,
    ) -> Result<()> {
        let replica_set = self.replicas.replica_set_of(intent.key)?;
        let write = entry_write(intent, replica_set.term, order, WriteMode::Fresh, proposal);
        let votes = self.replicas.send(&replica_set, &write).await;
        if votes.is_stored() { Ok(()) } else { Err(votes.into_error().into()) }
    }
}

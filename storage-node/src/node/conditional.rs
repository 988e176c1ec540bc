//! Calls with a condition on the device, the term, the time or the rings (rules G1, G2, P1 to P3, X8,
//! X9).

use martlet_protocol::backend::{Call, Reply};
use martlet_protocol::{Error, Result};

use crate::device::OpenDevice;

/// Executes a call with a condition on an open device.
pub(super) async fn answer(opened: &OpenDevice, call: Call<'_>) -> Result<Reply> {
    let (index, extents) = (&opened.index, &opened.extents);
    match call {
        Call::RaiseFloorOf { condition, floor } => {
            index.raise_floor_of(condition, floor).await.map(Reply::from)
        }
        Call::SetVotingOf { condition, voting } => {
            index.set_voting_of(condition, voting).await.map(Reply::from)
        }
        Call::SetJoinedOf { condition, change } => {
            index.set_joined_of(condition, change).await.map(Reply::from)
        }
        Call::SetFencedOf(condition) => index.set_fenced_of(condition).await.map(Reply::from),
        Call::DropStrays { drops, condition } => {
            index.drop_registers(&drops, Some(condition)).await.map(Reply::from)
        }
        Call::ReleaseCopies { extents: copies, condition } => {
            let released = extents.release_copies(copies.into_owned(), condition.into_owned());
            released.await.map(Reply::from)
        }
        Call::DeleteUnneeded { ids, condition } => {
            extents.delete_unneeded(&ids, condition).await.map(Reply::from)
        }
        Call::PresenceBy { ids, rings } => extents.presence_by(&ids, &rings).await.map(Reply::from),
        other => Err(Error::internal(format!("{} has no condition", other.kind().name()))),
    }
}

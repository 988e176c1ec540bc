//! Calls that read rows which the index keeps beside its registers: usage, and old registers.

use martlet_protocol::backend::{Call, Reply};
use martlet_protocol::{Error, Result};

use crate::index::Index;

/// Executes a call that reads kept rows.
pub(super) async fn answer(index: &Index, call: Call<'_>) -> Result<Reply> {
    Ok(match call {
        Call::Usage { runs, term } => index.usage(&runs, term).await?.into(),
        Call::OldRegisters { list, after, limit } => {
            index.old_registers(list, after.as_ref(), limit).await?.into()
        }
        Call::HeldBuckets { before, after, limit } => {
            index.held_buckets(before, after, limit).await?.into()
        }
        other => return Err(Error::internal(format!("{} reads no rows", other.kind().name()))),
    })
}

//! Calls that read what the index keeps beside its registers: garbage, fences, usage, old registers, and arrivals of
//! hints. Also walks over old registers without such rows.

use martlet_protocol::backend::{Call, Reply};
use martlet_protocol::{Error, Result};

use crate::index::{Index, hint_calls};

/// Executes a call that reads kept rows.
pub(super) async fn answer(index: &Index, call: Call<'_>) -> Result<Reply> {
    Ok(match call {
        Call::Garbage { before_ms, limit } => index.garbage(before_ms, limit).await?.into(),
        Call::GarbageAfter { after, before_ms, limit } => {
            index.garbage_after(after, before_ms, limit).await?.into()
        }
        Call::Fences => index.fences().all().into(),
        Call::FencesAfter { after, limit } => index.fences().page(after, limit).into(),
        Call::FencesOf(buckets) => index.fences().of(&buckets).into(),
        Call::Aged { walk, after, limit } => {
            index.aged(walk, after.as_deref(), limit).await?.into()
        }
        Call::Usage { runs, term } => index.usage(&runs, term).await?.into(),
        Call::OldRegisters { list, after, limit } => {
            index.old_registers(list, after.as_ref(), limit).await?.into()
        }
        Call::HeldBuckets { before, after, limit } => {
            index.held_buckets(before, after, limit).await?.into()
        }
        Call::HintArrivals { after, limit } => {
            hint_calls::arrivals(index, after, limit).await?.into()
        }
        other => return Err(Error::internal(format!("{} reads no rows", other.kind().name()))),
    })
}

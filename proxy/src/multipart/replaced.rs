//! Release of replaced writes of a part before their upload ends (rule M1).
//!
//! Each write of a part has its own register. Without a release, a client that sends one part again
//! and again fills the index and the devices until its upload ends.
//!
//! ```text
//! strict walk over the number ──▶ certainly replaced ──▶ ballot on the open upload ──▶ tombstones
//! ```
//!
//! 1. The walk finds writes that another write certainly replaced. That write is on a quorum, so each
//!    completion that chooses parts from then on refuses those that it replaced.
//! 2. The ballot writes the upload again, unchanged, if it is open. A completion that chose earlier
//!    decides only over the write of the upload that it read before, so it has to choose again.
//! 3. Tombstones make the extents garbage. A crash between two of them leaves the rest to the next
//!    write of the number, or to the end of the upload.
//!
//! "Certainly" is transitive, so a write whose replacing write was freed stays replaced by those left.
//! One write at least is left, and of two proxies within the skew of clocks one write each.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use martlet_protocol::entry::{Upload, UploadState};
use martlet_protocol::{Level, RegisterKey, WriteId};
use tokio::time::timeout;

use super::part::{FREED_AT_ONCE, NewestWrites, PartStore, PartWalk};
use super::upload_target::UploadTarget;
use crate::error::Result;
use crate::latch::Turn;

/// Most replaced writes of a number that stay. Clients that send a part again once or twice, because
/// a reply was lost, cost no ballot.
pub(crate) const REPLACED_KEPT_MAX: usize = 3;
/// Most writes of a number that one walk reads; the next write of the number goes on.
const WRITES_READ_MAX: usize = 1024;
/// Longest time up to the ballot. An upload of a part waits for it, also if no quorum answers.
const BEGIN_TIME: Duration = Duration::from_secs(2);

/// Writes that no completion has chosen or will choose.
struct Release<'a> {
    replaced: Vec<RegisterKey>,
    /// Keeps other requests of this process from freeing the same writes.
    turn: Turn<'a>,
}

impl PartStore {
    /// Frees the replaced writes of a number if more than [`REPLACED_KEPT_MAX`] are left. A failure
    /// leaves them to the next write of the number.
    pub(super) async fn free_replaced(&self, target: &UploadTarget<'_>, number: u16) {
        if let Err(error) = self.try_free_replaced(target, number).await {
            tracing::debug!(upload = %target.id, number, %error, "could not free replaced parts");
        }
    }

    async fn try_free_replaced(&self, target: &UploadTarget<'_>, number: u16) -> Result<()> {
        let release = Box::pin(self.begin_release(target, number));
        let Ok(begun) = timeout(BEGIN_TIME, release).await else { return Ok(()) };
        let Some(Release { replaced, turn }) = begun? else { return Ok(()) };
        let freed = stream::iter(replaced)
            .map(|register| async move { self.free(target, &register, false).await })
            .buffer_unordered(FREED_AT_ONCE)
            .try_collect::<()>()
            .await;
        drop(turn);
        freed
    }

    /// Finds the replaced writes of a number, and writes the upload so that no completion has them. None
    /// if few are left, or if the upload has ended.
    async fn begin_release<'a>(
        &'a self,
        target: &UploadTarget<'_>,
        number: u16,
    ) -> Result<Option<Release<'a>>> {
        if self.replaced(target, number).await?.len() <= REPLACED_KEPT_MAX {
            return Ok(None);
        }
        let turn = self.uploads.end_turn(target).await;
        // Another request may have freed them during the wait.
        let replaced = self.replaced(target, number).await?;
        if replaced.len() <= REPLACED_KEPT_MAX {
            return Ok(None);
        }
        let write_id = WriteId::random();
        let stays_open = |upload: &Upload, _: WriteId| {
            (upload.state == UploadState::Open).then_some(UploadState::Open)
        };
        let (_, by) = self.uploads.take_turn(target, write_id, None, stays_open).await?;
        Ok((by == write_id).then_some(Release { replaced, turn }))
    }

    /// Registers of the writes of a number that another write certainly replaced.
    async fn replaced(&self, target: &UploadTarget<'_>, number: u16) -> Result<Vec<RegisterKey>> {
        let expected = REPLACED_KEPT_MAX + 2;
        let mut walk =
            PartWalk::of_number(&self.registers, target, number, expected, Level::Strict)?;
        let (mut writes, mut newest) = (Vec::new(), NewestWrites::default());
        while writes.len() < WRITES_READ_MAX
            && let Some(listed) = walk.next_write().await?
        {
            newest.note(listed.entry.order);
            writes.push((listed.entry.order, listed.register));
        }
        writes.retain(|(order, _)| newest.supersedes(*order));
        Ok(writes.into_iter().map(|(_, register)| register).collect())
    }
}

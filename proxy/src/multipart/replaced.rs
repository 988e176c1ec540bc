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
//!
//! Freed writes stay as tombstones for days, and names are random, so writes that were not freed lie anywhere
//! among them. The walk reads a bounded number of rows: the first ones, and some from a random name on. What
//! lies elsewhere is met by the releases of later writes.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use martlet_protocol::backend::ListStart;
use martlet_protocol::entry::{Upload, UploadState};
use martlet_protocol::limits::LIST_EMPTY_ROWS_MAX;
use martlet_protocol::{Level, RegisterKey, RegisterKind, WriteId};
use tokio::time::timeout;

use super::part::{FREED_AT_ONCE, NewestWrites, PartStore, WriteTime, from_number, paths};
use super::upload_target::UploadTarget;
use crate::error::Result;
use crate::latch::Turn;
use crate::walk::{Bound, Paths, Walk};

/// Most replaced writes of a number that stay. Clients that send a part again once or twice, because
/// a reply was lost, cost no ballot.
pub(crate) const REPLACED_KEPT_MAX: usize = 3;
/// Most writes of a number that one walk reads; the next write of the number goes on.
const WRITES_READ_MAX: usize = 1024;
/// Rows after which a walk passes over a run of tombstones: a page of each device.
const ROWS_READ_MAX: usize = LIST_EMPTY_ROWS_MAX;
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
        let within = WriteId::random();
        if self.replaced(target, number, within).await?.len() <= REPLACED_KEPT_MAX {
            return Ok(None);
        }
        let turn = self.uploads.end_turn(target).await;
        // Another request may have freed them during the wait.
        let replaced = self.replaced(target, number, within).await?;
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

    /// Registers of the writes of a number that another write certainly replaced. In a run of tombstones the
    /// walk goes on at the name of `within`, and ends in the next such run.
    async fn replaced(
        &self,
        target: &UploadTarget<'_>,
        number: u16,
        within: WriteId,
    ) -> Result<Vec<RegisterKey>> {
        let prefix = from_number(target, number);
        let mut skip_to = Some(Bytes::from([&prefix[..], &within.0].concat()));
        let paths = Paths { prefix, ..paths(target) };
        let (start, expected) = (ListStart::First, REPLACED_KEPT_MAX + 2);
        let context = target.context;
        let mut walk = Walk::new(&self.registers, context, &paths, start, expected, Level::Strict)?;
        walk.meter.pause_at(Bound::Rows(ROWS_READ_MAX));
        // By name: a walk that begins anew after a skip may return a write again.
        let (mut writes, mut newest) = (BTreeMap::new(), NewestWrites::default());
        while writes.len() < WRITES_READ_MAX {
            if let Some((name, entry)) = walk.next().await? {
                if let Some(time) = WriteTime::of(&entry) {
                    newest.note(time);
                    writes.insert(name, time);
                }
            } else if walk.paused().is_some()
                && let Some(name) = skip_to.take()
            {
                walk.meter.go_on();
                walk.skip_to(name);
            } else {
                break;
            }
        }
        writes.retain(|_, time| newest.supersedes(*time));
        let (bucket, shard, kind) = (target.bucket.id, target.key.shard, RegisterKind::Part);
        let register = |name| RegisterKey { bucket, shard, kind, name };
        Ok(writes.into_keys().map(register).collect())
    }
}

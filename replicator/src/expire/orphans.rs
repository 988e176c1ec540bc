//! Orphans: parts whose upload is gone.
//!
//! An upload is removed after its parts, once no first-hand write of a part can come any more. A part
//! may come later all the same: a device that was out for days returns with a hint, or with a part
//! that no other device has. Nothing but this walk finds such a part again.
//!
//! ```text
//! parts of a shard, one of each upload ──old──▶ uploads of the shard ──none──▶ hints ──none──▶
//!     ▲ any device is silent: all stay            uploads again ──none──▶ the parts are freed
//!     └──────────────────────────── once a day ─────────────────────────────────┘
//! ```
//!
//! A part is freed if its upload is nowhere:
//! * All primaries of the shard list their uploads, with votes. An upload that a quorum holds is on one
//!   of them.
//! * Every device of the index ring answers with its votes, and no hint names the upload: an upload that
//!   was written while its primaries were out is in hints. Hints are read before the primaries are
//!   read again, because a hint moves from one to the other.
//! * The part is older than a part in flight can be. Its upload was written before it, so an upload that
//!   is found nowhere now was removed, and ids of uploads are never used again.
//! * No replica of the shard is moving, and collection is not held (rule X8): a lost index may get its
//!   uploads back.
//!
//! Silence, an error or doubt keeps the parts for a day. What comes after a walk is found by the next
//! one, however it came, so that nothing has to wait for a device before an upload is removed.
//!
//! The walk reads one part of each upload, so it costs a call for each open upload, and one for each
//! device of a bucket without any.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;
use martlet_protocol::backend::{
    Detail, ListReply, ListRequest, ListStart, RowKinds, RowSelection,
};
use martlet_protocol::key::index_placement;
use martlet_protocol::limits::CLOCK_SKEW_MS_MAX;
use martlet_protocol::{
    BackendExt, BucketId, DeviceId, Error, RegisterKey, RegisterKind, Result, Shard, StampSource,
    UploadId,
};

use super::parts::free_parts;
use crate::cluster::{StepTopology, in_time};
use crate::collect::check_everyone;
use crate::rebuild::loss::CollectionHold;
use crate::worker::StepProgress;

/// Interval of walks in milliseconds.
const EVERY_MS: u64 = 24 * 60 * 60 * 1000;
/// Calls of a step at most.
const CALLS_MAX: usize = 64;
/// Uploads that are looked for together.
const CANDIDATES_MAX: usize = 1024;
/// Uploads of a page.
const PAGE: usize = 1000;
/// Rows that a walk reads: a part's order and name.
const ROWS: RowSelection = RowSelection { detail: Detail::Summary, kinds: RowKinds::Live };

/// The walk over the parts of all buckets.
#[derive(Debug, Default)]
pub(super) struct OrphanWalk {
    /// Time from which on the next walk begins.
    due_ms: u64,
    left: VecDeque<PartListing>,
}

/// Parts of a bucket on one device.
#[derive(Clone, Debug)]
pub(super) struct PartListing {
    bucket: BucketId,
    device: DeviceId,
    /// Shards of the device; one shard once a part was found.
    shards: Vec<Shard>,
    start: ListStart,
    /// Uploads with old parts that were found and not looked for yet.
    candidates: BTreeSet<UploadId>,
}

/// Inputs of a step.
#[derive(Clone, Copy)]
pub(super) struct OrphanInputs<'a> {
    pub(super) cluster: &'a StepTopology,
    pub(super) stamps: &'a StampSource,
    /// Age in milliseconds from which on a part can't be in flight.
    pub(super) age_ms: u64,
}

/// Next row of a listing.
enum NextRow {
    /// A part of an upload; true if it is old.
    Part(UploadId, bool),
    /// Rows up to this name were passed over.
    Passed(Bytes),
    End,
}

impl OrphanWalk {
    /// Begins a walk over these buckets if one is due.
    pub(super) fn await_turn(&mut self, buckets: impl Iterator<Item = PartListing>, now_ms: u64) {
        if now_ms < self.due_ms {
            return;
        }
        self.due_ms = now_ms.saturating_add(EVERY_MS);
        self.left = buckets.collect();
    }

    /// Returns true while a walk is not at its end.
    pub(super) fn is_under_way(&self) -> bool {
        !self.left.is_empty()
    }

    /// Visits the next parts.
    pub(super) async fn step(&mut self, with: OrphanInputs<'_>, progress: &mut StepProgress) {
        let Some(mut listing) = self.left.pop_front() else { return };
        let (device, bucket) = (listing.device, listing.bucket);
        match self.visit(with, &mut listing, progress).await {
            Ok(true) => {}
            Ok(false) => self.left.push_front(listing),
            Err(error) => {
                tracing::debug!(%device, %bucket, %error, "keeping parts whose uploads may be gone");
                with.cluster.learn(&error);
                progress.kept += 1;
            }
        }
    }

    /// Visits some parts of a listing; returns true at its end.
    async fn visit(
        &mut self,
        with: OrphanInputs<'_>,
        listing: &mut PartListing,
        progress: &mut StepProgress,
    ) -> Result<bool> {
        let mut ended = false;
        for _ in 0..CALLS_MAX {
            match listing.next(with).await? {
                NextRow::Passed(name) => listing.start = ListStart::After(name),
                NextRow::End => ended = true,
                NextRow::Part(..) if listing.shards.len() > 1 => {
                    // The name of a part doesn't tell its shard.
                    for shard in std::mem::take(&mut listing.shards) {
                        let shards = vec![shard];
                        let start = ListStart::First;
                        self.left.push_front(PartListing { shards, start, ..listing.clone() });
                    }
                    return Ok(true);
                }
                NextRow::Part(upload, is_old) => {
                    progress.items += 1;
                    if is_old {
                        listing.candidates.insert(upload);
                    }
                    match u128::from_be_bytes(upload.0).checked_add(1) {
                        Some(next) => {
                            let next = Bytes::copy_from_slice(&next.to_be_bytes());
                            listing.start = ListStart::At(next);
                        }
                        None => ended = true,
                    }
                }
            }
            if ended || listing.candidates.len() >= CANDIDATES_MAX {
                break;
            }
        }
        if ended || listing.candidates.len() >= CANDIDATES_MAX {
            progress.done += listing.free(with).await?;
        }
        Ok(ended)
    }
}

impl PartListing {
    /// Creates the listing of a bucket's parts on a device that is the first primary of these shards.
    pub(super) fn new(bucket: BucketId, device: DeviceId, shards: Vec<Shard>) -> Self {
        let (start, candidates) = (ListStart::First, BTreeSet::new());
        Self { bucket, device, shards, start, candidates }
    }

    fn request(
        &self,
        kind: RegisterKind,
        limit: usize,
        with: OrphanInputs<'_>,
    ) -> Result<ListRequest> {
        Ok(ListRequest {
            bucket: self.bucket,
            shards: self.shards.clone(),
            kind,
            prefix: Bytes::new(),
            start: ListStart::First,
            limit,
            fold: None,
            term: with.cluster.named()?,
        })
    }

    /// Returns the next part.
    async fn next(&self, with: OrphanInputs<'_>) -> Result<NextRow> {
        let start = self.start.clone();
        let request = ListRequest { start, ..self.request(RegisterKind::Part, 1, with)? };
        let node = with.cluster.node(self.device)?;
        let page: ListReply = in_time(node.list_rows(self.device, &request, ROWS)).await?;
        let Some((name, entry)) = page.entries.first() else { return Ok(NextRow::End) };
        if entry.value.is_tombstone() {
            let name = name.clone();
            return Ok(if page.truncated { NextRow::Passed(name) } else { NextRow::End });
        }
        let upload = name.first_chunk::<16>().map(|id| UploadId(*id));
        let upload = upload.ok_or_else(|| Error::corrupt("a part's register has no upload"))?;
        let least_ms = with.age_ms.saturating_add(CLOCK_SKEW_MS_MAX);
        let is_old = entry.order.time_ms().saturating_add(least_ms) < with.stamps.now_ms();
        Ok(NextRow::Part(upload, is_old))
    }

    /// Frees the parts of candidates without an upload; returns their number.
    async fn free(&mut self, with: OrphanInputs<'_>) -> Result<u64> {
        let mut candidates = std::mem::take(&mut self.candidates);
        let (cluster, Some(shard)) = (with.cluster, self.shards.first().copied()) else {
            return Ok(0);
        };
        if candidates.is_empty() {
            return Ok(0);
        }
        self.leave_out_held(with, shard, &mut candidates).await?;
        if candidates.is_empty() {
            return Ok(0);
        }
        let keepers = check_everyone(cluster).await?;
        for device in keepers {
            self.leave_out_hinted(with, device, &mut candidates).await?;
        }
        self.leave_out_held(with, shard, &mut candidates).await?;
        if candidates.is_empty() {
            return Ok(0);
        }
        if CollectionHold::is_on_now(cluster).await {
            return Err(Error::unavailable("collection is held"));
        }
        let name = Bytes::new();
        let beside = RegisterKey { bucket: self.bucket, shard, kind: RegisterKind::Upload, name };
        let mut freed = 0;
        for upload in candidates {
            let parts = match free_parts(cluster, with.stamps, &beside, upload).await {
                Ok(parts) => parts as u64,
                // The next walk finds the upload again. Others behind it don't wait.
                Err(error) => {
                    tracing::debug!(bucket = %self.bucket, %upload, %error, "late parts stay for now");
                    continue;
                }
            };
            tracing::info!(bucket = %self.bucket, %upload, parts, "freed late parts of an upload that \
                                                                   is gone");
            freed += parts;
        }
        Ok(freed)
    }

    /// Leaves out the uploads that a primary holds.
    async fn leave_out_held(
        &self,
        with: OrphanInputs<'_>,
        shard: Shard,
        candidates: &mut BTreeSet<UploadId>,
    ) -> Result<()> {
        let holders = with.cluster.holders(index_placement(self.bucket, shard));
        if holders.in_transition {
            return Err(Error::unavailable("a replica of the uploads is moving"));
        }
        for device in holders.primaries {
            let mut request = self.request(RegisterKind::Upload, PAGE, with)?;
            while !candidates.is_empty() {
                let node = with.cluster.node(device)?;
                let page = in_time(node.list_rows(device, &request, ROWS)).await?;
                match leave_out(&page, candidates) {
                    Some(next) => request.start = next,
                    None => break,
                }
            }
        }
        Ok(())
    }

    /// Leaves out the uploads that a hint names.
    async fn leave_out_hinted(
        &self,
        with: OrphanInputs<'_>,
        device: DeviceId,
        candidates: &mut BTreeSet<UploadId>,
    ) -> Result<()> {
        let mut request = self.request(RegisterKind::Upload, PAGE, with)?;
        while !candidates.is_empty() {
            let node = with.cluster.node(device)?;
            let page = in_time(node.list_hints(device, &request)).await?;
            match leave_out(&page, candidates) {
                Some(next) => request.start = next,
                None => break,
            }
        }
        Ok(())
    }
}

/// Leaves out the uploads of a page; returns the start of the next page.
fn leave_out(page: &ListReply, candidates: &mut BTreeSet<UploadId>) -> Option<ListStart> {
    for (name, _) in page.entries.iter().filter(|(_, it)| !it.value.is_tombstone()) {
        if let Some((_, upload)) = RegisterKey::upload_of(name) {
            candidates.remove(&upload);
        }
    }
    let (last, _) = page.entries.last().filter(|_| page.truncated)?;
    Some(ListStart::After(last.clone()))
}

//! Orphans: parts whose upload is gone.
//!
//! An upload is removed after its parts, once no first-hand write of a part can come any more. A part
//! may come later all the same: a device that was out for days returns with a hint, or with a part
//! that no other device has. Nothing but this walk finds such a part again.
//!
//! ```text
//! parts of a shard, one of each upload ──old──▶ uploads of the shard ──none──▶ hints, other devices
//!     ▲ any device is silent: all stay                                               │ none
//!     └─────────── once a day ──────────── the parts are freed ◀──none── uploads again ◀
//! ```
//!
//! A part is freed if its upload is nowhere:
//! * All primaries of the shard list their uploads, with votes. An upload that a quorum holds is on one
//!   of them.
//! * Every device of the index ring answers with its votes, and no hint names the upload: an upload that
//!   was written while its primaries were out is in hints.
//! * No device holds it outside of its place: after a change of the ring and the loss of disks, a device that
//!   is no primary any more may be the only holder.
//! * The part is older than a part in flight can be. Its upload was written before it, so an upload that
//!   is found nowhere now was removed, and ids of uploads are never used again.
//! * No replica of the shard is moving, and collection is not held (rule X8): a lost index may get its
//!   uploads back.
//!
//! Silence, an error or doubt keeps the parts for a day. What comes after a walk is found by the next
//! one, however it came, so that nothing has to wait for a device before an upload is removed.
//!
//! The walk reads one part of each upload, so it costs a call for each open upload, and one for each
//! device of a bucket without any. The uploads of a shard are listed once for [`CANDIDATES_MAX`] old ones. A
//! step makes [`CALLS_MAX`] calls at most, or frees the parts of as many uploads, and takes
//! [`STEP_MS_MAX`] beside its last call. Start and position of a walk are stored, so a new process goes on
//! there. Candidates are not: they are found again from the position on.

mod search;

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use martlet_protocol::backend::{ListReply, ListRequest, ListStart};
use martlet_protocol::limits::CLOCK_SKEW_MS_MAX;
use martlet_protocol::{
    BackendExt, BucketId, DeviceId, Error, RegisterKey, RegisterKind, Result, Shard, StampSource,
    UploadId,
};

use self::search::UploadSearch;
use super::parts::{EndedParts, ROWS};
use crate::cluster::{StepTopology, in_time};
use crate::collect::OutsideHolders;
use crate::cursors::{Cursors, bytes_of, hex_of};
use crate::rebuild::loss::{CollectionHold, HOLD_SETTLES_MS};
use crate::worker::StepProgress;

/// Name under which start and position are stored.
const NAME: &str = "expire-orphans";
/// Interval of walks in milliseconds.
const EVERY_MS: u64 = 24 * 60 * 60 * 1000;
/// Calls of a step at most, and uploads whose parts it frees.
const CALLS_MAX: usize = 64;
/// Milliseconds after which a step begins no further call.
const STEP_MS_MAX: u64 = 20_000;
/// Uploads that are looked for together: some MiB.
const CANDIDATES_MAX: usize = 65_536;

/// The walk over the parts of all buckets.
pub(super) struct OrphanWalk {
    cursors: Arc<dyn Cursors>,
    /// Start of the last walk, in milliseconds since 1970.
    began_ms: Option<u64>,
    /// Position of a walk of an earlier process, until this one goes on there.
    saved: Option<WalkPosition>,
    left: VecDeque<PartListing>,
    outside: OutsideHolders,
}

/// Parts of a bucket on one device.
#[derive(Debug)]
pub(super) struct PartListing {
    bucket: BucketId,
    device: DeviceId,
    /// Shards of the device; one shard once a part was found.
    shards: Vec<Shard>,
    /// Upload from which on the parts of this stage were read.
    from: Option<UploadId>,
    start: ListStart,
    has_ended: bool,
    stage: OrphanStage,
    /// Last time at which collection was not held, in milliseconds since 1970.
    allowed_ms: Option<u64>,
}

/// Stage of a listing: each stage handles the uploads of the one before.
#[derive(Debug)]
enum OrphanStage {
    /// Uploads with old parts are gathered.
    Gather(BTreeSet<UploadId>),
    /// They are looked for.
    Search(UploadSearch),
    /// The parts of those that are nowhere are freed.
    Free(VecDeque<UploadId>),
}

/// Position of a walk, before which nothing is left to do.
#[derive(Clone, Debug, PartialEq, Eq)]
struct WalkPosition {
    bucket: BucketId,
    device: DeviceId,
    shard: Option<Shard>,
    from: Option<UploadId>,
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
    /// Creates a walk that goes on at the position in `cursors`.
    pub(super) fn new(cursors: Arc<dyn Cursors>) -> Self {
        let text = cursors.load(NAME).unwrap_or_default();
        let (began, position) = text.split_once(' ').unwrap_or((text.as_str(), "-"));
        let began_ms = began.parse().ok();
        let saved = began_ms.and_then(|_: u64| WalkPosition::parse(position));
        let outside = OutsideHolders::default();
        Self { cursors, began_ms, saved, left: VecDeque::new(), outside }
    }

    /// Begins a walk over these listings if one is due, or goes on with that of an earlier process.
    pub(super) fn await_turn(&mut self, listings: impl Iterator<Item = PartListing>, now_ms: u64) {
        // A time ahead of the clock counts as none.
        let is_over =
            |began_ms: u64| began_ms.saturating_add(EVERY_MS) <= now_ms || began_ms > now_ms;
        let saved = self.saved.take();
        let is_due = saved.is_some() || self.began_ms.is_none_or(is_over);
        if self.is_under_way() || !is_due {
            return;
        }
        let mut left: Vec<PartListing> = listings.collect();
        left.sort_by_key(|it| (it.bucket, it.device));
        self.left = left.into();
        match saved {
            Some(position) => self.skip_to(&position),
            None => self.began_ms = Some(now_ms),
        }
        self.save();
    }

    /// Returns true while a walk is not at its end.
    pub(super) fn is_under_way(&self) -> bool {
        !self.left.is_empty()
    }

    /// Visits the next parts.
    pub(super) async fn step(&mut self, with: OrphanInputs<'_>, progress: &mut StepProgress) {
        let Some(mut listing) = self.left.pop_front() else { return };
        let (device, bucket) = (listing.device, listing.bucket);
        match listing.visit(with, &mut self.outside, progress).await {
            Ok(true) => {}
            Ok(false) if listing.needs_split() => self.split(listing),
            Ok(false) => self.left.push_front(listing),
            Err(error) => {
                tracing::debug!(%device, %bucket, %error, "keeping parts whose uploads may be gone");
                with.cluster.learn(&error);
                progress.kept += 1;
            }
        }
        self.save();
    }

    /// Puts a listing of each shard in the place of a listing of several.
    fn split(&mut self, listing: PartListing) {
        let PartListing { bucket, device, mut shards, .. } = listing;
        shards.sort_unstable();
        for shard in shards.into_iter().rev() {
            self.left.push_front(PartListing::new(bucket, device, vec![shard]));
        }
    }

    /// Leaves out what lies before a position.
    fn skip_to(&mut self, position: &WalkPosition) {
        let place = (position.bucket, position.device);
        self.left.retain(|it| (it.bucket, it.device) >= place);
        let is_there = |it: &PartListing| (it.bucket, it.device) == place;
        let Some(shard) = position.shard.filter(|_| self.left.front().is_some_and(is_there)) else {
            return;
        };
        if let Some(mut listing) = self.left.pop_front() {
            listing.shards.retain(|it| *it >= shard);
            self.split(listing);
        }
        if let Some(first) = self.left.front_mut()
            && is_there(first)
            && first.shards == [shard]
            && let Some(from) = position.from
        {
            first.go_on_at(from);
        }
    }

    fn save(&self) {
        let began_ms = self.began_ms.unwrap_or(0);
        let text = match self.left.front().map(PartListing::position) {
            Some(position) => format!("{began_ms} {position}"),
            None => began_ms.to_string(),
        };
        self.cursors.save(NAME, &text);
    }
}

impl fmt::Display for WalkPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shard = self.shard.map_or("-".to_owned(), |shard| shard.0.to_string());
        let from = self.from.map_or("-".to_owned(), |from| hex_of(&from.0));
        write!(f, "{} {} {shard} {from}", self.bucket, self.device.0)
    }
}

impl WalkPosition {
    /// Reads the text of a position; none if it is none.
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let (bucket, device) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let shard = match words.next()? {
            "-" => None,
            shard => Some(Shard(shard.parse().ok()?)),
        };
        let from = match words.next()? {
            "-" => None,
            from => Some(UploadId(bytes_of(from)?.try_into().ok()?)),
        };
        Some(Self { bucket, device: DeviceId(device), shard, from })
    }
}

impl PartListing {
    /// Creates the listing of a bucket's parts on a device that is the first primary of these shards.
    pub(super) fn new(bucket: BucketId, device: DeviceId, shards: Vec<Shard>) -> Self {
        let stage = OrphanStage::Gather(BTreeSet::new());
        let (from, start, has_ended, allowed_ms) = (None, ListStart::First, false, None);
        Self { bucket, device, shards, from, start, has_ended, stage, allowed_ms }
    }

    fn go_on_at(&mut self, upload: UploadId) {
        self.from = Some(upload);
        self.start = ListStart::At(Bytes::copy_from_slice(&upload.0));
    }

    /// Returns the position before the uploads of the present stage.
    fn position(&self) -> WalkPosition {
        let shard = match self.shards[..] {
            [shard] => Some(shard),
            _ => None,
        };
        WalkPosition { bucket: self.bucket, device: self.device, shard, from: self.from }
    }

    /// Returns true if a part was found in one of several shards: its name doesn't tell in which.
    fn needs_split(&self) -> bool {
        self.shards.len() > 1 && self.from.is_some()
    }

    /// Makes the calls of a step; returns true at the end of the listing.
    async fn visit(
        &mut self,
        with: OrphanInputs<'_>,
        outside: &mut OutsideHolders,
        progress: &mut StepProgress,
    ) -> Result<bool> {
        let ends_ms = with.stamps.now_ms().saturating_add(STEP_MS_MAX);
        let mut is_allowed = false;
        for _ in 0..CALLS_MAX {
            if with.stamps.now_ms() > ends_ms || self.needs_split() {
                break;
            }
            let shard = self.register()?;
            let is_empty = match &self.stage {
                OrphanStage::Gather(_) => true,
                OrphanStage::Search(_) => false,
                OrphanStage::Free(forgotten) => forgotten.is_empty(),
            };
            if !is_allowed && !is_empty {
                self.check_hold(with).await?;
                is_allowed = true;
            }
            match &mut self.stage {
                OrphanStage::Gather(_) => self.gather(with, progress).await?,
                OrphanStage::Search(search) => {
                    if search.advance(&shard, with, outside).await? {
                        self.free_forgotten();
                    }
                }
                OrphanStage::Free(forgotten) => {
                    let Some(upload) = forgotten.pop_front() else {
                        if self.has_ended {
                            return Ok(true);
                        }
                        self.gather_more();
                        continue;
                    };
                    progress.done += free(with, &shard, upload).await;
                }
            }
        }
        Ok(false)
    }

    /// Checks that collection isn't held, in each step. Uploads come back under a hold that is in force, so
    /// what was found before a longer gap between two steps is looked for again.
    async fn check_hold(&mut self, with: OrphanInputs<'_>) -> Result<()> {
        let now_ms = with.stamps.now_ms();
        if CollectionHold::is_on_now(with.cluster).await {
            return Err(Error::unavailable("collection is held"));
        }
        let before = self.allowed_ms.replace(now_ms);
        if before.is_some_and(|before| now_ms.saturating_sub(before) >= HOLD_SETTLES_MS) {
            let stage = std::mem::replace(&mut self.stage, OrphanStage::Free(VecDeque::new()));
            let candidates = match stage {
                OrphanStage::Gather(candidates) => candidates,
                OrphanStage::Search(search) => search.left(),
                OrphanStage::Free(forgotten) => forgotten.into_iter().collect(),
            };
            self.stage = OrphanStage::Search(UploadSearch::new(candidates, self.device));
        }
        Ok(())
    }

    /// Returns a register of the listing's shard.
    fn register(&self) -> Result<RegisterKey> {
        let shard = self.shards.first().copied();
        let shard = shard.ok_or_else(|| Error::internal("a listing of parts without shards"))?;
        let (bucket, kind, name) = (self.bucket, RegisterKind::Upload, Bytes::new());
        Ok(RegisterKey { bucket, shard, kind, name })
    }

    /// Reads the next part, and looks for the uploads of old ones if there are many, or at the end.
    async fn gather(&mut self, with: OrphanInputs<'_>, progress: &mut StepProgress) -> Result<()> {
        let next = self.next(with).await?;
        let OrphanStage::Gather(candidates) = &mut self.stage else { return Ok(()) };
        match next {
            NextRow::Passed(name) => self.start = ListStart::After(name),
            NextRow::End => self.has_ended = true,
            NextRow::Part(upload, _) if self.shards.len() > 1 => self.from = Some(upload),
            NextRow::Part(upload, is_old) => {
                progress.items += 1;
                if is_old {
                    candidates.insert(upload);
                }
                match u128::from_be_bytes(upload.0).checked_add(1) {
                    Some(next) => {
                        let next = Bytes::copy_from_slice(&next.to_be_bytes());
                        self.start = ListStart::At(next);
                    }
                    None => self.has_ended = true,
                }
            }
        }
        if self.has_ended || candidates.len() >= CANDIDATES_MAX {
            let candidates = std::mem::take(candidates);
            self.stage = if candidates.is_empty() {
                OrphanStage::Free(VecDeque::new())
            } else {
                OrphanStage::Search(UploadSearch::new(candidates, self.device))
            };
        }
        Ok(())
    }

    fn free_forgotten(&mut self) {
        let nothing = OrphanStage::Free(VecDeque::new());
        if let OrphanStage::Search(search) = std::mem::replace(&mut self.stage, nothing) {
            self.stage = OrphanStage::Free(search.left().into_iter().collect());
        }
    }

    /// Goes on with the parts behind those of the last stages.
    fn gather_more(&mut self) {
        (self.stage, self.allowed_ms) = (OrphanStage::Gather(BTreeSet::new()), None);
        if let ListStart::At(name) | ListStart::After(name) = &self.start {
            self.from = name.first_chunk::<16>().map(|id| UploadId(*id));
        }
    }

    /// Returns the next part.
    async fn next(&self, with: OrphanInputs<'_>) -> Result<NextRow> {
        let (start, shards) = (self.start.clone(), self.shards.clone());
        let request = request(self.bucket, shards, RegisterKind::Part, 1, with.cluster)?;
        let request = ListRequest { start, ..request };
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
}

/// Frees the parts of a forgotten upload; returns their number. `shard` is any register of its shard.
async fn free(with: OrphanInputs<'_>, shard: &RegisterKey, upload: UploadId) -> u64 {
    let bucket = shard.bucket;
    let OrphanInputs { cluster, stamps, .. } = with;
    match (EndedParts { cluster, stamps, at: shard, upload }).free_all().await {
        Ok(parts) => {
            tracing::info!(%bucket, %upload, parts, "freed late parts of an upload that is gone");
            parts as u64
        }
        // The next walk finds the upload again. Others behind it don't wait.
        Err(error) => {
            tracing::debug!(%bucket, %upload, %error, "late parts stay for now");
            0
        }
    }
}

/// Returns a request for the registers of a kind, from the first on.
fn request(
    bucket: BucketId,
    shards: Vec<Shard>,
    kind: RegisterKind,
    limit: usize,
    cluster: &StepTopology,
) -> Result<ListRequest> {
    Ok(ListRequest {
        bucket,
        shards,
        kind,
        prefix: Bytes::new(),
        start: ListStart::First,
        limit,
        fold: None,
        term: cluster.named()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cursors::MemoryCursors;

    fn walk(cursors: &Arc<MemoryCursors>) -> OrphanWalk {
        OrphanWalk::new(cursors.clone())
    }

    fn listings() -> impl Iterator<Item = PartListing> {
        let listing = |bucket, device| {
            let shards = vec![Shard(4), Shard(1), Shard(7)];
            PartListing::new(BucketId([bucket; 16]), DeviceId(device), shards)
        };
        [listing(2, 1), listing(1, 9), listing(1, 3)].into_iter()
    }

    #[test]
    fn a_new_process_goes_on_at_the_position_of_the_last_one() {
        let cursors = Arc::new(MemoryCursors::default());
        let mut first = walk(&cursors);
        first.await_turn(listings(), 1000);
        assert_eq!(first.left.len(), 3);
        let places = |walk: &OrphanWalk| -> Vec<(u8, u32, usize)> {
            walk.left.iter().map(|it| (it.bucket.0[0], it.device.0, it.shards.len())).collect()
        };
        assert_eq!(places(&first), [(1, 3, 3), (1, 9, 3), (2, 1, 3)]);
        first.left.pop_front();
        let listing = first.left.pop_front().unwrap();
        first.split(listing);
        first.left.pop_front();
        first.left.front_mut().unwrap().go_on_at(UploadId([5; 16]));
        first.save();
        let mut second = walk(&cursors);
        second.await_turn(listings(), 2000);
        assert_eq!(places(&second), [(1, 9, 1), (1, 9, 1), (2, 1, 3)]);
        let position = second.left[0].position();
        assert_eq!((position.shard, position.from), (Some(Shard(4)), Some(UploadId([5; 16]))));
        assert_eq!(second.left[1].position().shard, Some(Shard(7)));
        second.left.clear();
        second.save();
        for (now_ms, begins) in [(3000, false), (1000 + EVERY_MS, true), (10, true)] {
            let mut third = walk(&Arc::new({
                let copy = MemoryCursors::default();
                copy.save(NAME, &cursors.load(NAME).unwrap());
                copy
            }));
            third.await_turn(listings(), now_ms);
            assert_eq!(third.is_under_way(), begins, "{now_ms}");
        }
    }

    #[test]
    fn a_position_is_read_as_it_was_saved_and_nonsense_begins_a_walk() {
        let all = [None, Some(Shard(7))].map(|shard| WalkPosition {
            bucket: BucketId([3; 16]),
            device: DeviceId(8),
            shard,
            from: shard.map(|_| UploadId([0xab; 16])),
        });
        for position in all {
            assert_eq!(WalkPosition::parse(&position.to_string()), Some(position));
        }
        for nonsense in ["", "x", "7 y", "7 00 1 2 3", "- - - -"] {
            let cursors = Arc::new(MemoryCursors::default());
            cursors.save(NAME, nonsense);
            let mut it = walk(&cursors);
            it.await_turn(listings(), EVERY_MS * 2);
            assert_eq!(it.left.len(), 3, "{nonsense}");
        }
    }

    /// A place that is gone costs nothing: the walk goes on behind it.
    #[test]
    fn a_position_on_a_device_that_left_is_passed_over() {
        let cursors = Arc::new(MemoryCursors::default());
        let position = WalkPosition {
            bucket: BucketId([1; 16]),
            device: DeviceId(4),
            shard: Some(Shard(1)),
            from: None,
        };
        cursors.save(NAME, &format!("1000 {position}"));
        let mut it = walk(&cursors);
        it.await_turn(listings(), 2000);
        let devices: Vec<u32> = it.left.iter().map(|it| it.device.0).collect();
        assert_eq!(devices, [9, 1]);
    }
}

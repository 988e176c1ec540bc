//! Parts of uploads in their registers: reads, listings, and deletion.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use martlet_protocol::backend::ListStart;
use martlet_protocol::entry::{Body, Bucket, Entry, Part, UploadState, Value};
use martlet_protocol::limits::{CLOCK_SKEW_MS_MAX, COMMIT_WINDOW_MS};
use martlet_protocol::usage::Usage;
use martlet_protocol::{ExtentId, Level, RegisterKey, RegisterKind, Stamp, WriteId};

use super::upload_target::{ListedPart, UploadName, UploadTarget};
use super::uploads::UploadRegisters;
use crate::bodies::BodyReader;
use crate::bucket::{BucketCatalog, busy};
use crate::context::RequestContext;
use crate::error::{Error, Result};
use crate::index::{Intent, RegisterClient, WriteError, WriteOutcome};
use crate::upload::StoredBody;
use crate::walk::{Bound, Paths, Walk};

/// Concurrent deletions of part registers.
pub(super) const FREED_AT_ONCE: usize = 64;
/// Rows on all devices together after which a walk without a live write fails: those of removed writes, which
/// are collected after some days.
const REMOVED_ROWS_MAX: usize = 1_000_000;

fn part_of(listed: &ListedPart) -> Option<&Part> {
    match &listed.entry.value {
        Value::Part(part) => Some(part),
        _ => None,
    }
}

/// Time of a write of a part: that of its proxy, which stays, then its order. An order may rise: a worker or a proxy that
/// settles the register gives an old write a present order of its own (rules R4, R6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WriteTime {
    modified_ms: u64,
    order: Stamp,
    /// True if the proxy that wrote the part issued the order: its writer is the one in the part's write id.
    is_own: bool,
}

impl WriteTime {
    pub(super) fn of(entry: &Entry) -> Option<Self> {
        let Value::Part(part) = &entry.value else { return None };
        let (modified_ms, order) = (part.modified_ms, entry.order);
        Some(Self { modified_ms, order, is_own: order.writer.wrote(entry.write_id) })
    }

    /// Returns true if the other write certainly came before: by its order, and by the time of the same proxy or of one whose
    /// clock can't differ as much. Orders of one writer are those of one proxy only if it wrote both parts: a worker settles
    /// parts of any proxies, in any order.
    ///
    /// The relation is transitive: along a chain orders rise and gaps add up, and without a gap all are of one proxy.
    fn is_surely_after(self, other: Self) -> bool {
        let is_same_proxy = self.is_own && other.is_own && self.order.writer == other.order.writer;
        let gap_ms = if is_same_proxy { 0 } else { CLOCK_SKEW_MS_MAX + 1 };
        self.order > other.order && self.modified_ms >= other.modified_ms.saturating_add(gap_ms)
    }
}

/// Rank of a write of a part number: first a match with the client's ETag, then its time.
type Rank = (bool, WriteTime);

/// Writes of one part number, each of which may be the newest.
#[derive(Default)]
pub(super) struct NewestWrites(Vec<WriteTime>);

impl NewestWrites {
    pub(super) fn note(&mut self, time: WriteTime) {
        if !self.supersedes(time) {
            self.0.retain(|other| !time.is_surely_after(*other));
            self.0.push(time);
        }
    }

    /// Returns true if a later write of the number certainly exists.
    pub(super) fn supersedes(&self, time: WriteTime) -> bool {
        self.0.iter().any(|newest| newest.is_surely_after(time))
    }
}

/// Paths of the registers of an upload's parts.
pub(super) fn paths(target: &UploadTarget<'_>) -> Paths {
    Paths {
        bucket: target.bucket.id,
        shards: vec![target.key.shard],
        kind: RegisterKind::Part,
        prefix: Bytes::copy_from_slice(&target.id.0),
        fold: None,
    }
}

/// First bytes of the names of a number's writes.
pub(super) fn from_number(target: &UploadTarget<'_>, number: u16) -> Bytes {
    [&target.id.0[..], &number.to_be_bytes()].concat().into()
}

/// Iterator over parts by number, with the newest write of each.
pub(super) struct PartWalk<'a> {
    walk: Walk<'a>,
    bucket: Arc<Bucket>,
    key: RegisterKey,
    ahead: Option<ListedPart>,
}

impl<'a> PartWalk<'a> {
    /// The parts of an upload with numbers above `after`.
    pub(super) fn new(
        registers: &'a RegisterClient,
        target: &UploadTarget<'a>,
        after: u16,
        limit: usize,
        level: Level,
    ) -> Result<Self> {
        let start = ListStart::At(from_number(target, after + 1));
        let mut walk = Walk::new(registers, target.context, &paths(target), start, limit, level)?;
        walk.meter.pause_at(Bound::Rows(REMOVED_ROWS_MAX));
        Ok(Self { walk, bucket: target.bucket.clone(), key: target.key.clone(), ahead: None })
    }

    /// The next live write, newest of its number or not. Fails after [`REMOVED_ROWS_MAX`]: no part may be
    /// missed.
    pub(super) async fn next_write(&mut self) -> Result<Option<ListedPart>> {
        while let Some((name, entry)) = self.walk.next().await? {
            if entry.value.is_tombstone() {
                continue;
            }
            self.walk.meter.go_on();
            let number = RegisterKey::part_number(&name).ok_or_else(|| {
                martlet_protocol::Error::corrupt("a part's register has no number")
            })?;
            let register = RegisterKey {
                bucket: self.bucket.id,
                shard: self.key.shard,
                kind: RegisterKind::Part,
                name,
            };
            return Ok(Some(ListedPart { number, register, entry }));
        }
        if self.walk.paused().is_some() {
            let message = "a part was sent again too often in the last days";
            return Err(martlet_protocol::Error::unavailable(message).into());
        }
        Ok(None)
    }

    /// The newest write of a number that `check` accepts; otherwise the error of `check` for the
    /// newest. Callers request numbers in ascending order.
    ///
    /// Each write has its own register, so it isn't stamped above other writes, and stamps of two
    /// proxies don't order them. The client's ETag selects the write. A write that was certainly
    /// replaced is refused, as in S3.
    pub(super) async fn find(
        &mut self,
        number: u32,
        check: impl Fn(&Part) -> Result<()> + Send,
    ) -> Result<Box<Part>> {
        let mut best: Option<(Rank, Result<Box<Part>>)> = None;
        let mut newest = NewestWrites::default();
        loop {
            let listed = match self.ahead.take() {
                Some(ahead) => ahead,
                None => match self.next_write().await? {
                    Some(listed) => listed,
                    None => break,
                },
            };
            if u32::from(listed.number) > number {
                self.ahead = Some(listed);
                break;
            }
            let Some(time) = WriteTime::of(&listed.entry) else { continue };
            let Value::Part(part) = listed.entry.value else { continue };
            if u32::from(listed.number) < number {
                continue;
            }
            newest.note(time);
            let checked = check(&part).map(|()| part);
            let rank = (checked.is_ok(), time);
            if best.as_ref().is_none_or(|(held, _)| rank > *held) {
                best = Some((rank, checked));
            }
        }
        match best {
            Some(((_, time), Ok(_))) if newest.supersedes(time) => Err(Error::InvalidPart(number)),
            Some((_, found)) => found,
            None => Err(Error::InvalidPart(number)),
        }
    }

    /// The newest write of the next number.
    pub(super) async fn next(&mut self) -> Result<Option<(u16, Box<Part>)>> {
        let mut best = match self.ahead.take() {
            Some(ahead) => Some(ahead),
            None => self.next_write().await?,
        };
        while let Some(held) = &best {
            match self.next_write().await? {
                Some(other) if other.number == held.number => {
                    if WriteTime::of(&other.entry) > WriteTime::of(&held.entry) {
                        best = Some(other);
                    }
                }
                ahead => {
                    self.ahead = ahead;
                    break;
                }
            }
        }
        Ok(best.and_then(|listed| match listed.entry.value {
            Value::Part(part) => Some((listed.number, part)),
            _ => None,
        }))
    }
}

/// Parts of uploads in their registers.
pub(crate) struct PartStore {
    pub(super) registers: Arc<RegisterClient>,
    catalog: Arc<BucketCatalog>,
    bodies: Arc<BodyReader>,
    pub(super) uploads: Arc<UploadRegisters>,
}

impl PartStore {
    pub(super) fn new(uploads: Arc<UploadRegisters>, bodies: Arc<BodyReader>) -> Self {
        let (registers, catalog) = (uploads.registers.clone(), uploads.catalog.clone());
        Self { registers, catalog, bodies, uploads }
    }

    /// Refuses while hints for parts of the upload are pending, those of the last moment too: an acknowledged
    /// part is never absent.
    pub(super) async fn check_no_parts_kept(&self, target: &UploadTarget<'_>) -> Result<()> {
        Ok(self.catalog.fences.check_not_hinted(paths(target), Duration::ZERO).await?)
    }

    /// Usage and number of all writes of the upload's parts. Replaced writes count until they are
    /// freed.
    pub(crate) async fn usage_of_parts(
        &self,
        context: &Arc<RequestContext>,
        upload: UploadName<'_>,
    ) -> Result<(Usage, u64)> {
        let target = self.uploads.target(context, upload).await?;
        let mut parts = PartWalk::new(&self.registers, &target, 0, 1000, target.level())?;
        let (mut usage, mut seen) = (Usage::default(), 0);
        while let Some(listed) = parts.next_write().await? {
            if let Some(part) = part_of(&listed) {
                usage = usage.plus(Usage::of_part(part));
                seen += 1;
            }
        }
        Ok((usage, seen))
    }

    pub(super) async fn commit_part(
        &self,
        target: &UploadTarget<'_>,
        register: &RegisterKey,
        write_id: WriteId,
        commit_by_ms: u64,
        value: &Value,
        stored: StoredBody,
    ) -> Result<()> {
        let mut bucket = target.bucket.clone();
        for _ in 0..2 {
            let generation = bucket.generation;
            let (level, claim) = (target.level(), Some(stored.orphans.claim()));
            let intent = Intent { key: register, write_id, generation, commit_by_ms, level, claim };
            match self.registers.write(target.context, intent, value, None, false).await {
                Ok(WriteOutcome::At(_)) => return Ok(()),
                Ok(_) => match self.catalog.refreshed(target.context, target.name, &bucket).await {
                    Ok(fresh) => bucket = fresh,
                    Err(error) => {
                        stored.orphans.release();
                        return Err(error);
                    }
                },
                Err(WriteError { error, maybe_written, .. }) => {
                    if !maybe_written {
                        stored.orphans.release();
                    }
                    return Err(error);
                }
            }
        }
        stored.orphans.release();
        Err(busy())
    }

    /// Fails if the upload ended during the write of a part. After an abort, frees the part too,
    /// which the abort may have missed.
    pub(super) async fn check_still_open(
        &self,
        target: &UploadTarget<'_>,
        register: &RegisterKey,
    ) -> Result<()> {
        match self.uploads.upload(target).await.map(|upload| upload.state) {
            Ok(UploadState::Open | UploadState::Completing { .. }) => Ok(()),
            // A completion may have chosen the part; otherwise the sweep deletes it.
            Ok(UploadState::Completed { .. }) => Err(Error::NoSuchUpload),
            Ok(UploadState::Aborted) | Err(Error::NoSuchUpload) => {
                self.free(target, register, false).await?;
                Err(Error::NoSuchUpload)
            }
            Err(error) => Err(error),
        }
    }

    /// Removes the register of a part; its extents become garbage unless `keep_body`.
    pub(super) async fn free(
        &self,
        target: &UploadTarget<'_>,
        register: &RegisterKey,
        keep_body: bool,
    ) -> Result<()> {
        let write_id = WriteId::random();
        let commit_by_ms = self.registers.stamps.now_ms() + COMMIT_WINDOW_MS;
        let mut bucket = target.bucket.clone();
        for _ in 0..2 {
            let (generation, level) = (bucket.generation, target.level());
            let intent =
                Intent { key: register, write_id, generation, commit_by_ms, level, claim: None };
            match self
                .registers
                .write(target.context, intent, &Value::Tombstone, None, keep_body)
                .await?
            {
                WriteOutcome::At(_) => return Ok(()),
                // The bucket may have changed since the lookup.
                _ => bucket = self.catalog.refreshed(target.context, target.name, &bucket).await?,
            }
        }
        Err(busy())
    }

    /// Removes the registers of all parts of an ended upload, but keeps the extents in `taken`.
    pub(super) async fn free_parts(&self, target: &UploadTarget<'_>, taken: &Body) -> Result<()> {
        let manifest = self.bodies.manifest(taken).await?;
        let taken: HashSet<ExtentId> = manifest
            .iter()
            .flat_map(|manifest| manifest.extents.iter().map(|extent| extent.id))
            .collect();
        let mut parts = PartWalk::new(&self.registers, target, 0, 1000, Level::Strict)?;
        let mut all = Vec::new();
        while let Some(listed) = parts.next_write().await? {
            let keep = match part_of(&listed).map(|part| &part.body) {
                Some(Body::Extents(manifest)) => {
                    manifest.extents.iter().any(|extent| taken.contains(&extent.id))
                }
                // The manifest of a long part isn't needed any more, so the body becomes garbage.
                // Reclaim keeps the extents that the object names (rule X3).
                _ => false,
            };
            all.push((listed.register, keep));
        }
        stream::iter(all)
            .map(|(register, keep)| async move { self.free(target, &register, keep).await })
            .buffer_unordered(FREED_AT_ONCE)
            .try_collect::<()>()
            .await
    }
}

#[cfg(test)]
mod tests;

//! Parts of uploads: writes, listings, and deletion.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use martlet_protocol::backend::ListStart;
use martlet_protocol::entry::{
    Body, Bucket, ChecksumAlgorithm, ChecksumKind, ETag, Entry, Part, Upload, UploadState, Value,
};
use martlet_protocol::extent::ExtentRole;
use martlet_protocol::limits::{CLOCK_SKEW_MS_MAX, COMMIT_WINDOW_MS, PARTS_MAX};
use martlet_protocol::usage::Usage;
use martlet_protocol::{
    ExtentId, Level, RegisterKey, RegisterKind, Stamp, UploadId, WriteId, WriterId,
};

use super::{Listed, Place, info};
use crate::api::{CopyPart, Incoming, ObjectName, PartPage, WrittenPart};
use crate::bucket::{again_if_replaced, busy};
use crate::error::{Error, Result};
use crate::index::{Failed, Intent, Landed};
use crate::ingest::{Destination, Ingested};
use crate::put::body_of;
use crate::quota::Asked;
use crate::store::{Inner, ObjectStore};
use crate::walk::{Paths, Walk};

/// Concurrent deletions of part registers.
const FREED_AT_ONCE: usize = 64;

fn part_number(number: u32) -> Result<u16> {
    let valid = u16::try_from(number).ok().filter(|number| (1..=PARTS_MAX).contains(number));
    valid.ok_or_else(|| {
        let message =
            format!("Part number must be an integer between 1 and {PARTS_MAX}, inclusive.");
        Error::InvalidArgument(message)
    })
}

fn part_of(listed: &Listed) -> Option<&Part> {
    match &listed.entry.value {
        Value::Part(part) => Some(part),
        _ => None,
    }
}

/// Rank of a write of a part number: first a match with the client's ETag, then its order.
type Rank = (bool, Stamp);

/// Newest order of each proxy among the writes of one part number.
#[derive(Default)]
struct Newest(BTreeMap<WriterId, Stamp>);

impl Newest {
    fn note(&mut self, order: Stamp) {
        let newest = self.0.entry(order.writer).or_insert(order);
        *newest = order.max(*newest);
    }

    /// Returns true if a later write of the number certainly exists: one of this writer's proxy
    /// with a higher stamp, or one whose stamp is further ahead than clocks may differ.
    fn supersedes(&self, order: Stamp) -> bool {
        self.0.values().any(|newest| {
            let is_sure = newest.writer == order.writer
                || newest.time_ms() > order.time_ms() + CLOCK_SKEW_MS_MAX;
            is_sure && *newest > order
        })
    }
}

/// Paths of the registers of an upload's parts.
fn paths(place: &Place<'_>) -> Paths {
    Paths {
        bucket: place.bucket.id,
        shards: vec![place.key.shard],
        kind: RegisterKind::Part,
        prefix: bytes::Bytes::copy_from_slice(&place.id.0),
        fold: None,
    }
}

/// Iterator over parts by number, with the newest write of each.
pub(super) struct Parts<'a> {
    walk: Walk<'a>,
    bucket: Arc<Bucket>,
    key: RegisterKey,
    ahead: Option<Listed>,
}

impl<'a> Parts<'a> {
    /// The parts of an upload with numbers above `after`.
    pub(super) fn new(
        inner: &'a Inner,
        place: &Place<'_>,
        after: u16,
        limit: usize,
        level: Level,
    ) -> Result<Self> {
        let paths = paths(place);
        let mut from = place.id.0.to_vec();
        from.extend_from_slice(&(after + 1).to_be_bytes());
        let walk = Walk::new(inner, &paths, ListStart::At(from.into()), limit, level)?;
        Ok(Self { walk, bucket: place.bucket.clone(), key: place.key.clone(), ahead: None })
    }

    /// The next live write, newest of its number or not.
    pub(super) async fn next_write(&mut self) -> Result<Option<Listed>> {
        while let Some((name, entry)) = self.walk.next().await? {
            if entry.value.is_tombstone() {
                continue;
            }
            let number = RegisterKey::part_number(&name).ok_or_else(|| {
                martlet_protocol::Error::corrupt("a part's register has no number")
            })?;
            let register = RegisterKey {
                bucket: self.bucket.id,
                shard: self.key.shard,
                kind: RegisterKind::Part,
                name,
            };
            return Ok(Some(Listed { number, register, entry }));
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
        let mut newest = Newest::default();
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
            let Entry { order, value: Value::Part(part), .. } = listed.entry else { continue };
            if u32::from(listed.number) < number {
                continue;
            }
            newest.note(order);
            let checked = check(&part).map(|()| part);
            let rank = (checked.is_ok(), order);
            if best.as_ref().is_none_or(|(held, _)| rank > *held) {
                best = Some((rank, checked));
            }
        }
        match best {
            Some(((_, order), Ok(_))) if newest.supersedes(order) => {
                Err(Error::InvalidPart(number))
            }
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
                    if other.entry.order > held.entry.order {
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

impl Inner {
    /// Refuses while hints for parts of the upload are pending.
    pub(super) async fn check_no_parts_kept(&self, place: &Place<'_>) -> Result<()> {
        Ok(self.check_nothing_kept(paths(place)).await?)
    }

    /// Usage and number of all writes of the upload's parts. Replaced writes count until the upload
    /// ends.
    pub(crate) async fn usage_of_parts(
        &self,
        bucket: &str,
        key: &str,
        upload: UploadId,
    ) -> Result<(Usage, u64)> {
        let place = self.place(bucket, key, upload).await?;
        let mut parts = Parts::new(self, &place, 0, 1000, place.level())?;
        let (mut usage, mut seen) = (Usage::default(), 0);
        while let Some(listed) = parts.next_write().await? {
            if let Some(part) = part_of(&listed) {
                usage = usage.plus(Usage::of_part(part));
                seen += 1;
            }
        }
        Ok((usage, seen))
    }

    /// Finds an upload that accepts parts.
    async fn open_place<'a>(
        self: &Arc<Self>,
        (bucket, key): (&'a str, &'a str),
        upload: UploadId,
    ) -> Result<(Place<'a>, Upload)> {
        again_if_replaced(|| async move {
            let place = self.place(bucket, key, upload).await?;
            let upload = self.open_upload(&place).await?;
            Ok((place, upload))
        })
        .await
    }

    /// Writes a part of an open upload; `is_sent` is true if a client sent the bytes.
    async fn put_part(
        self: &Arc<Self>,
        (place, upload): (&Place<'_>, Upload),
        (number, is_sent): (u16, bool),
        mut incoming: Incoming,
    ) -> Result<WrittenPart> {
        if is_sent {
            check_given(&upload, &incoming.compute)?;
        }
        let home = (place.bucket.id, place.object_key);
        let secret = self.unlock_upload(&upload.attributes.marks, home)?;
        let secret = secret.map(|secret| secret.of_part(number));
        if let Some((algorithm, _)) = upload.checksum {
            incoming.compute.push(algorithm);
        }
        let write_id = WriteId::random();
        let commit_by_ms = self.stamps.now_ms() + COMMIT_WINDOW_MS;
        let destination = Destination {
            bucket: place.bucket.id,
            key: place.object_key,
            write_id,
            upload: Some(place.id),
            role: ExtentRole::Data,
            offset: 0,
            policy: upload.policy,
            inline_bytes_max: 0,
        };
        let asked = Asked::part(incoming.size);
        let mut charge = Box::pin(self.charge(&place.bucket, asked)).await?;
        let mut ingested = self.ingest_as(incoming, destination, secret.as_ref()).await?;
        let part = Part {
            size: ingested.size,
            md5: ingested.md5,
            modified_ms: self.stamps.now_ms(),
            checksums: ingested.checksums.clone(),
            body: body_of(&mut ingested, destination),
        };
        charge.came_to(Usage::of_part(&part))?;
        let written = WrittenPart {
            etag: ETag::Md5(part.md5),
            modified_ms: part.modified_ms,
            checksums: part.checksums.clone(),
            announced: upload.checksum,
            source_version: None,
        };
        let register = RegisterKey::part(&place.key, place.id, number, write_id);
        let value = Value::Part(Box::new(part));
        self.commit_part(place, &register, write_id, commit_by_ms, &value, ingested).await?;
        charge.written(self.stamps.now_ms());
        self.check_still_open(place, &register).await?;
        Ok(written)
    }

    async fn commit_part(
        &self,
        place: &Place<'_>,
        register: &RegisterKey,
        write_id: WriteId,
        commit_by_ms: u64,
        value: &Value,
        ingested: Ingested,
    ) -> Result<()> {
        let mut bucket = place.bucket.clone();
        for _ in 0..2 {
            let generation = bucket.generation;
            let (level, claim) = (place.level(), Some(ingested.unclaimed.claim()));
            let intent = Intent { key: register, write_id, generation, commit_by_ms, level, claim };
            match self.write(intent, value, None, false).await {
                Ok(Landed::At(_)) => return Ok(()),
                Ok(_) => match self.refreshed(place.name, &bucket).await {
                    Ok(fresh) => bucket = fresh,
                    Err(error) => {
                        ingested.unclaimed.release();
                        return Err(error);
                    }
                },
                Err(Failed { error, maybe_written, .. }) => {
                    if !maybe_written {
                        ingested.unclaimed.release();
                    }
                    return Err(error);
                }
            }
        }
        ingested.unclaimed.release();
        Err(busy())
    }

    /// Fails if the upload ended during the write of a part. After an abort, frees the part too,
    /// which the abort may have missed.
    async fn check_still_open(&self, place: &Place<'_>, register: &RegisterKey) -> Result<()> {
        match self.upload(place).await.map(|upload| upload.state) {
            Ok(UploadState::Open | UploadState::Completing { .. }) => Ok(()),
            // A completion may have chosen the part; otherwise the sweep deletes it.
            Ok(UploadState::Completed { .. }) => Err(Error::NoSuchUpload),
            Ok(UploadState::Aborted) | Err(Error::NoSuchUpload) => {
                self.free(place, register, false).await?;
                Err(Error::NoSuchUpload)
            }
            Err(error) => Err(error),
        }
    }

    /// Removes the register of a part; its extents become garbage unless `keep_body`.
    async fn free(&self, place: &Place<'_>, register: &RegisterKey, keep_body: bool) -> Result<()> {
        let write_id = WriteId::random();
        let commit_by_ms = self.stamps.now_ms() + COMMIT_WINDOW_MS;
        let mut bucket = place.bucket.clone();
        for _ in 0..2 {
            let (generation, level) = (bucket.generation, place.level());
            let intent =
                Intent { key: register, write_id, generation, commit_by_ms, level, claim: None };
            match self.write(intent, &Value::Tombstone, None, keep_body).await? {
                Landed::At(_) => return Ok(()),
                // The bucket may have changed since the lookup.
                _ => bucket = self.refreshed(place.name, &bucket).await?,
            }
        }
        Err(busy())
    }

    /// Removes the registers of all parts of an ended upload, but keeps the extents in `taken`.
    pub(super) async fn free_parts(
        self: &Arc<Self>,
        place: &Place<'_>,
        taken: &Body,
    ) -> Result<()> {
        let manifest = self.manifest(taken).await?;
        let taken: HashSet<ExtentId> = manifest
            .iter()
            .flat_map(|manifest| manifest.extents.iter().map(|extent| extent.id))
            .collect();
        let mut parts = Parts::new(self, place, 0, 1000, Level::Strict)?;
        let mut all = Vec::new();
        while let Some(listed) = parts.next_write().await? {
            let keep = match part_of(&listed).map(|part| &part.body) {
                Some(Body::Extents(manifest)) => {
                    manifest.extents.iter().any(|extent| taken.contains(&extent.id))
                }
                _ => false,
            };
            all.push((listed.register, keep));
        }
        stream::iter(all)
            .map(|(register, keep)| async move { self.free(place, &register, keep).await })
            .buffer_unordered(FREED_AT_ONCE)
            .try_collect::<()>()
            .await
    }
}

/// Checks that a part has the checksum that its upload announced. A composite checksum makes it
/// mandatory. CRC64NVME is the default of uploads without a checksum, so their parts may have any.
fn check_given(upload: &Upload, given: &[ChecksumAlgorithm]) -> Result<()> {
    let Some((algorithm, kind)) = upload.checksum else { return Ok(()) };
    let holds = match given {
        [] => kind == ChecksumKind::FullObject,
        given => algorithm == ChecksumAlgorithm::Crc64Nvme || given.contains(&algorithm),
    };
    if holds {
        return Ok(());
    }
    let name = |algorithm: &ChecksumAlgorithm| format!("{algorithm:?}").to_ascii_lowercase();
    Err(Error::InvalidRequest(format!(
        "Checksum Type mismatch occurred, expected checksum Type: {}, actual checksum Type: {}",
        name(&algorithm),
        given.first().map_or_else(|| "null".to_owned(), name)
    )))
}

impl ObjectStore {
    /// Writes a part, and replaces an earlier one with its number.
    ///
    /// # Errors
    /// [`Error::NoSuchUpload`], [`Error::InvalidArgument`] for a number outside its bounds, and
    /// those of [`ObjectStore::put`].
    pub async fn upload_part(
        &self,
        bucket: &str,
        key: &str,
        upload: UploadId,
        number: u32,
        body: Incoming,
    ) -> Result<WrittenPart> {
        let inner = self.inner();
        let number = part_number(number)?;
        let (place, upload) = inner.open_place((bucket, key), upload).await?;
        inner.put_part((&place, upload), (number, true), body).await
    }

    /// Writes a part from bytes of an object.
    ///
    /// # Errors
    /// Those of [`ObjectStore::upload_part`] and of the read.
    pub async fn copy_part(
        &self,
        bucket: &str,
        key: &str,
        upload: UploadId,
        number: u32,
        copy: CopyPart,
    ) -> Result<WrittenPart> {
        let number = part_number(number)?;
        let inner = self.inner();
        let (place, upload) = inner.open_place((bucket, key), upload).await?;
        let (from, key) = &copy.source;
        let source = (&**from, ObjectName { key, version: copy.source_version });
        let (body, source_version) =
            inner.source_of(source, &copy.source_conditions, copy.selection).await?;
        let written = inner.put_part((&place, upload), (number, false), body).await?;
        Ok(WrittenPart { source_version, ..written })
    }

    /// Lists a page of the parts of an open upload, in order of number, above `after`.
    ///
    /// # Errors
    /// [`Error::NoSuchUpload`].
    pub async fn list_parts(
        &self,
        bucket: &str,
        key: &str,
        upload: UploadId,
        after: u32,
        limit: usize,
    ) -> Result<PartPage> {
        let inner = self.inner();
        let (place, upload) = again_if_replaced(|| async {
            let place = inner.place(bucket, key, upload).await?;
            let upload = inner.upload(&place).await?;
            Ok((place, upload))
        })
        .await?;
        if matches!(upload.state, UploadState::Completed { .. } | UploadState::Aborted) {
            return Err(Error::NoSuchUpload);
        }
        let mut page = PartPage { upload: info(upload), parts: Vec::new(), truncated: false };
        let after = u16::try_from(after).unwrap_or(PARTS_MAX).min(PARTS_MAX);
        let expected = limit.saturating_add(1);
        let mut parts = Parts::new(&inner, &place, after, expected, place.level())?;
        while limit > 0
            && let Some((number, part)) = parts.next().await?
        {
            if page.parts.len() == limit {
                page.truncated = true;
                break;
            }
            page.parts.push((u32::from(number), part));
        }
        Ok(page)
    }
}

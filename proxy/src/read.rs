//! GET and HEAD, and where an object's bytes lie.

use std::sync::Arc;

use futures::{StreamExt, stream};
use martlet_protocol::backend::{RegisterView, Want};
use martlet_protocol::entry::{
    Body, Bucket, Checksum, ChecksumKind, Entry, Manifest, Object, Value,
};
use martlet_protocol::{ByteStream, Error as NodeError, RegisterKey, Stamp, Version};
use tokio::time::Instant;

use crate::api::{
    ExtentPlace, ObjectName, ObjectPart, ObjectParts, ObjectRead, ReadConditions, Selection,
};
use crate::bucket::again_if_replaced;
use crate::digest::crc32c;
use crate::encryption::{Locked, Secret, Segment, Whose};
use crate::error::{Error, Result};
use crate::range::Selected;
use crate::store::{Inner, ObjectStore, check_key};
use crate::versions::no_object;

/// An object that was found.
pub(crate) struct Found {
    pub(crate) object: Arc<Object>,
    pub(crate) stamp: Stamp,
    inline: Option<bytes::Bytes>,
    /// What it keeps of its key, if it is encrypted.
    pub(crate) locked: Option<Locked>,
}

impl Inner {
    /// An object of a bucket, or why there is none. Other proxies may have replaced the bucket.
    pub(crate) async fn find(
        &self,
        bucket: &str,
        name: ObjectName<'_>,
        want: Want,
    ) -> Result<Found> {
        check_key(name.key)?;
        again_if_replaced(|| async move {
            let began = Instant::now();
            let known = self.bucket(bucket).await?;
            match self.find_in(bucket, &known, name, want).await {
                Err(error) => Err(self.check_absence(error, (bucket, &known), began).await),
                found => found,
            }
        })
        .await
    }

    async fn find_in(
        &self,
        bucket: &str,
        known: &Bucket,
        ObjectName { key, version }: ObjectName<'_>,
        want: Want,
    ) -> Result<Found> {
        let register = RegisterKey::object(known.id, known.index_shards, key);
        let level = self.level(known);
        let head = match self.ask.read_after {
            None => self.read(&register, want, level).await?,
            Some(token) if token.is_of(bucket, key) => {
                self.read_after(&register, want, level, token).await?
            }
            Some(_) => {
                let message = "the read-after token is of another key";
                return Err(Error::InvalidArgument(message.into()));
            }
        };
        let view = self.view_of(&register, head, version, (want, level)).await?;
        let RegisterView { entry, inline, .. } = view;
        match entry {
            Some(Entry { order: stamp, value: Value::Object(mut object), .. }) => {
                if known.versioning().state.keeps_versions() {
                    object.version.get_or_insert(Version::UNVERSIONED);
                }
                self.admit(&object)?;
                let locked = Locked::of(&object.attributes.marks, (known.id, key))?;
                Ok(Found { object: object.into(), stamp, inline, locked })
            }
            entry => Err(no_object(entry.as_ref(), version)),
        }
    }

    /// Which bytes a selection names. Only a part's place has to be looked up.
    pub(crate) async fn select(
        self: &Arc<Self>,
        object: &Object,
        selection: Selection,
    ) -> Result<Selected> {
        let Selection::Part { number } = selection else {
            return selection.resolve(object.size, &[]);
        };
        let manifest = self.manifest(&object.body).await?;
        let parts = manifest.as_ref().map_or(&[][..], |manifest| &manifest.parts);
        let mut selected = selection.resolve(object.size, parts)?;
        let at = usize::try_from(number - 1).expect("the part is there");
        selected.checksum = manifest.and_then(|manifest| part_checksum(object, &manifest, at));
        Ok(selected)
    }

    /// What to say where the key of an object is missing or wrong: a part that there isn't can't be
    /// had with any.
    async fn refused_key(
        self: &Arc<Self>,
        object: &Object,
        selection: Selection,
        refusal: Error,
    ) -> Error {
        match selection {
            Selection::Part { .. } => self.select(object, selection).await.err().unwrap_or(refusal),
            _ => refusal,
        }
    }

    async fn described(
        self: &Arc<Self>,
        Found { object, stamp, .. }: Found,
        selection: Selection,
        conditions: &ReadConditions,
    ) -> Result<ObjectRead> {
        conditions.check(&object)?;
        let selected = self.select(&object, selection).await?;
        let Selected { range, partial, parts, checksum } = selected;
        Ok(ObjectRead { object, stamp, range, partial, parts, checksum, body: None })
    }

    /// The selected bytes of an object, by its key if it is encrypted.
    pub(crate) async fn open(
        self: &Arc<Self>,
        found: &Found,
        range: std::ops::Range<u64>,
        secret: Option<Secret>,
    ) -> Result<ByteStream> {
        if range.is_empty() {
            return Ok(stream::empty().boxed());
        }
        match secret {
            None => self.open_stored(found, range).await,
            Some(secret) => Box::pin(self.open_sealed(found, range, secret)).await,
        }
    }

    /// Bytes of an object as they are stored.
    pub(crate) async fn open_stored(
        self: &Arc<Self>,
        found: &Found,
        range: std::ops::Range<u64>,
    ) -> Result<ByteStream> {
        match &found.object.body {
            Body::Empty => Err(NodeError::corrupt("an object has a size and no bytes").into()),
            Body::Inline { crc32c } => Ok(inline_stream(found, *crc32c, range)?),
            Body::Extents(manifest) => {
                Ok(self.read_extents(manifest.policy, &manifest.extents, range).await?)
            }
            Body::Spilled { policy, manifest } => {
                let manifest = self.spilled(*policy, manifest).await?;
                Ok(self.read_extents(manifest.policy, &manifest.extents, range).await?)
            }
        }
    }
}

fn inline_stream(
    found: &Found,
    expected: u32,
    range: std::ops::Range<u64>,
) -> Result<ByteStream, NodeError> {
    let bytes = found.inline.as_ref();
    let bytes = bytes.ok_or_else(|| NodeError::corrupt("an object's inline bytes are gone"))?;
    let (size, salted) = (found.object.size, false);
    let stored = found.locked.as_ref().map_or(size, |_| Segment { bytes: size, salted }.stored());
    if bytes.len() as u64 != stored || crc32c(bytes) != expected {
        return Err(NodeError::corrupt("an object's inline bytes are not what was written"));
    }
    let at = |offset| usize::try_from(offset).expect("inline objects are small");
    let selected = bytes.slice(at(range.start)..at(range.end));
    Ok(stream::once(std::future::ready(Ok(selected))).boxed())
}

/// The parts of an object, with their checksums where they were kept: those of one algorithm, that of
/// the object's own.
fn parts_of(object: &Object, manifest: &Manifest) -> Vec<ObjectPart> {
    let part = |(at, &size)| ObjectPart { size, checksum: part_checksum(object, manifest, at) };
    manifest.parts.iter().enumerate().map(part).collect()
}

fn part_checksum(object: &Object, manifest: &Manifest, at: usize) -> Option<Checksum> {
    let algorithm = object.checksums.first()?.algorithm;
    let value = manifest.part_checksums.get(at)?.clone();
    Some(Checksum { algorithm, kind: ChecksumKind::FullObject, value })
}

impl ObjectStore {
    /// An object and the selected bytes of it.
    ///
    /// # Errors
    /// [`Error::NoSuchKey`], [`Error::NoSuchVersion`], [`Error::DeleteMarker`],
    /// [`Error::NotModified`], [`Error::PreconditionFailed`], [`Error::InvalidRange`].
    pub async fn get(
        &self,
        bucket: &str,
        name: impl Into<ObjectName<'_>>,
        selection: Selection,
        conditions: &ReadConditions,
    ) -> Result<ObjectRead> {
        let inner = self.inner();
        let found = inner.find(bucket, name.into(), Want::EntryAndInline).await?;
        let secret = match inner.unlock(found.locked.as_ref(), Whose::Own) {
            Ok(secret) => secret,
            Err(refusal) => return Err(inner.refused_key(&found.object, selection, refusal).await),
        };
        conditions.check(&found.object)?;
        let selected = inner.select(&found.object, selection).await?;
        let Selected { range, partial, parts, checksum } = selected;
        let body = Some(inner.open(&found, range.clone(), secret).await?);
        let Found { object, stamp, .. } = found;
        Ok(ObjectRead { object, stamp, range, partial, parts, checksum, body })
    }

    /// The same without bytes, for who must have the object's key all the same if it is encrypted by one.
    ///
    /// # Errors
    /// As [`ObjectStore::get`].
    pub async fn head_by_key(
        &self,
        bucket: &str,
        name: impl Into<ObjectName<'_>>,
        selection: Selection,
        conditions: &ReadConditions,
    ) -> Result<ObjectRead> {
        let inner = self.inner();
        let found = inner.find(bucket, name.into(), Want::Entry).await?;
        if let Err(refusal) = inner.check_key(found.locked.as_ref()) {
            return Err(inner.refused_key(&found.object, selection, refusal).await);
        }
        inner.described(found, selection, conditions).await
    }

    /// The same without bytes, and for anybody: a key says nothing about what is not encrypted.
    ///
    /// # Errors
    /// As [`ObjectStore::get`].
    pub async fn head(
        &self,
        bucket: &str,
        name: impl Into<ObjectName<'_>>,
        selection: Selection,
        conditions: &ReadConditions,
    ) -> Result<ObjectRead> {
        let inner = self.inner();
        let found = inner.find(bucket, name.into(), Want::Entry).await?;
        inner.described(found, selection, conditions).await
    }

    /// An object, and the parts that it was completed from.
    ///
    /// # Errors
    /// As [`ObjectStore::head`].
    pub async fn parts(
        &self,
        bucket: &str,
        name: impl Into<ObjectName<'_>>,
        conditions: &ReadConditions,
    ) -> Result<ObjectParts> {
        let inner = self.inner();
        let found = inner.find(bucket, name.into(), Want::Entry).await?;
        inner.check_key(found.locked.as_ref())?;
        let Found { object, stamp, .. } = found;
        conditions.check(&object)?;
        let manifest = inner.manifest(&object.body).await?;
        let parts = manifest.map_or_else(Vec::new, |manifest| parts_of(&object, &manifest));
        Ok(ObjectParts { object, stamp, parts })
    }

    /// Where an object's bytes lie, for those who read them in place: its extents, or the fragments of
    /// data that they are kept as. Inline objects lie nowhere, and so do the bytes of fragments that
    /// are lost or out of reach.
    ///
    /// # Errors
    /// [`Error::NoSuchKey`], or an extent that no device has.
    pub async fn places(&self, bucket: &str, key: &str) -> Result<(Object, Vec<ExtentPlace>)> {
        let inner = self.inner();
        let found = inner.find(bucket, key.into(), Want::Entry).await?;
        if found.locked.is_some() {
            let message = "the object is encrypted, and can't be read in place";
            return Err(Error::InvalidRequest(message.into()));
        }
        let mut places = Vec::new();
        if let Some(manifest) = inner.manifest(&found.object.body).await? {
            let mut object_offset = 0;
            for &extent in &manifest.extents {
                for (offset, device, stat) in inner.stat_parts(manifest.policy, extent).await? {
                    let (extent, location) = (stat.record.extent, stat.location);
                    let object_offset = object_offset + offset;
                    places.push(ExtentPlace { extent, object_offset, device, location });
                }
                object_offset += u64::from(extent.length);
            }
        }
        Ok((Object::clone(&found.object), places))
    }
}

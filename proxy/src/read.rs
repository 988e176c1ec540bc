//! GetObject and HeadObject, and the locations of an object's bytes.

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

/// An object that was read from its register.
pub(crate) struct Found {
    pub(crate) object: Arc<Object>,
    pub(crate) stamp: Stamp,
    inline: Option<bytes::Bytes>,
    /// Its encryption document, if it is encrypted.
    pub(crate) locked: Option<Locked>,
}

impl Inner {
    /// Reads an object of a bucket, or returns the reason for its absence. Handles a concurrently
    /// replaced bucket.
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
                let message = "the read-after token belongs to another key";
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

    /// Resolves a selection to a range. Only parts need the manifest.
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
        let at = usize::try_from(number - 1).expect("the part number was checked");
        selected.checksum = manifest.and_then(|manifest| part_checksum(object, &manifest, at));
        Ok(selected)
    }

    /// The error for a wrong or missing key. A part that doesn't exist takes precedence.
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

    /// Opens a range of an object; decrypts it if `secret` is given.
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

    /// Opens a range of an object's stored bytes.
    pub(crate) async fn open_stored(
        self: &Arc<Self>,
        found: &Found,
        range: std::ops::Range<u64>,
    ) -> Result<ByteStream> {
        match &found.object.body {
            Body::Empty => Err(NodeError::corrupt("an object has a size but no bytes").into()),
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
        return Err(NodeError::corrupt("an object's inline bytes are corrupt"));
    }
    let at = |offset| usize::try_from(offset).expect("inline objects are small");
    let selected = bytes.slice(at(range.start)..at(range.end));
    Ok(stream::once(std::future::ready(Ok(selected))).boxed())
}

/// Parts of an object, with checksums of the object's own algorithm if they were stored.
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
    /// Reads an object and a selection of its bytes.
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

    /// Returns metadata only; requires the customer key for SSE-C objects.
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

    /// Returns metadata only, without a check of the customer key. Metadata is not encrypted.
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

    /// Returns an object and its parts.
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

    /// Locations of an object's bytes for reads in place: its extents, or their data fragments.
    /// Inline objects have none, and lost or unreachable fragments are left out.
    ///
    /// # Errors
    /// [`Error::NoSuchKey`], [`Error::InvalidRequest`] for an encrypted object, or an extent that
    /// no device has.
    pub async fn places(&self, bucket: &str, key: &str) -> Result<(Object, Vec<ExtentPlace>)> {
        let inner = self.inner();
        let found = inner.find(bucket, key.into(), Want::Entry).await?;
        if found.locked.is_some() {
            let message = "encrypted objects can't be read in place";
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

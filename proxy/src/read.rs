//! GetObject and HeadObject, and the locations of an object's bytes.

use std::sync::Arc;

use martlet_protocol::backend::{RegisterView, Want};
use martlet_protocol::entry::{Body, Bucket, Entry, Object, Value};
use martlet_protocol::{Level, RegisterKey, Version};
use tokio::time::Instant;

use crate::api::{
    ExtentPlace, NewBody, ObjectName, ObjectParts, ObjectRead, ReadConditions, Selection,
};
use crate::bodies::{BodyReader, Found, parts_of};
use crate::bucket::{BucketCatalog, again_if_replaced, check_key};
use crate::context::RequestContext;
use crate::encryption::{Locked, ObjectAddress, Whose};
use crate::error::{Error, Result};
use crate::index::RegisterClient;
use crate::keyring::Vault;
use crate::located::{Located, LocatedExtents, NotDirect};
use crate::range::Selected;
use crate::versions::{VersionRead, VersionStore, no_object};

/// Read of an object in a bucket that was looked up.
#[derive(Clone, Copy)]
struct BucketRead<'a> {
    bucket_name: &'a str,
    bucket: &'a Bucket,
    name: ObjectName<'a>,
    want: Want,
}

/// Reads of objects.
pub(crate) struct ObjectReader {
    pub(crate) registers: Arc<RegisterClient>,
    pub(crate) catalog: Arc<BucketCatalog>,
    pub(crate) versions: Arc<VersionStore>,
    pub(crate) bodies: Arc<BodyReader>,
    pub(crate) vault: Arc<Vault>,
}

impl ObjectReader {
    /// Reads an object of a bucket, or returns the reason for its absence. Handles a concurrently
    /// replaced bucket.
    pub(crate) async fn find(
        &self,
        context: &RequestContext,
        bucket_name: &str,
        name: ObjectName<'_>,
        want: Want,
    ) -> Result<Found> {
        check_key(name.key)?;
        again_if_replaced(|| async move {
            let began = Instant::now();
            let bucket = self.catalog.bucket(context, bucket_name).await?;
            match self.find_in(context, bucket_name, &bucket, name, want).await {
                Err(error) => Err(self
                    .catalog
                    .check_absence(context, error, bucket_name, &bucket, began)
                    .await),
                found => found,
            }
        })
        .await
    }

    /// Reads an object at the level of the request. One that a guard judges is read again at the level of
    /// what decides about access, unless the guard trusts the state that was found.
    async fn find_in(
        &self,
        context: &RequestContext,
        bucket_name: &str,
        bucket: &Bucket,
        name: ObjectName<'_>,
        want: Want,
    ) -> Result<Found> {
        let (level, deciding) = (context.level(bucket), context.deciding_level(bucket));
        let read = BucketRead { bucket_name, bucket, name, want };
        let found = self.find_at(context, read, level).await;
        if level == deciding || !context.has_guard() {
            return found;
        }
        if found.as_ref().is_ok_and(|found| context.trusts(&found.object)) {
            return found;
        }
        Box::pin(self.find_at(context, read, deciding)).await
    }

    async fn find_at(
        &self,
        context: &RequestContext,
        read: BucketRead<'_>,
        level: Level,
    ) -> Result<Found> {
        let BucketRead { bucket_name, bucket, name: ObjectName { key, version }, want } = read;
        let register = RegisterKey::object(bucket.id, bucket.index_shards, key);
        let head = match context.consistency.read_after {
            None => self.registers.read(context, &register, want, level).await?,
            Some(token) if token.is_of(bucket_name, key) => {
                let read = self.registers.read_after(context, &register, want, level, token);
                Box::pin(read).await?
            }
            Some(_) => {
                let message = "the read-after token belongs to another key";
                return Err(Error::InvalidArgument(message.into()));
            }
        };
        let read = VersionRead { head: &register, version, want, level };
        let view = self.versions.view_of(context, read, head).await?;
        let RegisterView { entry, inline, .. } = view;
        match entry {
            Some(Entry { order: stamp, value: Value::Object(mut object), .. }) => {
                if bucket.versioning().state.keeps_versions() {
                    object.version.get_or_insert(Version::UNVERSIONED);
                }
                context.admit(&object)?;
                let locked =
                    Locked::of(&object.attributes.marks, ObjectAddress { bucket: bucket.id, key })?;
                Ok(Found { object: object.into(), stamp, inline, locked })
            }
            entry => Err(no_object(entry.as_ref(), version)),
        }
    }

    async fn described(
        &self,
        Found { object, stamp, .. }: Found,
        selection: Selection,
        conditions: &ReadConditions,
    ) -> Result<ObjectRead> {
        conditions.check(&object)?;
        let selected = self.bodies.select(&object, selection).await?;
        let Selected { range, partial, parts, checksum } = selected;
        Ok(ObjectRead { object, stamp, range, partial, parts, checksum, body: None })
    }

    /// Reads an object and a selection of its bytes.
    pub(crate) async fn get(
        &self,
        context: &RequestContext,
        bucket: &str,
        name: impl Into<ObjectName<'_>>,
        selection: Selection,
        conditions: &ReadConditions,
    ) -> Result<ObjectRead> {
        let found = self.find(context, bucket, name.into(), Want::EntryAndInline).await?;
        let secret = match context.keys.unlock(&self.vault, found.locked.as_ref(), Whose::Own) {
            Ok(secret) => secret,
            Err(refusal) => {
                let refused = self.bodies.refused_key(&found.object, selection, refusal);
                return Err(Box::pin(refused).await);
            }
        };
        conditions.check(&found.object)?;
        let selected = self.bodies.select(&found.object, selection).await?;
        let Selected { range, partial, parts, checksum } = selected;
        let body = Some(self.bodies.open(&found, range.clone(), secret).await?);
        let Found { object, stamp, .. } = found;
        Ok(ObjectRead { object, stamp, range, partial, parts, checksum, body })
    }

    /// Returns metadata only; requires the customer key for SSE-C objects.
    pub(crate) async fn head_by_key(
        &self,
        context: &RequestContext,
        bucket: &str,
        name: impl Into<ObjectName<'_>>,
        selection: Selection,
        conditions: &ReadConditions,
    ) -> Result<ObjectRead> {
        let found = self.find(context, bucket, name.into(), Want::Entry).await?;
        if let Err(refusal) = context.keys.check_key(&self.vault, found.locked.as_ref()) {
            let refused = self.bodies.refused_key(&found.object, selection, refusal);
            return Err(Box::pin(refused).await);
        }
        self.described(found, selection, conditions).await
    }

    /// Returns metadata only, without a check of the customer key. Metadata is not encrypted.
    pub(crate) async fn head(
        &self,
        context: &RequestContext,
        bucket: &str,
        name: impl Into<ObjectName<'_>>,
        selection: Selection,
        conditions: &ReadConditions,
    ) -> Result<ObjectRead> {
        let found = self.find(context, bucket, name.into(), Want::Entry).await?;
        self.described(found, selection, conditions).await
    }

    /// Returns an object and its parts.
    pub(crate) async fn parts(
        &self,
        context: &RequestContext,
        bucket: &str,
        name: impl Into<ObjectName<'_>>,
        conditions: &ReadConditions,
    ) -> Result<ObjectParts> {
        let found = self.find(context, bucket, name.into(), Want::Entry).await?;
        context.keys.check_key(&self.vault, found.locked.as_ref())?;
        let Found { object, stamp, .. } = found;
        conditions.check(&object)?;
        let manifest = self.bodies.manifest(&object.body).await?;
        let parts = manifest.map_or_else(Vec::new, |manifest| parts_of(&object, &manifest));
        Ok(ObjectParts { object, stamp, parts })
    }

    /// Locations of an object's bytes for reads in place: its extents, or their data fragments.
    /// Inline objects have none, and lost or unreachable fragments are left out.
    pub(crate) async fn places(
        &self,
        context: &RequestContext,
        bucket: &str,
        key: &str,
    ) -> Result<(Object, Vec<ExtentPlace>)> {
        let found = self.find(context, bucket, key.into(), Want::Entry).await?;
        if found.locked.is_some() {
            let message = "encrypted objects can't be read in place";
            return Err(Error::InvalidRequest(message.into()));
        }
        let mut places = Vec::new();
        if let Some(manifest) = self.bodies.manifest(&found.object.body).await? {
            let mut object_offset = 0;
            for &extent in &manifest.extents {
                for (offset, device, stat) in
                    self.bodies.stat_parts(manifest.policy, extent).await?
                {
                    let (extent, location) = (stat.record.extent, stat.location);
                    let object_offset = object_offset + offset;
                    places.push(ExtentPlace { extent, object_offset, device, location });
                }
                object_offset += u64::from(extent.length);
            }
        }
        Ok((Object::clone(&found.object), places))
    }

    /// Places of a selection of an object's bytes, for clients that read them in place. Requires the
    /// customer key for SSE-C objects.
    pub(crate) async fn locate(
        &self,
        context: &RequestContext,
        bucket: &str,
        name: ObjectName<'_>,
        selection: Selection,
        conditions: &ReadConditions,
    ) -> Result<Located> {
        let found = self.find(context, bucket, name, Want::Entry).await?;
        context.keys.check_key(&self.vault, found.locked.as_ref())?;
        let Found { object, stamp, locked, .. } = found;
        conditions.check(&object)?;
        let range = self.bodies.select(&object, selection).await?.range;
        let extents = if locked.is_some() {
            Err(NotDirect::Encrypted)
        } else if matches!(object.body, Body::Inline { .. }) {
            Err(NotDirect::Inline)
        } else {
            match self.bodies.manifest(&object.body).await? {
                Some(manifest) => Ok(self.bodies.locate(&manifest, range).await?),
                None => Ok(LocatedExtents::default()),
            }
        };
        Ok(Located { object, stamp, extents })
    }

    /// Selected bytes of a copy's source as a request body, and the version of the source.
    ///
    /// # Errors
    /// `InvalidRange` for a range beyond the end: reads shorten such ranges, copies must not
    /// (<https://docs.aws.amazon.com/AmazonS3/latest/API/API_UploadPartCopy.html>).
    pub(crate) async fn source_of(
        &self,
        context: &RequestContext,
        bucket: &str,
        source: ObjectName<'_>,
        conditions: &ReadConditions,
        selection: Selection,
    ) -> Result<(NewBody, Option<Version>)> {
        let found =
            self.find(context, bucket, source, Want::EntryAndInline).await.map_err(no_source)?;
        let secret = context.keys.unlock(&self.vault, found.locked.as_ref(), Whose::Source)?;
        conditions.check_source(&found.object)?;
        if let Selection::From { last: Some(last), .. } = selection
            && last >= found.object.size
        {
            return Err(Error::InvalidRange { size: found.object.size });
        }
        let selected = self.bodies.select(&found.object, selection).await?;
        let size = selected.range.end - selected.range.start;
        let new_body = NewBody {
            bytes: self.bodies.open(&found, selected.range, secret).await?,
            size: Some(size),
            md5: None,
            compute: Vec::new(),
            expected: Box::new(|| Ok(Vec::new())),
        };
        Ok((new_body, found.object.version))
    }
}

/// Maps the error of a missing copy source to S3's.
pub(crate) fn no_source(error: Error) -> Error {
    match error {
        Error::DeleteMarker { was_named: false, .. } => Error::NoSuchKey,
        Error::DeleteMarker { was_named: true, .. } => Error::InvalidRequest(
            "The source of a copy request may not specifically refer to a delete marker by \
             version id."
                .into(),
        ),
        other => other,
    }
}

//! Objects: reads, writes, copies, deletions, and listings; and lookups of their buckets.

use std::sync::Arc;

use martlet_protocol::entry::Bucket;

use super::ObjectStore;
use crate::api::{
    CopyObject, DeleteConditions, Deleted, ListObjects, ObjectName, ObjectPage, ObjectParts,
    ObjectRead, PutObject, ReadConditions, Selection, WrittenObject,
};
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;

impl ObjectStore {
    /// A bucket by its name.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`].
    pub async fn bucket(&self, name: &str) -> Result<Arc<Bucket>> {
        self.services.buckets.bucket(&self.context(), name).await
    }

    /// Writes an object.
    ///
    /// # Errors
    /// An error of the body, a checksum mismatch, a failed condition, [`Error::QuotaExceeded`]. No
    /// extents are left behind then.
    pub async fn put(&self, bucket: &str, key: &str, put: PutObject) -> Result<WrittenObject> {
        let context = self.context();
        let target = self.services.buckets.target(&context, bucket, key).await?;
        let checkpoints = &self.services.checkpoints;
        let marker = checkpoints.begin(&target.bucket, bucket, key).await?;
        let objects = &self.services.objects;
        let put = objects.put_at(target, key, put.body, put.attributes, &put.conditions).await;
        checkpoints.finish(marker, put).await
    }

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
        self.services.reader.get(&self.context(), bucket, name.into(), selection, conditions).await
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
        let (reader, context) = (&self.services.reader, self.context());
        reader.head_by_key(&context, bucket, name.into(), selection, conditions).await
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
        self.services.reader.head(&self.context(), bucket, name.into(), selection, conditions).await
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
        self.services.reader.parts(&self.context(), bucket, name.into(), conditions).await
    }

    /// Deletes an object; in a versioned bucket, adds a delete marker. Without conditions, a
    /// missing object is no error.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`], [`Error::PreconditionFailed`].
    pub async fn delete(
        &self,
        bucket: &str,
        key: &str,
        conditions: impl Into<DeleteConditions>,
    ) -> Result<Deleted> {
        self.services.remover.delete(&self.context(), bucket, key, &conditions.into()).await
    }

    /// Copies an object. The copy has extents of its own (rule X1). The copied bytes are verified
    /// against the source's ETag and checksums.
    ///
    /// # Errors
    /// [`Error::NoSuchKey`], [`Error::PreconditionFailed`], [`Error::InvalidRequest`] for a copy
    /// onto itself that changes nothing, [`Error::EntityTooLarge`].
    pub async fn copy(&self, bucket: &str, key: &str, copy: CopyObject) -> Result<WrittenObject> {
        let context = self.context();
        let target = self.services.buckets.bucket(&context, bucket).await?;
        let checkpoints = &self.services.checkpoints;
        let marker = checkpoints.begin(&target, bucket, key).await?;
        checkpoints
            .finish(marker, self.services.copier.copy(&context, bucket, key, copy).await)
            .await
    }

    /// Lists a page of the objects of a bucket.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`](crate::Error::NoSuchBucket), or too few nodes replied.
    pub async fn list(&self, bucket: &str, list: ListObjects) -> Result<ObjectPage> {
        self.services.listings.list(&self.context(), bucket, list).await
    }
}

//! Multipart uploads and their parts.

use martlet_protocol::UploadId;

use super::ObjectStore;
use crate::api::{
    CompleteUpload, CopyPart, Incoming, ListUploads, NewUpload, PartPage, UploadInfo, UploadPage,
    Written, WrittenPart,
};
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::multipart::UploadName;

impl ObjectStore {
    /// Creates an upload.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`], [`Error::InvalidRequest`] for a checksum that parts can't have.
    pub async fn create_upload(
        &self,
        bucket: &str,
        key: &str,
        new: NewUpload,
    ) -> Result<UploadInfo> {
        self.services.multipart.create_upload(&self.context(), bucket, key, &new).await
    }

    /// Aborts an upload, and frees its parts.
    ///
    /// # Errors
    /// [`Error::NoSuchUpload`] if it is completed, aborted, or never existed.
    pub async fn abort_upload(&self, bucket: &str, key: &str, upload: UploadId) -> Result<()> {
        let upload = UploadName { bucket, key, id: upload };
        self.services.multipart.abort_upload(&self.context(), upload).await
    }

    /// Completes an upload. A repeated request returns the first result; one with other parts fails
    /// with [`Error::NoSuchUpload`].
    ///
    /// # Errors
    /// [`Error::NoSuchUpload`], [`Error::InvalidPart`], [`Error::InvalidPartOrder`],
    /// [`Error::EntityTooSmall`], [`Error::EntityTooLarge`], [`Error::BadChecksum`],
    /// [`Error::BadPartChecksum`], [`Error::PreconditionFailed`], [`Error::InvalidRequest`] for a
    /// key other than the upload's.
    pub async fn complete_upload(
        &self,
        bucket: &str,
        key: &str,
        upload: UploadId,
        complete: CompleteUpload,
    ) -> Result<Written> {
        let (multipart, context) = (&self.services.multipart, self.context());
        let upload = UploadName { bucket, key, id: upload };
        multipart.complete_upload(&context, upload, &complete).await
    }

    /// Lists a page of the open uploads of a bucket.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`](crate::Error::NoSuchBucket), or too few nodes replied.
    pub async fn list_uploads(&self, bucket: &str, list: ListUploads) -> Result<UploadPage> {
        self.services.listings.list_uploads(&self.context(), bucket, list).await
    }

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
        let (multipart, context) = (&self.services.multipart, self.context());
        let upload = UploadName { bucket, key, id: upload };
        multipart.upload_part(&context, upload, number, body).await
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
        let (multipart, context) = (&self.services.multipart, self.context());
        let upload = UploadName { bucket, key, id: upload };
        multipart.copy_part(&context, upload, number, copy).await
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
        let (multipart, context) = (&self.services.multipart, self.context());
        let upload = UploadName { bucket, key, id: upload };
        multipart.list_parts(&context, upload, after, limit).await
    }
}

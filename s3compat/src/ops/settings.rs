//! Settings of buckets as XML documents, and bucket tagging. Each missing setting has an error code
//! of its own.

use http::StatusCode;
use martlet_protocol::Setting;
use s3s::dto::{GetBucketTaggingOutput, Tagging};
use s3s::xml::{Deserialize, Serialize};
use s3s::{S3Error, S3Result};

use super::operations::Operations;
use crate::errors::{custom, s3_error};
use crate::messages;
use crate::reply::Reply;
use crate::request::OperationRequest;
use crate::settings::{from_document, to_document};
use crate::tags;

/// 404: the bucket has no such setting.
pub(super) fn missing(code: &'static str, message: &'static str) -> S3Error {
    custom(code, message, StatusCode::NOT_FOUND)
}

impl Operations {
    /// Reads a setting of a bucket from its register. None if it is not set.
    pub(super) async fn setting<T: for<'xml> Deserialize<'xml>>(
        &self,
        bucket: &str,
        setting: Setting,
    ) -> S3Result<Option<T>> {
        let document = self.store.buckets().setting(bucket, setting).await.map_err(s3_error)?;
        document.map(|document| from_document(&document)).transpose()
    }

    /// Writes a setting of a bucket.
    pub(super) async fn set<T: Serialize + Sync>(
        &self,
        bucket: &str,
        setting: Setting,
        value: &T,
    ) -> S3Result<()> {
        let document = to_document(value);
        self.store.buckets().put_setting(bucket, setting, document).await.map_err(s3_error)
    }

    /// Removes a setting of a bucket.
    pub(super) async fn unset(&self, bucket: &str, setting: Setting) -> S3Result<()> {
        self.store.buckets().delete_setting(bucket, setting).await.map_err(s3_error)
    }

    pub(super) async fn get_bucket_tagging(&self, request: &OperationRequest) -> S3Result<Reply> {
        let tagging: Option<Tagging> = self.setting(request.bucket(), Setting::Tagging).await?;
        let tagging = tagging.ok_or_else(|| messages::NO_SUCH_TAGS.error())?;
        Reply::xml(&GetBucketTaggingOutput { tag_set: tagging.tag_set })
    }

    pub(super) async fn put_bucket_tagging(&self, request: &OperationRequest) -> S3Result<Reply> {
        let tagging: Tagging = request.parse_document()?;
        request.refuse_conditions()?;
        let tags = tags::from_bucket_xml(tagging.tag_set)?;
        if tags.is_empty() {
            self.unset(request.bucket(), Setting::Tagging).await?;
        } else {
            let tagging = Tagging { tag_set: tags::to_xml(&tags) };
            self.set(request.bucket(), Setting::Tagging, &tagging).await?;
        }
        Ok(Reply::empty(StatusCode::NO_CONTENT))
    }

    pub(super) async fn delete_bucket_tagging(
        &self,
        request: &OperationRequest,
    ) -> S3Result<Reply> {
        request.refuse_conditions()?;
        self.unset(request.bucket(), Setting::Tagging).await?;
        Ok(Reply::empty(StatusCode::NO_CONTENT))
    }
}

//! Settings of buckets as XML documents, and bucket tagging. Each missing setting has an error code
//! of its own.

use http::StatusCode;
use martlet_protocol::Setting;
use s3s::dto::{GetBucketTaggingOutput, Tagging};
use s3s::xml::{Deserialize, Deserializer, Serialize, Serializer};
use s3s::{S3Error, S3Result};

use super::Operations;
use crate::dispatch::Reply;
use crate::errors::{custom, internal, s3_error};
use crate::request::OperationRequest;
use crate::{messages, tags};

/// Serializes a setting to the document that is stored.
pub(super) fn to_document<T: Serialize>(value: &T) -> Vec<u8> {
    let mut document = Vec::with_capacity(256);
    let written = value.serialize(&mut Serializer::new(&mut document));
    written.expect("writing to a Vec can't fail");
    document
}

/// The inverse of [`to_document`].
pub(super) fn from_document<T: for<'xml> Deserialize<'xml>>(document: &[u8]) -> S3Result<T> {
    let mut deserializer = Deserializer::new(document);
    T::deserialize(&mut deserializer).map_err(|error| {
        tracing::error!(%error, "could not read a setting of a bucket");
        internal()
    })
}

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

#[cfg(test)]
mod tests {
    use s3s::dto::Tag;

    use super::*;

    #[test]
    fn documents_come_back_with_every_character_that_xml_can_say() {
        for text in ["", "a", "<&>\"'", "ü\u{1f511}", " spaces ", "a\tb"] {
            let tag = Tag { key: Some(text.to_owned()), value: Some(String::new()) };
            let tagging = Tagging { tag_set: vec![tag] };
            let document = to_document(&tagging);
            let read: Tagging = from_document(&document).unwrap();
            assert_eq!(read.tag_set[0].key.as_deref(), Some(text));
        }
    }

    #[test]
    fn a_document_of_another_kind_is_our_own_mistake() {
        let error = from_document::<Tagging>(b"<CORSConfiguration/>").unwrap_err();
        assert_eq!(error.code().as_str(), "InternalError");
    }
}

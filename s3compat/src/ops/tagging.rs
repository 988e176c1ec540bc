//! Tags of objects: `GetObjectTagging`, `PutObjectTagging`, `DeleteObjectTagging`.

use http::StatusCode;
use martlet_proxy::{ReadConditions, Selection, WrittenObject};
use s3s::S3Result;
use s3s::dto::{GetObjectTaggingOutput, Tagging};

use super::operations::Operations;
use crate::attributes::{stamp_headers, wire_version};
use crate::errors::s3_error;
use crate::events::{Event, ObjectEvents};
use crate::header_values::VERSION_ID;
use crate::reply::Reply;
use crate::request::OperationRequest;
use crate::tags;

impl Operations {
    pub(super) async fn get_object_tagging(&self, request: &OperationRequest) -> S3Result<Reply> {
        let name = request.object_name()?;
        let conditions = ReadConditions::default();
        let read = self.store.head(request.bucket(), name, Selection::Whole, &conditions).await;
        let read = read.map_err(s3_error)?;
        let output = GetObjectTaggingOutput {
            tag_set: tags::to_xml(&read.object.attributes.tags),
            version_id: None,
        };
        let token = self.store.token(request.bucket(), request.key(), read.stamp);
        Reply::xml(&output)?
            .with_headers(stamp_headers(token))
            .with_header(VERSION_ID, wire_version(&read.object))
    }

    pub(super) async fn put_object_tagging(&self, request: &OperationRequest) -> S3Result<Reply> {
        let tagging: Tagging = request.parse_document()?;
        self.check_tagging(request, &tagging).await?;
        request.refuse_conditions()?;
        let name = request.object_name()?;
        let tags = tags::from_xml(tagging.tag_set)?;
        let written = self.store.versions().set_tags(request.bucket(), name, tags).await;
        let written = written.map_err(s3_error)?;
        let reply = self.tagged(request, Reply::empty(StatusCode::OK), &written)?;
        Ok(reply.with_events(ObjectEvents::wrote(Event::TaggingPut, request.key(), &written)))
    }

    pub(super) async fn delete_object_tagging(
        &self,
        request: &OperationRequest,
    ) -> S3Result<Reply> {
        request.refuse_conditions()?;
        let name = request.object_name()?;
        let written = self.store.versions().set_tags(request.bucket(), name, Vec::new()).await;
        let written = written.map_err(s3_error)?;
        let reply = self.tagged(request, Reply::empty(StatusCode::NO_CONTENT), &written)?;
        Ok(reply.with_events(ObjectEvents::wrote(Event::TaggingDelete, request.key(), &written)))
    }

    /// Adds the token and the version of an object whose tags changed.
    fn tagged(
        &self,
        request: &OperationRequest,
        reply: Reply,
        written: &WrittenObject,
    ) -> S3Result<Reply> {
        let token = self.store.token(request.bucket(), request.key(), written.stamp);
        let reply = reply.with_headers(stamp_headers(token));
        reply.with_header(VERSION_ID, wire_version(&written.object))
    }
}

//! Tags of objects: `GetObjectTagging`, `PutObjectTagging`, `DeleteObjectTagging`.

use martlet_proxy::{ReadConditions, Selection};
use s3s::dto::{
    DeleteObjectTaggingInput, DeleteObjectTaggingOutput, GetObjectTaggingInput,
    GetObjectTaggingOutput, PutObjectTaggingInput, PutObjectTaggingOutput,
};
use s3s::{S3Request, S3Response, S3Result};

use super::versions::named;
use super::{Operations, parsed_headers};
use crate::attributes::{stamp_headers, wire_version};
use crate::errors::s3_error;
use crate::events::{Event, ObjectEvents};
use crate::tags;

impl Operations {
    pub(super) async fn get_object_tagging(
        &self,
        request: S3Request<GetObjectTaggingInput>,
    ) -> S3Result<S3Response<GetObjectTaggingOutput>> {
        let input = request.input;
        let name = named(&input.key, input.version_id.as_deref())?;
        let conditions = ReadConditions::default();
        let read = self.store.head(&input.bucket, name, Selection::Whole, &conditions).await;
        let read = read.map_err(s3_error)?;
        let output = GetObjectTaggingOutput {
            tag_set: tags::to_xml(&read.object.attributes.tags),
            version_id: wire_version(&read.object),
        };
        Ok(S3Response::with_headers(
            output,
            stamp_headers(self.store.token(&input.bucket, &input.key, read.stamp)),
        ))
    }

    pub(super) async fn put_object_tagging(
        &self,
        mut request: S3Request<PutObjectTaggingInput>,
    ) -> S3Result<S3Response<PutObjectTaggingOutput>> {
        parsed_headers(&mut request).refuse_conditions()?;
        let input = request.input;
        let name = named(&input.key, input.version_id.as_deref())?;
        let tags = tags::from_xml(input.tagging.tag_set)?;
        let written = self.store.set_tags(&input.bucket, name, tags).await;
        let written = written.map_err(s3_error)?;
        let output = PutObjectTaggingOutput { version_id: wire_version(&written.object) };
        let token = self.store.token(&input.bucket, &input.key, written.stamp);
        let mut response = S3Response::with_headers(output, stamp_headers(token));
        response.extensions.insert(ObjectEvents::wrote(Event::TaggingPut, &input.key, &written));
        Ok(response)
    }

    pub(super) async fn delete_object_tagging(
        &self,
        mut request: S3Request<DeleteObjectTaggingInput>,
    ) -> S3Result<S3Response<DeleteObjectTaggingOutput>> {
        parsed_headers(&mut request).refuse_conditions()?;
        let input = request.input;
        let name = named(&input.key, input.version_id.as_deref())?;
        let written = self.store.set_tags(&input.bucket, name, Vec::new()).await;
        let written = written.map_err(s3_error)?;
        let output = DeleteObjectTaggingOutput { version_id: wire_version(&written.object) };
        let token = self.store.token(&input.bucket, &input.key, written.stamp);
        let mut response = S3Response::with_headers(output, stamp_headers(token));
        response.extensions.insert(ObjectEvents::wrote(Event::TaggingDelete, &input.key, &written));
        Ok(response)
    }
}

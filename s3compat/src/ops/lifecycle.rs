//! Lifecycle rules of a bucket, and the headers of replies that depend on them.
//!
//! * [`wire`]: rules in S3's types, validated.
//! * [`expiration`]: headers of replies, such as `x-amz-expiration`.

mod expiration;
pub(super) mod wire;

use http::{HeaderName, StatusCode};
use martlet_protocol::Setting;
use martlet_protocol::lifecycle::Lifecycle;
use s3s::S3Result;
use s3s::dto::GetBucketLifecycleConfigurationOutput;

pub(super) use self::expiration::add_expiration_header;
use super::operations::Operations;
use crate::errors::{internal, s3_error};
use crate::fields::text;
use crate::messages;
use crate::reply::Reply;
use crate::request::OperationRequest;

const MINIMUM_SIZE: HeaderName =
    HeaderName::from_static("x-amz-transition-default-minimum-object-size");

/// Default of the minimum object size for transitions.
const MINIMUM_DEFAULT: &str = "all_storage_classes_128K";
const MINIMA: [&str; 2] = [MINIMUM_DEFAULT, "varies_by_storage_class"];

impl Operations {
    pub(super) async fn get_bucket_lifecycle_configuration(
        &self,
        request: &OperationRequest,
    ) -> S3Result<Reply> {
        let bucket = request.bucket();
        let document = self.store.buckets().setting(bucket, Setting::Lifecycle).await;
        let document =
            document.map_err(s3_error)?.ok_or_else(|| messages::NO_SUCH_LIFECYCLE.error())?;
        let lifecycle = Lifecycle::of(&document).map_err(|error| {
            tracing::error!(%error, "could not read the lifecycle rules of a bucket");
            internal()
        })?;
        let minimum = lifecycle.transition_minimum.as_deref().unwrap_or(MINIMUM_DEFAULT);
        let minimum = Some(minimum.to_owned());
        Reply::xml(&GetBucketLifecycleConfigurationOutput {
            transition_default_minimum_object_size: None,
            rules: Some(lifecycle.rules.into_iter().map(wire::to_wire).collect()),
        })?
        .with_header(MINIMUM_SIZE, minimum)
    }

    pub(super) async fn put_bucket_lifecycle_configuration(
        &self,
        request: &OperationRequest,
    ) -> S3Result<Reply> {
        let configuration = request.parse_optional_document()?;
        let given = text(&request.headers, &MINIMUM_SIZE)?.map(str::to_owned);
        request.refuse_conditions()?;
        if given.as_deref().is_some_and(|minimum| !MINIMA.contains(&minimum)) {
            return Err(messages::LIFECYCLE_MINIMUM.with_subject(MINIMA.join(", ")).into());
        }
        let rules = wire::from_wire(configuration)?;
        let lifecycle = Lifecycle { rules, transition_minimum: given };
        let document = lifecycle.document();
        let put = self.store.buckets().put_setting(request.bucket(), Setting::Lifecycle, document);
        put.await.map_err(s3_error)?;
        let minimum = lifecycle.transition_minimum.as_deref().unwrap_or(MINIMUM_DEFAULT);
        Reply::empty(StatusCode::OK).with_header(MINIMUM_SIZE, Some(minimum))
    }

    pub(super) async fn delete_bucket_lifecycle(
        &self,
        request: &OperationRequest,
    ) -> S3Result<Reply> {
        request.refuse_conditions()?;
        self.unset(request.bucket(), Setting::Lifecycle).await?;
        Ok(Reply::empty(StatusCode::NO_CONTENT))
    }
}

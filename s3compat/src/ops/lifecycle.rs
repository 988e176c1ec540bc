//! Lifecycle rules of a bucket, and the headers of replies that depend on them.
//!
//! * [`wire`]: rules in S3's types, validated.
//! * [`expiration`]: headers of replies, such as `x-amz-expiration`.

mod expiration;
mod wire;

use martlet_protocol::Setting;
use martlet_protocol::lifecycle::Lifecycle;
use s3s::dto::{
    DeleteBucketLifecycleInput, DeleteBucketLifecycleOutput, GetBucketLifecycleConfigurationInput,
    GetBucketLifecycleConfigurationOutput, PutBucketLifecycleConfigurationInput,
    PutBucketLifecycleConfigurationOutput, TransitionDefaultMinimumObjectSize,
};
use s3s::{S3Request, S3Response, S3Result};

use super::{Operations, parsed_headers};
use crate::errors::{internal, s3_error};
use crate::messages;

/// Default of the minimum object size for transitions.
const MINIMUM_DEFAULT: &str = "all_storage_classes_128K";
const MINIMA: [&str; 2] = [MINIMUM_DEFAULT, "varies_by_storage_class"];

impl Operations {
    pub(super) async fn get_bucket_lifecycle_configuration(
        &self,
        request: S3Request<GetBucketLifecycleConfigurationInput>,
    ) -> S3Result<S3Response<GetBucketLifecycleConfigurationOutput>> {
        let bucket = &request.input.bucket;
        let document = self.store.bucket_setting(bucket, Setting::Lifecycle).await;
        let document =
            document.map_err(s3_error)?.ok_or_else(|| messages::NO_SUCH_LIFECYCLE.error())?;
        let lifecycle = Lifecycle::of(&document).map_err(|error| {
            tracing::error!(%error, "could not read the lifecycle rules of a bucket");
            internal()
        })?;
        let minimum = lifecycle.transition_minimum.as_deref().unwrap_or(MINIMUM_DEFAULT);
        Ok(S3Response::new(GetBucketLifecycleConfigurationOutput {
            transition_default_minimum_object_size: Some(minimum_size(minimum)),
            rules: Some(lifecycle.rules.into_iter().map(wire::to_wire).collect()),
        }))
    }

    pub(super) async fn put_bucket_lifecycle_configuration(
        &self,
        mut request: S3Request<PutBucketLifecycleConfigurationInput>,
    ) -> S3Result<S3Response<PutBucketLifecycleConfigurationOutput>> {
        parsed_headers(&mut request).refuse_conditions()?;
        let input = request.input;
        let given = input.transition_default_minimum_object_size;
        let given = given.map(|minimum| minimum.as_str().to_owned());
        if given.as_deref().is_some_and(|minimum| !MINIMA.contains(&minimum)) {
            return Err(messages::LIFECYCLE_MINIMUM.with_subject(MINIMA.join(", ")).into());
        }
        let rules = wire::from_wire(input.lifecycle_configuration)?;
        let lifecycle = Lifecycle { rules, transition_minimum: given };
        let document = lifecycle.document();
        let put = self.store.put_bucket_setting(&input.bucket, Setting::Lifecycle, document);
        put.await.map_err(s3_error)?;
        let minimum = lifecycle.transition_minimum.as_deref().unwrap_or(MINIMUM_DEFAULT);
        Ok(S3Response::new(PutBucketLifecycleConfigurationOutput {
            transition_default_minimum_object_size: Some(minimum_size(minimum)),
        }))
    }

    pub(super) async fn delete_bucket_lifecycle(
        &self,
        mut request: S3Request<DeleteBucketLifecycleInput>,
    ) -> S3Result<S3Response<DeleteBucketLifecycleOutput>> {
        parsed_headers(&mut request).refuse_conditions()?;
        self.unset(&request.input.bucket, Setting::Lifecycle).await?;
        Ok(S3Response::new(DeleteBucketLifecycleOutput {}))
    }
}

fn minimum_size(text: &str) -> TransitionDefaultMinimumObjectSize {
    TransitionDefaultMinimumObjectSize::from(text.to_owned())
}

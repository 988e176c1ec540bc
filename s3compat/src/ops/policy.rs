//! Bucket policies: `GetBucketPolicy`, `PutBucketPolicy`, `DeleteBucketPolicy`,
//! `GetBucketPolicyStatus`.
//!
//! A policy is stored byte for byte and parsed at each use. A second setting holds the ids of the
//! principals that it names.

use http::{HeaderName, StatusCode};
use martlet_protocol::{Setting, Settings};
use s3s::dto::PolicyStatus;
use s3s::{S3Error, S3ErrorCode, S3Result, s3_error};

use super::operations::Operations;
use super::principals::{BindError, bind};
use super::settings::missing;
use crate::access::{Acl, Policy};
use crate::authorization::{AclSettings, is_blocked};
use crate::errors::{denied, internal, s3_error};
use crate::fields::flag;
use crate::reply::Reply;
use crate::request::OperationRequest;

const CONFIRM_REMOVAL: HeaderName =
    HeaderName::from_static("x-amz-confirm-remove-self-bucket-access");

impl Operations {
    pub(super) async fn get_bucket_policy(&self, request: &OperationRequest) -> S3Result<Reply> {
        let document = self.store.buckets().setting(request.bucket(), Setting::Policy).await;
        let document = document
            .map_err(s3_error)?
            .ok_or_else(|| missing("NoSuchBucketPolicy", "The bucket policy does not exist"))?;
        let mut reply = Reply::empty(StatusCode::OK);
        reply.body = document.into();
        Ok(reply)
    }

    pub(super) async fn put_bucket_policy(&self, request: &OperationRequest) -> S3Result<Reply> {
        let document = std::str::from_utf8(request.document())
            .map_err(|_| s3_error!(InvalidRequest, "expected UTF-8 body"))?;
        flag(&request.headers, &CONFIRM_REMOVAL)?;
        request.refuse_conditions()?;
        let bucket = request.bucket();
        let policy = Policy::parse(document.as_bytes(), bucket)
            .map_err(|why| malformed(&why.to_string()))?;
        let bound = bind(&self.store, document.as_bytes(), policy.names()).await;
        let bindings = bound.map_err(|unbound| match unbound {
            BindError::Unknown => malformed("Invalid principal in policy"),
            BindError::Failed(error) => s3_error(error),
        })?;
        let is_public = policy.is_public();
        let mut is_blocked = false;
        let put = |settings: &mut Settings| {
            is_blocked = is_public && blocks_public_policies(settings);
            if is_blocked {
                return Ok(());
            }
            settings.set(Setting::Policy, document.as_bytes().to_vec())?;
            Ok(settings.set(Setting::PolicyPrincipals, bindings.encode())?)
        };
        self.store.buckets().change_settings(bucket, put).await.map_err(s3_error)?;
        if is_blocked {
            return Err(denied());
        }
        Ok(Reply::empty(StatusCode::NO_CONTENT))
    }

    pub(super) async fn delete_bucket_policy(&self, request: &OperationRequest) -> S3Result<Reply> {
        request.refuse_conditions()?;
        let delete = |settings: &mut Settings| {
            settings.remove(Setting::Policy);
            settings.remove(Setting::PolicyPrincipals);
            Ok(())
        };
        let changed = self.store.buckets().change_settings(request.bucket(), delete).await;
        changed.map_err(s3_error)?;
        Ok(Reply::empty(StatusCode::NO_CONTENT))
    }

    /// Reports a bucket as public by its policy, or by grants that are not ignored.
    pub(super) async fn get_bucket_policy_status(
        &self,
        request: &OperationRequest,
    ) -> S3Result<Reply> {
        let bucket = request.bucket();
        let settings = self.store.buckets().settings(bucket).await.map_err(s3_error)?;
        let document = settings.get(Setting::Policy);
        let policy = document.map(|document| Policy::parse(document, bucket)).transpose();
        let policy = policy.map_err(|_| internal())?;
        let is_public =
            policy.is_some_and(|policy| policy.is_public()) || has_public_list(&settings);
        Reply::xml(&PolicyStatus { is_public: Some(is_public) })
    }
}

/// 400 `MalformedPolicy`, with S3's message.
fn malformed(why: &str) -> S3Error {
    let mut error = S3Error::with_message(S3ErrorCode::MalformedPolicy, why.to_owned());
    error.set_status_code(StatusCode::BAD_REQUEST);
    error
}

/// Returns true if a bucket's list grants anything to everyone.
fn has_public_list(settings: &Settings) -> bool {
    let control = AclSettings::of(settings);
    let document = settings.get(Setting::Acl);
    let document = document.filter(|_| !control.is_enforced() && !control.ignores_public);
    document.is_some_and(|document| Acl::decode(document, "").is_public())
}

/// Returns true if the bucket refuses public policies (`BlockPublicPolicy`).
fn blocks_public_policies(settings: &Settings) -> bool {
    is_blocked(settings, |block| block.block_public_policy)
}

#[cfg(test)]
mod tests {
    use s3s::dto::PublicAccessBlockConfiguration;

    use super::*;
    use crate::authorization::is_restricted;
    use crate::settings::to_document;

    #[test]
    fn a_block_applies_its_flags_and_a_broken_one_blocks_everything() {
        let mut settings = Settings::default();
        assert!(!blocks_public_policies(&settings) && !is_restricted(&settings));
        let block = PublicAccessBlockConfiguration {
            block_public_policy: Some(true),
            restrict_public_buckets: Some(false),
            ..Default::default()
        };
        settings.set(Setting::PublicAccessBlock, to_document(&block)).unwrap();
        assert!(blocks_public_policies(&settings) && !is_restricted(&settings));
        settings.set(Setting::PublicAccessBlock, b"<Broken".to_vec()).unwrap();
        assert!(blocks_public_policies(&settings) && is_restricted(&settings));
    }
}

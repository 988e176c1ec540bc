//! S3 operations over the object layer, one file for each group of operations.
//!
//! Each operation parses its request, calls the store and writes its reply. Operations that this
//! module lacks return NotImplemented. Replies to object reads set headers directly, because s3s
//! has three types with the same fields: GET, HEAD and "not modified".

mod access;
mod acl;
mod anonymous_check;
mod answers;
mod attributes;
mod authorization;
mod bucket_access;
mod buckets;
mod copy;
mod cors;
mod delete;
mod encoding;
mod encryption;
mod initiator;
mod lifecycle;
mod list;
mod lock;
mod logging;
mod multipart;
mod new_tags;
mod notification;
mod object_acl;
mod ownership;
mod parts;
mod policy;
mod policy_context;
mod principals;
mod read;
mod response_stream;
mod settings;
mod tagging;
mod uploads;
mod versions;
mod write;

use std::sync::Arc;

use futures::future::BoxFuture;
use http::{Extensions, StatusCode};
use martlet_proxy::{Ask, ObjectStore, Session};
#[allow(clippy::wildcard_imports, reason = "the request and reply of every operation below")]
use s3s::dto::*;
use s3s::{S3, S3Request, S3Response, S3Result};

pub(crate) use access::{NoSecrets, PolicyAccess};
pub(crate) use anonymous_check::StoreAnonymousCheck;
pub(crate) use cors::BucketCorsRules;
pub(crate) use logging::{mark_log, may_deliver};
pub(crate) use notification::{ConfiguredTargets, NotificationTargets, target_of};
pub(crate) use policy_context::{add_extensions, add_requester, add_time};
pub(crate) use principals::{BindError, bind};

use crate::auth::Identity;
use crate::messages;
use crate::request_headers::ParsedHeaders;
use crate::token::TokenKey;

/// Implementation of the S3 operations.
pub(crate) struct Operations {
    /// Session of the request, over the store.
    pub(crate) store: Session,
    /// Region that this store reports to clients.
    pub(crate) region: Arc<str>,
    pub(crate) tokens: TokenKey,
}

impl Operations {
    /// Returns the operations of one request, with the session in the request's extensions.
    fn of(&self, request: &Extensions) -> Self {
        Self {
            store: session(request, &self.store),
            region: self.region.clone(),
            tokens: self.tokens.clone(),
        }
    }
}

/// Returns the session of a request, or a new session with default settings.
fn session(request: &Extensions, store: &ObjectStore) -> Session {
    request.get::<Session>().cloned().unwrap_or_else(|| store.session(Ask::default()))
}

/// HTTP status of a reply, where it differs from the s3s default for that type of reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplyStatus(pub(crate) StatusCode);

/// Marks a reply whose document has its entity tag without quotes, as some of S3's documents do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BareTags;

/// Removes and returns the leniently parsed headers of a request.
fn parsed_headers<T>(request: &mut S3Request<T>) -> ParsedHeaders {
    request.extensions.remove().unwrap_or_default()
}

/// Canonical id of the requester. Anonymous requests are refused: they own nothing.
fn owner(extensions: &Extensions) -> S3Result<String> {
    extensions
        .get::<Identity>()
        .and_then(Identity::name)
        .map(str::to_owned)
        .ok_or_else(access::denied)
}

/// Returns the requested limit, at most `maximum`, which is also the default. Refuses negative
/// numbers.
fn limit(asked: Option<i32>, maximum: usize, name: &'static str) -> S3Result<usize> {
    let Some(asked) = asked else { return Ok(maximum) };
    match usize::try_from(asked) {
        Ok(asked) => Ok(asked.min(maximum)),
        Err(_) => Err(messages::LIMIT
            .with_subject(name)
            .with_detail("ArgumentName", name)
            .with_detail("ArgumentValue", asked.to_string())
            .into()),
    }
}

/// Object size in s3s's type. Objects are far smaller than `i64::MAX`.
fn wire_size(size: u64) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}

/// Count in s3s's type. Counts are at most a few thousand.
fn wire_count(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// Owner of a bucket in s3s's type, with its display name.
async fn wire_owner(store: &ObjectStore, canonical_id: &str) -> Owner {
    let name = store.owner_name(canonical_id).await;
    Owner { id: Some(canonical_id.to_owned()), display_name: Some(name.to_string()) }
}

/// Forwards each call of the s3s trait to the method of that name in `Operations`.
macro_rules! operations {
    ($($name:ident: $input:ident => $output:ident,)*) => {
        #[async_trait::async_trait]
        impl S3 for Operations {
            $(async fn $name(&self, request: S3Request<$input>) -> S3Result<S3Response<$output>> {
                let authorization = request.extensions.get().cloned();
                let operations = self.of(&request.extensions);
                encryption::unlock(&request.extensions, &operations.store)?;
                let outcome: BoxFuture<'_, _> = Box::pin(Operations::$name(&operations, request));
                access::conceal(authorization, outcome.await).await
            })*
        }
    };
}

operations! {
    abort_multipart_upload: AbortMultipartUploadInput => AbortMultipartUploadOutput,
    complete_multipart_upload: CompleteMultipartUploadInput => CompleteMultipartUploadOutput,
    copy_object: CopyObjectInput => CopyObjectOutput,
    create_bucket: CreateBucketInput => CreateBucketOutput,
    create_multipart_upload: CreateMultipartUploadInput => CreateMultipartUploadOutput,
    delete_bucket: DeleteBucketInput => DeleteBucketOutput,
    delete_bucket_cors: DeleteBucketCorsInput => DeleteBucketCorsOutput,
    delete_bucket_encryption: DeleteBucketEncryptionInput => DeleteBucketEncryptionOutput,
    delete_bucket_lifecycle: DeleteBucketLifecycleInput => DeleteBucketLifecycleOutput,
    delete_bucket_ownership_controls: DeleteBucketOwnershipControlsInput => DeleteBucketOwnershipControlsOutput,
    delete_bucket_tagging: DeleteBucketTaggingInput => DeleteBucketTaggingOutput,
    delete_bucket_policy: DeleteBucketPolicyInput => DeleteBucketPolicyOutput,
    delete_object: DeleteObjectInput => DeleteObjectOutput,
    delete_object_tagging: DeleteObjectTaggingInput => DeleteObjectTaggingOutput,
    delete_objects: DeleteObjectsInput => DeleteObjectsOutput,
    delete_public_access_block: DeletePublicAccessBlockInput => DeletePublicAccessBlockOutput,
    get_bucket_acl: GetBucketAclInput => GetBucketAclOutput,
    get_bucket_cors: GetBucketCorsInput => GetBucketCorsOutput,
    get_bucket_encryption: GetBucketEncryptionInput => GetBucketEncryptionOutput,
    get_bucket_lifecycle_configuration: GetBucketLifecycleConfigurationInput => GetBucketLifecycleConfigurationOutput,
    get_bucket_location: GetBucketLocationInput => GetBucketLocationOutput,
    get_bucket_logging: GetBucketLoggingInput => GetBucketLoggingOutput,
    get_bucket_notification_configuration: GetBucketNotificationConfigurationInput => GetBucketNotificationConfigurationOutput,
    get_bucket_ownership_controls: GetBucketOwnershipControlsInput => GetBucketOwnershipControlsOutput,
    get_bucket_request_payment: GetBucketRequestPaymentInput => GetBucketRequestPaymentOutput,
    get_bucket_tagging: GetBucketTaggingInput => GetBucketTaggingOutput,
    get_bucket_versioning: GetBucketVersioningInput => GetBucketVersioningOutput,
    get_bucket_policy: GetBucketPolicyInput => GetBucketPolicyOutput,
    get_bucket_policy_status: GetBucketPolicyStatusInput => GetBucketPolicyStatusOutput,
    get_object: GetObjectInput => GetObjectOutput,
    get_object_acl: GetObjectAclInput => GetObjectAclOutput,
    get_object_attributes: GetObjectAttributesInput => GetObjectAttributesOutput,
    get_object_legal_hold: GetObjectLegalHoldInput => GetObjectLegalHoldOutput,
    get_object_lock_configuration: GetObjectLockConfigurationInput => GetObjectLockConfigurationOutput,
    get_object_retention: GetObjectRetentionInput => GetObjectRetentionOutput,
    get_object_tagging: GetObjectTaggingInput => GetObjectTaggingOutput,
    get_public_access_block: GetPublicAccessBlockInput => GetPublicAccessBlockOutput,
    head_bucket: HeadBucketInput => HeadBucketOutput,
    head_object: HeadObjectInput => HeadObjectOutput,
    list_buckets: ListBucketsInput => ListBucketsOutput,
    list_multipart_uploads: ListMultipartUploadsInput => ListMultipartUploadsOutput,
    list_object_versions: ListObjectVersionsInput => ListObjectVersionsOutput,
    list_objects: ListObjectsInput => ListObjectsOutput,
    list_objects_v2: ListObjectsV2Input => ListObjectsV2Output,
    list_parts: ListPartsInput => ListPartsOutput,
    put_bucket_acl: PutBucketAclInput => PutBucketAclOutput,
    put_bucket_cors: PutBucketCorsInput => PutBucketCorsOutput,
    put_bucket_encryption: PutBucketEncryptionInput => PutBucketEncryptionOutput,
    put_bucket_lifecycle_configuration: PutBucketLifecycleConfigurationInput => PutBucketLifecycleConfigurationOutput,
    put_bucket_logging: PutBucketLoggingInput => PutBucketLoggingOutput,
    put_bucket_notification_configuration: PutBucketNotificationConfigurationInput => PutBucketNotificationConfigurationOutput,
    put_bucket_ownership_controls: PutBucketOwnershipControlsInput => PutBucketOwnershipControlsOutput,
    put_bucket_tagging: PutBucketTaggingInput => PutBucketTaggingOutput,
    put_bucket_policy: PutBucketPolicyInput => PutBucketPolicyOutput,
    put_bucket_versioning: PutBucketVersioningInput => PutBucketVersioningOutput,
    put_object: PutObjectInput => PutObjectOutput,
    put_object_acl: PutObjectAclInput => PutObjectAclOutput,
    put_object_legal_hold: PutObjectLegalHoldInput => PutObjectLegalHoldOutput,
    put_object_lock_configuration: PutObjectLockConfigurationInput => PutObjectLockConfigurationOutput,
    put_object_retention: PutObjectRetentionInput => PutObjectRetentionOutput,
    put_object_tagging: PutObjectTaggingInput => PutObjectTaggingOutput,
    put_public_access_block: PutPublicAccessBlockInput => PutPublicAccessBlockOutput,
    upload_part: UploadPartInput => UploadPartOutput,
    upload_part_copy: UploadPartCopyInput => UploadPartCopyOutput,
}

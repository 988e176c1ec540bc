//! S3 operations over the object layer, one file for each group of operations.
//!
//! Each operation reads the fields of its request, calls the store and builds its reply. Replies to
//! reads and writes of objects are headers, set directly. Documents are values of s3s's types.

mod access;
mod acl;
mod anonymous_check;
mod answers;
mod attributes;
mod authorization;
mod bucket_access;
mod buckets;
mod completion;
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
mod new_bucket;
mod notification;
mod object_acl;
mod ownership;
mod parts;
mod policy;
mod policy_context;
mod principals;
mod read;
mod settings;
mod tagging;
mod uploads;
mod versions;
mod write;

use std::sync::Arc;

use futures::future::BoxFuture;
use martlet_protocol::Clock;
use martlet_proxy::{ObjectStore, Session};
use s3s::S3Result;
use s3s::dto::Owner;

pub(crate) use access::{AccessCheck, conceal, denied};
pub(crate) use acl::AclSettings;
pub(crate) use anonymous_check::StoreAnonymousCheck;
pub(crate) use authorization::Authorization;
pub(crate) use cors::BucketCorsRules;
pub(crate) use encryption::unlock;
pub(crate) use logging::{mark_log, may_deliver};
pub(crate) use notification::target_of;
pub(crate) use policy::is_restricted;
pub(crate) use policy_context::{add_connection, add_requester, add_time};
pub(crate) use principals::{BindError, bind};
pub(crate) use versions::named;

use crate::body::RequestBody;
use crate::dispatch::Reply;
use crate::http::Operation;
use crate::messages;
use crate::request::OperationRequest;
use crate::token::TokenKey;

/// Namespace of S3's documents.
const NAMESPACE: &str = "http://s3.amazonaws.com/doc/2006-03-01/";

/// Operations of one request.
pub(crate) struct Operations {
    /// Session of the request, over the store.
    pub(crate) store: Session,
    pub(crate) clock: Arc<dyn Clock>,
    /// Region that this store reports to clients.
    pub(crate) region: Arc<str>,
    pub(crate) tokens: TokenKey,
}

/// Canonical id of the requester. Anonymous requests are refused: they own nothing.
fn owner(request: &OperationRequest) -> S3Result<String> {
    request.context.identity.name().map(str::to_owned).ok_or_else(denied)
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

/// Declares the method of each operation. Methods that store a body receive the body; all others
/// receive the head alone.
macro_rules! methods {
    (
        with body { $($storing:ident => $store:ident,)* }
        with head { $($operation:ident => $method:ident,)* }
    ) => {
        impl Operations {
            /// Runs the operation of a request. The future is boxed: one of all operations together
            /// would be as large as the largest.
            pub(crate) fn call<'a>(
                &'a self,
                request: &'a OperationRequest,
                body: RequestBody,
            ) -> BoxFuture<'a, S3Result<Reply>> {
                match request.operation() {
                    $(Operation::$storing => Box::pin(self.$store(request, body)),)*
                    $(Operation::$operation => Box::pin(self.$method(request)),)*
                }
            }
        }
    };
}

methods! {
    with body {
        PostObject => put_object,
        PutObject => put_object,
        UploadPart => upload_part,
    }
    with head {
        AbortMultipartUpload => abort_multipart_upload,
        CompleteMultipartUpload => complete_multipart_upload,
        CopyObject => copy_object,
        CreateBucket => create_bucket,
        CreateMultipartUpload => create_multipart_upload,
        DeleteBucket => delete_bucket,
        DeleteBucketCors => delete_bucket_cors,
        DeleteBucketEncryption => delete_bucket_encryption,
        DeleteBucketLifecycle => delete_bucket_lifecycle,
        DeleteBucketOwnershipControls => delete_bucket_ownership_controls,
        DeleteBucketPolicy => delete_bucket_policy,
        DeleteBucketTagging => delete_bucket_tagging,
        DeleteObject => delete_object,
        DeleteObjectTagging => delete_object_tagging,
        DeleteObjects => delete_objects,
        DeletePublicAccessBlock => delete_public_access_block,
        GetBucketAcl => get_bucket_acl,
        GetBucketCors => get_bucket_cors,
        GetBucketEncryption => get_bucket_encryption,
        GetBucketLifecycleConfiguration => get_bucket_lifecycle_configuration,
        GetBucketLocation => get_bucket_location,
        GetBucketLogging => get_bucket_logging,
        GetBucketNotificationConfiguration => get_bucket_notification_configuration,
        GetBucketOwnershipControls => get_bucket_ownership_controls,
        GetBucketPolicy => get_bucket_policy,
        GetBucketPolicyStatus => get_bucket_policy_status,
        GetBucketRequestPayment => get_bucket_request_payment,
        GetBucketTagging => get_bucket_tagging,
        GetBucketVersioning => get_bucket_versioning,
        GetObject => get_object,
        GetObjectAcl => get_object_acl,
        GetObjectAttributes => get_object_attributes,
        GetObjectLegalHold => get_object_legal_hold,
        GetObjectLockConfiguration => get_object_lock_configuration,
        GetObjectRetention => get_object_retention,
        GetObjectTagging => get_object_tagging,
        GetPublicAccessBlock => get_public_access_block,
        HeadBucket => head_bucket,
        HeadObject => head_object,
        ListBuckets => list_buckets,
        ListMultipartUploads => list_multipart_uploads,
        ListObjectVersions => list_object_versions,
        ListObjects => list_objects,
        ListObjectsV2 => list_objects_v2,
        ListParts => list_parts,
        PutBucketAcl => put_bucket_acl,
        PutBucketCors => put_bucket_cors,
        PutBucketEncryption => put_bucket_encryption,
        PutBucketLifecycleConfiguration => put_bucket_lifecycle_configuration,
        PutBucketLogging => put_bucket_logging,
        PutBucketNotificationConfiguration => put_bucket_notification_configuration,
        PutBucketOwnershipControls => put_bucket_ownership_controls,
        PutBucketPolicy => put_bucket_policy,
        PutBucketTagging => put_bucket_tagging,
        PutBucketVersioning => put_bucket_versioning,
        PutObjectAcl => put_object_acl,
        PutObjectLegalHold => put_object_legal_hold,
        PutObjectLockConfiguration => put_object_lock_configuration,
        PutObjectRetention => put_object_retention,
        PutObjectTagging => put_object_tagging,
        PutPublicAccessBlock => put_public_access_block,
        UploadPartCopy => upload_part_copy,
    }
}

//! Method of each operation. An operation without a method does not compile.

use futures::future::BoxFuture;
use s3s::S3Result;

use super::operations::Operations;
use crate::body::RequestBody;
use crate::operation::Operation;
use crate::reply::Reply;
use crate::request::OperationRequest;

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
        CommitCheckpoint => commit_checkpoint,
        CompleteMultipartUpload => complete_multipart_upload,
        CopyObject => copy_object,
        CreateBucket => create_bucket,
        CreateMultipartUpload => create_multipart_upload,
        DeleteBucket => delete_bucket,
        DeleteBucketCheckpoints => delete_bucket_checkpoints,
        DeleteBucketCors => delete_bucket_cors,
        DeleteBucketEncryption => delete_bucket_encryption,
        DeleteBucketLifecycle => delete_bucket_lifecycle,
        DeleteBucketOwnershipControls => delete_bucket_ownership_controls,
        DeleteBucketPolicy => delete_bucket_policy,
        DeleteBucketTagging => delete_bucket_tagging,
        DeleteCheckpoint => delete_checkpoint,
        DeleteObject => delete_object,
        DeleteObjectTagging => delete_object_tagging,
        DeleteObjects => delete_objects,
        DeletePublicAccessBlock => delete_public_access_block,
        GetBucketAcl => get_bucket_acl,
        GetBucketCheckpoints => get_bucket_checkpoints,
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
        GetCheckpoint => get_checkpoint,
        GetCheckpointRetention => get_checkpoint_retention,
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
        HoldCheckpoint => hold_checkpoint,
        ListBuckets => list_buckets,
        ListMultipartUploads => list_multipart_uploads,
        ListObjectVersions => list_object_versions,
        ListObjects => list_objects,
        ListObjectsV2 => list_objects_v2,
        ListParts => list_parts,
        LocateObject => locate_object,
        PutBucketAcl => put_bucket_acl,
        PutBucketCheckpoints => put_bucket_checkpoints,
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

//! Names of operations in access logs, such as `REST.GET.OBJECT`.

use crate::operation::{Operation, PathKind};

/// Name of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OperationName<'a> {
    interface: &'static str,
    verb: &'a str,
    noun: &'static str,
}

impl<'a> OperationName<'a> {
    /// Deletion of one of many keys.
    pub(super) const BATCH_DELETE: OperationName<'static> =
        OperationName { interface: "BATCH", verb: "DELETE", noun: "OBJECT" };

    /// Name of an operation with the method `method`. A request that was refused before routing is
    /// named after its path.
    pub(crate) fn of(operation: Option<Operation>, method: &'a str, path: PathKind) -> Self {
        let noun = operation.and_then(resource_name).unwrap_or(match path {
            PathKind::Service => "SERVICE",
            PathKind::Bucket => "BUCKET",
            PathKind::Object => "OBJECT",
        });
        let is_copy = operation.is_some_and(|operation| operation.row().is_copy);
        Self { interface: "REST", verb: if is_copy { "COPY" } else { method }, noun }
    }

    /// Interface, verb and noun, which points separate. The verb may be any that a client sends.
    pub(super) fn parts(&self) -> (&'static str, &'a str, &'static str) {
        (self.interface, self.verb, self.noun)
    }
}

/// Resource in the name, unless it is the bucket or object itself.
fn resource_name(operation: Operation) -> Option<&'static str> {
    use Operation as O;
    Some(match operation {
        O::ListBuckets
        | O::HeadBucket
        | O::ListObjectsV2
        | O::ListObjects
        | O::CreateBucket
        | O::DeleteBucket
        | O::HeadObject
        | O::GetObject
        | O::CopyObject
        | O::PutObject
        | O::DeleteObject => return None,
        O::AbortMultipartUpload | O::CompleteMultipartUpload | O::ListParts => "UPLOAD",
        O::CreateMultipartUpload | O::ListMultipartUploads => "UPLOADS",
        O::UploadPart | O::UploadPartCopy => "PART",
        O::DeleteObjects => "MULTI_OBJECT_DELETE",
        O::PostObject => "OBJECT",
        O::ListObjectVersions => "BUCKETVERSIONS",
        O::GetBucketLocation => "LOCATION",
        O::GetBucketAcl | O::PutBucketAcl | O::GetObjectAcl | O::PutObjectAcl => "ACL",
        O::GetBucketCheckpoints | O::PutBucketCheckpoints | O::DeleteBucketCheckpoints => {
            "CHECKPOINTS"
        }
        O::GetCheckpointRetention => "CHECKPOINT_RETENTION",
        O::GetCheckpoint | O::CommitCheckpoint | O::HoldCheckpoint | O::DeleteCheckpoint => {
            "CHECKPOINT"
        }
        O::GetBucketCors | O::PutBucketCors | O::DeleteBucketCors => "CORS",
        O::GetBucketEncryption | O::PutBucketEncryption | O::DeleteBucketEncryption => "ENCRYPTION",
        O::GetBucketLifecycleConfiguration
        | O::PutBucketLifecycleConfiguration
        | O::DeleteBucketLifecycle => "LIFECYCLE",
        O::GetBucketLogging | O::PutBucketLogging => "LOGGING_STATUS",
        O::GetBucketNotificationConfiguration | O::PutBucketNotificationConfiguration => {
            "NOTIFICATION"
        }
        O::GetBucketOwnershipControls
        | O::PutBucketOwnershipControls
        | O::DeleteBucketOwnershipControls => "OWNERSHIP_CONTROLS",
        O::GetBucketPolicy | O::PutBucketPolicy | O::DeleteBucketPolicy => "BUCKETPOLICY",
        O::GetBucketPolicyStatus => "POLICY_STATUS",
        O::GetBucketRequestPayment => "REQUEST_PAYMENT",
        O::GetBucketTagging | O::PutBucketTagging | O::DeleteBucketTagging => "TAGGING",
        O::GetBucketVersioning | O::PutBucketVersioning => "VERSIONING",
        O::GetPublicAccessBlock | O::PutPublicAccessBlock | O::DeletePublicAccessBlock => {
            "PUBLIC_ACCESS_BLOCK"
        }
        O::GetObjectAttributes => "OBJECT_ATTRIBUTES",
        O::LocateObject => "LOCATE",
        O::GetObjectLockConfiguration | O::PutObjectLockConfiguration => {
            "OBJECT_LOCK_CONFIGURATION"
        }
        O::GetObjectLegalHold | O::PutObjectLegalHold => "LEGAL_HOLD",
        O::GetObjectRetention | O::PutObjectRetention => "RETENTION",
        O::GetObjectTagging | O::PutObjectTagging | O::DeleteObjectTagging => "OBJECT_TAGGING",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: &OperationName<'_>) -> String {
        let (interface, verb, noun) = name.parts();
        [interface, verb, noun].join(".")
    }

    fn of(operation: Operation) -> String {
        let row = operation.row();
        text(&OperationName::of(Some(operation), row.method, row.path))
    }

    #[test]
    fn names_are_s3s() {
        for (operation, expected) in [
            (Operation::GetObject, "REST.GET.OBJECT"),
            (Operation::PutObject, "REST.PUT.OBJECT"),
            (Operation::HeadObject, "REST.HEAD.OBJECT"),
            (Operation::CopyObject, "REST.COPY.OBJECT"),
            (Operation::UploadPartCopy, "REST.COPY.PART"),
            (Operation::CompleteMultipartUpload, "REST.POST.UPLOAD"),
            (Operation::DeleteObjects, "REST.POST.MULTI_OBJECT_DELETE"),
            (Operation::ListObjectsV2, "REST.GET.BUCKET"),
            (Operation::ListBuckets, "REST.GET.SERVICE"),
            (Operation::GetObjectAcl, "REST.GET.ACL"),
            (Operation::PutBucketAcl, "REST.PUT.ACL"),
            (Operation::PutBucketTagging, "REST.PUT.TAGGING"),
            (Operation::DeleteObjectTagging, "REST.DELETE.OBJECT_TAGGING"),
            (Operation::GetBucketLogging, "REST.GET.LOGGING_STATUS"),
            (Operation::GetObjectRetention, "REST.GET.RETENTION"),
        ] {
            assert_eq!(of(operation), expected);
        }
    }

    #[test]
    fn only_what_is_done_to_a_thing_itself_is_called_by_its_path() {
        let all = Operation::ALL.iter().copied();
        let plain: Vec<_> = all.filter(|it| resource_name(*it).is_none()).collect();
        let expected = [
            Operation::ListBuckets,
            Operation::HeadBucket,
            Operation::ListObjectsV2,
            Operation::ListObjects,
            Operation::CreateBucket,
            Operation::DeleteBucket,
            Operation::HeadObject,
            Operation::GetObject,
            Operation::CopyObject,
            Operation::PutObject,
            Operation::DeleteObject,
        ];
        assert_eq!(plain, expected);
        let refused = OperationName::of(None, "PATCH", PathKind::Object);
        assert_eq!(text(&refused), "REST.PATCH.OBJECT");
    }
}

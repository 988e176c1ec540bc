//! Names of operations in access logs, such as `REST.GET.OBJECT`.

use crate::http::{Operation, PathKind};

/// Name of an operation with the method `method`. A request that was refused before routing is
/// named after its path.
pub(crate) fn name(operation: Option<&Operation>, method: &str, path: PathKind) -> String {
    let noun = operation.and_then(resource_name).unwrap_or(match path {
        PathKind::Service => "SERVICE",
        PathKind::Bucket => "BUCKET",
        PathKind::Object => "OBJECT",
    });
    let is_copy = operation.is_some_and(|operation| operation.is_copy);
    format!("REST.{}.{noun}", if is_copy { "COPY" } else { method })
}

/// Resource in the name, unless it is the bucket or object itself.
fn resource_name(operation: &Operation) -> Option<&'static str> {
    Some(match operation.name {
        "AbortMultipartUpload" | "CompleteMultipartUpload" | "ListParts" => "UPLOAD",
        "CreateMultipartUpload" | "ListMultipartUploads" => "UPLOADS",
        "UploadPart" | "UploadPartCopy" => "PART",
        "DeleteObjects" => "MULTI_OBJECT_DELETE",
        "PostObject" => "OBJECT",
        "ListObjectVersions" => "BUCKETVERSIONS",
        "GetBucketLocation" => "LOCATION",
        "GetBucketPolicyStatus" => "POLICY_STATUS",
        "GetObjectAttributes" => "OBJECT_ATTRIBUTES",
        "GetObjectLockConfiguration" | "PutObjectLockConfiguration" => "OBJECT_LOCK_CONFIGURATION",
        "GetObjectTagging" | "PutObjectTagging" | "DeleteObjectTagging" => "OBJECT_TAGGING",
        name => {
            const ENDS: [(&str, &str); 15] = [
                ("Acl", "ACL"),
                ("BucketCors", "CORS"),
                ("BucketEncryption", "ENCRYPTION"),
                ("BucketLifecycle", "LIFECYCLE"),
                ("BucketLifecycleConfiguration", "LIFECYCLE"),
                ("BucketLogging", "LOGGING_STATUS"),
                ("BucketNotificationConfiguration", "NOTIFICATION"),
                ("BucketOwnershipControls", "OWNERSHIP_CONTROLS"),
                ("BucketPolicy", "BUCKETPOLICY"),
                ("BucketTagging", "TAGGING"),
                ("BucketVersioning", "VERSIONING"),
                ("PublicAccessBlock", "PUBLIC_ACCESS_BLOCK"),
                ("ObjectLegalHold", "LEGAL_HOLD"),
                ("ObjectRetention", "RETENTION"),
                ("RequestPayment", "REQUEST_PAYMENT"),
            ];
            ENDS.iter().find(|(end, _)| name.ends_with(end))?.1
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::TABLE;

    fn of(name_of: &str) -> String {
        let row = TABLE.iter().find(|row| row.name == name_of).unwrap();
        name(Some(row), row.method, row.path)
    }

    #[test]
    fn names_are_s3s() {
        for (operation, expected) in [
            ("GetObject", "REST.GET.OBJECT"),
            ("PutObject", "REST.PUT.OBJECT"),
            ("HeadObject", "REST.HEAD.OBJECT"),
            ("CopyObject", "REST.COPY.OBJECT"),
            ("UploadPartCopy", "REST.COPY.PART"),
            ("CompleteMultipartUpload", "REST.POST.UPLOAD"),
            ("DeleteObjects", "REST.POST.MULTI_OBJECT_DELETE"),
            ("ListObjectsV2", "REST.GET.BUCKET"),
            ("ListBuckets", "REST.GET.SERVICE"),
            ("GetObjectAcl", "REST.GET.ACL"),
            ("PutBucketAcl", "REST.PUT.ACL"),
            ("PutBucketTagging", "REST.PUT.TAGGING"),
            ("DeleteObjectTagging", "REST.DELETE.OBJECT_TAGGING"),
            ("GetBucketLogging", "REST.GET.LOGGING_STATUS"),
            ("GetObjectRetention", "REST.GET.RETENTION"),
        ] {
            assert_eq!(of(operation), expected);
        }
    }

    #[test]
    fn only_what_is_done_to_a_thing_itself_is_called_by_its_path() {
        let plain: Vec<_> =
            TABLE.iter().filter(|row| resource_name(row).is_none()).map(|row| row.name).collect();
        let expected = [
            "ListBuckets",
            "HeadBucket",
            "ListObjectsV2",
            "ListObjects",
            "CreateBucket",
            "DeleteBucket",
            "HeadObject",
            "GetObject",
            "CopyObject",
            "PutObject",
            "DeleteObject",
        ];
        assert_eq!(plain, expected);
        assert_eq!(name(None, "PATCH", PathKind::Object), "REST.PATCH.OBJECT");
    }
}

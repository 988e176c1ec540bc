//! Actions of each operation.
//!
//! This is the only such mapping: an operation that is missing here is permitted to the owner only.

use super::action::Action;

/// Properties of a request, besides its operation, that decide its actions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent header or query key")]
pub(crate) struct RequestTraits {
    /// It names a version of the object.
    pub(crate) names_version: bool,
    /// It sets tags of the object that it writes.
    pub(crate) sets_tags: bool,
    /// It requests an access control list other than the default.
    pub(crate) sets_acl: bool,
    /// It requests a retention of the object that it writes.
    pub(crate) sets_retention: bool,
    /// It requests a legal hold on the object that it writes.
    pub(crate) sets_legal_hold: bool,
    /// It requests to bypass a retention in governance mode.
    pub(crate) bypasses_governance: bool,
}

/// Actions of an operation, all of which must be allowed. The first one is the operation's own.
/// `None` for an unknown operation.
///
/// `DeleteObjects` and `PostObject` name their keys in their bodies: the actions apply to each key.
/// For a copy these are the actions on the destination; reading the source is checked separately,
/// as `GetObject`.
pub(crate) fn actions(operation: &str, case: RequestTraits) -> Option<Vec<Action>> {
    use Action as A;
    if let Some(action) = of_bucket(operation) {
        return Some(vec![action]);
    }
    let version = |plain, of_version| if case.names_version { of_version } else { plain };
    let mut actions = vec![match operation {
        "CreateBucket" => A::CreateBucket,
        "ListBuckets" => A::ListAllMyBuckets,
        "GetObject" | "HeadObject" | "SelectObjectContent" => {
            version(A::GetObject, A::GetObjectVersion)
        }
        "GetObjectAcl" => version(A::GetObjectAcl, A::GetObjectVersionAcl),
        "GetObjectAttributes" => {
            return Some(vec![
                version(A::GetObject, A::GetObjectVersion),
                version(A::GetObjectAttributes, A::GetObjectVersionAttributes),
            ]);
        }
        "GetObjectLegalHold" => A::GetObjectLegalHold,
        "GetObjectRetention" => A::GetObjectRetention,
        "GetObjectTagging" => version(A::GetObjectTagging, A::GetObjectVersionTagging),
        "GetObjectTorrent" => version(A::GetObjectTorrent, A::GetObjectVersionTorrent),
        "ListParts" => A::ListMultipartUploadParts,
        "PutObject"
        | "PostObject"
        | "CopyObject"
        | "CreateMultipartUpload"
        | "UploadPart"
        | "UploadPartCopy"
        | "CompleteMultipartUpload" => A::PutObject,
        "PutObjectAcl" => version(A::PutObjectAcl, A::PutObjectVersionAcl),
        "PutObjectLegalHold" => A::PutObjectLegalHold,
        "PutObjectRetention" => A::PutObjectRetention,
        "PutObjectTagging" => version(A::PutObjectTagging, A::PutObjectVersionTagging),
        "DeleteObjectTagging" => version(A::DeleteObjectTagging, A::DeleteObjectVersionTagging),
        "DeleteObject" | "DeleteObjects" => version(A::DeleteObject, A::DeleteObjectVersion),
        "AbortMultipartUpload" => A::AbortMultipartUpload,
        "RestoreObject" => A::RestoreObject,
        _ => return None,
    }];
    let is_writing = actions == [A::PutObject];
    let further = [
        (case.sets_tags && is_writing, A::PutObjectTagging),
        (case.sets_acl && is_writing, A::PutObjectAcl),
        (case.sets_retention && is_writing, A::PutObjectRetention),
        (case.sets_legal_hold && is_writing, A::PutObjectLegalHold),
        (case.bypasses_governance, A::BypassGovernanceRetention),
    ];
    actions.extend(further.into_iter().filter(|(is_asked, _)| *is_asked).map(|(_, action)| action));
    Some(actions)
}

/// Action of an operation on a bucket.
fn of_bucket(operation: &str) -> Option<Action> {
    use Action as A;
    Some(match operation {
        "DeleteBucket" => A::DeleteBucket,
        "DeleteBucketPolicy" => A::DeleteBucketPolicy,
        "DeleteBucketWebsite" => A::DeleteBucketWebsite,
        "GetBucketAccelerateConfiguration" => A::GetAccelerateConfiguration,
        "GetBucketAcl" => A::GetBucketAcl,
        "GetBucketCors" => A::GetBucketCORS,
        "GetBucketEncryption" => A::GetEncryptionConfiguration,
        "GetBucketLifecycle" | "GetBucketLifecycleConfiguration" => A::GetLifecycleConfiguration,
        "GetBucketLocation" => A::GetBucketLocation,
        "GetBucketLogging" => A::GetBucketLogging,
        "GetBucketNotification" | "GetBucketNotificationConfiguration" => A::GetBucketNotification,
        "GetBucketOwnershipControls" => A::GetBucketOwnershipControls,
        "GetBucketPolicy" => A::GetBucketPolicy,
        "GetBucketPolicyStatus" => A::GetBucketPolicyStatus,
        "GetBucketReplication" => A::GetReplicationConfiguration,
        "GetBucketRequestPayment" => A::GetBucketRequestPayment,
        "GetBucketTagging" => A::GetBucketTagging,
        "GetBucketVersioning" => A::GetBucketVersioning,
        "GetBucketWebsite" => A::GetBucketWebsite,
        "GetObjectLockConfiguration" => A::GetBucketObjectLockConfiguration,
        "GetPublicAccessBlock" => A::GetBucketPublicAccessBlock,
        "HeadBucket" | "ListObjects" | "ListObjectsV2" => A::ListBucket,
        "ListMultipartUploads" => A::ListBucketMultipartUploads,
        "ListObjectVersions" => A::ListBucketVersions,
        "PutBucketAccelerateConfiguration" => A::PutAccelerateConfiguration,
        "PutBucketAcl" => A::PutBucketAcl,
        "PutBucketCors" | "DeleteBucketCors" => A::PutBucketCORS,
        "PutBucketEncryption" | "DeleteBucketEncryption" => A::PutEncryptionConfiguration,
        "PutBucketLifecycle" | "PutBucketLifecycleConfiguration" | "DeleteBucketLifecycle" => {
            A::PutLifecycleConfiguration
        }
        "PutBucketLogging" => A::PutBucketLogging,
        "PutBucketNotification" | "PutBucketNotificationConfiguration" => A::PutBucketNotification,
        "PutBucketOwnershipControls" | "DeleteBucketOwnershipControls" => {
            A::PutBucketOwnershipControls
        }
        "PutBucketPolicy" => A::PutBucketPolicy,
        "PutBucketReplication" | "DeleteBucketReplication" => A::PutReplicationConfiguration,
        "PutBucketRequestPayment" => A::PutBucketRequestPayment,
        "PutBucketTagging" | "DeleteBucketTagging" => A::PutBucketTagging,
        "PutBucketVersioning" => A::PutBucketVersioning,
        "PutBucketWebsite" => A::PutBucketWebsite,
        "PutObjectLockConfiguration" => A::PutBucketObjectLockConfiguration,
        "PutPublicAccessBlock" | "DeletePublicAccessBlock" => A::PutBucketPublicAccessBlock,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::ResourceKind;
    use super::*;
    use crate::http::{PathKind, TABLE};

    /// Operations on a bucket that name their keys in their bodies.
    const BY_KEY: [&str; 2] = ["DeleteObjects", "PostObject"];

    #[test]
    fn every_operation_of_the_table_has_its_actions() {
        for row in TABLE {
            let actions = actions(row.name, RequestTraits::default());
            let actions = actions.unwrap_or_else(|| panic!("{} is no action", row.name));
            let scope = match row.path {
                _ if BY_KEY.contains(&row.name) => ResourceKind::Object,
                _ if row.name == "CreateBucket" => ResourceKind::Service,
                PathKind::Service => ResourceKind::Service,
                PathKind::Bucket => ResourceKind::Bucket,
                PathKind::Object => ResourceKind::Object,
            };
            for action in actions {
                assert_eq!(action.scope(), scope, "{} is {}", row.name, action.name());
            }
        }
    }

    #[test]
    fn versions_have_actions_of_their_own() {
        let case = RequestTraits { names_version: true, ..RequestTraits::default() };
        for (operation, action) in [
            ("GetObject", "s3:GetObjectVersion"),
            ("HeadObject", "s3:GetObjectVersion"),
            ("DeleteObject", "s3:DeleteObjectVersion"),
            ("DeleteObjects", "s3:DeleteObjectVersion"),
            ("GetObjectTagging", "s3:GetObjectVersionTagging"),
            ("PutObjectTagging", "s3:PutObjectVersionTagging"),
            ("DeleteObjectTagging", "s3:DeleteObjectVersionTagging"),
            ("GetObjectAcl", "s3:GetObjectVersionAcl"),
            ("PutObjectAcl", "s3:PutObjectVersionAcl"),
        ] {
            assert_eq!(actions(operation, case).unwrap()[0].name(), action, "{operation}");
        }
        let both = actions("GetObjectAttributes", case).unwrap();
        assert_eq!(both, [Action::GetObjectVersion, Action::GetObjectVersionAttributes]);
    }

    #[test]
    fn what_a_write_sets_is_asked_for_too() {
        let all = RequestTraits {
            names_version: false,
            sets_tags: true,
            sets_acl: true,
            sets_retention: true,
            sets_legal_hold: true,
            bypasses_governance: false,
        };
        let expected = [
            Action::PutObject,
            Action::PutObjectTagging,
            Action::PutObjectAcl,
            Action::PutObjectRetention,
            Action::PutObjectLegalHold,
        ];
        for operation in ["PutObject", "CopyObject", "CreateMultipartUpload", "PostObject"] {
            assert_eq!(actions(operation, all).unwrap(), expected, "{operation}");
        }
        assert_eq!(actions("GetObject", all).unwrap(), [Action::GetObject]);
        let bypass = RequestTraits { bypasses_governance: true, ..RequestTraits::default() };
        let both = [Action::DeleteObject, Action::BypassGovernanceRetention];
        assert_eq!(actions("DeleteObject", bypass).unwrap(), both);
    }

    #[test]
    fn what_is_not_known_has_none() {
        assert_eq!(actions("RenameObject", RequestTraits::default()), None);
        assert_eq!(actions("getobject", RequestTraits::default()), None);
    }
}

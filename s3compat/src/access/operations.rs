//! Actions of each operation.
//!
//! This is the only such mapping. An operation without an action does not compile.

use super::action::{Action, ResourceKind};
use crate::few::Few;
use crate::operation::Operation;

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
///
/// `DeleteObjects` and `PostObject` name their keys in their bodies: the actions apply to each key.
/// For a copy these are the actions on the destination; reading the source is checked separately,
/// as `GetObject`.
pub(crate) fn actions(operation: Operation, case: RequestTraits) -> Few<Action> {
    use Action as A;
    let version = |(plain, of_version)| if case.names_version { of_version } else { plain };
    let own = version(own_actions(operation));
    if operation == Operation::GetObjectAttributes {
        let mut actions = Few::one(version((A::GetObject, A::GetObjectVersion)));
        actions.push(own);
        return actions;
    }
    // The names of sets are those of folders, which a listing shows.
    let mut actions = Few::one(own);
    if operation == Operation::GetCheckpointRetention {
        actions.push(A::ListBucket);
    }
    if own.scope() != ResourceKind::Object {
        return actions;
    }
    let is_writing = own == A::PutObject;
    let further = [
        (case.sets_tags && is_writing, A::PutObjectTagging),
        (case.sets_acl && is_writing, A::PutObjectAcl),
        (case.sets_retention && is_writing, A::PutObjectRetention),
        (case.sets_legal_hold && is_writing, A::PutObjectLegalHold),
        (case.bypasses_governance, A::BypassGovernanceRetention),
    ];
    for (_, action) in further.into_iter().filter(|(is_requested, _)| *is_requested) {
        actions.push(action);
    }
    actions
}

/// Declares the own actions of operations: `operations: action;`, or `operations: action on the
/// current version, action on a version that the request names;`.
macro_rules! own_actions {
    ($($($operation:ident)+: $action:ident $(, $of_version:ident)?;)*) => {
        /// Own action of an operation, on the current version and on a named one.
        fn own_actions(operation: Operation) -> (Action, Action) {
            match operation {
                $($(Operation::$operation)|+ => own_actions!(@pair $action $(, $of_version)?),)*
            }
        }
    };
    (@pair $action:ident) => { (Action::$action, Action::$action) };
    (@pair $action:ident, $of_version:ident) => { (Action::$action, Action::$of_version) };
}

own_actions! {
    AbortMultipartUpload: AbortMultipartUpload;
    CommitCheckpoint: CommitCheckpoint;
    DeleteCheckpoint: DeleteCheckpoint;
    GetCheckpoint GetCheckpointRetention: GetCheckpoint;
    GetBucketCheckpoints: GetCheckpointRules;
    HoldCheckpoint: HoldCheckpoint;
    PutBucketCheckpoints DeleteBucketCheckpoints: PutCheckpointRules;
    CreateBucket: CreateBucket;
    DeleteBucket: DeleteBucket;
    DeleteBucketPolicy: DeleteBucketPolicy;
    DeleteObject DeleteObjects: DeleteObject, DeleteObjectVersion;
    DeleteObjectTagging: DeleteObjectTagging, DeleteObjectVersionTagging;
    GetBucketAcl: GetBucketAcl;
    GetBucketCors: GetBucketCORS;
    GetBucketEncryption: GetEncryptionConfiguration;
    GetBucketLifecycleConfiguration: GetLifecycleConfiguration;
    GetBucketLocation: GetBucketLocation;
    GetBucketLogging: GetBucketLogging;
    GetBucketNotificationConfiguration: GetBucketNotification;
    GetBucketOwnershipControls: GetBucketOwnershipControls;
    GetBucketPolicy: GetBucketPolicy;
    GetBucketPolicyStatus: GetBucketPolicyStatus;
    GetBucketRequestPayment: GetBucketRequestPayment;
    GetBucketTagging: GetBucketTagging;
    GetBucketVersioning: GetBucketVersioning;
    GetObject HeadObject LocateObject: GetObject, GetObjectVersion;
    GetObjectAcl: GetObjectAcl, GetObjectVersionAcl;
    GetObjectAttributes: GetObjectAttributes, GetObjectVersionAttributes;
    GetObjectLegalHold: GetObjectLegalHold;
    GetObjectLockConfiguration: GetBucketObjectLockConfiguration;
    GetObjectRetention: GetObjectRetention;
    GetObjectTagging: GetObjectTagging, GetObjectVersionTagging;
    GetPublicAccessBlock: GetBucketPublicAccessBlock;
    HeadBucket ListObjects ListObjectsV2: ListBucket;
    ListBuckets: ListAllMyBuckets;
    ListMultipartUploads: ListBucketMultipartUploads;
    ListObjectVersions: ListBucketVersions;
    ListParts: ListMultipartUploadParts;
    PutBucketAcl: PutBucketAcl;
    PutBucketCors DeleteBucketCors: PutBucketCORS;
    PutBucketEncryption DeleteBucketEncryption: PutEncryptionConfiguration;
    PutBucketLifecycleConfiguration DeleteBucketLifecycle: PutLifecycleConfiguration;
    PutBucketLogging: PutBucketLogging;
    PutBucketNotificationConfiguration: PutBucketNotification;
    PutBucketOwnershipControls DeleteBucketOwnershipControls: PutBucketOwnershipControls;
    PutBucketPolicy: PutBucketPolicy;
    PutBucketTagging DeleteBucketTagging: PutBucketTagging;
    PutBucketVersioning: PutBucketVersioning;
    PutObject PostObject CopyObject CreateMultipartUpload UploadPart UploadPartCopy
        CompleteMultipartUpload: PutObject;
    PutObjectAcl: PutObjectAcl, PutObjectVersionAcl;
    PutObjectLegalHold: PutObjectLegalHold;
    PutObjectLockConfiguration: PutBucketObjectLockConfiguration;
    PutObjectRetention: PutObjectRetention;
    PutObjectTagging: PutObjectTagging, PutObjectVersionTagging;
    PutPublicAccessBlock DeletePublicAccessBlock: PutBucketPublicAccessBlock;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::{PathKind, TABLE};

    /// Operations on a bucket that name their keys in their bodies.
    const BY_KEY: [Operation; 2] = [Operation::DeleteObjects, Operation::PostObject];

    #[test]
    fn every_operation_of_the_table_has_its_actions() {
        for row in TABLE {
            let actions = actions(row.operation, RequestTraits::default());
            let scope = match row.path {
                _ if BY_KEY.contains(&row.operation) => ResourceKind::Object,
                _ if row.operation == Operation::CreateBucket => ResourceKind::Service,
                PathKind::Service => ResourceKind::Service,
                PathKind::Bucket => ResourceKind::Bucket,
                PathKind::Object => ResourceKind::Object,
            };
            for action in &*actions {
                assert_eq!(action.scope(), scope, "{} is {}", row.name, action.name());
            }
        }
    }

    #[test]
    fn versions_have_actions_of_their_own() {
        let case = RequestTraits { names_version: true, ..RequestTraits::default() };
        for (operation, action) in [
            (Operation::GetObject, "s3:GetObjectVersion"),
            (Operation::HeadObject, "s3:GetObjectVersion"),
            (Operation::LocateObject, "s3:GetObjectVersion"),
            (Operation::DeleteObject, "s3:DeleteObjectVersion"),
            (Operation::DeleteObjects, "s3:DeleteObjectVersion"),
            (Operation::GetObjectTagging, "s3:GetObjectVersionTagging"),
            (Operation::PutObjectTagging, "s3:PutObjectVersionTagging"),
            (Operation::DeleteObjectTagging, "s3:DeleteObjectVersionTagging"),
            (Operation::GetObjectAcl, "s3:GetObjectVersionAcl"),
            (Operation::PutObjectAcl, "s3:PutObjectVersionAcl"),
        ] {
            assert_eq!(actions(operation, case)[0].name(), action, "{operation:?}");
        }
        let retention = actions(Operation::GetCheckpointRetention, case);
        assert_eq!(retention[..], [Action::GetCheckpoint, Action::ListBucket]);
        let both = actions(Operation::GetObjectAttributes, case);
        assert_eq!(both[..], [Action::GetObjectVersion, Action::GetObjectVersionAttributes]);
    }

    #[test]
    fn writes_need_the_actions_of_what_they_set() {
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
        for operation in [
            Operation::PutObject,
            Operation::CopyObject,
            Operation::CreateMultipartUpload,
            Operation::PostObject,
        ] {
            assert_eq!(actions(operation, all)[..], expected, "{operation:?}");
        }
        assert_eq!(actions(Operation::GetObject, all)[..], [Action::GetObject]);
        let bypass = RequestTraits { bypasses_governance: true, ..RequestTraits::default() };
        let both = [Action::DeleteObject, Action::BypassGovernanceRetention];
        assert_eq!(actions(Operation::DeleteObject, bypass)[..], both);
    }
}

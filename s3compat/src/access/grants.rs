//! Permissions of access control lists that actions need.

use super::acl::Permission;
use super::action::Action;

/// List and permission that decide an action for which no policy has a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GrantSource {
    /// No list: only the bucket's owner may perform the action.
    ToOwner,
    /// The bucket's list.
    OnBucket(Permission),
    /// The object's list.
    OnObject(Permission),
}

impl Action {
    /// List and permission that decide the action.
    pub(crate) fn granted(self) -> GrantSource {
        use GrantSource::{OnBucket, OnObject, ToOwner};
        use Permission::{Read, ReadAcp, Write, WriteAcp};
        match self {
            Self::ListBucket | Self::ListBucketVersions | Self::ListBucketMultipartUploads => {
                OnBucket(Read)
            }
            Self::PutObject
            | Self::DeleteObject
            | Self::AbortMultipartUpload
            | Self::ListMultipartUploadParts => OnBucket(Write),
            Self::GetBucketAcl => OnBucket(ReadAcp),
            Self::PutBucketAcl => OnBucket(WriteAcp),
            Self::GetObject
            | Self::GetObjectVersion
            | Self::GetObjectAttributes
            | Self::GetObjectVersionAttributes
            | Self::GetObjectTorrent
            | Self::GetObjectVersionTorrent => OnObject(Read),
            Self::GetObjectAcl | Self::GetObjectVersionAcl => OnObject(ReadAcp),
            Self::PutObjectAcl | Self::PutObjectVersionAcl => OnObject(WriteAcp),
            _ => ToOwner,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ResourceKind;
    use super::*;

    #[test]
    fn lists_decide_about_what_they_are_on() {
        for action in Action::ALL {
            match action.granted() {
                GrantSource::OnObject(_) => {
                    assert_eq!(action.scope(), ResourceKind::Object, "{action:?}");
                }
                GrantSource::OnBucket(Permission::Write) => {
                    assert_eq!(action.scope(), ResourceKind::Object);
                }
                GrantSource::OnBucket(_) => {
                    assert_eq!(action.scope(), ResourceKind::Bucket, "{action:?}");
                }
                GrantSource::ToOwner => {}
            }
        }
    }

    #[test]
    fn no_list_gives_a_bucket_away() {
        for action in [
            Action::DeleteBucket,
            Action::PutBucketPolicy,
            Action::PutBucketVersioning,
            Action::DeleteObjectVersion,
            Action::PutObjectRetention,
            Action::PutObjectTagging,
        ] {
            assert_eq!(action.granted(), GrantSource::ToOwner, "{action:?}");
        }
    }
}

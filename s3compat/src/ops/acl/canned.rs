//! Canned access control lists.
//!
//! Groups come before the owner, in the order that clients of other stores rely on.

use s3s::{S3Result, s3_error};

use crate::access::{Acl, Grant, Grantee, Permission};
use crate::messages;

/// A canned list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Canned {
    Private,
    PublicRead,
    PublicReadWrite,
    AuthenticatedRead,
    BucketOwnerRead,
    BucketOwnerFullControl,
    LogDeliveryWrite,
}

impl Canned {
    pub(super) fn parse(name: &str) -> S3Result<Self> {
        Ok(match name {
            "private" => Self::Private,
            "public-read" => Self::PublicRead,
            "public-read-write" => Self::PublicReadWrite,
            "authenticated-read" => Self::AuthenticatedRead,
            "bucket-owner-read" => Self::BucketOwnerRead,
            "bucket-owner-full-control" => Self::BucketOwnerFullControl,
            "log-delivery-write" => Self::LogDeliveryWrite,
            "aws-exec-read" => {
                return Err(s3_error!(NotImplemented, "The canned ACL {name} is not supported"));
            }
            _ => return Err(messages::ACL_CANNED.argument("x-amz-acl", name).into()),
        })
    }

    /// List for an object of `owner` in a bucket of `bucket_owner`, or for a bucket, where both are
    /// its owner.
    pub(super) fn list(self, owner: &str, bucket_owner: &str) -> Acl {
        use Permission::{FullControl, Read, ReadAcp, Write};
        let to_bucket_owner = |permission| {
            (owner != bucket_owner)
                .then(|| Grant { grantee: Grantee::Canonical(bucket_owner.to_owned()), permission })
        };
        let all = |permission| Grant { grantee: Grantee::AllUsers, permission };
        let mut grants = match self {
            Self::Private | Self::BucketOwnerRead | Self::BucketOwnerFullControl => Vec::new(),
            Self::PublicRead => vec![all(Read)],
            Self::PublicReadWrite => vec![all(Read), all(Write)],
            Self::AuthenticatedRead => {
                vec![Grant { grantee: Grantee::AuthenticatedUsers, permission: Read }]
            }
            Self::LogDeliveryWrite => [Write, ReadAcp]
                .map(|permission| Grant { grantee: Grantee::LogDelivery, permission })
                .to_vec(),
        };
        grants.push(Grant::full(owner));
        match self {
            Self::BucketOwnerRead => grants.extend(to_bucket_owner(Read)),
            Self::BucketOwnerFullControl => grants.extend(to_bucket_owner(FullControl)),
            _ => {}
        }
        Acl { owner: owner.to_owned(), grants }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(name: &str, owner: &str) -> Vec<(String, &'static str)> {
        let grantee = |grantee: &Grantee| match grantee {
            Grantee::Canonical(id) => id.clone(),
            group => format!("{group:?}"),
        };
        let acl = Canned::parse(name).unwrap().list(owner, "alice");
        assert_eq!(acl.owner, owner);
        let grants_shown = acl.grants.iter().map(|it| (grantee(&it.grantee), it.permission.name()));
        grants_shown.collect()
    }

    #[test]
    fn names_mean_grants_and_groups_come_first() {
        let full = |who: &str| (who.to_owned(), "FULL_CONTROL");
        let group = |name: &str, permission| (name.to_owned(), permission);
        assert_eq!(expanded("private", "bob"), [full("bob")]);
        assert_eq!(expanded("public-read", "bob"), [group("AllUsers", "READ"), full("bob")]);
        let both = [group("AllUsers", "READ"), group("AllUsers", "WRITE"), full("bob")];
        assert_eq!(expanded("public-read-write", "bob"), both);
        let known = [group("AuthenticatedUsers", "READ"), full("bob")];
        assert_eq!(expanded("authenticated-read", "bob"), known);
        let log = [group("LogDelivery", "WRITE"), group("LogDelivery", "READ_ACP"), full("bob")];
        assert_eq!(expanded("log-delivery-write", "bob"), log);
    }

    #[test]
    fn the_buckets_owner_is_named_once() {
        let full = |who: &str| (who.to_owned(), "FULL_CONTROL");
        let read = ("alice".to_owned(), "READ");
        assert_eq!(expanded("bucket-owner-read", "bob"), [full("bob"), read]);
        assert_eq!(expanded("bucket-owner-full-control", "bob"), [full("bob"), full("alice")]);
        for name in ["bucket-owner-read", "bucket-owner-full-control"] {
            assert_eq!(expanded(name, "alice"), [full("alice")]);
        }
    }
}

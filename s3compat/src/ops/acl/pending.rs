//! Access control list of a request, with resolved grantees.

use martlet_proxy::Session;
use s3s::S3Result;

use super::canned::Canned;
use super::names::resolve;
use super::requested::RequestedAcl;
use crate::access::{Acl, Grant};

/// A list before its owner is known.
#[derive(Clone, Debug)]
pub(super) enum PendingAcl {
    Canned(Canned),
    Granted { owner: Option<String>, grants: Vec<Grant> },
}

impl PendingAcl {
    /// Looks up all grantees. Accounts in `known` need no lookup.
    pub(super) async fn resolve(
        store: &Session,
        requested_acl: RequestedAcl,
        known: &[&str],
    ) -> S3Result<Self> {
        match requested_acl {
            RequestedAcl::Canned(canned) => Ok(Self::Canned(canned)),
            RequestedAcl::Granted { owner, grants: requested_acl } => {
                let mut grants = Vec::with_capacity(requested_acl.len());
                for (named, permission) in requested_acl {
                    let grantee = resolve(store, named, known).await?;
                    grants.push(Grant { grantee, permission });
                }
                Ok(Self::Granted { owner, grants })
            }
        }
    }

    /// List for an object of `owner`. None if the request names another owner: a list never changes
    /// an owner.
    pub(super) fn list(&self, owner: &str, bucket_owner: &str) -> Option<Acl> {
        match self {
            Self::Canned(canned) => Some(canned.list(owner, bucket_owner)),
            Self::Granted { owner: Some(named), .. } if named != owner => None,
            Self::Granted { grants, .. } => {
                Some(Acl { owner: owner.to_owned(), grants: grants.clone() })
            }
        }
    }

    /// List for a bucket of `owner`. None if the request names another owner.
    pub(super) fn list_of_bucket(&self, owner: &str) -> Option<Acl> {
        self.list(owner, owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_names_its_owner_or_none() {
        let granted = |owner: Option<&str>| PendingAcl::Granted {
            owner: owner.map(str::to_owned),
            grants: vec![Grant::full("carol")],
        };
        for owner in [None, Some("bob")] {
            let acl = granted(owner).list("bob", "alice").unwrap();
            assert_eq!((acl.owner.as_str(), &acl.grants[..]), ("bob", &[Grant::full("carol")][..]));
        }
        assert_eq!(granted(Some("alice")).list("bob", "alice"), None);
        let canned = PendingAcl::Canned(Canned::BucketOwnerFullControl);
        assert!(canned.list_of_bucket("alice").unwrap().is_private());
    }
}

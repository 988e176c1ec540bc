//! Access check by an object's own access control list.
//!
//! The list belongs to the object version that the request reads, not to an earlier one.

use std::sync::Arc;

use martlet_protocol::entry::{Mark, Marks, Object};
use martlet_proxy::Guard;

use super::bucket_access::BucketAccess;
use crate::access::{Acl, Permission, Requester};

/// Decodes the access control list in an object's marks. None if only the bucket's owner has
/// access.
pub(super) fn list_of(marks: &Marks, bucket_owner: &str) -> Option<Acl> {
    marks.get(Mark::Acl).map(|document| Acl::decode(document, bucket_owner))
}

/// Guard that admits a requester if the object's list grants all needed permissions.
pub(super) struct ObjectAclGuard {
    pub(super) requester: Arc<Requester>,
    pub(super) access: Arc<BucketAccess>,
    pub(super) wanted: Vec<Permission>,
    /// Permissions that the bucket's policy allows. Only objects of other accounts need grants for
    /// them.
    pub(super) allowed: Vec<Permission>,
}

impl Guard for ObjectAclGuard {
    fn admits(&self, object: &Object) -> bool {
        let Self { requester, access, wanted, allowed } = self;
        match list_of(&object.attributes.marks, access.owner()) {
            None => wanted.is_empty() || requester.owns(access.owner()),
            Some(acl) => {
                let ignores_public = access.control().ignores_public;
                let of_others = (acl.owner != access.owner()).then_some(allowed);
                let mut asked = wanted.iter().chain(of_others.into_iter().flatten()).peekable();
                let is_asked = asked.peek().is_some();
                let admits = asked.all(|it| acl.allows(requester, *it, ignores_public));
                let is_its_own = requester.owns(access.owner()) && requester.owns(&acl.owner);
                if admits && is_asked && !is_its_own {
                    access.acl_use.set();
                }
                admits
            }
        }
    }
}

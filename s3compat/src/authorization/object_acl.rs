//! Access check by an object's own access control list.
//!
//! The list belongs to the object version that the request reads, not to an earlier one.

use std::sync::Arc;

use martlet_protocol::entry::{Mark, Marks, Object};
use martlet_proxy::Guard;

use super::bucket_access::BucketAccess;
use crate::access::{Acl, Action, Permission, Requester};

/// Decodes the access control list in an object's marks. None if only the bucket's owner has
/// access.
pub(crate) fn list_of(marks: &Marks, bucket_owner: &str) -> Option<Acl> {
    marks.get(Mark::Acl).map(|document| Acl::decode(document, bucket_owner))
}

/// Sets an object's list, or removes it if only the bucket's owner has access.
pub(crate) fn mark(marks: &mut Marks, acl: &Acl, bucket_owner: &str) {
    if acl.owner == bucket_owner && acl.is_private() {
        marks.remove(Mark::Acl);
    } else {
        marks.set(Mark::Acl, acl.encode());
    }
}

/// Guard that admits a requester if the object's list grants all needed permissions.
pub(crate) struct ObjectAclGuard {
    pub(crate) requester: Arc<Requester>,
    pub(crate) access: Arc<BucketAccess>,
    pub(crate) wanted: Vec<Permission>,
    /// Permissions that the bucket's policy allows. Only objects of other accounts need grants for
    /// them.
    pub(crate) allowed: Vec<Permission>,
}

impl ObjectAclGuard {
    /// Guard for actions that the object's list must grant, and for those that it must grant unless the
    /// bucket's owner owns the object. None if they need no list.
    pub(super) fn of(
        requester: &Arc<Requester>,
        access: &Arc<BucketAccess>,
        by_object: impl Iterator<Item = Action>,
        by_owner: impl Iterator<Item = Action>,
    ) -> Option<Self> {
        let wanted = access.needed_permissions(by_object);
        let allowed = access.needed_permissions(by_owner);
        (!wanted.is_empty() || !allowed.is_empty()).then(|| Self {
            requester: requester.clone(),
            access: access.clone(),
            wanted,
            allowed,
        })
    }
}

impl Guard for ObjectAclGuard {
    fn admits(&self, object: &Object) -> bool {
        let Self { requester, access, wanted, allowed } = self;
        match list_of(&object.attributes.marks, access.owner()) {
            None => wanted.is_empty() || requester.owns(access.owner()),
            Some(acl) => {
                let ignores_public = access.control().ignores_public;
                let of_others = (acl.owner != access.owner()).then_some(allowed);
                let mut needed = wanted.iter().chain(of_others.into_iter().flatten()).peekable();
                let is_needed = needed.peek().is_some();
                let admits = needed.all(|it| acl.allows(requester, *it, ignores_public));
                let is_its_own = requester.owns(access.owner()) && requester.owns(&acl.owner);
                if admits && is_needed && !is_its_own {
                    access.acl_use.set();
                }
                admits
            }
        }
    }

    /// An object without a list is the bucket owner's own, and what was open by the bucket alone stays
    /// readable at a lower level. A list may have been changed since.
    fn trusts(&self, object: &Object) -> bool {
        object.attributes.marks.get(Mark::Acl).is_none() && self.admits(object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{Grant, Grantee};

    #[test]
    fn the_bucket_owners_own_is_not_marked() {
        let mut marks = Marks::default();
        mark(&mut marks, &Acl::private("bob"), "alice");
        assert_eq!(Acl::decode(marks.get(Mark::Acl).unwrap(), "alice"), Acl::private("bob"));
        let to_all = Grant { grantee: Grantee::AllUsers, permission: Permission::Read };
        let public = Acl { owner: "alice".to_owned(), grants: vec![to_all, Grant::full("alice")] };
        mark(&mut marks, &public, "alice");
        assert!(Acl::decode(marks.get(Mark::Acl).unwrap(), "alice").is_public());
        mark(&mut marks, &Acl::private("alice"), "alice");
        assert!(marks.is_empty());
    }
}

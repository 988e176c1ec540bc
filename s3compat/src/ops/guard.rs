//! Access check by an object's own access control list.
//!
//! The list belongs to the object version that the request reads, not to an earlier one.

use std::sync::Arc;

use martlet_protocol::entry::{Mark, Marks, Object};
use martlet_proxy::Guard;

use super::standing::Standing;
use crate::access::{Acl, Permission, Requester};

/// Decodes the access control list in an object's marks. None if only the bucket's owner has
/// access.
pub(super) fn list_of(marks: &Marks, bucket_owner: &str) -> Option<Acl> {
    marks.get(Mark::Acl).map(|document| Acl::decode(document, bucket_owner))
}

/// Guard that admits a requester if the object's list grants all needed permissions.
pub(super) struct ByList {
    pub(super) requester: Arc<Requester>,
    pub(super) standing: Arc<Standing>,
    pub(super) wanted: Vec<Permission>,
    /// Permissions that the bucket's policy allows. Only objects of other accounts need grants for
    /// them.
    pub(super) allowed: Vec<Permission>,
}

impl Guard for ByList {
    fn admits(&self, object: &Object) -> bool {
        let Self { requester, standing, wanted, allowed } = self;
        match list_of(&object.attributes.marks, &standing.owner) {
            None => wanted.is_empty() || requester.owns(&standing.owner),
            Some(acl) => {
                let ignores_public = standing.control.ignores_public;
                let of_others = (acl.owner != standing.owner).then_some(allowed);
                let mut asked = wanted.iter().chain(of_others.into_iter().flatten()).peekable();
                let is_asked = asked.peek().is_some();
                let admits = asked.all(|it| acl.allows(requester, *it, ignores_public));
                let is_its_own = requester.owns(&standing.owner) && requester.owns(&acl.owner);
                if admits && is_asked && !is_its_own {
                    standing.acl_use.note();
                }
                admits
            }
        }
    }
}

//! Access control lists of new buckets and objects.

use http::HeaderMap;
use martlet_protocol::entry::{Mark, Marks};
use martlet_protocol::{Setting, Settings};
use s3s::S3Result;

use super::super::Operations;
use super::super::access::denied;
use super::super::authorization::Authorization;
use super::canned::Canned;
use super::control::{AclSettings, bucket_has_list, not_supported};
use super::pending::PendingAcl;
use super::requested::RequestedAcl;
use crate::access::Acl;
use crate::errors::s3_error;

impl Operations {
    /// Marks a new object with the list in the headers of its write, and with its owner.
    pub(in super::super) async fn mark_owner(
        &self,
        authorization: &Authorization,
        headers: &HeaderMap,
        marks: &mut Marks,
    ) -> S3Result<()> {
        let (requester, access) = (authorization.requester(), authorization.bucket_access());
        let asked = RequestedAcl::in_headers(headers)?;
        let gives_away = asked == Some(RequestedAcl::Canned(Canned::BucketOwnerFullControl));
        if access.control().is_enforced() {
            return if asked.is_none() || gives_away { Ok(()) } else { Err(not_supported()) };
        }
        let owner = access.owner_of_new(requester, gives_away);
        let Some(asked) = asked else {
            mark(marks, &Acl::private(owner), access.owner());
            return Ok(());
        };
        let wanted = PendingAcl::resolve(&self.store, asked, &[owner, access.owner()]).await?;
        let acl = wanted.list(owner, access.owner()).ok_or_else(denied)?;
        if acl.is_public() && access.control().blocks_public {
            return Err(denied());
        }
        mark(marks, &acl, access.owner());
        Ok(())
    }

    /// Sets the list of a new bucket from the headers of its request.
    pub(in super::super) async fn set_new_list(
        &self,
        owner: &str,
        headers: &HeaderMap,
        settings: &mut Settings,
    ) -> S3Result<()> {
        let Some(asked) = RequestedAcl::in_headers(headers)? else { return Ok(()) };
        let wanted = PendingAcl::resolve(&self.store, asked, &[owner]).await?;
        let acl = wanted.list_of_bucket(owner).ok_or_else(denied)?;
        if acl.is_private() {
            return Ok(());
        }
        if AclSettings::of(settings).is_enforced() {
            return Err(bucket_has_list());
        }
        let set = settings.set(Setting::Acl, acl.encode());
        set.map_err(|too_long| s3_error(too_long.into()))
    }
}

/// Sets an object's list, or removes it if only the bucket's owner has access.
pub(in super::super) fn mark(marks: &mut Marks, acl: &Acl, bucket_owner: &str) {
    if acl.owner == bucket_owner && acl.is_private() {
        marks.remove(Mark::Acl);
    } else {
        marks.set(Mark::Acl, acl.encode());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bucket_owners_own_is_not_marked() {
        let mut marks = Marks::default();
        mark(&mut marks, &Acl::private("bob"), "alice");
        assert_eq!(Acl::decode(marks.get(Mark::Acl).unwrap(), "alice"), Acl::private("bob"));
        mark(&mut marks, &Canned::PublicRead.list("alice", "alice"), "alice");
        assert!(Acl::decode(marks.get(Mark::Acl).unwrap(), "alice").is_public());
        mark(&mut marks, &Acl::private("alice"), "alice");
        assert!(marks.is_empty());
    }
}

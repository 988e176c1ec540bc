//! Access control lists of new buckets and objects.

use http::HeaderMap;
use martlet_protocol::entry::Marks;
use martlet_protocol::{Setting, Settings};
use s3s::S3Result;

use super::canned::Canned;
use super::pending::PendingAcl;
use super::requested::RequestedAcl;
use crate::access::Acl;
use crate::authorization::{AclSettings, Authorization, bucket_has_list, mark, not_supported};
use crate::errors::{denied, s3_error};
use crate::ops::operations::Operations;

impl Operations {
    /// Marks a new object with the list in the headers of its write, and with its owner.
    pub(in super::super) async fn mark_owner(
        &self,
        authorization: &Authorization,
        headers: &HeaderMap,
        marks: &mut Marks,
    ) -> S3Result<()> {
        let (requester, access) = (authorization.requester(), authorization.bucket_access());
        let requested = RequestedAcl::in_headers(headers)?;
        let gives_away = requested == Some(RequestedAcl::Canned(Canned::BucketOwnerFullControl));
        if access.control().is_enforced() {
            return if requested.is_none() || gives_away { Ok(()) } else { Err(not_supported()) };
        }
        let owner = access.owner_of_new(requester, gives_away);
        let Some(requested) = requested else {
            mark(marks, &Acl::private(owner), access.owner());
            return Ok(());
        };
        let pending = PendingAcl::resolve(&self.store, requested, &[owner, access.owner()]).await?;
        let acl = pending.list(owner, access.owner()).ok_or_else(denied)?;
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
        let Some(requested) = RequestedAcl::in_headers(headers)? else { return Ok(()) };
        let pending = PendingAcl::resolve(&self.store, requested, &[owner]).await?;
        let acl = pending.list_of_bucket(owner).ok_or_else(denied)?;
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

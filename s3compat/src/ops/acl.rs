//! Access control lists: `GetBucketAcl`, `PutBucketAcl`, `GetObjectAcl`, `PutObjectAcl`, and the
//! lists of new buckets and objects.
//!
//! ```text
//! headers, document ─▶ RequestedAcl ─▶ PendingAcl ─▶ list ─▶ a bucket's setting, an object's mark
//! ```
//!
//! * `requested`, `canned`: the list in a request; `names`: lookup of its grantees.
//! * `pending`: a list before its owner is known; `fresh`: lists of new buckets and objects.
//!
//! `authorization` has the settings of a bucket that apply to all lists in it, and objects' marks.
//!
//! Where only the bucket's owner has access, no list is stored. A list never changes an owner.

mod canned;
mod fresh;
mod names;
mod pending;
mod requested;

use http::StatusCode;
use martlet_protocol::entry::{Marks, Object};
use martlet_protocol::{Setting, Settings};
use martlet_proxy::{Error, ReadConditions, Selection, Session};
use s3s::S3Result;
use s3s::dto::{GetBucketAclOutput, GetObjectAclOutput, Grant as WireGrant};

pub(super) use self::names::OwnerNames;
pub(super) use self::requested::GRANTS;

use self::pending::PendingAcl;
use self::requested::RequestedAcl;
use super::operations::Operations;
use crate::access::{Acl, GRANTS_MAX, Grant};
use crate::authorization::{AclSettings, list_of, mark, not_supported};
use crate::errors::{denied, s3_error};
use crate::events::{Event, ObjectEvents};
use crate::reply::Reply;
use crate::request::OperationRequest;

/// Resolves the grantees of grants outside of a list. The account `known` needs no lookup.
pub(super) async fn resolve_grants(
    store: &Session,
    given: Vec<WireGrant>,
    known: &str,
) -> S3Result<Vec<Grant>> {
    if given.len() > GRANTS_MAX {
        return Err(requested::malformed());
    }
    let mut grants = Vec::with_capacity(given.len());
    for grant in given {
        let (named, permission) = requested::granted(grant).ok_or_else(requested::malformed)?;
        let grantee = names::resolve(store, named, &[known]).await?;
        grants.push(Grant { grantee, permission });
    }
    Ok(grants)
}

/// List of a document, for the fuzz target.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) fn requested_in(
    list: s3s::dto::AccessControlPolicy,
) -> S3Result<impl PartialEq + std::fmt::Debug> {
    RequestedAcl::of(&http::HeaderMap::new(), Some(list))
}

/// Grants of a document before their grantees are looked up, for the fuzz target. None if one of
/// them is malformed.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) fn granted_in(grants: &[WireGrant]) -> Option<impl PartialEq + std::fmt::Debug + use<>> {
    grants.iter().cloned().map(requested::granted).collect::<Option<Vec<_>>>()
}

impl Operations {
    /// Owners of the objects in a bucket.
    pub(super) async fn owners_in(&self, bucket: &str) -> S3Result<OwnerNames> {
        let bucket = self.store.bucket(bucket).await.map_err(s3_error)?;
        let is_enforced = AclSettings::of(&bucket.settings).is_enforced();
        Ok(OwnerNames::new(&self.store, &bucket.owner, is_enforced).await)
    }

    pub(super) async fn get_bucket_acl(&self, request: &OperationRequest) -> S3Result<Reply> {
        let name = request.bucket();
        let settings = self.store.buckets().settings(name).await.map_err(s3_error)?;
        let owner = self.store.bucket(name).await.map_err(s3_error)?.owner.clone();
        let is_enforced = AclSettings::of(&settings).is_enforced();
        let document = settings.get(Setting::Acl).filter(|_| !is_enforced);
        let acl =
            document.map_or_else(|| Acl::private(&owner), |document| Acl::decode(document, &owner));
        let mut owners = OwnerNames::new(&self.store, &owner, is_enforced).await;
        let (owner, grants) = owners.write(&acl).await;
        Reply::xml(&GetBucketAclOutput { grants: Some(grants), owner: Some(owner) })
    }

    pub(super) async fn put_bucket_acl(&self, request: &OperationRequest) -> S3Result<Reply> {
        let document = request.parse_optional_document()?;
        request.refuse_conditions()?;
        let bucket = request.bucket();
        let owner = self.store.bucket(bucket).await.map_err(s3_error)?.owner.clone();
        let requested_acl = RequestedAcl::of(&request.headers, document)?;
        let pending_acl = PendingAcl::resolve(&self.store, requested_acl, &[&owner]).await?;
        let acl = pending_acl.list_of_bucket(&owner).ok_or_else(denied)?;
        let mut refusal = None;
        let put = |settings: &mut Settings| {
            let control = AclSettings::of(settings);
            refusal = if control.is_enforced() {
                Some(not_supported())
            } else {
                (control.blocks_public && acl.is_public()).then(denied)
            };
            if refusal.is_none() && acl.is_private() {
                settings.remove(Setting::Acl);
            } else if refusal.is_none() {
                settings.set(Setting::Acl, acl.encode())?;
            }
            Ok(())
        };
        self.store.buckets().change_settings(bucket, put).await.map_err(s3_error)?;
        refusal.map_or_else(|| Ok(Reply::empty(StatusCode::OK)), Err)
    }

    pub(super) async fn get_object_acl(&self, request: &OperationRequest) -> S3Result<Reply> {
        let name = request.object_name()?;
        let conditions = ReadConditions::default();
        let read = self.store.head(request.bucket(), name, Selection::Whole, &conditions).await;
        let marks = &read.map_err(s3_error)?.object.attributes.marks;
        let bucket = self.store.bucket(request.bucket()).await.map_err(s3_error)?;
        let is_enforced = AclSettings::of(&bucket.settings).is_enforced();
        let acl = list_of(marks, &bucket.owner).filter(|_| !is_enforced);
        let acl = acl.unwrap_or_else(|| Acl::private(&bucket.owner));
        let mut owners = OwnerNames::new(&self.store, &bucket.owner, is_enforced).await;
        let (owner, grants) = owners.write(&acl).await;
        let (grants, owner) = (Some(grants), Some(owner));
        Reply::xml(&GetObjectAclOutput { grants, owner, request_charged: None })
    }

    pub(super) async fn put_object_acl(&self, request: &OperationRequest) -> S3Result<Reply> {
        let document = request.parse_optional_document()?;
        request.refuse_conditions()?;
        let access = request.authorization()?.bucket_access();
        let name = request.object_name()?;
        let requested_acl = RequestedAcl::of(&request.headers, document)?;
        if access.control().is_enforced() {
            return Err(not_supported());
        }
        let bucket_owner = access.owner();
        let pending_acl = PendingAcl::resolve(&self.store, requested_acl, &[bucket_owner]).await?;
        let put = |object: &Object, marks: &mut Marks| {
            let before = list_of(&object.attributes.marks, bucket_owner);
            let owner = before.as_ref().map_or(bucket_owner, |acl| &acl.owner);
            let acl = pending_acl.list(owner, bucket_owner).ok_or(Error::AccessDenied)?;
            if acl.is_public() && access.control().blocks_public {
                return Err(Error::AccessDenied);
            }
            mark(marks, &acl, bucket_owner);
            Ok(())
        };
        let changed = self.store.versions().change_marks(request.bucket(), name, put).await;
        let written = changed.map_err(s3_error)?;
        let events = ObjectEvents::wrote(Event::AclPut, request.key(), &written);
        Ok(Reply::empty(StatusCode::OK).with_events(events))
    }
}

//! Lookup of grantees by name, and names of owners and grantees in replies.

use std::collections::HashMap;

use martlet_protocol::entry::Marks;
use martlet_proxy::{ROOT, Session};
use s3s::S3Result;
use s3s::dto::{Grant as WireGrant, Grantee as WireGrantee, Owner, Permission, Type};

use super::requested::NamedGrantee;
use crate::access::{Acl, Grant, Grantee};
use crate::authorization::list_of;
use crate::errors::{custom, s3_error};
use crate::messages;
use crate::ops::wire::wire_owner;

/// Looks up a grantee. Accounts in `known` need no lookup.
pub(super) async fn resolve(
    store: &Session,
    named: NamedGrantee,
    known: &[&str],
) -> S3Result<Grantee> {
    match named {
        NamedGrantee::Uri(uri) => {
            Grantee::group(&uri).ok_or_else(|| messages::ACL_GROUP.argument("uri", uri).into())
        }
        NamedGrantee::Id(id) => {
            let is_there = id == ROOT
                || known.contains(&id.as_str())
                || store.directory().has_owner(&id).await.map_err(s3_error)?;
            if is_there {
                return Ok(Grantee::Canonical(id));
            }
            Err(messages::ACL_ID.argument("id", id).into())
        }
        NamedGrantee::Address(address) => {
            let found = store.directory().owner_called(&address).await.map_err(s3_error)?;
            found.map(Grantee::Canonical).ok_or_else(|| {
                custom(
                    "UnresolvableGrantByEmailAddress",
                    "The e-mail address you provided does not match any account on record.",
                    http::StatusCode::BAD_REQUEST,
                )
            })
        }
    }
}

/// Owners of the objects in a bucket, as in replies.
pub(in super::super) struct OwnerNames {
    store: Session,
    of_bucket: Owner,
    /// Other owners than the bucket's, cached by canonical id.
    others: HashMap<String, Owner>,
    /// True if the bucket's owner owns all objects.
    is_enforced: bool,
}

impl OwnerNames {
    pub(in super::super) async fn new(store: &Session, of_bucket: &str, is_enforced: bool) -> Self {
        let of_bucket = wire_owner(store, of_bucket).await;
        Self { store: store.clone(), of_bucket, others: HashMap::new(), is_enforced }
    }

    /// Owner of the bucket.
    pub(in super::super) fn of_bucket(&self) -> &Owner {
        &self.of_bucket
    }

    /// Owner of an object or upload with these marks.
    pub(in super::super) async fn of(&mut self, marks: &Marks) -> Owner {
        let bucket_owner = self.of_bucket.id.as_deref().unwrap_or_default();
        let list = if self.is_enforced { None } else { list_of(marks, bucket_owner) };
        match list {
            Some(list) if list.owner != bucket_owner => self.called(&list.owner).await,
            _ => self.of_bucket.clone(),
        }
    }

    async fn called(&mut self, id: &str) -> Owner {
        if self.of_bucket.id.as_deref() == Some(id) {
            return self.of_bucket.clone();
        }
        if let Some(owner) = self.others.get(id) {
            return owner.clone();
        }
        let owner = wire_owner(&self.store, id).await;
        self.others.insert(id.to_owned(), owner.clone());
        owner
    }

    /// List as in replies: groups before users.
    pub(in super::super) async fn write(&mut self, acl: &Acl) -> (Owner, Vec<WireGrant>) {
        let owner = self.called(&acl.owner).await;
        let mut grants = Vec::with_capacity(acl.grants.len());
        let is_group = |grant: &&Grant| !matches!(grant.grantee, Grantee::Canonical(_));
        let (groups, users): (Vec<_>, Vec<_>) = acl.grants.iter().partition(is_group);
        for Grant { grantee, permission } in groups.into_iter().chain(users) {
            let grantee = match grantee {
                Grantee::Canonical(id) => user(self.called(id).await),
                group => group_named(group),
            };
            let permission = Some(Permission::from_static(permission.name()));
            grants.push(WireGrant { grantee: Some(grantee), permission });
        }
        (owner, grants)
    }
}

fn user(owner: Owner) -> WireGrantee {
    WireGrantee {
        display_name: owner.display_name,
        email_address: None,
        id: owner.id,
        type_: Type::from_static(Type::CANONICAL_USER),
        uri: None,
    }
}

fn group_named(group: &Grantee) -> WireGrantee {
    let named = Grantee::GROUPS.into_iter().find(|(known, _)| known == group);
    WireGrantee {
        display_name: None,
        email_address: None,
        id: None,
        type_: Type::from_static(Type::GROUP),
        uri: named.map(|(_, uri)| uri.to_owned()),
    }
}

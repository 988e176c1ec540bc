//! Rights of requests: decisions of `access`, for the buckets and objects of a store.
//!
//! * [`rights`]: the rights of one request, which operations check.
//! * [`judgement`]: decisions about actions on one resource; [`object_guard`]: what the object that is
//!   served decides.
//! * [`bucket_access`]: access of a principal to a bucket; [`object_acl`]: lists of objects.
//! * [`acl_settings`], [`public_access`]: settings of a bucket that limit its lists and policy.
//! * [`expected_owner`]: owners of buckets that a request expects.
//! * [`conditions`]: condition keys that all checks have.

mod acl_settings;
mod bucket_access;
mod conditions;
mod expected_owner;
mod judgement;
mod object_acl;
mod object_guard;
mod public_access;
mod rights;

pub(crate) use acl_settings::{AclSettings, bucket_has_list, not_supported};
pub(crate) use bucket_access::{AccessDecision, BucketAccess};
pub(crate) use conditions::{add_connection, add_requester, add_time};
pub(crate) use expected_owner::ExpectedOwner;
pub(crate) use judgement::CheckedObject;
pub(crate) use object_acl::{list_of, mark};
pub(crate) use object_guard::ObjectGuard;
pub(crate) use public_access::{is_blocked, is_restricted};
pub(crate) use rights::{Authorization, SourceHeaders};

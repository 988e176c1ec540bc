//! Access decisions by policies and access control lists. A pure module, without I/O.
//!
//! This module answers one question: may a principal do an action on a resource, in the context of
//! a request? Its inputs are documents as they are stored, and values of the request. It knows no
//! store, no HTTP and no clock, so that each rule of S3's policies is a test without a server.
//!
//! `authorization` calls it before each operation, and for the delivery of logs. `ops::policy` and
//! `ops::acl` call it when a document is put, `auth` and `sts` for trust documents. The callers look
//! up what a decision needs (buckets, tags of objects, ids of principals) and act on
//! the decision. The decision itself is made here alone, so that two callers can't differ.
//!
//! A decision has three values. `Allow` and `Deny` come from policies; `Undecided` leaves the
//! decision to lists of grants, of the bucket at once and of an object when it is read.
//!
//! ```text
//! document ─▶ Policy ─┐
//! request  ─▶ Context ┼─▶ Question ─▶ Allow · Deny · Undecided
//! operation ─▶ Action ┘
//! ```
//!
//! * `policy`, `statement`: documents, read strictly; `json` refuses ambiguous ones;
//!   `resource_index`: a policy's statements by their resources.
//! * `principal`, `action`, `template`, `condition`, `operator`, `key`: parts of statements.
//! * `bindings`: ids of the principals that a document names, as of the time it was put.
//! * `identity_policy`: policies that users, roles and sessions carry; `trust`: trust documents of
//!   roles.
//! * `subject`: names of a principal, as policies match them; `question`: a request to one policy.
//! * `identity`: accounts, users and sessions, with their policies; `requester`: principals of
//!   requests, and the decisions of their own policies.
//! * `glob`: wildcard matching, without recursion.
//! * `context`: properties of a request, under the names of condition keys; `step_budget`: a bound on
//!   the steps of an evaluation.
//! * `operations`: actions of each operation; a mapping that misses an operation does not compile.
//! * `acl`: lists of grants; `grants`: the permission that each action needs.
//!
//! Invariants:
//! * A document is refused unless all of it can be evaluated, so that no condition is ever ignored.
//! * Deny wins, then Allow, then grants of lists; nothing else gives access.

mod acl;
mod acl_use;
mod action;
mod bindings;
mod condition;
mod connection_needs;
mod context;
mod glob;
mod grants;
mod identity;
mod identity_policy;
mod json;
mod key;
mod malformed;
mod operations;
mod operator;
mod policy;
mod principal;
mod question;
mod requester;
mod resource_index;
mod statement;
mod step_budget;
mod subject;
mod template;
mod trust;

pub(crate) use acl::{Acl, GRANTS_MAX, Grant, Grantee, Permission};
pub(crate) use acl_use::AclUse;
pub(crate) use action::{Action, ResourceKind};
pub(crate) use bindings::{Bindings, BoundName, NAMES_MAX, PrincipalKind};
pub(crate) use connection_needs::ConnectionNeeds;
pub(crate) use context::Context;
pub(crate) use grants::GrantSource;
pub(crate) use identity::RoleSession;
pub use identity::{AccountIdentity, Identity};
pub(crate) use identity_policy::IdentityPolicy;
pub(crate) use operations::{RequestTraits, actions};
pub(crate) use policy::{Policy, PolicyDecision};
pub(crate) use question::ResourceArn;
pub(crate) use requester::{Question, Requester};
pub(crate) use trust::{AssumeMethod, AssumeRequest, Trust, provider_name};

#[cfg(test)]
mod tests;

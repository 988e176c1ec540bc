//! Access decisions by policies and access control lists. A pure module, without I/O.
//!
//! ```text
//! document ─▶ Policy ─┐
//! request  ─▶ Context ┼─▶ Question ─▶ Allow · Deny · Undecided
//! operation ─▶ Action ┘
//! ```
//!
//! * `policy`, `statement`: documents, read strictly; `json` refuses ambiguous ones.
//! * `principal`, `action`, `template`, `condition`, `operator`, `key`: parts of statements.
//! * `bindings`: ids of the principals that a document names, as of the time it was put.
//! * `identity_policy`: policies that users, roles and sessions carry; `trust`: trust documents of
//!   roles.
//! * `glob`: wildcard matching, without recursion.
//! * `context`: properties of a request, under the names of condition keys.
//! * `operations`: actions of each operation in the HTTP pipeline's table.
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
mod context;
mod glob;
mod grants;
mod identity_policy;
mod json;
mod key;
mod operations;
mod operator;
mod policy;
mod principal;
mod statement;
mod template;
mod trust;

use std::borrow::Cow;

pub(crate) use acl::{Acl, GRANTS_MAX, Grant, Grantee, Permission};
pub(crate) use acl_use::AclUse;
pub(crate) use action::{Action, ResourceKind};
pub(crate) use bindings::{Bindings, BoundName, NAMES_MAX, PrincipalKind};
pub(crate) use context::Context;
pub(crate) use grants::GrantSource;
pub(crate) use identity_policy::IdentityPolicy;
pub(crate) use operations::{RequestTraits, actions};
pub(crate) use policy::{Policy, PolicyDecision};
pub(crate) use principal::Requester;
pub(crate) use trust::{AssumeMethod, AssumeRequest, Trust, provider_name};

#[cfg(test)]
mod tests;

/// Reason for refusing a document, in S3's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct MalformedPolicy(Cow<'static, str>);

impl MalformedPolicy {
    fn new(message: impl Into<Cow<'static, str>>) -> Self {
        Self(message.into())
    }
}

/// A request for a policy to judge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question<'a> {
    /// Principal of the request.
    pub(crate) requester: &'a Requester,
    /// Requested action.
    pub(crate) action: Action,
    /// Resource of the action: `bucket`, or `bucket/key`.
    pub(crate) resource: &'a str,
    /// Condition keys of the request.
    pub(crate) context: &'a Context,
}

//! Who may do what, by policies and by access control lists. Values in, values out: nothing
//! here does I/O.
//!
//! ```text
//! document ─▶ Policy ─┐
//! request  ─▶ Context ┼─▶ Question ─▶ Allow · Deny · Undecided
//! operation ─▶ Action ┘
//! ```
//!
//! * `policy`, `statement`: documents, read strictly; `json` refuses what is ambiguous.
//! * `principal`, `action`, `template`, `condition`, `operator`, `key`: their parts.
//! * `bindings`: the ids of those whom a document names, as they were when it was put.
//! * `own`: policies that users, roles and sessions carry; `trust`: who may take on a role.
//! * `glob`: texts with wildcards, without recursion.
//! * `context`: what is known of a request, under the names that conditions ask for.
//! * `operations`: which actions each operation of the door's table is.
//! * `acl`: lists of grants; `grants`: what of a list each action asks for.
//!
//! Invariants:
//! * A document is refused unless all of it can be evaluated, so that no condition is ever
//!   ignored.
//! * Deny wins, then Allow, then what lists grant; nothing else opens anything.

mod acl;
mod acl_use;
mod action;
mod bindings;
mod condition;
mod context;
mod glob;
mod grants;
mod json;
mod key;
mod operations;
mod operator;
mod own;
mod policy;
mod principal;
mod statement;
mod template;
mod trust;

use std::borrow::Cow;

pub(crate) use acl::{Acl, GRANTS_MAX, Grant, Grantee, Permission};
pub(crate) use acl_use::AclUse;
pub(crate) use action::{Action, Scope};
pub(crate) use bindings::{Bindings, Member, NAMES_MAX, Name};
pub(crate) use context::Context;
pub(crate) use grants::Granted;
pub(crate) use operations::{Case, actions};
pub(crate) use own::OwnPolicy;
pub(crate) use policy::{Policy, Verdict};
pub(crate) use principal::Requester;
pub(crate) use trust::{Taker, Trust, Way, provider_name};

#[cfg(test)]
mod tests;

/// Why a document is no policy, in S3's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Malformed(Cow<'static, str>);

impl Malformed {
    fn new(message: impl Into<Cow<'static, str>>) -> Self {
        Self(message.into())
    }
}

/// What a policy is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question<'a> {
    /// Who asks.
    pub(crate) requester: &'a Requester,
    /// What for.
    pub(crate) action: Action,
    /// To what: `bucket`, or `bucket/key`.
    pub(crate) resource: &'a str,
    /// What else is known.
    pub(crate) context: &'a Context,
}

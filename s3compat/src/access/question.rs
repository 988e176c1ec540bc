//! Question for one policy.

use super::action::Action;
use super::context::Context;
use super::subject::Subject;

/// A request for one policy to judge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PolicyQuestion<'a> {
    /// Principal of the request.
    pub(super) subject: Subject<'a>,
    /// Requested action.
    pub(super) action: Action,
    /// Resource of the action: `bucket`, or `bucket/key`.
    pub(super) resource: &'a str,
    /// Condition keys of the request.
    pub(super) context: &'a Context,
}

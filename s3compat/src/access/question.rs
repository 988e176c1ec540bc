//! Question for one policy.

use std::borrow::Cow;

use super::action::Action;
use super::context::Context;
use super::subject::Subject;

/// Beginning of the ARN of a resource of S3.
pub(super) const ARN: &str = "arn:aws:s3:::";
/// Beginning of the ARN of an account.
pub(super) const ACCOUNT_ARN: &str = "arn:aws:iam::";

/// A request for one policy to judge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PolicyQuestion<'a> {
    /// Principal of the request.
    pub(super) subject: Subject<'a>,
    /// Requested action.
    pub(super) action: Action,
    /// Resource of the action: `bucket`, or `bucket/key`; the ARN of an account.
    pub(super) resource: &'a str,
    /// True if the action is about an object that the request makes.
    pub(super) is_new: bool,
    /// Condition keys of the request.
    pub(super) context: &'a Context,
}

impl PolicyQuestion<'_> {
    /// ARN of the resource.
    pub(super) fn arn(&self) -> Cow<'_, str> {
        if self.action.is_of_account() {
            return Cow::Borrowed(self.resource);
        }
        Cow::Owned([ARN, self.resource].concat())
    }
}

//! Policies that users, roles and sessions carry. They name no principals, as they apply to their
//! holder.
//!
//! Invariants:
//! * A deny in such a policy wins over everything that permits its holder.
//! * A policy that can't be read allows nothing.

use std::fmt;
use std::sync::Arc;

use super::connection_needs::ConnectionNeeds;
use super::malformed::MalformedPolicy;
use super::policy::{Policy, PolicyDecision};
use super::question::PolicyQuestion;

/// A policy that its holder carries.
#[derive(Clone)]
pub(crate) struct IdentityPolicy {
    text: Arc<str>,
    /// `None` if the policy can't be read.
    policy: Option<Arc<Policy>>,
}

impl PartialEq for IdentityPolicy {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for IdentityPolicy {}

impl fmt::Debug for IdentityPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("IdentityPolicy").field(&self.text).finish()
    }
}

impl IdentityPolicy {
    /// Refuses a policy that can't be evaluated.
    pub(crate) fn check(text: &str) -> Result<(), MalformedPolicy> {
        Policy::parse_own(text.as_bytes()).map(drop)
    }

    /// Reads a policy that was accepted before. An unreadable policy denies everything.
    pub(crate) fn read(text: &str) -> Self {
        let policy = Policy::parse_own(text.as_bytes());
        if let Err(error) = &policy {
            tracing::error!(%error, "could not read the policy of a user or role");
        }
        Self { text: text.into(), policy: policy.ok().map(Arc::new) }
    }

    /// Judges a question.
    pub(crate) fn evaluate(&self, question: &PolicyQuestion<'_>) -> PolicyDecision {
        self.policy.as_ref().map_or(PolicyDecision::Deny, |policy| policy.evaluate(question))
    }

    /// True if evaluation needs values of the request.
    pub(crate) fn reads_context(&self) -> bool {
        self.policy.as_ref().is_some_and(|policy| policy.reads_context())
    }

    /// True if evaluation needs the tags of the existing object.
    pub(crate) fn reads_existing_tags(&self) -> bool {
        self.policy.as_ref().is_some_and(|policy| policy.reads_existing_tags())
    }

    /// Properties of the connection that evaluation needs.
    pub(crate) fn connection_needs(&self) -> ConnectionNeeds {
        self.policy.as_ref().map(|policy| policy.connection_needs()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::question::ARN;
    use super::super::{Action, Context, Question, Requester};
    use super::*;

    /// Judges an action on a resource of S3, or on an account with this ARN.
    fn judge(text: &str, action: Action, resource: &str) -> PolicyDecision {
        let (requester, context) = (&Requester::named("alice"), &Context::default());
        let arn: &str = if action.is_of_account() { resource } else { &[ARN, resource].concat() };
        let question = Question { requester, action, arn, is_new: false, context };
        IdentityPolicy::read(text).evaluate(&question.of_policy())
    }

    fn policy(effect: &str, action: &str, resource: &str) -> String {
        format!(
            r#"{{"Version": "2012-10-17", "Statement":
                {{"Effect": "{effect}", "Action": "{action}", "Resource": "{resource}"}}}}"#
        )
    }

    #[test]
    fn it_speaks_of_any_bucket_and_of_the_service() {
        let one = policy("Allow", "s3:GetObject", "arn:aws:s3:::bkt/a/*");
        assert_eq!(judge(&one, Action::GetObject, "bkt/a/k"), PolicyDecision::Allow);
        assert_eq!(judge(&one, Action::GetObject, "bkt/b"), PolicyDecision::Undecided);
        assert_eq!(judge(&one, Action::PutObject, "bkt/a/k"), PolicyDecision::Undecided);
        let all = policy("Allow", "s3:*", "*");
        assert_eq!(judge(&all, Action::ListAllMyBuckets, "*"), PolicyDecision::Allow);
        assert_eq!(judge(&all, Action::CreateBucket, "new"), PolicyDecision::Allow);
        let lists = policy("Allow", "s3:ListAllMyBuckets", "arn:aws:s3:::*");
        assert_eq!(judge(&lists, Action::ListAllMyBuckets, "*"), PolicyDecision::Allow);
        let other = policy("Allow", "s3:ListAllMyBuckets", "arn:aws:s3:::b*");
        assert_eq!(judge(&other, Action::ListAllMyBuckets, "*"), PolicyDecision::Undecided);
        let deny = policy("Deny", "*", "arn:aws:s3:::bkt/*");
        assert_eq!(judge(&deny, Action::GetObject, "bkt/k"), PolicyDecision::Deny);
    }

    #[test]
    fn keys_are_resources_of_accounts() {
        let user = "arn:aws:iam::lab:user/alice";
        let of = |effect: &str, action: &str, resource: &str| {
            judge(&policy(effect, action, resource), Action::CreateAccessKey, user)
        };
        for (action, resource) in [
            ("*", "*"),
            ("iam:*", "arn:aws:iam::*"),
            ("iam:CreateAccessKey", user),
            ("iam:*AccessKey*", "arn:aws:iam::lab:user/*"),
        ] {
            assert_eq!(of("Allow", action, resource), PolicyDecision::Allow, "{action} {resource}");
            assert_eq!(of("Deny", action, resource), PolicyDecision::Deny, "{action} {resource}");
        }
        // Rights at S3 are none at keys.
        for (action, resource) in [
            ("s3:*", "*"),
            ("*", "arn:aws:s3:::*"),
            ("iam:ListAccessKeys", "*"),
            ("iam:CreateAccessKey", "arn:aws:iam::lab:user/bob"),
        ] {
            assert_eq!(of("Allow", action, resource), PolicyDecision::Undecided, "{action}");
        }
        let objects = policy("Allow", "*", "arn:aws:iam::lab:user/*");
        assert_eq!(judge(&objects, Action::GetObject, "b/k"), PolicyDecision::Undecided);
    }

    #[test]
    fn identity_policies_with_principals_or_foreign_resources_are_refused() {
        let named = r#"{"Statement": {"Effect": "Allow", "Principal": "*", "Action": "s3:*",
                        "Resource": "*"}}"#;
        assert!(IdentityPolicy::check(named).unwrap_err().to_string().contains("principal"));
        for (action, resource) in
            [("sts:AssumeRole", "*"), ("s3:Get", "*"), ("s3:*", "arn:aws:sqs:::q"), ("s3:*", "bkt")]
        {
            assert!(IdentityPolicy::check(&policy("Allow", action, resource)).is_err(), "{action}");
        }
        let condition = r#"{"Statement": {"Effect": "Allow", "Action": "s3:*", "Resource": "*",
                            "Condition": {"StringEquals": {"sts:ExternalId": "x"}}}}"#;
        assert!(IdentityPolicy::check(condition).is_err());
    }

    #[test]
    fn unreadable_identity_policies_deny() {
        assert_eq!(judge("{", Action::GetObject, "bkt/k"), PolicyDecision::Deny);
        assert!(!IdentityPolicy::read("{").reads_existing_tags());
    }
}

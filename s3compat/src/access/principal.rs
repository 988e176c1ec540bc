//! Who asks, and whom a policy names.
//!
//! A tenant is an account. Its own keys come as a user of the tenant's name, which no other user can have:
//! so for those `alice`, `arn:aws:iam::alice:root`, `arn:aws:iam::alice:user/alice` and
//! `arn:aws:iam:::user/alice` are all the same. A tenant's canonical id may stand wherever its name may, and
//! as canonical user. Who names an account names all its users.

use std::sync::Arc;

use martlet_proxy::Role;

use super::Malformed;
use super::action::{Action, Scope};
use super::json::Json;
use super::{Question, Verdict};
use crate::auth::Who;

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Requester {
    /// Nobody in particular.
    Anonymous,
    /// An account, or a user of one.
    User(Arc<Who>),
    /// The store itself, when it delivers the access logs of buckets.
    LogDelivery,
}

/// What policies call the service that delivers access logs.
const LOG_DELIVERY: &str = "logging.s3.amazonaws.com";

impl Requester {
    /// The one user of the account `name`.
    #[cfg(test)]
    pub(crate) fn named(name: &str) -> Self {
        Self::User(Arc::new(Who::named(name)))
    }

    /// Whether its role lets it do this, whatever else does.
    pub(crate) fn has_role_for(&self, action: Action) -> bool {
        match self {
            Self::Anonymous | Self::LogDelivery => true,
            Self::User(who) => role_allows(who.role, action),
        }
    }

    /// Whether its role leaves it all that its account may.
    pub(crate) fn is_whole(&self) -> bool {
        match self {
            Self::Anonymous | Self::LogDelivery => true,
            Self::User(who) => {
                who.role == Role::Admin && who.own.is_none() && who.session.is_none()
            }
        }
    }

    /// What the policies that it carries say of a question; none where it carries none. What a session is
    /// limited to is allowed by both its role and the session's own policy.
    pub(crate) fn own_verdict(&self, question: &Question<'_>) -> Option<Verdict> {
        let Self::User(who) = self else { return None };
        let limit = who.session.as_ref().and_then(|session| session.policy.as_ref());
        if limit.is_some_and(|policy| policy.judge(question) != Verdict::Allow) {
            return Some(Verdict::Deny);
        }
        who.own.as_ref().map(|policy| policy.judge(question))
    }

    /// Whether one of those must be told the tags of the object that is there.
    pub(crate) fn reads_existing_tags(&self) -> bool {
        let Self::User(who) = self else { return false };
        let limit = who.session.as_ref().and_then(|session| session.policy.as_ref());
        who.own.iter().chain(limit).any(super::OwnPolicy::reads_existing_tags)
    }

    /// Whether what this owner has is its own to use: root's is everything.
    pub(crate) fn owns(&self, owner: &str) -> bool {
        match self {
            Self::Anonymous | Self::LogDelivery => false,
            Self::User(who) => *who.canonical_id == *owner || who.is_root(),
        }
    }

    /// Its ARN; anonymous has none.
    pub(crate) fn arn(&self) -> Option<String> {
        match self {
            Self::Anonymous | Self::LogDelivery => None,
            Self::User(who) => Some(who.arn()),
        }
    }
}

/// Whom a statement is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Principals(Vec<Principal>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Principal {
    Everyone,
    Account(String),
    User {
        account: String,
        user: String,
    },
    /// All sessions of a role, or one.
    Role {
        account: String,
        role: String,
        session: Option<String>,
    },
    Canonical(String),
    Service(String),
}

/// Characters of a name.
const NAME_BYTES_MAX: usize = 128;

impl Principals {
    /// Reads the element `Principal` or `NotPrincipal`.
    pub(super) fn parse(json: &Json) -> Result<Self, Malformed> {
        let wrong = || Malformed::new("Invalid principal in policy");
        if let Json::Text(text) = json {
            return (text == "*").then(|| Self(vec![Principal::Everyone])).ok_or_else(wrong);
        }
        let mut principals = Vec::new();
        for (kind, named) in json.members().ok_or_else(wrong)? {
            for text in named.texts().ok_or_else(wrong)? {
                let principal = match kind.as_str() {
                    "AWS" => Principal::parse(text),
                    "CanonicalUser" => is_name(text).then(|| Principal::Canonical(text.to_owned())),
                    // Of services only one comes; a policy may name others.
                    "Service" => is_service(text).then(|| Principal::Service(text.to_owned())),
                    // Federations: nobody comes as one here.
                    _ => None,
                };
                principals.push(principal.ok_or_else(wrong)?);
            }
        }
        if principals.is_empty() { Err(wrong()) } else { Ok(Self(principals)) }
    }

    /// Whether it names who asks.
    pub(super) fn name(&self, requester: &Requester) -> bool {
        self.0.iter().any(|principal| principal.is(requester))
    }

    /// Nobody.
    pub(super) fn nobody() -> Self {
        Self(Vec::new())
    }

    /// Whether it names who asks by more than its account.
    pub(super) fn name_closely(&self, requester: &Requester) -> bool {
        let is_close =
            |it: &&Principal| matches!(it, Principal::User { .. } | Principal::Role { .. });
        self.0.iter().filter(is_close).any(|principal| principal.is(requester))
    }

    /// Whether it names everyone.
    pub(super) fn has_everyone(&self) -> bool {
        self.0.contains(&Principal::Everyone)
    }
}

impl Principal {
    fn parse(text: &str) -> Option<Self> {
        if text == "*" {
            return Some(Self::Everyone);
        }
        if let Some(rest) = text.strip_prefix("arn:aws:sts::") {
            return Self::parse_session(rest);
        }
        let Some(rest) = text.strip_prefix("arn:aws:iam::") else {
            return is_name(text).then(|| Self::Account(text.to_owned()));
        };
        let (account, who) = rest.split_once(':')?;
        if who == "root" {
            return is_name(account).then(|| Self::Account(account.to_owned()));
        }
        if let Some(role) = who.strip_prefix("role/") {
            return Self::role(account, role, None);
        }
        let user = who.strip_prefix("user/")?;
        let is_right = (account.is_empty() || is_name(account)) && user.split('/').all(is_name);
        is_right.then(|| Self::User { account: account.to_owned(), user: user.to_owned() })
    }

    fn role(account: &str, role: &str, session: Option<&str>) -> Option<Self> {
        let is_right = is_name(account) && is_name(role) && session.is_none_or(is_name);
        is_right.then(|| Self::Role {
            account: account.to_owned(),
            role: role.to_owned(),
            session: session.map(str::to_owned),
        })
    }

    fn parse_session(rest: &str) -> Option<Self> {
        let (account, who) = rest.split_once(':')?;
        let (role, session) = who.strip_prefix("assumed-role/")?.split_once('/')?;
        Self::role(account, role, Some(session))
    }

    fn is(&self, requester: &Requester) -> bool {
        let who = match requester {
            Requester::User(who) => who,
            Requester::Anonymous => return *self == Self::Everyone,
            // Everyone is everyone who asks: a service is named, or not meant.
            Requester::LogDelivery => {
                return matches!(self, Self::Service(name) if name == LOG_DELIVERY);
            }
        };
        let is_its = |named: &String| **named == *who.account || **named == *who.canonical_id;
        match self {
            Self::Everyone => true,
            Self::Account(named) => is_its(named),
            // A user of no account is the one that stands for a whole account.
            Self::User { account, user } if account.is_empty() => who.is_account() && is_its(user),
            Self::User { account, user } => {
                is_its(account) && (**user == *who.user || who.is_account() && is_its(user))
            }
            Self::Role { account, role, session } => who.session.as_ref().is_some_and(|it| {
                is_its(account)
                    && *it.role == **role
                    && session.as_ref().is_none_or(|session| **session == *it.name)
            }),
            Self::Canonical(id) => **id == *who.canonical_id,
            Self::Service(_) => false,
        }
    }
}

/// Object actions that a role for reading and writing doesn't have: they decide who else may do what, or
/// whether something may be deleted.
const BEYOND_WRITING: [Action; 8] = [
    Action::BypassGovernanceRetention,
    Action::ObjectOwnerOverrideToBucketOwner,
    Action::PutObjectAcl,
    Action::PutObjectLegalHold,
    Action::PutObjectRetention,
    Action::PutObjectVersionAcl,
    Action::ReplicateDelete,
    Action::ReplicateObject,
];

/// Whether a role lets its holder do this, of what the account may.
fn role_allows(role: Role, action: Action) -> bool {
    let is_reading = || {
        let name = action.name();
        name.starts_with("s3:Get") || name.starts_with("s3:List")
    };
    let is_writing = || action.scope() == Scope::Object && !BEYOND_WRITING.contains(&action);
    match role {
        Role::Admin => true,
        Role::ReadWrite => is_reading() || is_writing(),
        Role::ReadOnly => is_reading(),
    }
}

fn is_service(text: &str) -> bool {
    is_name(text) && text.contains(".amazonaws.com")
}

fn is_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_+=,.@-".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Principals, Malformed> {
        Principals::parse(&Json::parse(text).unwrap())
    }

    fn names(text: &str, name: &str) -> bool {
        parse(text).unwrap().name(&Requester::named(name))
    }

    #[test]
    fn everyone_is_everyone() {
        for text in [r#""*""#, r#"{"AWS": "*"}"#, r#"{"AWS": ["alice", "*"]}"#] {
            let everyone = parse(text).unwrap();
            assert!(everyone.name(&Requester::Anonymous) && everyone.has_everyone(), "{text}");
            assert!(names(text, "bob"), "{text}");
        }
    }

    #[test]
    fn an_account_has_many_names() {
        for text in [
            r#"{"AWS": "alice"}"#,
            r#"{"AWS": "arn:aws:iam::alice:root"}"#,
            r#"{"AWS": ["arn:aws:iam::alice:user/alice"]}"#,
            r#"{"AWS": "arn:aws:iam:::user/alice"}"#,
            r#"{"CanonicalUser": "alice"}"#,
            r#"{"AWS": "x", "CanonicalUser": ["y", "alice"]}"#,
        ] {
            assert!(names(text, "alice") && !names(text, "bob"), "{text}");
            let named = parse(text).unwrap();
            assert!(!named.name(&Requester::Anonymous) && !named.has_everyone(), "{text}");
        }
        let carol =
            Who { user: "carol".into(), canonical_id: "c0ffee".into(), ..Who::named("alice") };
        let other = Requester::User(Arc::new(carol));
        assert!(parse(r#"{"AWS": "arn:aws:iam::alice:root"}"#).unwrap().name(&other));
        assert!(!parse(r#"{"AWS": "arn:aws:iam::alice:user/alice"}"#).unwrap().name(&other));
        assert!(parse(r#"{"AWS": "arn:aws:iam::alice:user/carol"}"#).unwrap().name(&other));
        assert_eq!(other.arn().unwrap(), "arn:aws:iam::alice:user/carol");
        for (text, is_named) in [
            (r#"{"AWS": "c0ffee"}"#, true),
            (r#"{"AWS": "arn:aws:iam::c0ffee:user/carol"}"#, true),
            (r#"{"CanonicalUser": "c0ffee"}"#, true),
            (r#"{"CanonicalUser": "alice"}"#, false),
            (r#"{"AWS": "arn:aws:iam:::user/c0ffee"}"#, false),
            (r#"{"AWS": "arn:aws:iam:::user/carol"}"#, false),
        ] {
            assert_eq!(parse(text).unwrap().name(&other), is_named, "{text}");
        }
        let account = Who { canonical_id: "c0ffee".into(), ..Who::named("alice") };
        let account = Requester::User(Arc::new(account));
        for text in [
            r#"{"AWS": "arn:aws:iam:::user/c0ffee"}"#,
            r#"{"AWS": "arn:aws:iam::alice:user/c0ffee"}"#,
            r#"{"AWS": "arn:aws:iam:::user/alice"}"#,
        ] {
            assert!(parse(text).unwrap().name(&account), "{text}");
        }
    }

    #[test]
    fn the_service_that_delivers_logs_is_named_or_not_meant() {
        let means = |text: &str| parse(text).unwrap().name(&Requester::LogDelivery);
        assert!(means(r#"{"Service": "logging.s3.amazonaws.com"}"#));
        assert!(means(r#"{"Service": ["x.amazonaws.com", "logging.s3.amazonaws.com"]}"#));
        assert!(!means(r#"{"Service": "logging.s3.amazonaws.comx"}"#));
        assert!(!means(r#""*""#) && !means(r#"{"AWS": "*"}"#));
        assert!(!names(r#"{"Service": "logging.s3.amazonaws.com"}"#, "alice"));
    }

    #[test]
    fn roles_leave_what_their_names_say() {
        let allows = |role, action| role_allows(role, action);
        for action in Action::ALL {
            assert!(allows(Role::Admin, *action));
            assert!(!allows(Role::ReadOnly, *action) || allows(Role::ReadWrite, *action));
        }
        for action in [Action::GetObject, Action::ListBucket, Action::ListAllMyBuckets] {
            assert!(allows(Role::ReadOnly, action), "{action:?}");
        }
        for action in [Action::PutObject, Action::DeleteObject, Action::PutObjectTagging] {
            assert!(
                !allows(Role::ReadOnly, action) && allows(Role::ReadWrite, action),
                "{action:?}"
            );
        }
        for action in [
            Action::CreateBucket,
            Action::DeleteBucket,
            Action::PutBucketPolicy,
            Action::PutObjectAcl,
            Action::BypassGovernanceRetention,
        ] {
            assert!(!allows(Role::ReadWrite, action), "{action:?}");
        }
    }

    #[test]
    fn what_names_nobody_is_refused() {
        for text in [
            r#""alice""#,
            "{}",
            "[]",
            "null",
            r#"{"AWS": []}"#,
            r#"{"AWS": ""}"#,
            r#"{"AWS": {"a": 1}}"#,
            r#"{"AWS": "arn:aws:iam::alice:user/*"}"#,
            r#"{"AWS": "arn:aws:iam::*:root"}"#,
            r#"{"AWS": "arn:aws:iam::alice:role/*"}"#,
            r#"{"AWS": "arn:aws:sts::alice:assumed-role/r"}"#,
            r#"{"AWS": "arn:aws:s3:::bucket"}"#,
            r#"{"AWS": "a*"}"#,
            r#"{"Service": "*"}"#,
            r#"{"Service": "logging"}"#,
            r#"{"Federated": "x"}"#,
            r#"{"CanonicalUser": "*"}"#,
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert_eq!(error, "Invalid principal in policy", "{text}");
        }
    }
}

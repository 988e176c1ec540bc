//! Who asks, and whom a policy names.
//!
//! A name that owns buckets is an account with one user of the same name. So `alice`,
//! `arn:aws:iam::alice:root`, `arn:aws:iam::alice:user/alice`, `arn:aws:iam:::user/alice` and the
//! canonical user `alice` are all the same today.

use super::Malformed;
use super::json::Json;

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Requester {
    /// Nobody in particular.
    Anonymous,
    /// A user of an account.
    User {
        /// The account.
        account: String,
        /// The user's name in it.
        user: String,
    },
}

impl Requester {
    /// The one user of the account `name`.
    pub(crate) fn named(name: &str) -> Self {
        Self::User { account: name.to_owned(), user: name.to_owned() }
    }

    /// Its ARN; anonymous has none.
    pub(crate) fn arn(&self) -> Option<String> {
        match self {
            Self::Anonymous => None,
            Self::User { account, user } => Some(format!("arn:aws:iam::{account}:user/{user}")),
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
    User { account: String, user: String },
    Canonical(String),
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
                    // Services, roles and federations: nobody comes as one here.
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
        let Some(rest) = text.strip_prefix("arn:aws:iam::") else {
            return is_name(text).then(|| Self::Account(text.to_owned()));
        };
        let (account, who) = rest.split_once(':')?;
        if who == "root" {
            return is_name(account).then(|| Self::Account(account.to_owned()));
        }
        let user = who.strip_prefix("user/")?;
        let is_right = (account.is_empty() || is_name(account)) && user.split('/').all(is_name);
        is_right.then(|| Self::User { account: account.to_owned(), user: user.to_owned() })
    }

    fn is(&self, requester: &Requester) -> bool {
        let Requester::User { account, user } = requester else {
            return *self == Self::Everyone;
        };
        match self {
            Self::Everyone => true,
            Self::Account(named) => named == account,
            // A user of no account is the one that an account is named after.
            Self::User { account: named, user: name } if named.is_empty() => {
                name == user && name == account
            }
            Self::User { account: named, user: name } => named == account && name == user,
            Self::Canonical(id) => id == account,
        }
    }
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
        let other = Requester::User { account: "alice".into(), user: "carol".into() };
        assert!(parse(r#"{"AWS": "arn:aws:iam::alice:root"}"#).unwrap().name(&other));
        assert!(!parse(r#"{"AWS": "arn:aws:iam::alice:user/alice"}"#).unwrap().name(&other));
        assert!(parse(r#"{"AWS": "arn:aws:iam::alice:user/carol"}"#).unwrap().name(&other));
        assert_eq!(other.arn().unwrap(), "arn:aws:iam::alice:user/carol");
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
            r#"{"AWS": "arn:aws:iam::alice:role/r"}"#,
            r#"{"AWS": "arn:aws:s3:::bucket"}"#,
            r#"{"AWS": "a*"}"#,
            r#"{"Service": "s3.amazonaws.com"}"#,
            r#"{"Federated": "x"}"#,
            r#"{"CanonicalUser": "*"}"#,
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert_eq!(error, "Invalid principal in policy", "{text}");
        }
    }
}

//! Principals that policies name, and the requesters that they match.
//!
//! A tenant is an account. The requester of its own keys is a user with the tenant's name, which no
//! other user can have. So `alice`, `arn:aws:iam::alice:root`, `arn:aws:iam::alice:user/alice` and
//! `arn:aws:iam:::user/alice` all match these keys. A tenant's canonical id may replace its name in
//! any of these, and may be given as `CanonicalUser`. A principal that names an account matches all
//! its users.
//!
//! Names are bound to ids when a document is put: a later holder of a name doesn't match.

use martlet_proxy::is_of_tenant;

use super::bindings::{Bindings, BoundName, PrincipalKind};
use super::json::Json;
use super::malformed::MalformedPolicy;
use super::subject::{Subject, UserNames};

/// Service principal that delivers access logs.
const LOG_DELIVERY: &str = "logging.s3.amazonaws.com";
/// Suffix of the names of services.
const OF_SERVICES: &str = ".amazonaws.com";
/// Services that bucket policies may name, sorted. Only log delivery makes requests here; policies
/// with the others are migrated along with their buckets. S3 refuses names of unknown services.
const SERVICES: [&str; 73] = [
    "access-analyzer",
    "amplify",
    "apigateway",
    "appflow",
    "appsync",
    "athena",
    "backup",
    "batchoperations.s3",
    "bcm-data-exports",
    "bedrock",
    "billingreports",
    "cloudformation",
    "cloudfront",
    "cloudtrail",
    "codebuild",
    "codedeploy",
    "codepipeline",
    "comprehend",
    "config",
    "datasync",
    "delivery.logs",
    "dms",
    "dynamodb",
    "ec2",
    "ecs",
    "ecs-tasks",
    "eks",
    "elasticbeanstalk",
    "elasticloadbalancing",
    "elasticmapreduce",
    "events",
    "export.rds",
    "firehose",
    "forecast",
    "glue",
    "guardduty",
    "imagebuilder",
    "inspector",
    "inspector2",
    "iot",
    "kinesis",
    "kinesisanalytics",
    "lambda",
    "license-manager",
    "logdelivery.elasticloadbalancing",
    "logging.s3",
    "logs",
    "macie",
    "mediaconvert",
    "monitoring",
    "personalize",
    "pipes",
    "quicksight",
    "rds",
    "redshift",
    "rekognition",
    "s3",
    "sagemaker",
    "scheduler",
    "securityhub",
    "serverlessrepo",
    "ses",
    "sns",
    "sqs",
    "ssm",
    "states",
    "storage-lens.s3",
    "textract",
    "transcribe",
    "transfer",
    "vpc-flow-logs",
    "waf",
    "workspaces",
];

/// Principals of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Principals(Vec<Principal>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Principal {
    Everyone,
    Account(BoundPrincipal),
    /// The account's own keys.
    Whole(BoundPrincipal),
    User {
        account: BoundPrincipal,
        user: BoundPrincipal,
    },
    /// All sessions of a role, or one.
    Role {
        account: BoundPrincipal,
        role: BoundPrincipal,
        session: Option<String>,
    },
    Canonical(String),
    Service(String),
}

/// A name, and the id of its holder when the document was put, if bound.
#[derive(Clone, Debug, PartialEq, Eq)]
struct BoundPrincipal {
    name: String,
    id: Option<String>,
}

impl BoundPrincipal {
    fn new(name: &str) -> Self {
        Self { name: name.to_owned(), id: None }
    }

    /// Returns true if this is the requester's account.
    fn is_account_of(&self, who: &UserNames<'_>) -> bool {
        match &self.id {
            Some(id) => id == who.canonical_id,
            None => self.name == who.account || self.name == who.canonical_id,
        }
    }
}

/// Maximum bytes of a name. Names are ASCII.
const NAME_BYTES_MAX: usize = 128;

impl Principals {
    /// Reads the element `Principal` or `NotPrincipal`.
    pub(super) fn parse(json: &Json) -> Result<Self, MalformedPolicy> {
        let wrong = || MalformedPolicy::new("Invalid principal in policy");
        if let Json::Text(text) = json {
            return (text == "*").then(|| Self(vec![Principal::Everyone])).ok_or_else(wrong);
        }
        let mut principals = Vec::new();
        for (kind, named) in json.members().ok_or_else(wrong)? {
            for text in named.texts().ok_or_else(wrong)? {
                let principal = match kind.as_str() {
                    "AWS" => Principal::parse(text),
                    "CanonicalUser" => is_name(text).then(|| Principal::Canonical(text.to_owned())),
                    // Only log delivery makes requests; a policy may name other services.
                    "Service" => is_service(text).then(|| Principal::Service(text.to_owned())),
                    // Federated principals: no request has one.
                    _ => None,
                };
                principals.push(principal.ok_or_else(wrong)?);
            }
        }
        if principals.is_empty() { Err(wrong()) } else { Ok(Self(principals)) }
    }

    /// True if a principal matches the requester.
    pub(super) fn name(&self, subject: &Subject<'_>) -> bool {
        self.0.iter().any(|principal| principal.is(subject))
    }

    /// Names of the principals.
    pub(super) fn names(&self) -> impl Iterator<Item = BoundName> + '_ {
        self.0.iter().flat_map(Principal::names)
    }

    /// Binds the names to their holders at the time when the document was put.
    pub(super) fn bind(&mut self, bindings: &Bindings) {
        self.0.iter_mut().for_each(|principal| principal.bind(bindings));
    }

    /// No principals.
    pub(super) fn none() -> Self {
        Self(Vec::new())
    }

    /// True if a principal matches the requester by more than its account.
    pub(super) fn name_closely(&self, subject: &Subject<'_>) -> bool {
        let is_close = |it: &&Principal| {
            matches!(it, Principal::Whole(_) | Principal::User { .. } | Principal::Role { .. })
        };
        self.0.iter().filter(is_close).any(|principal| principal.is(subject))
    }

    /// True if everyone is named.
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
            return is_name(text).then(|| Self::Account(BoundPrincipal::new(text)));
        };
        let (account, who) = rest.split_once(':')?;
        if who == "root" {
            return is_name(account).then(|| Self::Account(BoundPrincipal::new(account)));
        }
        if let Some(role) = who.strip_prefix("role/") {
            return Self::role(account, role, None);
        }
        let user = who.strip_prefix("user/")?;
        let is_right = (account.is_empty() || is_name(account)) && user.split('/').all(is_name);
        is_right.then(|| match account {
            // Without an account, the user is the one that stands for a whole account.
            "" => Self::Whole(BoundPrincipal::new(user)),
            _ => Self::User {
                account: BoundPrincipal::new(account),
                user: BoundPrincipal::new(user),
            },
        })
    }

    fn names(&self) -> Vec<BoundName> {
        match self {
            // An id is never reused and needs no binding. The name is returned so that the tenant's
            // existence is checked.
            Self::Canonical(id) if is_of_tenant(id) => vec![BoundName::account(id)],
            Self::Everyone | Self::Canonical(_) | Self::Service(_) => Vec::new(),
            Self::Account(account) | Self::Whole(account) => {
                vec![BoundName::account(&account.name)]
            }
            Self::User { account, user: BoundPrincipal { name, .. } } => {
                let account = &account.name;
                vec![
                    BoundName::account(account),
                    BoundName::member(account, PrincipalKind::User, name),
                ]
            }
            Self::Role { account, role: BoundPrincipal { name, .. }, .. } => {
                let account = &account.name;
                vec![
                    BoundName::account(account),
                    BoundName::member(account, PrincipalKind::Role, name),
                ]
            }
        }
    }

    fn bind(&mut self, bindings: &Bindings) {
        let [id, member] = {
            let mut ids = self.names().into_iter().map(|name| bindings.id(&name));
            [ids.next(), ids.next()]
        };
        match self {
            Self::Everyone | Self::Canonical(_) | Self::Service(_) => {}
            Self::Account(account) | Self::Whole(account) => account.id = id,
            // The user with its account's own name is the account itself.
            Self::User { account, .. } if member == id => {
                *self = Self::Whole(BoundPrincipal { id, ..account.clone() });
            }
            Self::User { account, user: it } | Self::Role { account, role: it, .. } => {
                (account.id, it.id) = (id, member);
            }
        }
    }

    fn role(account: &str, role: &str, session: Option<&str>) -> Option<Self> {
        let is_right = is_name(account) && is_name(role) && session.is_none_or(is_name);
        is_right.then(|| Self::Role {
            account: BoundPrincipal::new(account),
            role: BoundPrincipal::new(role),
            session: session.map(str::to_owned),
        })
    }

    fn parse_session(rest: &str) -> Option<Self> {
        let (account, who) = rest.split_once(':')?;
        let (role, session) = who.strip_prefix("assumed-role/")?.split_once('/')?;
        Self::role(account, role, Some(session))
    }

    fn is(&self, subject: &Subject<'_>) -> bool {
        let who = match subject {
            Subject::User(who) => who,
            Subject::Anonymous => return *self == Self::Everyone,
            // Everyone excludes services: a service matches by its name only.
            Subject::LogDelivery => {
                return matches!(self, Self::Service(name) if name == LOG_DELIVERY);
            }
        };
        match self {
            Self::Everyone => true,
            Self::Account(account) => account.is_account_of(who),
            Self::Whole(account) => who.is_account() && account.is_account_of(who),
            Self::User { account, user } => account.is_account_of(who) && is_user(user, who),
            Self::Role { account, role, session } => who.session.as_ref().is_some_and(|it| {
                let is_role = match &role.id {
                    Some(id) => id == it.role_id,
                    None => role.name == it.role,
                };
                account.is_account_of(who)
                    && is_role
                    && session.as_ref().is_none_or(|session| session == it.name)
            }),
            Self::Canonical(id) => id == who.canonical_id,
            Self::Service(_) => false,
        }
    }
}

/// Returns true if `user` names the requester within its account.
fn is_user(user: &BoundPrincipal, who: &UserNames<'_>) -> bool {
    match &user.id {
        Some(id) => who.user_id == Some(id.as_str()),
        None => user.name == who.user || who.is_account() && user.is_account_of(who),
    }
}

/// Returns true if the name is a service's, with or without a region.
fn is_service(text: &str) -> bool {
    let Some(name) = text.strip_suffix(OF_SERVICES) else { return false };
    let is_known = |name: &str| SERVICES.binary_search(&name).is_ok();
    is_known(name)
        || name.rsplit_once('.').is_some_and(|(name, region)| {
            let is_region = region.contains('-') && is_name(region);
            is_region && is_known(name)
        })
}

fn is_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_+=,.@-".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_plain)
}

#[cfg(test)]
mod tests;

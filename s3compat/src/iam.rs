//! Access keys of a user, as IAM's API has them: `ListAccessKeys`, `CreateAccessKey` and
//! `DeleteAccessKey`, and `RotateAccessKey`, which is of this store.
//!
//! ```text
//! POST / (a form, version 2010-05-08) ─▶ signature of the service "iam" ─▶ policy ─▶ own keys
//! ```
//!
//! Invariants:
//! * A request reaches the keys of its signer's user alone. There is no parameter for another user.
//! * Sessions of roles, tenants' own keys and the root key reach none: a session would outlive itself
//!   by a key, and keys of a tenant are its operators' task.
//! * A user needs an Allow for the action in its policy, on the ARN of the user. Without a policy a user
//!   reaches no keys: otherwise a stolen key could be replaced by one that survives it.
//! * A request is admitted by the rates of its signer, and names a well-formed key, before it is
//!   recorded.
//! * A change is recorded before it begins and before it is answered.

use std::sync::Arc;

use http::Response;
use http::header::AUTHORIZATION;
use http::request::Parts;
use martlet_proxy::{Accounts, Error, Key, OwnKeys};

use crate::access::{AccountIdentity, Action, Context, PolicyDecision, Question, Requester};
use crate::auth::{Authenticator, Caller, RequestHead, Timestamp};
use crate::authorization::{add_connection, add_requester, add_time};
use crate::body::ResponseBody;
use crate::change_log::{ChangeLog, ChangeTarget, RecordedChange};
use crate::connection::Connection;
use crate::sts::reply::{self, Elements, IAM, StsCode, StsError};
use crate::target::{Query, RequestTarget};

/// The supported version of the service.
const VERSION: &str = "2010-05-08";
/// Service that signatures name.
const SERVICE: &str = "iam";

/// Request to the service, read whole.
pub(crate) struct IamHead<'a> {
    pub(crate) parts: &'a Parts,
    pub(crate) target: &'a RequestTarget,
    pub(crate) body: &'a [u8],
    /// Id of the request.
    pub(crate) id: &'a str,
}

/// An action, with the access key that it concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
enum IamAction {
    List,
    Create,
    Rotate(String),
    Delete(String),
}

/// Returns true if a form is for this service.
pub(crate) fn is_for(body: &[u8]) -> bool {
    let form = std::str::from_utf8(body).ok().and_then(|text| Query::parse(text).ok());
    form.is_some_and(|form| form.get("Version") == Some(VERSION))
}

/// Answers a request.
pub(crate) async fn answer(
    authenticator: &Authenticator,
    request: IamHead<'_>,
    log: Option<&Arc<dyn ChangeLog>>,
) -> Response<ResponseBody> {
    match act(authenticator, &request, log).await {
        Ok((name, result)) => reply::done(IAM, name, &result, request.id),
        Err(error) => {
            let code = error.code.code_and_status().0;
            tracing::debug!(id = request.id, code, error.message, "refused a request");
            reply::refused(IAM, &error, request.id)
        }
    }
}

impl IamAction {
    fn parse(form: &Query<'_>, user: &str) -> Result<Self, StsError> {
        let name = form.get("Action").unwrap_or_default();
        let known: &[&str] = match name {
            "ListAccessKeys" => &["UserName", "MaxItems"],
            "CreateAccessKey" => &["UserName"],
            "RotateAccessKey" | "DeleteAccessKey" => &["UserName", "AccessKeyId"],
            _ => {
                let message = format!("Could not find operation {name} for version {VERSION}");
                return Err(StsError::new(StsCode::InvalidAction, message));
            }
        };
        let is_known = |name: &str| ["Action", "Version"].contains(&name) || known.contains(&name);
        if let Some(pair) = form.pairs().iter().find(|pair| !is_known(&pair.name)) {
            let message = format!("The parameter {} is not supported", pair.name);
            return Err(StsError::validation(message));
        }
        if form.get("UserName").is_some_and(|name| name != user) {
            let message = "Keys of other users are managed by martlet admin";
            return Err(StsError::new(StsCode::AccessDenied, message));
        }
        let key = || {
            let key = form.get("AccessKeyId").filter(|key| OwnKeys::is_access_key(key));
            let malformed = || StsError::validation("AccessKeyId is not an access key");
            key.map(str::to_owned).ok_or_else(malformed)
        };
        Ok(match name {
            "ListAccessKeys" => Self::List,
            "CreateAccessKey" => Self::Create,
            "RotateAccessKey" => Self::Rotate(key()?),
            _ => Self::Delete(key()?),
        })
    }

    fn name(&self) -> &'static str {
        match self {
            Self::List => "ListAccessKeys",
            Self::Create => "CreateAccessKey",
            Self::Rotate(_) => "RotateAccessKey",
            Self::Delete(_) => "DeleteAccessKey",
        }
    }

    /// Actions that the policy must allow. A new secret is a change of the key, and makes credentials.
    fn of_policy(&self) -> &'static [Action] {
        match self {
            Self::List => &[Action::ListAccessKeys],
            Self::Create => &[Action::CreateAccessKey],
            Self::Rotate(_) => &[Action::CreateAccessKey, Action::UpdateAccessKey],
            Self::Delete(_) => &[Action::DeleteAccessKey],
        }
    }
}

async fn act(
    authenticator: &Authenticator,
    request: &IamHead<'_>,
    log: Option<&Arc<dyn ChangeLog>>,
) -> Result<(&'static str, Elements), StsError> {
    let IamHead { parts, target, body, .. } = *request;
    let text = std::str::from_utf8(body)
        .map_err(|_| StsError::validation("The request body is not UTF-8"))?;
    let form =
        Query::parse(text).map_err(|refusal| StsError::validation(refusal.message.into_owned()))?;
    let sessions = authenticator.sessions().ok_or_else(|| {
        StsError::new(StsCode::InvalidAction, "Keys of users are not supported here")
    })?;
    if !parts.headers.contains_key(AUTHORIZATION) {
        let message = "Request is missing Authentication Token";
        return Err(StsError::new(StsCode::MissingAuthenticationToken, message));
    }
    let connection = Connection::of(&parts.extensions);
    let caller: Caller = authenticator.caller(&parts.headers, "", connection.peer).await?;
    let query = Query::default();
    let (method, headers) = (&parts.method, &parts.headers);
    let head = RequestHead { method, raw_path: parts.uri.path(), target, query: &query, headers };
    let credential = authenticator.authenticate_form_request(&head, body, &caller, SERVICE)?;
    let who = credential.identity().who().filter(|who| is_user(who)).ok_or_else(|| {
        let message = "Only keys of users reach keys of their user: sessions of roles, and keys of \
                       tenants, do not";
        StsError::new(StsCode::AccessDenied, message)
    })?;
    if who.meters.admit().is_err() {
        return Err(StsError::new(StsCode::ServiceUnavailable, "Reduce your request rate"));
    }
    let action = IamAction::parse(&form, &who.user)?;
    let now_ms = authenticator.now().unix_ms();
    check_policy(&action, who, connection, now_ms)?;
    let task = OwnKeysTask {
        accounts: sessions.accounts.clone(),
        maker: credential.access_key().to_owned(),
        who: who.clone(),
        connection,
        action,
    };
    task.run(log.cloned()).await
}

/// Returns true for a user of a tenant, who signs with a key of its own.
fn is_user(who: &AccountIdentity) -> bool {
    who.session.is_none() && !who.is_root() && !who.is_account()
}

fn check_policy(
    action: &IamAction,
    who: &Arc<AccountIdentity>,
    connection: Connection,
    now_ms: u64,
) -> Result<(), StsError> {
    let requester = &Requester::User(who.clone());
    let mut context = Context::default();
    add_time(&mut context, now_ms);
    add_requester(&mut context, requester);
    add_connection(&mut context, connection);
    let arn = who.arn();
    for action in action.of_policy() {
        let question =
            Question { requester, action: *action, arn: &arn, is_new: false, context: &context };
        if requester.own_verdict(&question) != Some(PolicyDecision::Allow) {
            let name = action.name();
            let message = format!(
                "User: {arn} is not authorized to perform: {name} on resource: {arn} because no policy \
                 of the user allows the {name} action"
            );
            return Err(StsError::new(StsCode::AccessDenied, message));
        }
    }
    Ok(())
}

/// Permitted request, with all that it needs once its client has left.
struct OwnKeysTask {
    accounts: Accounts,
    /// Access key of the request.
    maker: String,
    who: Arc<AccountIdentity>,
    connection: Connection,
    action: IamAction,
}

impl OwnKeysTask {
    /// Runs the action; a change in a task of its own, between the lines of its record.
    async fn run(
        self,
        log: Option<Arc<dyn ChangeLog>>,
    ) -> Result<(&'static str, Elements), StsError> {
        let name = self.action.name();
        if self.action == IamAction::List {
            let own = self.accounts.own_keys(&self.maker).await.map_err(|error| refusal(&error))?;
            let keys = own.list().await.map_err(|error| refusal(&error))?;
            return Ok((name, listed(&keys, &self.who.user)));
        }
        let task = tokio::spawn(self.change(log));
        let failed = |_| StsError::new(StsCode::ServiceUnavailable, "The operation failed");
        task.await.map_err(failed).flatten().map(|result| (name, result))
    }

    async fn change(self, log: Option<Arc<dyn ChangeLog>>) -> Result<Elements, StsError> {
        let key = match &self.action {
            IamAction::Rotate(key) | IamAction::Delete(key) => key.clone(),
            IamAction::Create | IamAction::List => OwnKeys::new_access_key(),
        };
        let unrecorded = |why: String| StsError::new(StsCode::ServiceUnavailable, why);
        let change = RecordedChange {
            operation: self.action.name(),
            target: ChangeTarget::AccessKey(key.clone()),
            account: self.who.account.to_string(),
            user: self.who.user.to_string(),
            key: Some(self.maker.clone()),
            peer: self.connection.peer,
        };
        let end = match log {
            Some(log) => Some(log.begin(change).await.map_err(unrecorded)?),
            None => None,
        };
        let outcome = self.changed(&key).await.map_err(|error| refusal(&error));
        if let Some(end) = end {
            let status =
                outcome.as_ref().err().map_or(200, |error| error.code.code_and_status().1.as_u16());
            end(status).await.map_err(unrecorded)?;
        }
        outcome
    }

    async fn changed(&self, key: &str) -> Result<Elements, Error> {
        let own = self.accounts.own_keys(&self.maker).await?;
        Ok(match &self.action {
            IamAction::Create | IamAction::List => self.secret(&own.create(key).await?),
            IamAction::Rotate(_) => self.secret(&own.rotate(key).await?),
            IamAction::Delete(_) => {
                own.delete(key).await?;
                Elements::default()
            }
        })
    }

    fn secret(&self, (key, secret): &(Key, String)) -> Elements {
        let about = about(key, &self.who.user).text("SecretAccessKey", secret);
        Elements::default().inner("AccessKey", &about)
    }
}

fn about(key: &Key, user: &str) -> Elements {
    let status = if key.disabled { "Inactive" } else { "Active" };
    Elements::default()
        .text("UserName", user)
        .text("AccessKeyId", &key.access_key)
        .text("Status", status)
        .text("CreateDate", &Timestamp::from_unix_ms(key.created_ms).to_iso())
}

fn listed(keys: &[Key], user: &str) -> Elements {
    let members = keys.iter().fold(Elements::default(), |members, key| {
        let rotated = Timestamp::from_unix_ms(key.rotated_ms).to_iso();
        members.inner("member", &about(key, user).text("RotateDate", &rotated))
    });
    Elements::default().inner("AccessKeyMetadata", &members).text("IsTruncated", "false")
}

/// Refusal for an error of the accounts.
fn refusal(error: &Error) -> StsError {
    let code = match error {
        Error::NoSuchAccount(_) => StsCode::NoSuchEntity,
        Error::AccountConflict(_) => StsCode::LimitExceeded,
        Error::InvalidArgument(_) => StsCode::ValidationError,
        _ => StsCode::ServiceUnavailable,
    };
    StsError::new(code, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<IamAction, StsCode> {
        let form = Query::parse(text).unwrap();
        IamAction::parse(&form, "alice").map_err(|error| error.code)
    }

    #[test]
    fn forms_are_closed_and_of_the_signers_user() {
        assert!(is_for(b"Action=x&Version=2010-05-08") && !is_for(b"Version=2011-06-15"));
        assert!(!is_for(b"") && !is_for(&[0xff]));
        assert_eq!(parse("Action=ListAccessKeys"), Ok(IamAction::List));
        assert_eq!(parse("Action=CreateAccessKey&UserName=alice"), Ok(IamAction::Create));
        let delete = parse("Action=DeleteAccessKey&AccessKeyId=AKID");
        assert_eq!(delete, Ok(IamAction::Delete("AKID".into())));
        let long = format!("Action=DeleteAccessKey&AccessKeyId={}", "a".repeat(129));
        let long = long.as_str();
        for (text, code) in [
            ("Action=CreateAccessKey&UserName=bob", StsCode::AccessDenied),
            ("Action=DeleteAccessKey", StsCode::ValidationError),
            ("Action=RotateAccessKey&AccessKeyId=a/b", StsCode::ValidationError),
            (long, StsCode::ValidationError),
            ("Action=CreateAccessKey&AccessKeyId=AKID", StsCode::ValidationError),
            ("Action=CreateUser", StsCode::InvalidAction),
            ("", StsCode::InvalidAction),
        ] {
            assert_eq!(parse(text), Err(code), "{text}");
        }
    }

    #[test]
    fn without_an_allow_of_its_policy_a_user_reaches_no_keys() {
        let with = |own: Option<&str>| AccountIdentity {
            user: "alice".into(),
            own: own.map(crate::access::IdentityPolicy::read),
            ..AccountIdentity::named("lab")
        };
        let may = |own: Option<&str>, action: IamAction| {
            let connection = Connection::of(&http::Extensions::new());
            check_policy(&action, &Arc::new(with(own)), connection, 0).is_ok()
        };
        let rotate = || IamAction::Rotate("AKID".into());
        let policy = |action: &str| {
            format!(
                r#"{{"Statement": {{"Effect": "Allow", "Action": {action}, "Resource": "*"}}}}"#
            )
        };
        assert!(!may(None, IamAction::List) && !may(None, IamAction::Create));
        assert!(!may(Some(&policy(r#""s3:*""#)), IamAction::Create));
        let create = policy(r#""iam:CreateAccessKey""#);
        assert!(may(Some(&create), IamAction::Create) && !may(Some(&create), rotate()));
        assert!(!may(Some(&policy(r#""iam:UpdateAccessKey""#)), rotate()));
        assert!(may(Some(&policy(r#""iam:*""#)), rotate()));
    }

    #[test]
    fn sessions_tenants_and_root_are_no_users() {
        let user = AccountIdentity { user: "alice".into(), ..AccountIdentity::named("lab") };
        assert!(is_user(&user));
        assert!(!is_user(&AccountIdentity::named("lab")));
        assert!(!is_user(&AccountIdentity::named("root")));
        let session = crate::access::RoleSession {
            role: "r".into(),
            role_id: "1".into(),
            name: "s".into(),
            policy: None,
        };
        assert!(!is_user(&AccountIdentity { session: Some(session), ..user }));
    }
}

//! Actions of the token service: `AssumeRole`, `AssumeRoleWithWebIdentity` and `GetCallerIdentity`.

use martlet_proxy::{SESSION_S, SESSION_S_DEFAULT};

use super::form::StsForm;
use super::jwt::{self, Claims};
use super::reply::{Elements, StsCode, StsError};
use crate::access::{
    AccountIdentity, AssumeMethod, AssumeRequest, Context, IdentityPolicy, Requester, provider_name,
};
use crate::auth::{
    Credential, IdentityProvider, IssuingKey, ParsedRole, SessionKey, SessionToken, Sessions,
    Timestamp, user_id,
};
use crate::authorization::{add_connection, add_requester, add_time};
use crate::connection::Connection;

/// Limit of a session's policy in bytes.
const POLICY_BYTES_MAX: usize = 2048;
const SESSION_NAME_BYTES: std::ops::RangeInclusive<usize> = 2..=64;

/// A request to the service, with the state that it needs.
pub(super) struct StsRequest<'a> {
    pub(super) sessions: &'a Sessions,
    pub(super) form: &'a StsForm<'a>,
    pub(super) connection: Connection,
    pub(super) now_ms: u64,
}

/// Parameters of a requested session.
struct SessionParameters<'a> {
    arn: &'a str,
    name: &'a str,
    policy: Option<&'a str>,
    duration_s: Option<u32>,
}

impl<'a> SessionParameters<'a> {
    fn of(form: &'a StsForm<'a>) -> Result<Self, StsError> {
        let name = form.need("RoleSessionName")?;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_+=,.@-".contains(&byte);
        if !SESSION_NAME_BYTES.contains(&name.len()) || !name.bytes().all(is_plain) {
            let message = "RoleSessionName must be 2 to 64 letters, digits and _+=,.@-";
            return Err(StsError::validation(message));
        }
        let policy = form.get("Policy");
        if let Some(policy) = policy {
            if policy.len() > POLICY_BYTES_MAX {
                let message = format!("Policy must have at most {POLICY_BYTES_MAX} bytes");
                return Err(StsError::validation(message));
            }
            IdentityPolicy::check(policy)
                .map_err(|why| StsError::new(StsCode::MalformedPolicyDocument, why.to_string()))?;
        }
        let duration_s = form.get("DurationSeconds").map(|text| {
            let number: i64 = text.parse().map_err(|_| {
                let message = "DurationSeconds is not a number";
                StsError::new(StsCode::MalformedInput, message.to_owned())
            })?;
            let number = u32::try_from(number).ok().filter(|number| SESSION_S.contains(number));
            let (least, most) = (SESSION_S.start(), SESSION_S.end());
            let wrong = || format!("DurationSeconds must be a number from {least} to {most}");
            number.ok_or_else(|| StsError::validation(wrong()))
        });
        Ok(Self { arn: form.need("RoleArn")?, name, policy, duration_s: duration_s.transpose()? })
    }

    /// Tenant and role in the ARN.
    fn role(&self) -> Result<(&'a str, &'a str), StsError> {
        let parts = self.arn.strip_prefix("arn:aws:iam::").and_then(|it| it.split_once(":role/"));
        parts
            .filter(|(tenant, role)| !tenant.is_empty() && !role.is_empty() && !role.contains('/'))
            .ok_or_else(|| StsError::validation(format!("{} is not the ARN of a role", self.arn)))
    }

    fn duration_s(&self, role: &ParsedRole) -> Result<u32, StsError> {
        let most = role.of.role.session_s_max;
        match self.duration_s {
            None => Ok(SESSION_S_DEFAULT.min(most)),
            Some(parameters) if parameters <= most => Ok(parameters),
            Some(_) => Err(StsError::validation(
                "The requested DurationSeconds exceeds the MaxSessionDuration set for this role.",
            )),
        }
    }
}

impl StsRequest<'_> {
    /// `AssumeRole`, by the holder of a key.
    pub(super) async fn assume_role(
        &self,
        credential: &Credential,
        who: &AccountIdentity,
        requester: &Requester,
    ) -> Result<Elements, StsError> {
        let parameters = SessionParameters::of(self.form)?;
        let denied = || {
            let (arn, who) = (parameters.arn, who.arn());
            let message = format!(
                "User: {who} is not authorized to perform: sts:AssumeRole on resource: {arn}"
            );
            StsError::new(StsCode::AccessDenied, message)
        };
        let (tenant, name) = parameters.role()?;
        let role = self.sessions.role(tenant, name).await?.ok_or_else(denied)?;
        let mut context = self.context(requester);
        context.add_trust("sts:RoleSessionName", parameters.name);
        if let Some(id) = self.form.get("ExternalId") {
            context.add_trust("sts:ExternalId", id);
        }
        let way = AssumeMethod::AssumeRole;
        // A session can't begin another: otherwise each event that ends the first would have to end
        // both.
        if who.session.is_some()
            || !role.admits(AssumeRequest { way, requester, provider: None, context: &context })
        {
            return Err(denied());
        }
        let source = IssuingKey {
            access_key: credential.access_key().to_owned(),
            canonical_id: who.canonical_id.clone().into(),
            user: who.user.clone().into(),
            mark: self.sessions.key.mark(credential.secret()),
        };
        self.begin(&parameters, &role, Some(source))
    }

    /// `AssumeRoleWithWebIdentity`, by the holder of a provider's token.
    pub(super) async fn assume_role_with_web_identity(&self) -> Result<Elements, StsError> {
        let parameters = SessionParameters::of(self.form)?;
        let (provider, claims) = self.claims(self.form.need("WebIdentityToken")?).await?;
        let issuer = provider_name(&provider.issuer);
        let denied = || {
            let message = "Not authorized to perform sts:AssumeRoleWithWebIdentity";
            StsError::new(StsCode::AccessDenied, message)
        };
        let (tenant, name) = parameters.role()?;
        let role = self.sessions.role(tenant, name).await?.ok_or_else(denied)?;
        let requester = &Requester::Anonymous;
        let mut context = self.context(requester);
        context.add_trust("sts:RoleSessionName", parameters.name);
        context.add_trust("token:sub", claims.subject.as_str());
        for audience in &claims.audiences {
            context.add_trust("token:aud", audience.as_str());
        }
        let way = AssumeMethod::AssumeRoleWithWebIdentity;
        if !role.admits(AssumeRequest { way, requester, provider: Some(issuer), context: &context })
        {
            return Err(denied());
        }
        let audience = claims.audiences.iter().find(|it| provider.audiences.contains(it));
        let begun = self.begin(&parameters, &role, None)?;
        Ok(begun
            .text("SubjectFromWebIdentityToken", &claims.subject)
            .text("Audience", audience.map_or("", String::as_str))
            .text("Provider", issuer))
    }

    /// `GetCallerIdentity`.
    pub(super) fn caller_identity(who: &AccountIdentity) -> Elements {
        let arn = match &who.session {
            None => who.arn(),
            Some(session) => session_arn(&who.account, &session.role, &session.name),
        };
        Elements::default()
            .text("UserId", &who.user)
            .text("Account", &who.account)
            .text("Arn", &arn)
    }

    fn context(&self, requester: &Requester) -> Context {
        let mut context = Context::default();
        add_time(&mut context, self.now_ms);
        add_requester(&mut context, requester);
        add_connection(&mut context, self.connection);
        context
    }

    /// Verified claims of a token, and its provider.
    async fn claims(&self, token: &str) -> Result<(&IdentityProvider, Claims), StsError> {
        let provider = provider_of(self.sessions, token)?;
        Ok((provider, jwt::verify_by(provider, token, self.now_ms).await?))
    }

    fn begin(
        &self,
        parameters: &SessionParameters<'_>,
        role: &ParsedRole,
        source: Option<IssuingKey>,
    ) -> Result<Elements, StsError> {
        let duration_s = parameters.duration_s(role)?;
        let ticket = SessionToken {
            access_key: SessionKey::new_access_key(),
            expires_ms: (self.now_ms / 1000 + u64::from(duration_s)) * 1000,
            tenant: role.of.tenant.name.clone(),
            role: role.of.role.name.clone(),
            role_id: role.of.role.id.clone(),
            name: parameters.name.to_owned(),
            policy: parameters.policy.map(str::to_owned),
            source,
        };
        let key = &self.sessions.key;
        let credentials = Elements::default()
            .text("AccessKeyId", &ticket.access_key)
            .text("SecretAccessKey", key.secret(&ticket.access_key).expose())
            .text("SessionToken", &key.seal(&ticket))
            .text("Expiration", &Timestamp::from_unix_ms(ticket.expires_ms).to_iso());
        let user = Elements::default()
            .text("AssumedRoleId", &user_id(role, parameters.name))
            .text("Arn", &session_arn(&ticket.tenant, &ticket.role, &ticket.name));
        let begun =
            Elements::default().inner("Credentials", &credentials).inner("AssumedRoleUser", &user);
        let percent = parameters.policy.map(|policy| policy.len() * 100 / POLICY_BYTES_MAX);
        Ok(match percent {
            None => begun,
            Some(percent) => begun.text("PackedPolicySize", &percent.to_string()),
        })
    }
}

/// Provider that a token claims to come from.
pub(super) fn provider_of<'a>(
    sessions: &'a Sessions,
    token: &str,
) -> Result<&'a IdentityProvider, StsError> {
    let issuer = jwt::claimed_issuer(token);
    let mut providers = sessions.providers.iter();
    let provider = providers.find(|it| Some(it.issuer.as_str()) == issuer.as_deref());
    provider.ok_or_else(|| {
        let message = "No OpenIDConnect provider found in your account for the token's issuer";
        StsError::new(StsCode::InvalidIdentityToken, message)
    })
}

fn session_arn(tenant: &str, role: &str, session: &str) -> String {
    format!("arn:aws:sts::{tenant}:assumed-role/{role}/{session}")
}

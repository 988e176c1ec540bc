//! Sessions of a role by the token of an identity provider: one unsigned request to the token
//! service, whose trust documents decide.

use axum::http::{Extensions, StatusCode};
use martlet_admin_api::audit::AuditRecord;
use martlet_admin_api::principals::PrincipalLine;
use martlet_protocol::http::Peer;

use crate::Console;
use crate::oidc_login::{LoginRefusal, VerifiedLogin};
use crate::s3_slot::S3Parts;
use crate::sign::AccessKey;
use crate::store_form::{element, element_ms};
use crate::target::{QUERY, encode};

/// Name of logins in the audit log.
const OPERATION: &str = "AssumeRoleWithWebIdentity";

impl Console {
    /// Takes on the role of a login, and returns its temporary key. The audit log records the login.
    pub(crate) async fn assume(
        &self,
        s3: &S3Parts,
        login: &VerifiedLogin,
        connection: &Extensions,
    ) -> Result<AccessKey, LoginRefusal> {
        let Some(log) = &s3.audit else { return self.session_of_role(s3, login, connection).await };
        let begun = log.begin(record(login, connection)).await.map_err(|error| {
            tracing::error!(error, "refused a login that can't be recorded");
            LoginRefusal::STORE
        })?;
        let outcome = self.session_of_role(s3, login, connection).await;
        let status = outcome.as_ref().map_or_else(|refusal| refusal.status(), |_| StatusCode::OK);
        log.end(begun, status.as_u16()).await.map_err(|error| {
            tracing::error!(error, "ended a login that can't be recorded");
            LoginRefusal::STORE
        })?;
        outcome
    }

    async fn session_of_role(
        &self,
        s3: &S3Parts,
        login: &VerifiedLogin,
        connection: &Extensions,
    ) -> Result<AccessKey, LoginRefusal> {
        let reply = self.send_form(s3, form(login), None, connection).await;
        let reply = reply.ok_or(LoginRefusal::STORE)?;
        let text = &reply.text;
        if reply.status.is_success() {
            return key_of(text, login).ok_or(LoginRefusal::STORE);
        }
        let code = element(text, "Code").unwrap_or_default();
        let why = element(text, "Message").unwrap_or_default();
        tracing::info!(code, why, role = login.role_arn, "could not take on the role of a login");
        Err(match code.as_str() {
            "AccessDenied" => LoginRefusal::UNTRUSTED,
            "InvalidIdentityToken" | "ExpiredTokenException" | "IDPRejectedClaim" => {
                LoginRefusal::TOKEN
            }
            "IDPCommunicationError" => LoginRefusal::UNAVAILABLE,
            _ => LoginRefusal::STORE,
        })
    }
}

/// Record of a login in the audit log.
fn record(login: &VerifiedLogin, connection: &Extensions) -> AuditRecord {
    let VerifiedLogin { tenant, role, session, .. } = login;
    let who = PrincipalLine {
        kind: "s3".to_owned(),
        name: Some(format!("{role}/{session}")),
        tenant: Some(tenant.clone()),
        ..PrincipalLine::default()
    };
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    AuditRecord {
        peer: connection.get::<Peer>().map(|peer| peer.0.to_canonical().to_string()),
        who,
        operation: OPERATION.to_owned(),
        target: [pair("role", role), pair("tenant", tenant)].into(),
        ..AuditRecord::default()
    }
}

fn form(login: &VerifiedLogin) -> String {
    let duration = login.session_s.to_string();
    let fields = [
        ("Action", OPERATION),
        ("Version", "2011-06-15"),
        ("RoleArn", login.role_arn.as_str()),
        ("RoleSessionName", login.session.as_str()),
        ("DurationSeconds", duration.as_str()),
        ("WebIdentityToken", login.token.as_str()),
    ];
    fields.map(|(name, value)| format!("{name}={}", encode(value, QUERY))).join("&")
}

/// Temporary key in a reply of the token service.
fn key_of(text: &str, login: &VerifiedLogin) -> Option<AccessKey> {
    let part = |name: &str| element(text, name);
    let end_ms = element_ms(text, "Expiration")?;
    let (id, secret, token) =
        (part("AccessKeyId")?, part("SecretAccessKey")?, part("SessionToken")?);
    let mut key = AccessKey::temporary(id, secret, token, end_ms).named(&element(text, "Arn")?);
    key.name.clone_from(&login.name);
    Some(key)
}

//! Sessions of a role by the token of an identity provider: one unsigned request to the token
//! service, whose trust documents decide.

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{Extensions, HeaderValue, Method, StatusCode, header};
use martlet_admin_api::audit::AuditRecord;
use martlet_admin_api::principals::PrincipalLine;
use martlet_protocol::http::Peer;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::Console;
use crate::objects::HOST;
use crate::oidc_login::{LoginRefusal, VerifiedLogin};
use crate::s3_slot::S3Parts;
use crate::sign::AccessKey;
use crate::target::{QUERY, encode};
use crate::user_login::{BYTES_MAX, FORM_TYPE, element};

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
        let form = form(login);
        let mut request = Request::new(Body::from(form.clone()));
        *request.method_mut() = Method::POST;
        *request.extensions_mut() = connection.clone();
        let headers = request.headers_mut();
        headers.insert(header::HOST, HeaderValue::from_static(HOST));
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(FORM_TYPE));
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(form.len()));
        let reply = s3.ask(request).await;
        let is_done = reply.status().is_success();
        let body = to_bytes(reply.into_body(), BYTES_MAX).await.map_err(|_| LoginRefusal::STORE)?;
        let text = String::from_utf8_lossy(&body);
        if is_done {
            return key_of(&text, login).ok_or(LoginRefusal::STORE);
        }
        let code = element(&text, "Code").unwrap_or_default();
        let why = element(&text, "Message").unwrap_or_default();
        tracing::info!(code, why, role = login.role_arn, "could not take on the role of a login");
        Err(match code {
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
    let part = |name: &str| element(text, name).map(str::to_owned);
    let end = OffsetDateTime::parse(element(text, "Expiration")?, &Rfc3339).ok()?;
    let end_ms = u64::try_from(end.unix_timestamp()).ok()?.checked_mul(1000)?;
    let (id, secret, token) =
        (part("AccessKeyId")?, part("SecretAccessKey")?, part("SessionToken")?);
    let mut key = AccessKey::temporary(id, secret, token, end_ms).named(element(text, "Arn")?);
    key.name.clone_from(&login.name);
    Some(key)
}

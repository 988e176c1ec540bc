//! Routes of `martlet admin key` for admin keys, and of `martlet admin session`.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::{Extension, Json};
use martlet_admin_api::accounts::{DeletedLine, ListPage};
use martlet_admin_api::principals::{
    ADMIN_KEY, ADMIN_KEYS, AdminKeyLine, AdminKeyRequest, AdminRole, PrincipalLine, SESSION,
    SESSION_S, SESSION_S_DEFAULT, SessionReply, SessionRequest,
};
use martlet_protocol::Clock;
use martlet_proxy::{Accounts, AdminKey, EndedSession, NewAdminKey};
use martlet_serving::access::{
    AdminSecret, Principal, PrincipalKind, RouteAccess, SessionClaims, TenantName,
};
use martlet_serving::api::{ApiDoc, ApiRoutes};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::api::{ApiError, ApiResult, PAGE_MAX, deleted, list_page, named, read};

/// Longest lifetime of a key that has one: ten years.
const KEY_S_MAX: u64 = 10 * 366 * 24 * 3600;

/// Returns the routes of admin keys and sessions. `secret` makes the secrets of keys and the tokens
/// of sessions.
pub fn routes(accounts: Accounts, secret: AdminSecret, clock: Arc<dyn Clock>) -> ApiRoutes {
    let operate = RouteAccess::Operate;
    let list =
        ApiDoc::reply::<ListPage<AdminKeyLine>>(RouteAccess::Read, "List admin keys, in pages");
    let create =
        ApiDoc::reply::<AdminKeyLine>(operate, "Create an admin key; the reply has its secret");
    let show = ApiDoc::reply::<AdminKeyLine>(RouteAccess::Read, "Show an admin key");
    let revoke = ApiDoc::reply::<DeletedLine>(operate, "Revoke an admin key and its sessions");
    let own = ApiDoc::reply::<PrincipalLine>(RouteAccess::Anyone, "Show the requester");
    let begin = "Begin a session of the key that signs the request";
    let begin = ApiDoc::reply::<SessionReply>(RouteAccess::Anyone, begin);
    let end = "End the requester's session; operators may end every session";
    let end = ApiDoc::reply::<DeletedLine>(RouteAccess::Anyone, end);
    ApiRoutes::new()
        .get(ADMIN_KEYS, list.query::<KeysQuery>(), keys)
        .post(ADMIN_KEYS, create.body::<AdminKeyRequest>(), create_key)
        .get(ADMIN_KEY, show.query::<KeyQuery>(), key)
        .delete(ADMIN_KEY, revoke.query::<KeyQuery>(), revoke_key)
        .get(SESSION, own, requester)
        .post(SESSION, begin.body::<SessionRequest>(), begin_session)
        .delete(SESSION, end.query::<SessionQuery>(), end_session)
        .with_state(PrincipalsApi { accounts, secret, clock })
}

#[derive(Clone)]
struct PrincipalsApi {
    accounts: Accounts,
    secret: AdminSecret,
    clock: Arc<dyn Clock>,
}

type PrincipalsState = State<PrincipalsApi>;

#[derive(Deserialize, JsonSchema)]
struct KeysQuery {
    /// `next` of the page before.
    after: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
struct KeyQuery {
    /// Id of the key.
    key: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
struct SessionQuery {
    /// Id of the session. Default: that of the request.
    id: Option<String>,
}

fn line(key: AdminKey) -> AdminKeyLine {
    let AdminKey { id, name, role, tenant, created_ms, expires_ms, .. } = key;
    let tenant = tenant.map(|tenant| tenant.name);
    AdminKeyLine { key: id, secret: None, name, role, tenant, created_ms, expires_ms }
}

async fn keys(State(api): PrincipalsState, Query(which): Query<KeysQuery>) -> ApiResult {
    let keys = api.accounts.admin_keys().list(which.after.as_deref(), PAGE_MAX).await?;
    Ok(Json(list_page(keys, |key| key.id.clone(), line)).into_response())
}

async fn create_key(State(api): PrincipalsState, body: Bytes) -> ApiResult {
    let AdminKeyRequest { role, tenant, name, expires_in_s } = read(&body)?;
    match (role, &tenant) {
        (AdminRole::TenantAdmin, None) => {
            return Err(ApiError::bad("a key of the role tenant-admin needs a tenant"));
        }
        (AdminRole::Viewer | AdminRole::Operator, Some(_)) => {
            let sentence = format!("a key of the role {role} has no tenant: leave it out");
            return Err(ApiError::bad(sentence));
        }
        _ => {}
    }
    if expires_in_s.is_some_and(|span| !(1..=KEY_S_MAX).contains(&span)) {
        return Err(ApiError::bad("the lifetime of a key must be 1 second to 10 years"));
    }
    let new = NewAdminKey {
        id: AdminSecret::new_key_id(),
        name: name.unwrap_or_default(),
        role: role.to_string(),
        tenant,
        expires_in_ms: expires_in_s.map(|span| span * 1000),
    };
    let key = api.accounts.admin_keys().create(new).await?;
    let secret = api.secret.key_secret(&key.id);
    Ok(Json(AdminKeyLine { secret: Some(secret), ..line(key) }).into_response())
}

async fn key(State(api): PrincipalsState, Query(which): Query<KeyQuery>) -> ApiResult {
    let id = named(which.key.as_ref(), "key")?;
    Ok(Json(line(api.accounts.admin_keys().get(id).await?)).into_response())
}

async fn revoke_key(State(api): PrincipalsState, Query(which): Query<KeyQuery>) -> ApiResult {
    let id = named(which.key.as_ref(), "key")?;
    api.accounts.admin_keys().revoke(id).await?;
    Ok(deleted(id))
}

async fn requester(Extension(principal): Extension<Principal>) -> Json<PrincipalLine> {
    Json(principal.line())
}

async fn begin_session(
    State(api): PrincipalsState,
    Extension(principal): Extension<Principal>,
    body: Bytes,
) -> ApiResult {
    let request = if body.is_empty() { SessionRequest::default() } else { read(&body)? };
    let seconds = request.seconds.unwrap_or(SESSION_S_DEFAULT);
    if !SESSION_S.contains(&seconds) {
        let (least, most) = (SESSION_S.start(), SESSION_S.end());
        return Err(ApiError::bad(format!("a session must last {least} to {most} seconds")));
    }
    // A session that begins another would never end.
    let (PrincipalKind::Key, Some(key)) = (principal.kind, principal.key.clone()) else {
        let sentence = "sign the request by an admin key: tokens and sessions begin no session";
        return Err(ApiError(StatusCode::FORBIDDEN, sentence.to_owned()));
    };
    let began_ms = api.clock.now_ms();
    let ends_ms = began_ms.saturating_add(seconds * 1000);
    let tenant = principal.tenant.clone();
    let claims = SessionClaims {
        id: AdminSecret::new_session_id(&key),
        key,
        role: principal.role,
        tenant: tenant.as_ref().map(|TenantName { name, .. }| name.clone()),
        tenant_id: tenant.map(|TenantName { canonical_id, .. }| canonical_id),
        began_ms,
        expires_ms: principal.expires_ms.map_or(ends_ms, |end| end.min(ends_ms)),
        reads: None,
        at: None,
    };
    let principal = PrincipalLine {
        kind: "session".to_owned(),
        session: Some(claims.id.clone()),
        expires_ms: Some(claims.expires_ms),
        ..principal.line()
    };
    Ok(Json(SessionReply { token: api.secret.seal(&claims), principal }).into_response())
}

async fn end_session(
    State(api): PrincipalsState,
    Extension(principal): Extension<Principal>,
    Query(which): Query<SessionQuery>,
) -> ApiResult {
    let Some(id) = which.id.or(principal.session) else {
        return Err(ApiError::bad("missing parameter: id of the session"));
    };
    let key = AdminSecret::key_of_session(&id);
    let key = key.ok_or_else(|| ApiError::bad("the id is not one of a session"))?.to_owned();
    if principal.role != AdminRole::Operator && principal.key.as_ref() != Some(&key) {
        let sentence = "this needs the role operator: the session is one of another key";
        return Err(ApiError(StatusCode::FORBIDDEN, sentence.to_owned()));
    }
    // An id alone doesn't show the end, so the longest session is assumed.
    let expires_ms = api.clock.now_ms().saturating_add(SESSION_S.end() * 1000);
    let session = EndedSession { id: id.clone(), expires_ms };
    api.accounts.admin_keys().end_session(&key, &session).await?;
    Ok(deleted(&id))
}

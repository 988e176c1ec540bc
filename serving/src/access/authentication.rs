//! Authentication of requests by their heads alone.

use std::sync::Arc;

use axum::http::request::Parts;
use axum::http::{Method, StatusCode, header};
use martlet_admin_api::principals::AdminRole;

use super::AdminAccess;
use super::principal::{AdminKeyState, Principal};
use super::replays::ReplayCheck;
use super::secret::{SessionClaims, is_session};
use super::signature::PresentedSignature;
use super::state::{GateState, Refused, is_change, refusal, unauthenticated};

/// Age up to which a process without accounts accepts a session, since it can't see that the
/// session has ended.
const SESSION_AGE_MS_MAX: u64 = 5 * 60 * 1000;
const NO_CREDENTIALS: &str = "the request needs a signature of an admin key, the token of a \
    session, or the token of a secret: use martlet admin";

/// Authenticated request.
pub(super) struct Authenticated {
    pub(super) principal: Principal,
    /// Hash of the body that the signature covers.
    pub(super) content: Option<String>,
}

impl Authenticated {
    fn bearer(principal: Principal) -> Self {
        Self { principal, content: None }
    }
}

/// Finds out who sent a request, by its head alone.
pub(super) async fn authenticate(gate: &GateState, head: &Parts) -> Result<Authenticated, Refused> {
    let mut values = head.headers.get_all(header::AUTHORIZATION).iter();
    let (given, another) = (values.next().and_then(|value| value.to_str().ok()), values.next());
    let Some(given) = given.filter(|_| another.is_none()) else {
        return Err(unauthenticated(NO_CREDENTIALS));
    };
    match given.strip_prefix("Bearer ") {
        Some(token) if is_session(token) => of_session(gate.access()?, head, token).await,
        Some(token) if gate.is_token(token) => Ok(Authenticated::bearer(Principal::of_token())),
        None if given.starts_with("AWS4-") => of_signature(gate, head, given).await,
        _ => Err(unauthenticated(NO_CREDENTIALS)),
    }
}

async fn of_session(
    access: &AdminAccess,
    head: &Parts,
    token: &str,
) -> Result<Authenticated, Refused> {
    let claims = access.secret.as_ref().and_then(|secret| secret.open(token));
    let Some(claims) = claims else {
        return Err(unauthenticated("the token is of no session of this cluster: begin another"));
    };
    let now_ms = access.clock.now_ms();
    if now_ms >= claims.expires_ms {
        return Err(unauthenticated("the session is over: begin another"));
    }
    if let Some(path) = &claims.reads {
        check_scope(access, head, path, claims.at.as_deref())?;
    }
    let key = if access.directory.is_some() {
        let key = known_key(access, &claims.key, now_ms).await?;
        let is_ended = claims.began_ms < key.sessions_from_ms || key.ended.contains(&claims.id);
        if is_ended || !may_begin(key.role, claims.role) {
            return Err(unauthenticated("the session was ended: begin another"));
        }
        Some(key)
    } else {
        check_age(&claims, now_ms)?;
        None
    };
    Ok(Authenticated::bearer(Principal::of_session(claims, key.as_deref())))
}

/// Refuses a session of one path at other paths, for changes, and at processes that it isn't for.
fn check_scope(
    access: &AdminAccess,
    head: &Parts,
    path: &str,
    at: Option<&str>,
) -> Result<(), Refused> {
    if head.method != Method::GET || head.uri.path() != path {
        let sentence = format!("the session may GET {path}, and nothing else");
        return Err(refusal(StatusCode::FORBIDDEN, &sentence));
    }
    if at.is_none_or(|at| access.roles.iter().all(|role| role != at)) {
        let sentence = format!(
            "the session is for {}, and this process is {}",
            at.unwrap_or("no process"),
            access.roles.join(", ")
        );
        return Err(refusal(StatusCode::FORBIDDEN, &sentence));
    }
    Ok(())
}

/// Returns true if a key of the role has sessions of the other role. An operator's key has sessions
/// that may read alone, for programs that a process queries in the operator's name.
fn may_begin(of_key: AdminRole, of_session: AdminRole) -> bool {
    of_key == of_session || (of_key == AdminRole::Operator && of_session == AdminRole::Viewer)
}

/// Refuses sessions that a process without accounts can't judge.
fn check_age(claims: &SessionClaims, now_ms: u64) -> Result<(), Refused> {
    if claims.role == AdminRole::TenantAdmin {
        let sentence = "this process knows no accounts, and accepts sessions of operators and viewers \
                        alone: use a proxy";
        return Err(refusal(StatusCode::FORBIDDEN, sentence));
    }
    if now_ms.abs_diff(claims.began_ms) > SESSION_AGE_MS_MAX {
        let sentence = "this process knows no accounts, and accepts sessions in their first five \
                        minutes alone: begin another at a proxy";
        return Err(unauthenticated(sentence));
    }
    Ok(())
}

async fn known_key(
    access: &AdminAccess,
    id: &str,
    now_ms: u64,
) -> Result<Arc<AdminKeyState>, Refused> {
    let Some(directory) = &access.directory else {
        return Err(unauthenticated(
            "this process knows no accounts: begin a session at a proxy, and send its token",
        ));
    };
    let key = directory.key(id).await.map_err(|_| {
        let sentence = "the admin key can't be checked, because too few nodes reply: try again, or \
                        use the cluster's key";
        refusal(StatusCode::SERVICE_UNAVAILABLE, sentence)
    })?;
    let key = key.filter(|key| key.expires_ms.is_none_or(|expires_ms| now_ms < expires_ms));
    key.ok_or_else(|| unauthenticated("the admin key was revoked or has expired: use another"))
}

async fn of_signature(
    gate: &GateState,
    head: &Parts,
    given: &str,
) -> Result<Authenticated, Refused> {
    let access = gate.access()?;
    let presented = PresentedSignature::of(&head.headers, given)
        .map_err(|sentence| unauthenticated(&sentence))?;
    let Some(secret) = &access.secret else { return Err(unauthenticated(NO_CREDENTIALS)) };
    let now_ms = access.clock.now_ms();
    if !presented.is_near(now_ms) {
        return Err(unauthenticated(&format!(
            "the signature's date is more than five minutes from this process's clock, which shows \
             {now_ms} ms since 1970: set the clock of the client"
        )));
    }
    let secret = secret.key_secret(presented.key);
    if !presented.is_right(secret, &head.method, &head.uri, &head.headers) {
        return Err(unauthenticated(
            "the signature is wrong: check the secret of the key, and that no proxy on the way \
             changes the request",
        ));
    }
    let key = known_key(access, presented.key, now_ms).await?;
    if is_change(&head.method) {
        check_replay(gate, &presented, now_ms)?;
    }
    let principal = Principal::of_key(presented.key, &key);
    Ok(Authenticated { principal, content: Some(presented.content.to_owned()) })
}

/// Accepts the signature of a change once.
fn check_replay(
    gate: &GateState,
    presented: &PresentedSignature<'_>,
    now_ms: u64,
) -> Result<(), Refused> {
    // Dates are in whole seconds. An earlier signature may have been accepted before the restart.
    if presented.signed_ms.saturating_add(999) < gate.opened_ms() {
        return Err(unauthenticated(
            "the request was signed before the process began: sign it again",
        ));
    }
    match gate.replays.check(presented.signature, presented.signed_ms, now_ms) {
        ReplayCheck::New => Ok(()),
        ReplayCheck::Repeated => {
            Err(unauthenticated("the signature was used before: sign each request anew"))
        }
        ReplayCheck::Full => Err(refusal(
            StatusCode::SERVICE_UNAVAILABLE,
            "too many changes were signed in the last minutes: use a session",
        )),
    }
}

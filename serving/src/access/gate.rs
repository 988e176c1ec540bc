//! Gate of the admin API: authenticates a request, decides by the rule of its route, and records
//! changes.
//!
//! ```text
//! head ─▶ principal ─▶ route ─▶ body (bounded, hashed) ─▶ role ─▶ tenant ─▶ begin ─▶ handler ─▶ end
//!           401         404       413, 401                 403     403     503                500
//! ```
//!
//! Invariants:
//! * No byte of a body is read, and no account is looked up, before a signature, a session or a
//!   token was verified.
//! * A request whose route has no rule reaches no handler.
//! * A change runs in a task of its own, so that a client that leaves doesn't end the change between
//!   its two audit records.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use martlet_admin_api::audit::AuditRecord;
use martlet_admin_api::principals::AdminRole;
use martlet_protocol::http::{AuthenticatedFlag, Peer};
use tokio::time::timeout;

use super::authentication::{Authenticated, authenticate};
use super::principal::Principal;
use super::signature::is_content;
use super::state::{GateState, Refused, is_change, refusal, unauthenticated};
use super::target::RequestFields;
use crate::api::{BODY_BYTES_MAX, RouteRule};
use crate::refusal::refuse;

/// Timeout for a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Header with the id of a request that changes something.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-martlet-request-id");

/// Admits a request to the routes behind the gate, or refuses it.
pub(crate) async fn admit(
    State(gate): State<Arc<GateState>>,
    request: Request,
    next: Next,
) -> Response {
    let (head, body) = request.into_parts();
    match check(&gate, &head, body).await {
        Ok(admitted) => admitted.run(&gate, head, next).await,
        Err(refused) => *refused,
    }
}

/// Request whose principal may call the route, unless `refusal` is set.
struct Admitted {
    principal: Principal,
    rule: RouteRule,
    body: Bytes,
    /// Names of the audit record.
    names: BTreeMap<String, String>,
    refusal: Option<Response>,
}

async fn check(gate: &GateState, head: &Parts, body: Body) -> Result<Admitted, Refused> {
    let Authenticated { principal, content } = authenticate(gate, head).await?;
    if let Some(proven) = head.extensions.get::<AuthenticatedFlag>() {
        proven.set();
    }
    let rule = gate.rule_of(&head.method, head.uri.path())?;
    // Only principals that the rule admits send large bodies.
    let is_admitted = rule.access.admits(principal.role);
    let max = if is_admitted { rule.body_bytes_max } else { BODY_BYTES_MAX };
    let body = read(body, max).await?;
    if content.is_some_and(|content| !is_content(&body, &content)) {
        return Err(unauthenticated("the body is not the one that was signed: sign it again"));
    }
    let fields = RequestFields::of(&head.uri, &body);
    let refusal = match judge(gate, &principal, rule, &fields).await {
        Ok(()) => None,
        Err(refused) => Some(*refused),
    };
    // The fields of a large body take as much memory as the body.
    Ok(Admitted { principal, rule, body, names: fields.names(), refusal })
}

async fn read(body: Body, max: usize) -> Result<Bytes, Refused> {
    match timeout(BODY_TIMEOUT, to_bytes(body, max)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(_)) => Err(refusal(
            StatusCode::PAYLOAD_TOO_LARGE,
            &format!("the body was cut short, or is larger than {} MiB", max >> 20),
        )),
        Err(_) => Err(refusal(StatusCode::REQUEST_TIMEOUT, "the body took longer than 30 s")),
    }
}

/// Decides by the rule of the route.
async fn judge(
    gate: &GateState,
    principal: &Principal,
    rule: RouteRule,
    fields: &RequestFields,
) -> Result<(), Refused> {
    let forbidden = |sentence: &str| refusal(StatusCode::FORBIDDEN, sentence);
    if !rule.access.admits(principal.role) {
        return Err(forbidden(&rule.access.refusal(principal.role)));
    }
    if principal.role != AdminRole::TenantAdmin {
        return Ok(());
    }
    let Some(field) = rule.access.tenant_field() else { return Ok(()) };
    let Some(own) = &principal.tenant else {
        return Err(forbidden("the key of a tenant admin has no tenant: create another"));
    };
    let Some(target) = fields.tenant_target(field, rule.has_body) else {
        let sentence = format!(
            "a tenant admin's request must name {} once: that of the tenant {}",
            field.name(),
            own.name
        );
        return Err(forbidden(&sentence));
    };
    let access = gate.access()?;
    let Some(directory) = &access.directory else {
        return Err(forbidden("this process knows no accounts: use a proxy"));
    };
    let owner = directory.owner(&target).await.map_err(|sentence| {
        refusal(StatusCode::SERVICE_UNAVAILABLE, &format!("the owner can't be read: {sentence}"))
    })?;
    // An item that doesn't exist is refused like one of another tenant.
    if owner.is_some_and(|owner| owner == own.canonical_id) {
        return Ok(());
    }
    Err(forbidden(&format!(
        "this needs the role operator: a tenant admin of {} reaches nothing of other tenants",
        own.name
    )))
}

impl Admitted {
    async fn run(self, gate: &Arc<GateState>, head: Parts, next: Next) -> Response {
        if self.rule.computes || !is_change(&head.method) {
            let Self { principal, body, refusal, .. } = self;
            return match refusal {
                Some(refusal) => refusal,
                None => next.run(request(head, principal, body)).await,
            };
        }
        let gate = gate.clone();
        let change = tokio::spawn(self.run_change(gate, head, next));
        change.await.unwrap_or_else(|_| failed())
    }

    /// Runs a change between its two records.
    async fn run_change(self, gate: Arc<GateState>, head: Parts, next: Next) -> Response {
        let Self { principal, rule, body, names, refusal } = self;
        let log = gate.access().ok().and_then(|access| access.log_of(principal.role)).cloned();
        let peer = head.extensions.get::<Peer>().map(|peer| peer.0.to_canonical().to_string());
        let record = AuditRecord {
            peer,
            who: principal.line(),
            operation: rule.name(),
            target: names,
            ..AuditRecord::default()
        };
        let begun = match &log {
            None => None,
            Some(log) => match log.begin(record).await {
                Ok(begun) => Some(begun),
                Err(sentence) => return refuse(StatusCode::SERVICE_UNAVAILABLE, &sentence),
            },
        };
        let mut reply = match refusal {
            Some(refusal) => refusal,
            // A panic of the handler is an outcome too.
            None => tokio::spawn(next.run(request(head, principal, body)))
                .await
                .unwrap_or_else(|_| failed()),
        };
        let (Some(log), Some(begun)) = (log, begun) else { return reply };
        if let Ok(id) = HeaderValue::from_str(begun.id()) {
            reply.headers_mut().insert(REQUEST_ID, id);
        }
        let status = reply.status();
        match log.end(begun, status.as_u16()).await {
            Ok(()) => reply,
            Err(sentence) => refuse(
                StatusCode::INTERNAL_SERVER_ERROR,
                &format!("{sentence}; the request itself ended with status {}", status.as_u16()),
            ),
        }
    }
}

fn request(head: Parts, principal: Principal, body: Bytes) -> Request {
    let mut request = Request::from_parts(head, Body::from(body));
    request.extensions_mut().insert(principal);
    request
}

fn failed() -> Response {
    refuse(StatusCode::INTERNAL_SERVER_ERROR, "the request failed: see the log of the process")
}

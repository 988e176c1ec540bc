//! Route of the audit records of a process.

use std::sync::Arc;

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use martlet_admin_api::audit::{AUDIT, AuditPage};
use schemars::JsonSchema;
use serde::Deserialize;

use super::principal::Principal;
use super::rule::RouteAccess;
use super::state::GateState;
use crate::api::{ApiDoc, ApiRoutes};
use crate::audit::{AuditCursor, AuditQuery};
use crate::refusal::refuse;

/// Query parameters of the route.
#[derive(Deserialize, JsonSchema)]
struct RecordsQuery {
    /// Earliest time of the changes, in milliseconds since 1970.
    #[serde(default)]
    since_ms: u64,
    /// Key, name of a key, role, tenant, kind or address of the requester.
    who: Option<String>,
    /// Part of the operation, or the whole name of a target.
    what: Option<String>,
    /// `next` of the page before. Default: the oldest records.
    after: Option<String>,
    /// False returns the changes of operators; true those of tenant admins, viewers and S3 requests.
    #[serde(default)]
    tenants: bool,
}

/// Returns the route of `martlet admin audit`.
pub(crate) fn routes() -> ApiRoutes<Arc<GateState>> {
    let doc = ApiDoc::reply::<AuditPage>(
        RouteAccess::Records,
        "List the changes of this process, in pages; tenant admins get those of their tenant",
    );
    ApiRoutes::new().get(AUDIT, doc.query::<RecordsQuery>(), records)
}

async fn records(
    State(gate): State<Arc<GateState>>,
    Extension(principal): Extension<Principal>,
    Query(request): Query<RecordsQuery>,
) -> Response {
    let Ok(access) = gate.access() else {
        return refuse(StatusCode::SERVICE_UNAVAILABLE, "the process is starting: try again");
    };
    let log = if request.tenants { &access.tenant_audit } else { &access.audit };
    let Some(log) = log else {
        return refuse(StatusCode::CONFLICT, "this process keeps no audit log: set audit_log");
    };
    let after = request.after.as_deref().map_or(Some(AuditCursor::default()), AuditCursor::parse);
    let Some(after) = after else {
        return refuse(StatusCode::BAD_REQUEST, "after must be the `next` of a page");
    };
    let query = AuditQuery {
        // A tenant of an equal name may have existed before the key was made.
        since_ms: request.since_ms.max(principal.since_ms),
        who: request.who,
        what: request.what,
        tenant: principal.tenant.map(|tenant| tenant.name),
        after,
    };
    match log.page(query).await {
        Ok(page) => Json(page).into_response(),
        Err(error) => refuse(
            StatusCode::SERVICE_UNAVAILABLE,
            &format!("the audit log can't be read: {error}"),
        ),
    }
}

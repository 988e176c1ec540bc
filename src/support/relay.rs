//! Replies of one process of a cluster, which another process reads for its principals.
//!
//! ```text
//! console ─▶ GET processes/reply?process=&route=&query= ─▶ list of routes ─▶ role of the principal
//!                                 this process: its own router ◀─┴─▶ another: HTTP, TLS, a session
//! ```
//!
//! Invariants:
//! * Only the routes of a list are read, and by GET alone. The principal needs the role that the route needs.
//! * The other process gets a session that may GET this one path, for two minutes: a viewer's if that
//!   suffices, else one of the principal's role.
//!   The session of the principal is never sent, and neither is a token of a secret.
//! * Addresses are those that processes report: a request names a process.
//! * Replies are bounded in bytes and time, and so are the requests under way.

use axum::Extension;
use axum::Json;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use martlet_admin_api::audit::AUDIT;
use martlet_admin_api::events::{EVENTS, PARKED};
use martlet_admin_api::jobs::{JOB, JOBS};
use martlet_admin_api::principals::AdminRole;
use martlet_admin_api::processes::{
    PROCESS_REPLY, PROCESSES, ProcessName, QUERY_BYTES_MAX, RELAYED_BYTES_MAX, RelayQuery,
};
use martlet_admin_api::{SETTINGS, STATUS, ServerStatus, WORKERS};
use martlet_serving::access::{AdminAccess, Principal, RouteAccess};
use martlet_serving::api::{ApiDoc, ApiRoutes};
use martlet_serving::operator::refuse;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use super::collect::{BundleSource, PATIENCE, Process, processes};
use super::route::{BundleProcess, ProcessSource, session_of};

const JSON: &str = "application/json";
/// Requests of other processes that are under way at once.
const AT_ONCE_MAX: usize = 32;
static UNDER_WAY: Semaphore = Semaphore::const_new(AT_ONCE_MAX);

const NO_KEY: &str = "other processes are read for admin keys alone: sign in with one";
const NO_REPORT: &str = "the process does not answer: its report is missing";

/// Route that may be read of other processes.
struct RelayedRoute {
    path: &'static str,
    access: RouteAccess,
    /// Returns true for the roles of processes that have the route.
    is_of: fn(&str) -> bool,
}

static ROUTES: [RelayedRoute; 8] = [
    RelayedRoute { path: AUDIT, access: RouteAccess::Operate, is_of: has_s3 },
    RelayedRoute { path: JOBS, access: RouteAccess::Read, is_of: has_s3 },
    RelayedRoute { path: JOB, access: RouteAccess::Read, is_of: has_s3 },
    RelayedRoute { path: EVENTS, access: RouteAccess::Read, is_of: has_targets },
    RelayedRoute { path: PARKED, access: RouteAccess::Operate, is_of: has_targets },
    RelayedRoute { path: SETTINGS, access: RouteAccess::Read, is_of: is_any },
    RelayedRoute { path: STATUS, access: RouteAccess::Read, is_of: is_any },
    RelayedRoute { path: WORKERS, access: RouteAccess::Read, is_of: is_any },
];

fn is_any(_: &str) -> bool {
    true
}

fn has_s3(role: &str) -> bool {
    role == "server" || role.starts_with("proxy ")
}

fn has_targets(role: &str) -> bool {
    has_s3(role) || role.starts_with("replicator ")
}

/// Refusal, with its HTTP status and its sentence.
#[derive(Debug, PartialEq)]
struct Refusal(StatusCode, String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        refuse(self.0, &self.1)
    }
}

/// Returns the routes of other processes.
pub(super) fn routes(process: BundleProcess) -> ApiRoutes {
    let summary = "List the processes of the cluster, with what may be read of each";
    let list = ApiDoc::reply::<Vec<ProcessName>>(RouteAccess::Read, summary);
    let summary = "Read a route of one process of the cluster, in the name of the principal";
    let relayed = ApiDoc::bytes(RouteAccess::Read, summary, JSON).query::<RelayQuery>();
    ApiRoutes::new()
        .get(PROCESSES, list, self::list)
        .get(PROCESS_REPLY, relayed, relay)
        .with_state(process)
}

async fn list(
    State(process): State<BundleProcess>,
    Extension(principal): Extension<Principal>,
) -> Result<Json<Vec<ProcessName>>, Refusal> {
    let reader = Reader::of(&process, principal)?;
    off_thread(move || Ok(Json(names(&reader.status()?, &reader)))).await
}

async fn relay(
    State(process): State<BundleProcess>,
    Extension(principal): Extension<Principal>,
    Query(query): Query<RelayQuery>,
) -> Result<Response, Refusal> {
    let route = route_of(&query, &principal)?;
    let reader = Reader::of(&process, principal)?;
    let Ok(permit) = UNDER_WAY.try_acquire() else {
        let sentence = "too many requests of other processes are under way: try again";
        return Err(Refusal(StatusCode::SERVICE_UNAVAILABLE, sentence.to_owned()));
    };
    let bytes = off_thread(move || {
        let _permit = permit;
        reader.read(route, &query)
    });
    Ok(([(header::CONTENT_TYPE, JSON)], bytes.await?).into_response())
}

/// Finds the route of a request, and checks the role of its principal and its query.
fn route_of(query: &RelayQuery, principal: &Principal) -> Result<&'static RelayedRoute, Refusal> {
    let Some(route) = ROUTES.iter().find(|route| route.path == query.route) else {
        let paths: Vec<&str> = ROUTES.iter().map(|route| route.path).collect();
        let sentence = format!("route must be one of {}", paths.join(", "));
        return Err(Refusal(StatusCode::BAD_REQUEST, sentence));
    };
    if !route.access.admits(principal.role) {
        return Err(Refusal(StatusCode::FORBIDDEN, route.access.refusal(principal.role)));
    }
    let is_encoded = |byte: u8| byte.is_ascii_graphic() && byte != b'#';
    let text = query.query.as_deref().unwrap_or_default();
    if text.len() > QUERY_BYTES_MAX || !text.bytes().all(is_encoded) {
        let sentence =
            format!("query must be encoded for a URL, in {QUERY_BYTES_MAX} bytes at most");
        return Err(Refusal(StatusCode::BAD_REQUEST, sentence));
    }
    Ok(route)
}

/// Runs requests on a thread that may block.
async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| {
        Err(Refusal(StatusCode::INTERNAL_SERVER_ERROR, "the request failed".to_owned()))
    })
}

/// Lists the processes of a status, this one first.
fn names(status: &ServerStatus, reader: &Reader) -> Vec<ProcessName> {
    let mut names = vec![reader.name(&status.own.role, true)];
    let known = processes(status, &reader.source.address);
    names.extend(
        known.iter().filter(|it| it.name != status.own.role).map(|it| reader.name(&it.name, false)),
    );
    let silent = status.nodes.iter().filter(|node| node.report.is_none());
    names.extend(silent.map(|node| ProcessName {
        silent: Some(NO_REPORT.to_owned()),
        ..reader.name(&format!("storage node {}", node.name), false)
    }));
    names[1..].sort_by(|one, other| one.process.cmp(&other.process));
    names
}

/// Requests in the name of a principal.
struct Reader {
    source: ProcessSource,
    principal: Principal,
    access: std::sync::Arc<AdminAccess>,
}

impl Reader {
    /// Returns the reader of a principal. Refuses while the process isn't open.
    fn of(process: &BundleProcess, principal: Principal) -> Result<Self, Refusal> {
        let parts = || {
            let operator = process.operator.upgrade()?;
            let (_, access) = operator.protected_routes()?;
            let address = format!("{}{}", process.scheme, operator.address()?).parse().ok()?;
            Some((operator, access, address))
        };
        let closed = || "the process is starting or stopping".to_owned();
        let (operator, access, address) =
            parts().ok_or_else(|| Refusal(StatusCode::SERVICE_UNAVAILABLE, closed()))?;
        let session = session_of(&principal, &access, principal.role, None);
        // A principal without a key has a token of a secret, which is an operator's.
        let is_operator = RouteAccess::Operate.admits(principal.role);
        let own = session.or_else(|| is_operator.then(|| process.token.to_text()));
        let token = own.ok_or_else(|| Refusal(StatusCode::FORBIDDEN, NO_KEY.to_owned()))?;
        let source = ProcessSource {
            address,
            token,
            reader: None,
            bytes_max: RELAYED_BYTES_MAX,
            router: operator.router(),
            runtime: Handle::current(),
        };
        Ok(Self { source, principal, access })
    }

    fn name(&self, role: &str, own: bool) -> ProcessName {
        let is_read =
            |route: &&RelayedRoute| (route.is_of)(role) && route.access.admits(self.principal.role);
        let routes = ROUTES.iter().filter(is_read).map(|route| route.path.to_owned()).collect();
        ProcessName { process: role.to_owned(), own, routes, silent: None }
    }

    /// Returns the status of this process, which names the others.
    fn status(&self) -> Result<ServerStatus, Refusal> {
        let own = self.source.address.clone();
        let bytes = self.source.request(&own, STATUS, PATIENCE).map_err(unavailable)?;
        serde_json::from_slice(&bytes).map_err(|error| unavailable(error.to_string()))
    }

    /// Reads a route of a process.
    fn read(mut self, route: &RelayedRoute, query: &RelayQuery) -> Result<Vec<u8>, Refusal> {
        let status = self.status()?;
        let Process { name, address } = process_of(&status, query, &self.source)?;
        if !(route.is_of)(&name) {
            let sentence = format!("{name} has no route {}", route.path);
            return Err(Refusal(StatusCode::NOT_FOUND, sentence));
        }
        let (principal, access) = (&self.principal, &self.access);
        // No more than the route needs.
        let is_viewers = route.access.admits(AdminRole::Viewer);
        let role = if is_viewers { AdminRole::Viewer } else { principal.role };
        self.source.reader = session_of(principal, access, role, Some(route.path));
        let target = match query.query.as_deref() {
            None | Some("") => route.path.to_owned(),
            Some(text) => format!("{}?{text}", route.path),
        };
        let reply = self.source.request(&address, &target, PATIENCE);
        reply.map_err(|error| Refusal(StatusCode::BAD_GATEWAY, format!("{name}: {error}")))
    }
}

/// Finds the named process.
fn process_of(
    status: &ServerStatus,
    query: &RelayQuery,
    source: &ProcessSource,
) -> Result<Process, Refusal> {
    let mut known = processes(status, &source.address).into_iter();
    if let Some(process) = known.find(|process| process.name == query.process) {
        return Ok(process);
    }
    let is_silent = |name: &str| format!("storage node {name}") == query.process;
    if status.nodes.iter().any(|node| is_silent(&node.name)) {
        return Err(Refusal(StatusCode::BAD_GATEWAY, format!("{}: {NO_REPORT}", query.process)));
    }
    let sentence = "no process of the cluster has this name: see /admin/v1/processes";
    Err(Refusal(StatusCode::NOT_FOUND, sentence.to_owned()))
}

fn unavailable(sentence: String) -> Refusal {
    Refusal(StatusCode::SERVICE_UNAVAILABLE, sentence)
}

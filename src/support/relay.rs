//! Replies of one process of a cluster, which another process reads for its principals.
//!
//! ```text
//! console ─▶ GET processes/reply?process=&route=&query= ─▶ list of routes ─▶ role of the principal
//!                                 this process: its own router ◀─┴─▶ another: HTTP, TLS, a session
//! ```
//!
//! Invariants:
//! * Only the routes of a list are read, and by GET alone. The principal needs the role that the route needs.
//! * The other process gets a session that may GET this one path of this one process, for 30 seconds: a
//!   viewer's if that suffices, else one of the principal's role.
//!   The session of the principal is never sent, and neither is a token of a secret.
//! * Addresses are those that processes report: a request names a process.
//! * A reply has the type of its route. It is bounded in bytes and time.
//! * Requests under way are bounded: all, those of a key, and those to a process. A drop of the future ends
//!   a request. Ports whose clients may close their sending side notice no client that has left: there a
//!   request ends after ten seconds.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use martlet_admin_api::principals::AdminRole;
use martlet_admin_api::processes::{
    PROCESS_REPLY, PROCESSES, ProcessName, RELAYED_BYTES_MAX, RelayQuery,
};
use martlet_admin_api::{ErrorReply, STATUS};
use martlet_serving::access::{AdminAccess, Principal, RouteAccess};
use martlet_serving::api::{ApiDoc, ApiRoutes};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::collect::PATIENCE;
use super::directory::{ListedProcess, Replier, processes};
use super::permits::{RelayPermits, RequestPlace};
use super::relayed_routes::{ROUTES, Refusal, RelayedRoute, route_of};
use super::route::{
    BundleProcess, CONNECT_PATIENCE, NO_KEY, OWN_BYTES_MAX, OwnRoutes, SessionScope, session_of,
};
use crate::admin::address::AdminAddress;
use crate::admin::client::{AdminCredential, AdminEndpoint};

const JSON: &str = "application/json";
/// Age up to which requests share a list of processes.
const LIST_AGE_MAX: Duration = Duration::from_secs(5);
/// Name of all principals without a key, for their common bound.
const WITHOUT_KEY: &str = "";

const REFUSED: &str = "it refuses the session: it is of an earlier release, or its clock differs";
const UNKNOWN: &str = "no process of the cluster has this name: see /admin/v1/processes";
const STOPPING: &str = "the process is starting or stopping";

/// State of the routes.
struct Relay {
    process: BundleProcess,
    permits: RelayPermits,
    /// Processes of the last status, and the time at which it was read.
    list: Mutex<Option<(Instant, Arc<Vec<ListedProcess>>)>>,
}

/// Returns the routes of other processes.
pub(super) fn routes(process: BundleProcess) -> ApiRoutes {
    let summary = "List the processes of the cluster, with what may be read of each";
    let list = ApiDoc::reply::<Vec<ProcessName>>(RouteAccess::Read, summary);
    let summary = "Read a route of one process of the cluster, in the name of the principal";
    let relayed = ApiDoc::bytes(RouteAccess::Read, summary, JSON).query::<RelayQuery>();
    let (permits, cached) = (RelayPermits::default(), Mutex::default());
    ApiRoutes::new()
        .get(PROCESSES, list, self::list)
        .get(PROCESS_REPLY, relayed, relay)
        .with_state(Arc::new(Relay { process, permits, list: cached }))
}

async fn list(
    State(relay): State<Arc<Relay>>,
    Extension(principal): Extension<Principal>,
) -> Result<Json<Vec<ProcessName>>, Refusal> {
    let reader = Reader::of(&relay, principal)?;
    let _permit = reader.permit()?;
    let list = reader.processes().await?;
    Ok(Json(list.iter().map(|process| reader.name(process)).collect()))
}

async fn relay(
    State(relay): State<Arc<Relay>>,
    Extension(principal): Extension<Principal>,
    query: Result<Query<RelayQuery>, QueryRejection>,
) -> Result<Response, Refusal> {
    let Query(query) = query.map_err(|rejection| {
        let sentence = "process and route are required, and each parameter is given once";
        Refusal(StatusCode::BAD_REQUEST, format!("{sentence}: {}", rejection.body_text()))
    })?;
    let route = route_of(&query, principal.role)?;
    let reader = Reader::of(&relay, principal)?;
    let _permit = reader.permit()?;
    let bytes = reader.read(route, &query).await?;
    Ok(([(header::CONTENT_TYPE, JSON)], bytes).into_response())
}

/// Requests in the name of a principal.
struct Reader<'a> {
    relay: &'a Relay,
    principal: Principal,
    access: Arc<AdminAccess>,
    own: OwnRoutes,
    address: AdminAddress,
}

impl<'a> Reader<'a> {
    /// Returns the reader of a principal. Refuses while the process isn't open.
    fn of(relay: &'a Relay, principal: Principal) -> Result<Self, Refusal> {
        let process = &relay.process;
        let parts = || {
            let operator = process.operator.upgrade()?;
            let (_, access) = operator.protected_routes()?;
            let address = format!("{}{}", process.scheme, operator.address()?).parse().ok()?;
            Some((operator, access, address))
        };
        let (operator, access, address) = parts().ok_or_else(|| Refusal::unavailable(STOPPING))?;
        let session = session_of(&principal, &access, principal.role, None);
        // A principal without a key has a token of a secret, which is an operator's.
        let is_operator = RouteAccess::Operate.admits(principal.role);
        let token = session.or_else(|| is_operator.then(|| process.token.to_text()));
        let token = token.ok_or_else(|| Refusal(StatusCode::FORBIDDEN, NO_KEY.to_owned()))?;
        let own = OwnRoutes { router: operator.router(), token };
        Ok(Self { relay, principal, access, own, address })
    }

    /// Takes a place among the requests of the principal's key.
    fn permit(&self) -> Result<RequestPlace, Refusal> {
        let key = self.principal.key.as_deref().unwrap_or(WITHOUT_KEY);
        let sentence = "too many requests of other processes are under way: try again";
        self.relay.permits.of_key(key).ok_or_else(|| Refusal::unavailable(sentence))
    }

    /// Returns a process as the list shows it to the principal.
    fn name(&self, process: &ListedProcess) -> ProcessName {
        let is_read = |route: &&RelayedRoute| {
            route.is_of(process) && route.access.admits(self.principal.role)
        };
        let routes = ROUTES.iter().filter(is_read).map(|route| route.path.to_owned()).collect();
        let no_key = self.principal.key.is_none() && !process.own;
        let silent = process.address.as_ref().err().cloned();
        ProcessName {
            process: process.name.clone(),
            roles: process.roles.clone(),
            own: process.own,
            routes,
            silent: silent.or_else(|| no_key.then(|| NO_KEY.to_owned())),
        }
    }

    /// Returns the processes of the cluster, as this process knew them in the last seconds.
    async fn processes(&self) -> Result<Arc<Vec<ListedProcess>>, Refusal> {
        let mut cached = self.relay.list.lock().await;
        if let Some((_, list)) = cached.as_ref().filter(|(at, _)| at.elapsed() < LIST_AGE_MAX) {
            return Ok(list.clone());
        }
        let bytes = self.own.get(STATUS, OWN_BYTES_MAX, PATIENCE).await;
        let bytes = bytes.map_err(Refusal::unavailable)?;
        let status = serde_json::from_slice(&bytes);
        let status = status.map_err(|error| Refusal::unavailable(error.to_string()))?;
        let replier = Replier { address: &self.address, is_here: true };
        let list = Arc::new(processes(&status, replier));
        *cached = Some((Instant::now(), list.clone()));
        Ok(list)
    }

    /// Reads a route of a process.
    async fn read(&self, route: &RelayedRoute, query: &RelayQuery) -> Result<Vec<u8>, Refusal> {
        let list = self.processes().await?;
        let process = process_of(&list, &query.process)?;
        if !route.is_of(process) {
            let sentence = format!("{} has no route {}", process.name, route.path);
            return Err(Refusal(StatusCode::NOT_FOUND, sentence));
        }
        let target = match query.query.as_deref() {
            None | Some("") => route.path.to_owned(),
            Some(text) => format!("{}?{text}", route.path),
        };
        let bad_gateway = |sentence: String| {
            Refusal(StatusCode::BAD_GATEWAY, format!("{}: {sentence}", process.name))
        };
        let address = process.address.clone().map_err(bad_gateway)?;
        if process.own {
            let bytes = self.own.get(&target, RELAYED_BYTES_MAX, PATIENCE).await;
            return bytes.map(Into::into).map_err(bad_gateway);
        }
        let token = self.session(route, &process.roles[0]);
        let token = token.ok_or_else(|| bad_gateway(NO_KEY.to_owned()))?;
        let Some(_permit) = self.relay.permits.to_process(&address.to_string()) else {
            let sentence = "too many requests of it are under way: try again";
            return Err(Refusal::unavailable(format!("{}: {sentence}", process.name)));
        };
        let bytes = read_of(address, token, &target).await.map_err(bad_gateway)?;
        (route.decoded)(&bytes).map_err(|error| {
            bad_gateway(format!("it does not answer as a Martlet of this version: {error}"))
        })
    }

    /// Returns the token of a session for one route of one process; none for a principal without a key.
    fn session(&self, route: &RelayedRoute, at: &str) -> Option<String> {
        // No more than the route needs.
        let is_viewers = route.access.admits(AdminRole::Viewer);
        let role = if is_viewers { AdminRole::Viewer } else { self.principal.role };
        let scope = SessionScope { path: route.path, at };
        session_of(&self.principal, &self.access, role, Some(scope))
    }
}

/// Finds a process by its name, or by one of its roles.
fn process_of<'a>(list: &'a [ListedProcess], name: &str) -> Result<&'a ListedProcess, Refusal> {
    let named = list.iter().find(|process| process.name == name);
    let with_role = || list.iter().find(|process| process.roles.iter().any(|role| role == name));
    let unknown = || Refusal(StatusCode::NOT_FOUND, UNKNOWN.to_owned());
    named.or_else(with_role).ok_or_else(unknown)
}

/// Sends a GET request to another process.
///
/// # Errors
/// A sentence: the process doesn't reply in time, or refuses.
async fn read_of(address: AdminAddress, token: String, target: &str) -> Result<Vec<u8>, String> {
    // The first request in a minute reads the authorities of this system.
    let endpoint = tokio::task::spawn_blocking(move || {
        AdminEndpoint::of_process(address, AdminCredential::Session(token))
    });
    let endpoint = endpoint.await.map_err(|error| error.to_string())?;
    let endpoint = endpoint.map_err(|failure| failure.to_string())?;
    let endpoint = endpoint.patient(PATIENCE).connecting_within(CONNECT_PATIENCE);
    let reply = endpoint.bounded(RELAYED_BYTES_MAX).get(target).await;
    let (status, bytes) = reply.map_err(|failure| failure.to_string())?;
    match status {
        StatusCode::OK => Ok(bytes.into()),
        StatusCode::UNAUTHORIZED => Err(REFUSED.to_owned()),
        _ => {
            let refusal = serde_json::from_slice(&bytes).map(|ErrorReply { error }| error);
            Err(refusal.unwrap_or_else(|_| format!("it answered {status}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    fn listed(name: &str, roles: &[&str]) -> ListedProcess {
        ListedProcess {
            name: name.to_owned(),
            roles: roles.iter().map(|role| (*role).to_owned()).collect(),
            address: Err(String::new()),
            is_private: false,
            own: false,
        }
    }

    #[test]
    fn a_process_is_found_by_each_of_its_roles() {
        let list = [
            listed("proxy n1", &["proxy n1", "storage node n1"]),
            listed("proxy n2 at n2:1", &["proxy n2", "storage node n2"]),
        ];
        for (name, at) in [("proxy n1", 0), ("storage node n2", 1), ("proxy n2 at n2:1", 1)] {
            assert_eq!(process_of(&list, name).unwrap(), &list[at], "{name}");
        }
        assert_eq!(process_of(&list, "n2:1").unwrap_err().0, StatusCode::NOT_FOUND);
    }

    /// Answers one request with a status and an error.
    async fn refusing(status: &str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string().parse().unwrap();
        let body = r#"{"error":"the reason"}"#;
        let length = body.len();
        let reply = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}");
        let answer = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 4096]).await.unwrap();
            stream.write_all(reply.as_bytes()).await.unwrap();
        });
        let read = read_of(address, "mar1.x".to_owned(), "/admin/v1/audit").await;
        answer.await.unwrap();
        read.unwrap_err()
    }

    #[tokio::test]
    async fn a_refused_session_is_explained_and_other_refusals_are_passed_on() {
        assert_eq!(refusing("401 Unauthorized").await, REFUSED);
        assert_eq!(refusing("403 Forbidden").await, "the reason");
        assert_eq!(refusing("302 Found").await, "the reason", "no redirection is followed");
    }

    #[tokio::test]
    async fn a_client_that_leaves_closes_the_connection_to_the_process() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string().parse().unwrap();
        let read = tokio::spawn(read_of(address, "mar1.x".to_owned(), "/admin/v1/audit"));
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = [0; 4096];
        assert!(stream.read(&mut head).await.unwrap() > 0);
        read.abort();
        assert!(read.await.unwrap_err().is_cancelled());
        let closed = tokio::time::timeout(Duration::from_secs(20), stream.read(&mut head));
        assert_eq!(closed.await.unwrap().unwrap(), 0, "the process sees the end of the connection");
    }
}

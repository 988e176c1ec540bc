//! Admin address: health and metrics for any client, all other routes behind the gate of
//! [`access`](crate::access).
//!
//! It answers from the start of the process. The routes of a role are added by [`Operator::open`];
//! until then all but health are answered 503. A service manager, if there is one, hears the same:
//! that the role is open, its readiness whenever that changes, and the begin of the end.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use hyper_util::service::TowerToHyperService;
use martlet_admin_api::{SETTINGS, SettingsReply};
use martlet_protocol::Clock;
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tower::ServiceExt;

use super::access::gate::admit;
use super::access::state::GateState;
use super::access::{AdminAccess, RouteAccess, records};
use super::api::{ApiDoc, ApiRoutes};
use super::listen::{self, ConnectionLimits, HEAD_BYTES_MAX, Limits, Port};
use super::metrics::{Metrics, classic, process};
use super::profile;
use super::service_manager::ServiceManager;
use super::settings::CommonSettings;
use super::stop::wait_for_stop;
use super::token::AdminToken;
pub use crate::admin_port::{bind, bind_console};
pub use crate::refusal::refuse;

/// Bounds on admin connections. A quarter is reserved for connections with a token.
const PLACES: ConnectionLimits = ConnectionLimits { all: 64, keyless: 48, keyless_per_address: 32 };
/// Upper limit on the timeout for the head of a request.
const HEADER_TIMEOUT_MAX: Duration = Duration::from_secs(10);
/// Drain time of admin connections. It is short because scrapers retry.
const FAREWELL: Duration = Duration::from_secs(1);
/// Interval between two looks at the readiness for the service manager.
const REPORT_EVERY: Duration = Duration::from_secs(2);
/// Media type that clients of `OpenMetrics` accept, without its parameters.
const OPEN_METRICS: &str = "application/openmetrics-text";
/// Media type of the metrics for these clients.
const METRICS_MEDIA: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const NOT_YET: &str = "the process is starting: try again in a moment";

/// Condition of a role, apart from its start and stop.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoleCondition {
    /// True if the role can do its work.
    pub serves: bool,
    /// Problems, including minor ones that don't keep the role from serving.
    pub reasons: Vec<String>,
}

/// Source of a role's condition.
#[async_trait]
pub trait Health: Send + Sync {
    /// Returns the current condition.
    async fn condition(&self) -> RoleCondition;
}

/// Parts of the admin API that need the open role.
pub struct AdminParts {
    /// Source of the role's condition.
    pub health: Arc<dyn Health>,
    /// Metrics of the process.
    pub metrics: Metrics,
    /// Routes behind the gate.
    pub routes: ApiRoutes,
    /// Means to admit requests to these routes.
    pub access: Arc<AdminAccess>,
}

/// Parts of an open role, with the routes as they are served.
struct OpenParts {
    parts: AdminParts,
    /// Routes behind the gate, with that of their document.
    router: Router,
}

/// State of the admin address.
pub struct Operator {
    gate: Arc<GateState>,
    parts: OnceLock<OpenParts>,
    stage: Mutex<ProcessStage>,
    address: OnceLock<SocketAddr>,
    manager: ServiceManager,
    opened: watch::Sender<bool>,
    shown: OnceLock<SettingsReply>,
}

/// Stage of the process's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProcessStage {
    Opening,
    Open,
    Draining,
}

/// Readiness of the process for requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Readiness {
    /// True if the process is ready.
    pub ready: bool,
    /// Problems, also minor ones.
    pub reasons: Vec<String>,
}

impl Readiness {
    /// Returns the readiness and its reasons as one line.
    fn to_line(&self) -> String {
        let state = if self.ready { "ready" } else { "not ready" };
        let parts: Vec<&str> =
            std::iter::once(state).chain(self.reasons.iter().map(String::as_str)).collect();
        parts.join("; ")
    }
}

type OperatorState = State<Arc<Operator>>;

impl Operator {
    /// Makes the admin API before the role is open.
    pub fn new(tokens: Vec<AdminToken>) -> Self {
        Self::under(ServiceManager::of_environment(), tokens)
    }

    fn under(manager: ServiceManager, tokens: Vec<AdminToken>) -> Self {
        let (parts, address) = (OnceLock::new(), OnceLock::new());
        let (stage, opened) = (Mutex::new(ProcessStage::Opening), watch::Sender::new(false));
        let gate = Arc::new(GateState::new(tokens, own_routes().rules()));
        Self { gate, parts, stage, address, manager, opened, shown: OnceLock::new() }
    }

    /// Makes the state of a role within a process that serves the admin address for several roles.
    /// The role has no tokens of its own and reports to no service manager.
    pub fn of_role(address: SocketAddr) -> Self {
        Self { address: OnceLock::from(address), ..Self::under(ServiceManager::none(), Vec::new()) }
    }

    /// Waits until the role's parts are added.
    pub async fn wait_open(&self) {
        let _ = self.opened.subscribe().wait_for(|opened| *opened).await;
    }

    /// Returns the metrics as text, once the role is open.
    pub fn metrics_text(&self) -> Option<String> {
        self.parts.get().map(|open| open.parts.metrics.text())
    }

    /// Returns the routes behind the gate, and the means to admit requests, once the role is open.
    pub fn protected_routes(&self) -> Option<(ApiRoutes, Arc<AdminAccess>)> {
        self.parts.get().map(|open| (open.parts.routes.clone(), open.parts.access.clone()))
    }

    /// Returns the address that it listens on, once it is served.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address.get().copied()
    }

    /// Adds the role's parts. From then on the process can be ready.
    ///
    /// The service manager hears that the process has started, ready or not: a storage node of a
    /// new cluster is ready only beside others, which the manager may start after it.
    pub fn open(&self, parts: AdminParts) {
        let beside = public_routes().merge(own_routes()).merge(records_route(&self.gate));
        let routes = parts.routes.clone().merge(profile::routes()).with_document(beside);
        let (rules, access, router) = (routes.rules(), parts.access.clone(), routes.into_router());
        if self.parts.set(OpenParts { parts, router }).is_ok() {
            self.gate.open(access, rules);
            *self.stage.lock() = ProcessStage::Open;
            self.manager.report_start();
            self.opened.send_replace(true);
        }
    }

    /// Returns the clock by which the gate judges signatures, once the process is open.
    pub fn clock(&self) -> Option<Arc<dyn Clock>> {
        self.parts.get().map(|open| open.parts.access.clock.clone())
    }

    /// Marks the process as draining, so that it is no longer ready.
    pub fn drain(&self) {
        *self.stage.lock() = ProcessStage::Draining;
        self.manager.report_end();
    }

    /// Returns the readiness of the process, with its problems.
    pub async fn readiness(&self) -> Readiness {
        let stage = *self.stage.lock();
        let condition = match self.parts.get() {
            Some(open) => open.parts.health.condition().await,
            None => RoleCondition::default(),
        };
        let mut readiness = readiness(stage, condition);
        if let Some(open) = self.parts.get() {
            let AdminAccess { audit, tenant_audit, .. } = &*open.parts.access;
            let logs = [audit, tenant_audit].into_iter().flatten();
            readiness.reasons.extend(logs.filter_map(|log| log.problem()));
        }
        readiness
    }

    /// Returns the routes of the admin address.
    pub fn router(self: Arc<Self>) -> Router {
        let protected = own_routes()
            .merge(records_route(&self.gate))
            .into_router()
            .fallback(protected)
            // The gate bounds bodies by the rule of their route.
            .layer(DefaultBodyLimit::disable())
            .layer(middleware::from_fn_with_state(self.gate.clone(), admit))
            .with_state(self.clone());
        public_routes().into_router().with_state(self).fallback_service(protected)
    }

    /// Serves the admin address until the returned [`AdminServer`] is ended.
    pub fn serve(self: Arc<Self>, port: Port, common: &CommonSettings) -> AdminServer {
        let limits = Limits {
            places: PLACES,
            header_timeout: common.header_timeout.min(HEADER_TIMEOUT_MAX),
            write_idle: common.body_idle_timeout,
            head_bytes: HEAD_BYTES_MAX,
        };
        if let Ok(address) = port.listener.local_addr() {
            // `serve` is called once, so the address is unset.
            let _ = self.address.set(address);
        }
        // As above.
        let _ = self.shown.set(SettingsReply {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            settings: common.shown.clone(),
            sources: common.sources.clone(),
        });
        self.gate.allow_tokens(common.admin_allow_token);
        let (stop, stopped) = watch::channel(false);
        if self.manager.exists() {
            tokio::spawn(self.clone().report_readiness(stopped.clone()));
        }
        let service = TowerToHyperService::new(self.router());
        let task = tokio::spawn(listen::serve(port, service, limits, stopped, FAREWELL));
        AdminServer { stop, task }
    }

    /// Reports the readiness to the service manager whenever it has changed, until the process
    /// drains. A look costs what a request of `/readyz` does.
    async fn report_readiness(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        let mut told = String::new();
        loop {
            let status = self.readiness().await.to_line();
            if *self.stage.lock() == ProcessStage::Draining {
                return;
            }
            if status != told {
                self.manager.report_status(&status);
                told = status;
            }
            tokio::select! {
                () = wait_for_stop(&mut stop) => return,
                () = tokio::time::sleep(REPORT_EVERY) => {}
            }
        }
    }
}

/// Running admin address.
pub struct AdminServer {
    stop: watch::Sender<bool>,
    task: JoinHandle<bool>,
}

impl AdminServer {
    /// Stops the admin address, and waits for its connections.
    pub async fn end(self) {
        self.stop.send_replace(true);
        let _ = self.task.await;
    }
}

/// Routes that need no authentication.
fn public_routes() -> ApiRoutes<Arc<Operator>> {
    let health = ApiDoc::text("Show that the process answers", "text/plain");
    let ready = "Show the readiness; 503 if the process isn't ready";
    let ready = ApiDoc::reply::<Readiness>(RouteAccess::Public, ready);
    let figures = ApiDoc::text("Show the metrics, for Prometheus", "text/plain");
    ApiRoutes::new()
        .get("/healthz", health, || async { "ok\n" })
        .get("/readyz", ready, readyz)
        .get("/metrics", figures, metrics)
}

/// Routes of every process behind the gate.
fn own_routes() -> ApiRoutes<Arc<Operator>> {
    let summary = "Show the settings of the process, without secrets";
    let doc = ApiDoc::reply::<SettingsReply>(RouteAccess::Read, summary);
    ApiRoutes::new().get(SETTINGS, doc, settings)
}

/// Route of the audit records of the process.
fn records_route(gate: &Arc<GateState>) -> ApiRoutes<Arc<Operator>> {
    records::routes().with_state(gate.clone())
}

/// Returns the readiness. Its reasons include problems that don't keep the role from serving.
fn readiness(stage: ProcessStage, condition: RoleCondition) -> Readiness {
    let mut reasons = match stage {
        ProcessStage::Opening => vec!["the process is starting".to_owned()],
        ProcessStage::Draining => vec!["the process is stopping".to_owned()],
        ProcessStage::Open => Vec::new(),
    };
    reasons.extend(condition.reasons);
    Readiness { ready: stage == ProcessStage::Open && condition.serves, reasons }
}

async fn readyz(State(operator): OperatorState) -> Response {
    let readiness = operator.readiness().await;
    let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(readiness)).into_response()
}

async fn metrics(State(operator): OperatorState, headers: HeaderMap) -> Response {
    let Some(of_role) = operator.metrics_text() else {
        return refuse(StatusCode::SERVICE_UNAVAILABLE, NOT_YET);
    };
    let text = process::text(operator.readiness().await.ready) + &of_role;
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    if accepted.into_iter().any(|value| value.contains(OPEN_METRICS)) {
        return ([(header::CONTENT_TYPE, METRICS_MEDIA)], text).into_response();
    }
    ([(header::CONTENT_TYPE, classic::MEDIA)], classic::classic(&text)).into_response()
}

async fn settings(State(operator): OperatorState) -> Response {
    Json(operator.shown.get().cloned().unwrap_or_default()).into_response()
}

async fn protected(State(operator): OperatorState, request: Request) -> Response {
    match operator.parts.get() {
        Some(open) => match open.router.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        },
        None => refuse(StatusCode::SERVICE_UNAVAILABLE, NOT_YET),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use martlet_admin_api::DOCUMENT;

    use super::*;

    struct HealthyRole;

    #[async_trait]
    impl Health for HealthyRole {
        async fn condition(&self) -> RoleCondition {
            RoleCondition { serves: true, reasons: Vec::new() }
        }
    }

    async fn status_of(operator: &Arc<Operator>, path: &str, token: Option<&str>) -> StatusCode {
        let mut request = Request::get(path);
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(Body::empty()).unwrap();
        operator.clone().router().oneshot(request).await.unwrap().status()
    }

    fn open(operator: &Operator) {
        let doc = ApiDoc::reply::<String>(RouteAccess::Read, "Show a secret");
        let routes = ApiRoutes::new().get("/secret", doc, || async { "told" });
        operator.open(AdminParts {
            health: Arc::new(HealthyRole),
            metrics: Metrics::default(),
            routes,
            access: Arc::default(),
        });
    }

    #[tokio::test]
    async fn it_is_alive_at_once_and_ready_when_it_is_open_and_serves() {
        let operator = Arc::new(Operator::new(Vec::new()));
        assert_eq!(status_of(&operator, "/healthz", None).await, StatusCode::OK);
        assert_eq!(status_of(&operator, "/readyz", None).await, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(status_of(&operator, "/metrics", None).await, StatusCode::SERVICE_UNAVAILABLE);
        open(&operator);
        assert_eq!(status_of(&operator, "/readyz", None).await, StatusCode::OK);
        assert_eq!(status_of(&operator, "/metrics", None).await, StatusCode::OK);
        operator.drain();
        assert_eq!(status_of(&operator, "/readyz", None).await, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(status_of(&operator, "/healthz", None).await, StatusCode::OK);
    }

    #[tokio::test]
    async fn metrics_come_as_open_metrics_to_clients_that_accept_them() {
        let operator = Arc::new(Operator::new(Vec::new()));
        open(&operator);
        let page = async |accept: &str| {
            let request = Request::get("/metrics").header(header::ACCEPT, accept);
            let request = request.body(Body::empty()).unwrap();
            let reply = operator.clone().router().oneshot(request).await.unwrap();
            let media = reply.headers()[header::CONTENT_TYPE].to_str().unwrap().to_owned();
            let bytes = axum::body::to_bytes(reply.into_body(), usize::MAX).await.unwrap();
            (media, String::from_utf8(bytes.to_vec()).unwrap())
        };
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.2";
        let (media, text) = page(prometheus).await;
        assert!(media.starts_with(OPEN_METRICS) && text.ends_with("# EOF\n"), "{media}");
        let (media, text) = page("*/*").await;
        assert!(media.starts_with("text/plain") && !text.contains("EOF"), "{media}");
    }

    #[tokio::test]
    async fn protected_routes_accept_each_of_the_secrets() {
        let tokens = [AdminToken::of(b"root"), AdminToken::of(b"cluster")];
        let operator = Arc::new(Operator::new(tokens.to_vec()));
        for token in tokens.map(AdminToken::to_text) {
            let early = status_of(&operator, "/secret", Some(&token)).await;
            assert_eq!(early, StatusCode::SERVICE_UNAVAILABLE);
        }
        open(&operator);
        for token in tokens.map(AdminToken::to_text) {
            assert_eq!(status_of(&operator, "/secret", Some(&token)).await, StatusCode::OK);
            assert_eq!(status_of(&operator, DOCUMENT, Some(&token)).await, StatusCode::OK);
            assert_eq!(status_of(&operator, "/nowhere", Some(&token)).await, StatusCode::NOT_FOUND);
        }
        let root = AdminToken::of(b"root").to_text();
        assert_eq!(status_of(&operator, SETTINGS, Some(&root)).await, StatusCode::OK);
        assert_eq!(status_of(&operator, SETTINGS, None).await, StatusCode::UNAUTHORIZED);
        let other = AdminToken::of(b"other").to_text();
        for token in [None, Some("root"), Some(other.as_str())] {
            assert_eq!(status_of(&operator, DOCUMENT, token).await, StatusCode::UNAUTHORIZED);
            assert_eq!(status_of(&operator, "/secret", token).await, StatusCode::UNAUTHORIZED);
            assert_eq!(status_of(&operator, "/nowhere", token).await, StatusCode::UNAUTHORIZED);
        }
    }

    #[tokio::test]
    async fn the_service_manager_is_notified_of_start_readiness_and_end() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("notify");
        let socket = tokio::net::UnixDatagram::bind(&path).unwrap();
        let received = async || {
            let mut bytes = [0; 4096];
            let count = socket.recv(&mut bytes).await.unwrap();
            String::from_utf8(bytes[..count].to_vec()).unwrap()
        };
        let manager = ServiceManager::at(Some(path.as_os_str()));
        let operator = Arc::new(Operator::under(manager, Vec::new()));
        let common = CommonSettings::default();
        let port = bind("127.0.0.1:0".parse().unwrap(), &common).await.unwrap();
        let answering = operator.clone().serve(port, &common);
        assert_eq!(received().await, "STATUS=not ready; the process is starting");
        open(&operator);
        assert_eq!(received().await, "READY=1");
        assert_eq!(received().await, "STATUS=ready");
        operator.drain();
        assert_eq!(received().await, "STOPPING=1\nSTATUS=stopping");
        answering.end().await;
    }

    #[test]
    fn readiness_is_one_line_with_all_reasons() {
        let reasons = vec!["d1 is full".to_owned(), "d2 is suspect".to_owned()];
        let bad = Readiness { ready: false, reasons };
        assert_eq!(bad.to_line(), "not ready; d1 is full; d2 is suspect");
        assert_eq!(Readiness { ready: true, reasons: Vec::new() }.to_line(), "ready");
    }

    #[test]
    fn ready_is_an_open_process_that_serves() {
        let serves = || RoleCondition { serves: true, reasons: vec!["a scratch".into()] };
        let fails = || RoleCondition { serves: false, reasons: vec!["a wound".into()] };
        assert!(!readiness(ProcessStage::Opening, serves()).ready);
        assert!(!readiness(ProcessStage::Draining, serves()).ready);
        assert!(!readiness(ProcessStage::Open, fails()).ready);
        let open = readiness(ProcessStage::Open, serves());
        assert_eq!(open, Readiness { ready: true, reasons: vec!["a scratch".into()] });
    }
}

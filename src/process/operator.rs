//! The admin address: health and metrics for anyone who can reach it, the rest for those who know
//! a secret of the process.
//!
//! It answers from the start. What a role has to tell comes later, with [`Operator::open`]; until
//! then everything but health is "not yet".

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use hyper_util::service::TowerToHyperService;
use martlet_s3compat::Proven;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tower::ServiceExt;

use super::listen::{self, Bounds, HEAD_BYTES_MAX, Limits};
use super::metrics::Metrics;
use super::settings::Common;
use super::token::AdminToken;
use crate::admin::wire::Refusal;
use crate::failure::Failure;

/// Operators, and whatever scrapes metrics. Whoever has no token leaves some to those who have one.
const PLACES: Bounds = Bounds { all: 64, keyless: 48, keyless_per_address: 32 };
/// The most that operators may take for the head of a request.
const HEADER_TIMEOUT_MAX: Duration = Duration::from_secs(10);
/// How long operators may take to finish what they asked for: scrapers ask again.
const FAREWELL: Duration = Duration::from_secs(1);
const NOT_YET: &str = "it is starting: ask again in a moment";

/// How a role is, apart from whether it starts or stops.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Condition {
    /// Whether it can do its work.
    pub(crate) serves: bool,
    /// What is wrong, also if it does not keep it from serving.
    pub(crate) reasons: Vec<String>,
}

/// A role that can be asked how it is.
#[async_trait]
pub(crate) trait Health: Send + Sync {
    /// How it is now.
    async fn condition(&self) -> Condition;
}

/// What the admin address can ask, once the process is open.
pub(crate) struct Parts {
    pub(crate) health: Arc<dyn Health>,
    pub(crate) metrics: Metrics,
    /// What only holders of a secret may ask.
    pub(crate) routes: Router,
}

/// What the admin address knows.
pub(crate) struct Operator {
    tokens: Vec<AdminToken>,
    parts: OnceLock<Parts>,
    stage: Mutex<Stage>,
    address: OnceLock<SocketAddr>,
}

/// How far the process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Opening,
    Open,
    Draining,
}

/// Whether the process should be sent requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Readiness {
    pub(crate) ready: bool,
    pub(crate) reasons: Vec<String>,
}

type Shared = State<Arc<Operator>>;

impl Operator {
    /// Before anything is open.
    pub(crate) fn new(tokens: Vec<AdminToken>) -> Self {
        let (parts, address) = (OnceLock::new(), OnceLock::new());
        Self { tokens, parts, stage: Mutex::new(Stage::Opening), address }
    }

    /// Where it answers, once it does.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.address.get().copied()
    }

    /// From now on the process serves.
    pub(crate) fn open(&self, parts: Parts) {
        if self.parts.set(parts).is_ok() {
            *self.stage.lock() = Stage::Open;
        }
    }

    /// From now on it only finishes what it has begun.
    pub(crate) fn drain(&self) {
        *self.stage.lock() = Stage::Draining;
    }

    /// Whether the process should be sent requests, and what is wrong with it.
    pub(crate) async fn readiness(&self) -> Readiness {
        let stage = *self.stage.lock();
        let condition = match self.parts.get() {
            Some(parts) => parts.health.condition().await,
            None => Condition::default(),
        };
        readiness(stage, condition)
    }

    /// All that answers at the admin address.
    pub(crate) fn router(self: Arc<Self>) -> Router {
        let protected = Router::new()
            .fallback(protected)
            .layer(middleware::from_fn_with_state(self.clone(), require_token))
            .with_state(self.clone());
        Router::new()
            .route("/healthz", get(|| async { "ok\n" }))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics))
            .with_state(self)
            .fallback_service(protected)
    }

    /// Serves operators until the returned [`Serving`] is ended.
    pub(crate) fn serve(self: Arc<Self>, listener: TcpListener, common: &Common) -> Serving {
        let limits = Limits {
            places: PLACES,
            header_timeout: common.header_timeout.min(HEADER_TIMEOUT_MAX),
            write_idle: common.body_idle_timeout,
            head_bytes: HEAD_BYTES_MAX,
        };
        if let Ok(address) = listener.local_addr() {
            // It is served once.
            let _ = self.address.set(address);
        }
        let (stop, stopped) = watch::channel(false);
        let service = TowerToHyperService::new(self.router());
        let task = tokio::spawn(listen::serve(listener, service, limits, stopped, FAREWELL));
        Serving { stop, task }
    }
}

/// The admin address while it answers.
pub(crate) struct Serving {
    stop: watch::Sender<bool>,
    task: JoinHandle<bool>,
}

impl Serving {
    /// Answers nobody any more.
    pub(crate) async fn end(self) {
        self.stop.send_replace(true);
        let _ = self.task.await;
    }
}

/// Binds the admin address and says where it is.
pub(crate) async fn bind(address: SocketAddr) -> Result<TcpListener, Failure> {
    let listener = listen::bind(address, "--admin-address").await?;
    let address = listen::address_of(&listener)?;
    tracing::info!(%address, "operators connect here: /healthz, /readyz, /metrics");
    Ok(listener)
}

/// Reasons are also given for what is wrong and does not keep it from serving.
fn readiness(stage: Stage, condition: Condition) -> Readiness {
    let mut reasons = match stage {
        Stage::Opening => vec!["it is starting".to_owned()],
        Stage::Draining => vec!["it is stopping".to_owned()],
        Stage::Open => Vec::new(),
    };
    reasons.extend(condition.reasons);
    Readiness { ready: stage == Stage::Open && condition.serves, reasons }
}

async fn readyz(State(operator): Shared) -> Response {
    let readiness = operator.readiness().await;
    let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(readiness)).into_response()
}

async fn metrics(State(operator): Shared) -> Response {
    let Some(parts) = operator.parts.get() else {
        return refuse(StatusCode::SERVICE_UNAVAILABLE, NOT_YET);
    };
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], parts.metrics.text()).into_response()
}

async fn require_token(State(operator): Shared, request: Request, next: Next) -> Response {
    let given = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = given.and_then(|value| value.strip_prefix("Bearer "));
    if token.is_some_and(|token| operator.tokens.iter().any(|other| other.is(token))) {
        if let Some(proven) = request.extensions().get::<Proven>() {
            proven.set();
        }
        return next.run(request).await;
    }
    refuse(StatusCode::UNAUTHORIZED, "this needs the token of a secret: use martlet admin")
}

async fn protected(State(operator): Shared, request: Request) -> Response {
    match operator.parts.get() {
        Some(parts) => match parts.routes.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        },
        None => refuse(StatusCode::SERVICE_UNAVAILABLE, NOT_YET),
    }
}

/// An answer that says why there is none.
pub(crate) fn refuse(status: StatusCode, sentence: &str) -> Response {
    (status, Json(Refusal { error: sentence.to_owned() })).into_response()
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    struct Well;

    #[async_trait]
    impl Health for Well {
        async fn condition(&self) -> Condition {
            Condition { serves: true, reasons: Vec::new() }
        }
    }

    async fn ask(operator: &Arc<Operator>, path: &str, token: Option<&str>) -> StatusCode {
        let mut request = Request::get(path);
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(Body::empty()).unwrap();
        operator.clone().router().oneshot(request).await.unwrap().status()
    }

    fn open(operator: &Operator) {
        let routes = Router::new().route("/secret", get(|| async { "told" }));
        operator.open(Parts { health: Arc::new(Well), metrics: Metrics::default(), routes });
    }

    #[tokio::test]
    async fn it_is_alive_at_once_and_ready_when_it_is_open_and_serves() {
        let operator = Arc::new(Operator::new(Vec::new()));
        assert_eq!(ask(&operator, "/healthz", None).await, StatusCode::OK);
        assert_eq!(ask(&operator, "/readyz", None).await, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(ask(&operator, "/metrics", None).await, StatusCode::SERVICE_UNAVAILABLE);
        open(&operator);
        assert_eq!(ask(&operator, "/readyz", None).await, StatusCode::OK);
        assert_eq!(ask(&operator, "/metrics", None).await, StatusCode::OK);
        operator.drain();
        assert_eq!(ask(&operator, "/readyz", None).await, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(ask(&operator, "/healthz", None).await, StatusCode::OK);
    }

    #[tokio::test]
    async fn what_is_protected_is_told_to_holders_of_any_of_the_secrets() {
        let tokens = [AdminToken::of(b"root"), AdminToken::of(b"cluster")];
        let operator = Arc::new(Operator::new(tokens.to_vec()));
        for token in tokens.map(AdminToken::to_text) {
            let early = ask(&operator, "/secret", Some(&token)).await;
            assert_eq!(early, StatusCode::SERVICE_UNAVAILABLE);
        }
        open(&operator);
        for token in tokens.map(AdminToken::to_text) {
            assert_eq!(ask(&operator, "/secret", Some(&token)).await, StatusCode::OK);
            assert_eq!(ask(&operator, "/nowhere", Some(&token)).await, StatusCode::NOT_FOUND);
        }
        let other = AdminToken::of(b"other").to_text();
        for token in [None, Some("root"), Some(other.as_str())] {
            assert_eq!(ask(&operator, "/secret", token).await, StatusCode::UNAUTHORIZED);
            assert_eq!(ask(&operator, "/nowhere", token).await, StatusCode::UNAUTHORIZED);
        }
    }

    #[test]
    fn ready_is_an_open_process_that_serves() {
        let serves = || Condition { serves: true, reasons: vec!["a scratch".into()] };
        let fails = || Condition { serves: false, reasons: vec!["a wound".into()] };
        assert!(!readiness(Stage::Opening, serves()).ready);
        assert!(!readiness(Stage::Draining, serves()).ready);
        assert!(!readiness(Stage::Open, fails()).ready);
        let open = readiness(Stage::Open, serves());
        assert_eq!(open, Readiness { ready: true, reasons: vec!["a scratch".into()] });
    }
}

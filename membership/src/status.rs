//! Status of a member for operators: its own report, and its view of the cluster.

use std::sync::{Arc, Weak};

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use futures::FutureExt;
use futures::future::BoxFuture;
use martlet_admin_api::forecast::{Capacity, RingSpread};
use martlet_admin_api::{
    self as wire, DeviceLine, FinalizeReply, MemoryLine, ProcessReport, ProcessWorkers,
    ServerStatus, WorkerLine,
};
use martlet_serving::access::RouteAccess;
use martlet_serving::api::{ApiDoc, ApiMethod, ApiRoutes};
use martlet_serving::operator::{Operator, Readiness, refuse};

use super::Member;
use super::finalize::{collecting_under_a_hold, release_line};
use super::report::ReportSource;
use super::view::ClusterView;

/// Source of the status lines of open devices.
pub type DeviceLineSource = Arc<dyn Fn() -> BoxFuture<'static, Vec<DeviceLine>> + Send + Sync>;

/// Source of the status lines of workers.
pub type WorkerLineSource = Arc<dyn Fn() -> Vec<WorkerLine> + Send + Sync>;

/// Source of sentences about processes that collect under a hold, one for each.
pub type HoldObstacles = Arc<dyn Fn() -> BoxFuture<'static, Vec<String>> + Send + Sync>;

/// Source of a member's report and of its admin routes.
#[derive(Clone)]
pub struct StatusSource {
    role: Arc<str>,
    operator: Weak<Operator>,
    member: Arc<Member>,
    devices: Option<DeviceLineSource>,
    workers: Option<WorkerLineSource>,
    memory: Option<MemoryLine>,
}

impl StatusSource {
    /// Makes a source without devices and workers. `role` is the member's role and name.
    pub fn new(role: &str, operator: &Arc<Operator>, member: &Arc<Member>) -> Self {
        let operator = Arc::downgrade(operator);
        let (role, member) = (role.into(), member.clone());
        Self { role, operator, member, devices: None, workers: None, memory: None }
    }

    /// Adds the member's devices.
    #[must_use]
    pub fn with_devices(mut self, devices: DeviceLineSource) -> Self {
        self.devices = Some(devices);
        self
    }

    /// Adds the split of the memory that the member takes for its devices.
    #[must_use]
    pub fn with_memory(mut self, memory: MemoryLine) -> Self {
        self.memory = Some(memory);
        self
    }

    /// Adds the member's workers.
    #[must_use]
    pub fn with_workers(mut self, workers: WorkerLineSource) -> Self {
        self.workers = Some(workers);
        self
    }

    /// Returns the source of this process's report.
    pub fn report_source(&self) -> ReportSource {
        let source = self.clone();
        Arc::new(move || {
            let source = source.clone();
            async move { source.report().await }.boxed()
        })
    }

    /// Returns the source of sentences about processes that collect under a hold. Each call collects
    /// the reports anew.
    pub fn hold_obstacles(&self) -> HoldObstacles {
        let source = self.clone();
        Arc::new(move || {
            let source = source.clone();
            async move {
                let own = source.report().await;
                collecting_under_a_hold(&source.member.fresh_view(&own).await)
            }
            .boxed()
        })
    }

    /// Returns the routes of `martlet admin` for status, workers, capacity, dispersion and
    /// finalization.
    pub fn routes(self) -> ApiRoutes {
        let of_cluster =
            ApiDoc::reply::<ServerStatus>(RouteAccess::Read, "Show the status of the cluster");
        let of_workers = ApiDoc::reply::<Vec<ProcessWorkers>>(
            RouteAccess::Read,
            "List the workers of all processes",
        );
        let forecast =
            ApiDoc::reply::<Capacity>(RouteAccess::Read, "Forecast the fullness of all devices");
        let spread = ApiDoc::reply::<Vec<RingSpread>>(
            RouteAccess::Read,
            "Show balance and dispersion of the rings",
        );
        let finalized = ApiDoc::reply::<FinalizeReply>(
            RouteAccess::Operate,
            "Raise the format level of the cluster",
        );
        ApiRoutes::new()
            .get(wire::STATUS, of_cluster, status)
            .get(wire::WORKERS, of_workers, workers)
            .get(wire::CAPACITY, forecast, capacity)
            .get(wire::DISPERSION, spread, dispersion)
            .on(ApiMethod::Post, wire::FINALIZE, finalized, finalize)
            .with_state(self)
    }

    /// Makes this process's report.
    async fn report(&self) -> ProcessReport {
        let (readiness, admin_address) = match self.operator.upgrade() {
            Some(operator) => (operator.readiness().await, operator.address()),
            None => {
                (Readiness { ready: false, reasons: vec!["the process is stopping".into()] }, None)
            }
        };
        let devices = match &self.devices {
            Some(lines) => lines().await,
            None => Vec::new(),
        };
        ProcessReport {
            admin_address,
            ready: readiness.ready,
            reasons: readiness.reasons,
            devices,
            rings: self.member.ring_lines(),
            release: Some(release_line(self.member.level.tag().release())),
            workers: self.workers.as_ref().map(|lines| lines()).unwrap_or_default(),
            clock_ahead_ms: self.member.clock.own_ahead_ms(),
            memory: self.memory,
            ..ProcessReport::of(&*self.role)
        }
    }

    /// Returns this process's report of now, and the view that requests share.
    async fn cluster_view(&self) -> (ProcessReport, ClusterView) {
        let own = self.report().await;
        let view = self.member.shared_view(&own).await;
        (own, view)
    }
}

async fn status(State(source): State<StatusSource>) -> Response {
    if source.operator.strong_count() == 0 {
        return refuse(StatusCode::SERVICE_UNAVAILABLE, "the process is stopping");
    }
    let (own, view) = source.cluster_view().await;
    let (moves, keeper) = (source.member.moves(&view), &source.member.keeper);
    let ClusterView { nodes, members } = view;
    let term = keeper.term().0;
    let waiting_epoch = keeper.waiting().map(|ring| ring.epoch());
    let ring_overtaken = keeper.is_overtaken();
    Json(ServerStatus { own, nodes, members, term, waiting_epoch, ring_overtaken, moves })
        .into_response()
}

async fn finalize(State(source): State<StatusSource>) -> Response {
    let own = source.report().await;
    match source.member.finalize(&own).await {
        Ok(reply) => Json(reply).into_response(),
        Err(obstacles) => refuse(StatusCode::CONFLICT, &obstacles.join("; ")),
    }
}

async fn workers(State(source): State<StatusSource>) -> Response {
    Json(source.cluster_view().await.1.workers()).into_response()
}

async fn capacity(State(source): State<StatusSource>) -> Response {
    let (_, view) = source.cluster_view().await;
    // Counting the partitions of large rings takes long.
    let counted = tokio::task::spawn_blocking(move || source.member.capacity(&view)).await;
    counted.map_or_else(|_| failed(), |capacity| Json(capacity).into_response())
}

async fn dispersion(State(source): State<StatusSource>) -> Response {
    let counted = tokio::task::spawn_blocking(move || source.member.spread()).await;
    counted.map_or_else(|_| failed(), |spread| Json(spread).into_response())
}

fn failed() -> Response {
    refuse(StatusCode::INTERNAL_SERVER_ERROR, "the count failed: see the log of the process")
}

//! Admin API of jobs: long work that runs as tasks of this process.
//!
//! * [`table`]: start, history and cancellation.
//! * [`census`], [`count`], [`rewrite`], [`rewrap`], [`accept_loss`], [`rebuild`], [`ring_push`]: the work.
//! * [`census_pace`], [`rebuild_pace`]: estimates of their ends.

mod accept_loss;
mod census;
mod census_pace;
mod count;
mod rebuild;
mod rebuild_pace;
mod rewrap;
mod rewrite;
mod ring_push;
mod table;

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use martlet_admin_api::accounts::ListPage;
use martlet_admin_api::jobs::{self as wire, JobLine, JobRequest, RebuildRequest};
use martlet_admin_api::ring_push::RingFile;
use martlet_membership::Member;
use martlet_protocol::{Clock, DeviceId};
use martlet_proxy::{ClientsWait, ObjectStore, RewrapOptions, RewriteOptions};
use martlet_replicator::{CensusOptions, Foreground, WorkerPace};
use martlet_serving::access::RouteAccess;
use martlet_serving::api::{ApiDoc, ApiRoutes};
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::sync::Semaphore;

use self::accept_loss::AcceptWork;
use self::census::CensusWork;
use self::census_pace::PastCensus;
use self::count::CountWork;
use self::rebuild::RebuildWork;
use self::rewrap::RewrapWork;
use self::rewrite::RewriteWork;
use self::ring_push::RingPushWork;
use self::table::{JobWork, Jobs};
use crate::api::{ApiError, ApiResult, read};
pub use crate::index::HoldObstacles;
use crate::index::{self, RebuildState};

/// Minimum rate of a rewrite. A slower rewrite would exceed the nodes' timeout for idle bodies.
const RATE_BYTES_PER_S_MIN: u64 = 1024 * 1024;
/// Maximum pause of a census between two pages.
const PAUSE_MAX: Duration = Duration::from_mins(1);

/// Cluster of a process. A process on its own pushes no rings, and asks no other about holds.
pub struct JobsCluster {
    /// Member that sends rings.
    pub member: Arc<Member>,
    /// Source of a sentence for each process that would collect under a hold.
    pub obstacles: HoldObstacles,
}

/// Routes of `martlet admin job` and `martlet admin index`. `foreground` measures the latency of
/// clients' requests.
pub fn routes(
    store: ObjectStore,
    foreground: Arc<Foreground>,
    clock: Arc<dyn Clock>,
    cluster: Option<JobsCluster>,
) -> ApiRoutes {
    let (member, obstacles) = cluster.map(|of| (of.member, of.obstacles)).unzip();
    let rebuilds = Arc::new(RebuildState::new(obstacles));
    let of_index = index::routes(store.clone(), rebuilds.clone(), clock.clone());
    let list = ApiDoc::reply::<ListPage<JobLine>>(
        RouteAccess::Read,
        "List running jobs and the last ended ones",
    );
    let start = ApiDoc::reply::<JobLine>(
        RouteAccess::Operate,
        "Start a job, or return the one that is running",
    );
    let show =
        ApiDoc::reply::<JobLine>(RouteAccess::Read, "Show state, progress and outcome of a job");
    let cancel = ApiDoc::reply::<JobLine>(RouteAccess::Operate, "Cancel a job");
    ApiRoutes::new()
        .get(wire::JOBS, list, self::list)
        .post(
            wire::JOBS,
            start.body::<JobRequest>().body_bytes_max(wire::JOB_REQUEST_BYTES_MAX),
            self::start,
        )
        .get(wire::JOB, show.query::<JobQuery>(), self::show)
        .delete(wire::JOB, cancel.query::<JobQuery>(), self::cancel)
        .with_state(JobsApi {
            store,
            foreground,
            member,
            jobs: Arc::new(Jobs::new(clock.clone())),
            reading: Arc::new(Semaphore::new(1)),
            past_census: Arc::default(),
            rebuilds,
            clock,
        })
        .merge(of_index)
}

#[derive(Clone)]
struct JobsApi {
    store: ObjectStore,
    foreground: Arc<Foreground>,
    member: Option<Arc<Member>>,
    jobs: Arc<Jobs>,
    /// Permit to read the rings of a request.
    reading: Arc<Semaphore>,
    /// Last complete census of this process.
    past_census: Arc<Mutex<Option<PastCensus>>>,
    rebuilds: Arc<RebuildState>,
    clock: Arc<dyn Clock>,
}

#[derive(Deserialize, JsonSchema)]
struct JobQuery {
    /// Id of the job.
    id: String,
}

async fn list(State(api): State<JobsApi>) -> Json<ListPage<JobLine>> {
    Json(ListPage { items: api.jobs.list(), next: None })
}

async fn start(State(api): State<JobsApi>, body: Bytes) -> ApiResult {
    let work: Arc<dyn JobWork> = match read(&body)? {
        JobRequest::Census { pause_ms } => Arc::new(api.census(pause_ms)?),
        JobRequest::Rewrite { bucket, bytes_per_s } => {
            Arc::new(api.rewrite(&bucket, bytes_per_s).await?)
        }
        JobRequest::BucketCount { bucket } => {
            // A misspelt name is refused at once.
            api.store.bucket(&bucket).await?;
            Arc::new(CountWork::new(api.store.clone(), bucket))
        }
        JobRequest::Rewrap { bucket, versions_per_s } => {
            Arc::new(api.rewrap(&bucket, versions_per_s).await?)
        }
        JobRequest::IndexAcceptLoss { devices } => {
            api.rebuilds.check_obstacles().await?;
            let devices = devices.into_iter().map(DeviceId).collect();
            Arc::new(AcceptWork::new(api.store.topology().clone(), api.clock.clone(), devices))
        }
        JobRequest::IndexRebuild(request) => Arc::new(api.rebuild(request).await?),
        JobRequest::RingPush { rings } => Arc::new(api.ring_push(rings).await?),
    };
    Ok(Json(api.jobs.start(work)?).into_response())
}

async fn show(State(api): State<JobsApi>, Query(JobQuery { id }): Query<JobQuery>) -> ApiResult {
    Ok(Json(api.jobs.get(&id)?).into_response())
}

async fn cancel(State(api): State<JobsApi>, Query(JobQuery { id }): Query<JobQuery>) -> ApiResult {
    Ok(Json(api.jobs.cancel(&id)?).into_response())
}

impl JobsApi {
    fn census(&self, pause_ms: Option<u64>) -> Result<CensusWork, ApiError> {
        let mut options = CensusOptions::default();
        if let Some(pause_ms) = pause_ms {
            options.pause = Duration::from_millis(pause_ms);
        }
        if options.pause > PAUSE_MAX {
            return Err(ApiError::bad("pause_ms must be at most 60000"));
        }
        Ok(CensusWork::new(self.store.topology().clone(), options, self.past_census.clone()))
    }

    async fn ring_push(&self, files: Vec<RingFile>) -> Result<RingPushWork, ApiError> {
        let member = self.member.clone().ok_or_else(|| {
            ApiError::bad("this server is no cluster and has no rings: push to a proxy")
        })?;
        // The rings of one request at a time are in memory, several times.
        let Ok(_reading) = self.reading.try_acquire() else {
            let sentence = "other rings are being read: push these afterwards";
            return Err(ApiError(StatusCode::CONFLICT, sentence.to_owned()));
        };
        // Large rings take a while to decode.
        let reading = tokio::task::spawn_blocking(move || RingPushWork::new(member, &files));
        reading.await.map_err(|_| {
            let sentence = "the rings can't be read: see the log of the process";
            ApiError(StatusCode::INTERNAL_SERVER_ERROR, sentence.to_owned())
        })?
    }

    async fn rewrite(&self, bucket: &str, rate: Option<u64>) -> Result<RewriteWork, ApiError> {
        if rate.is_some_and(|rate| rate < RATE_BYTES_PER_S_MIN) {
            return Err(ApiError::bad("the rate must be at least 1MiB per second"));
        }
        // A misspelt name is refused at once.
        self.store.bucket(bucket).await?;
        let options = RewriteOptions { bytes_per_s: rate, clients_wait: Some(self.clients_wait()) };
        Ok(RewriteWork::new(self.store.clone(), bucket, options))
    }

    async fn rewrap(&self, bucket: &str, rate: Option<u32>) -> Result<RewrapWork, ApiError> {
        if rate == Some(0) {
            return Err(ApiError::bad("the rate must be at least 1 version per second"));
        }
        if !self.store.data_keys().can_wrap() {
            let sentence = "this process has no master key to wrap data keys with";
            return Err(ApiError(StatusCode::CONFLICT, sentence.to_owned()));
        }
        // A misspelt name is refused at once.
        self.store.bucket(bucket).await?;
        let clients_wait = Some(self.clients_wait());
        let options = RewrapOptions { versions_per_s: rate, clients_wait };
        Ok(RewrapWork::new(self.store.clone(), bucket, options))
    }

    async fn rebuild(&self, request: RebuildRequest) -> Result<RebuildWork, ApiError> {
        if let Some(bucket) = &request.bucket {
            self.store.bucket(bucket).await?;
        }
        let partitions = 1_u64 << self.store.topology().cluster().index().part_power();
        if request.partition.is_some_and(|number| u64::from(number) >= partitions) {
            return Err(ApiError::bad(format!("the index ring has {partitions} partitions")));
        }
        let (store, clock) = (self.store.clone(), self.clock.clone());
        Ok(RebuildWork::new(store, clock, request, self.clients_wait(), self.rebuilds.clone()))
    }

    /// Returns true while clients wait longer than their budget.
    fn clients_wait(&self) -> Arc<ClientsWait> {
        let foreground = self.foreground.clone();
        let budget = WorkerPace::default().latency_budget;
        Arc::new(move || foreground.latency() > budget)
    }
}

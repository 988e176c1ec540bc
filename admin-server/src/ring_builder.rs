//! Route that edits, plans and rebalances a ring builder. The process keeps nothing of it.
//!
//! ```text
//! builder, steps ─▶ bounds ─▶ permit ─▶ blocking thread: decode, steps, rehearsal, encode ─▶ reply
//!                    400       503         400, 503
//! ```
//!
//! Invariants:
//! * One computation runs at a time. Another request waits for [`WAIT`], and is refused then.
//! * A computation ends after [`COMPUTE_MAX`], or when its client leaves, before the next step or
//!   assignment of it.
//! * Sentences are those of `martlet ring`: both call [`martlet_ring_steps`].

mod reply;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use martlet_admin_api::ring_builder::{
    BUILDER_DEVICES_MAX, BUILDER_PART_POWER_MAX, BUILDER_REPLICAS_MAX, BUILDER_STEPS_MAX,
    BuilderSource, LostBuilder, PLAN_BYTES_PER_S, PLAN_HIGH_WATER, PlanLine, PlanOptions,
    RING_BUILDER, RING_BUILDER_BYTES_MAX, RingBuilderReply, RingBuilderRequest, RingStep, StepLine,
    StepRefusal,
};
use martlet_protocol::id::random_bytes;
use martlet_protocol::{Clock, DeviceId};
use martlet_ring::{Builder, MovePace, Ring, Usage};
use martlet_ring_steps::{self as steps, PlanOccasion};
use martlet_serving::Failure;
use martlet_serving::access::{Principal, RouteAccess};
use martlet_serving::api::{ApiDoc, ApiRoutes};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::api::read;

/// Longest wait for the end of another computation.
const WAIT: Duration = Duration::from_secs(3);
/// `Retry-After` of a refused request, in seconds.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("5");
/// Longest computation. One assignment of the largest builder takes a few seconds.
const COMPUTE_MAX: Duration = Duration::from_mins(1);
/// Author of steps whose principal is the holder of a secret's token.
const ROOT: &str = "root";
/// Positions of part power and replicas in the head of a ring file.
const RING_SHAPE: std::ops::Range<usize> = 88..90;

/// Returns the route.
pub fn routes(clock: Arc<dyn Clock>) -> ApiRoutes {
    let summary = "Edit, plan and rebalance a ring builder of the request; nothing is stored";
    let doc = ApiDoc::reply::<RingBuilderReply>(RouteAccess::Operate, summary)
        .body::<RingBuilderRequest>()
        .body_bytes_max(RING_BUILDER_BYTES_MAX)
        .computes();
    let api = RingBuilderApi { clock, turn: Arc::new(Semaphore::new(1)) };
    ApiRoutes::new().post(RING_BUILDER, doc, compute).with_state(api)
}

#[derive(Clone)]
struct RingBuilderApi {
    clock: Arc<dyn Clock>,
    /// Permit to compute.
    turn: Arc<Semaphore>,
}

/// Reason of a refusal.
#[derive(Debug)]
struct Refusal {
    status: StatusCode,
    refusal: StepRefusal,
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self::bad(failure.to_string())
    }
}

impl Refusal {
    fn bad(error: impl Into<String>) -> Self {
        let refusal = StepRefusal { error: error.into(), step: None };
        Self { status: StatusCode::BAD_REQUEST, refusal }
    }

    fn busy(error: &str) -> Self {
        Self { status: StatusCode::SERVICE_UNAVAILABLE, ..Self::bad(error) }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut reply = (self.status, Json(self.refusal)).into_response();
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            reply.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        reply
    }
}

/// Ends a computation when the request for it is dropped.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

async fn compute(
    State(api): State<RingBuilderApi>,
    Extension(principal): Extension<Principal>,
    body: Bytes,
) -> Response {
    match api.compute(author(&principal), body).await {
        Ok(reply) => reply,
        Err(refusal) => refusal.into_response(),
    }
}

impl RingBuilderApi {
    async fn compute(&self, who: String, body: Bytes) -> Result<Response, Refusal> {
        let Ok(Ok(permit)) = timeout(WAIT, self.turn.clone().acquire_owned()).await else {
            return Err(Refusal::busy(
                "this process computes another ring: try again in a few seconds, or use another \
                 process",
            ));
        };
        let stopped = Arc::new(AtomicBool::new(false));
        let _guard = StopOnDrop(stopped.clone());
        let now_ms = self.clock.now_ms();
        let work = move || {
            let began = Instant::now();
            let goes_on = || !stopped.load(Ordering::Relaxed) && began.elapsed() < COMPUTE_MAX;
            run(&body, permit, Computation { who: &who, now_ms, goes_on: &goes_on })
        };
        tokio::task::spawn_blocking(work).await.map_err(|_| {
            let sentence = "the builder can't be computed: see the log of the process";
            Refusal { status: StatusCode::INTERNAL_SERVER_ERROR, ..Refusal::bad(sentence) }
        })?
    }
}

/// Name of the principal in the builder's history: that of its key, or the id of the key.
fn author(principal: &Principal) -> String {
    let named = principal.name.as_deref().filter(|name| !name.is_empty());
    named.or(principal.key.as_deref()).unwrap_or(ROOT).to_owned()
}

/// Answers a request. `permit` is held until the reply is encoded.
fn run(
    body: &Bytes,
    permit: OwnedSemaphorePermit,
    with: Computation<'_>,
) -> Result<Response, Refusal> {
    let request = read(body).map_err(|error| Refusal::bad(error.1))?;
    let reply = Json(with.reply(request)?).into_response();
    drop(permit);
    Ok(reply)
}

/// Author, time and end of a computation.
#[derive(Clone, Copy)]
struct Computation<'a> {
    who: &'a str,
    now_ms: u64,
    /// Returns false when the computation must end.
    goes_on: &'a dyn Fn() -> bool,
}

impl Computation<'_> {
    fn reply(self, request: RingBuilderRequest) -> Result<RingBuilderReply, Refusal> {
        let RingBuilderRequest { source, steps, plan, rebalance, with_builder, with_ring } =
            request;
        if steps.len() > BUILDER_STEPS_MAX {
            let sentence = format!("a request has at most {BUILDER_STEPS_MAX} steps: send fewer");
            return Err(Refusal::bad(sentence));
        }
        let (mut builder, mut lines) = self.open(source)?;
        for (at, step) in steps.iter().enumerate() {
            let line = self.apply(&mut builder, step).map_err(|refusal| Refusal {
                refusal: StepRefusal { step: Some(at), ..refusal.refusal },
                ..refusal
            })?;
            lines.push(line);
        }
        let planned = if plan.is_some() || rebalance {
            let options = plan.unwrap_or_default();
            let (line, rehearsal) = self.plan(&builder, &options)?;
            if rebalance {
                builder = rehearsal.builder;
                self.record(&mut builder, &rehearsal.done);
                lines.push(rehearsal.done);
            }
            Some(line)
        } else {
            None
        };
        let ring = with_ring.then(|| reply::ring_file(&builder)).transpose()?;
        let text = with_builder.then(|| builder.to_json());
        Ok(RingBuilderReply {
            steps: lines,
            plan: planned,
            builder: text,
            ring,
            ..reply::of(&builder)
        })
    }

    /// Makes the builder of a request, with the line of the step that made it.
    fn open(&self, source: BuilderSource) -> Result<(Builder, Vec<StepLine>), Refusal> {
        let (mut builder, line) = match source {
            BuilderSource::Builder(text) => {
                let builder = Builder::from_json(&text).map_err(Failure::from)?;
                check_size(&builder)?;
                return Ok((builder, Vec::new()));
            }
            BuilderSource::Create(new) => steps::create(&new, random_bytes())?,
            BuilderSource::Reconstruct(lost) => self.reconstruct(&lost)?,
        };
        check_size(&builder)?;
        self.record(&mut builder, &line);
        Ok((builder, vec![line]))
    }

    fn reconstruct(&self, lost: &LostBuilder) -> Result<(Builder, StepLine), Refusal> {
        let bytes = STANDARD
            .decode(&lost.file)
            .map_err(|error| Refusal::bad(format!("the ring file is not in base64: {error}")))?;
        // Two devices take one bit for a replica, so that a small file is a large ring.
        if let Some(&[power, replicas]) = bytes.get(RING_SHAPE) {
            check_shape(power, f64::from(replicas))?;
        }
        let ring = Ring::decode(&bytes).map_err(Failure::from)?;
        Ok(steps::reconstruct(&ring, lost.min_part_hours, lost.overload, self.now_ms)?)
    }

    /// Applies a step, and records it under the name of the principal.
    fn apply(&self, builder: &mut Builder, step: &RingStep) -> Result<StepLine, Refusal> {
        self.check_time()?;
        if let RingStep::Add { devices } = step {
            check_devices(builder.devices().count() + devices.len())?;
        }
        if matches!(step, RingStep::IncreasePartPower) {
            let settings = builder.settings();
            check_shape(settings.part_power.saturating_add(1), settings.replicas)?;
        }
        let line = steps::apply(builder, step)?;
        check_size(builder)?;
        self.record(builder, &line);
        Ok(line)
    }

    fn plan(
        &self,
        builder: &Builder,
        options: &PlanOptions,
    ) -> Result<(PlanLine, steps::Rehearsal), Refusal> {
        let usage: BTreeMap<DeviceId, Usage> = options
            .usage
            .iter()
            .map(|(id, usage)| {
                (DeviceId(*id), Usage { used: usage.used, capacity: usage.capacity })
            })
            .collect();
        let pace = MovePace {
            bytes_per_second: options.bytes_per_s.unwrap_or(PLAN_BYTES_PER_S),
            high_water: options.high_water.unwrap_or(PLAN_HIGH_WATER),
        };
        let (seed, now_ms, goes_on) = (options.seed, self.now_ms, self.goes_on);
        let rehearsal = steps::plan(builder, PlanOccasion { seed, now_ms, goes_on }, &usage, pace)
            .map_err(|failure| self.check_time().err().unwrap_or_else(|| failure.into()))?;
        Ok((reply::plan_line(&rehearsal, !usage.is_empty()), rehearsal))
    }

    fn record(&self, builder: &mut Builder, line: &StepLine) {
        steps::record(builder, self.now_ms, self.who, &line.done);
    }

    fn check_time(&self) -> Result<(), Refusal> {
        if (self.goes_on)() {
            return Ok(());
        }
        Err(Refusal::busy(&format!(
            "the computation took more than {} s: use `martlet ring` on a machine of yours",
            COMPUTE_MAX.as_secs()
        )))
    }
}

fn check_size(builder: &Builder) -> Result<(), Refusal> {
    let settings = builder.settings();
    check_shape(settings.part_power, settings.replicas)?;
    check_devices(builder.devices().count() + builder.removed().count())
}

fn check_shape(part_power: u8, replicas: f64) -> Result<(), Refusal> {
    #[expect(clippy::cast_precision_loss, reason = "a power of two")]
    let most = BUILDER_REPLICAS_MAX as f64;
    let is_small =
        part_power <= BUILDER_PART_POWER_MAX && f64::from(part_power).exp2() * replicas <= most;
    if is_small {
        return Ok(());
    }
    Err(Refusal::bad(format!(
        "2^{part_power} partitions × {replicas} are too many here: at most 2^{BUILDER_PART_POWER_MAX} \
         partitions and {BUILDER_REPLICAS_MAX} replicas in all; use `martlet ring`"
    )))
}

fn check_devices(count: usize) -> Result<(), Refusal> {
    if count <= BUILDER_DEVICES_MAX {
        return Ok(());
    }
    Err(Refusal::bad(format!(
        "{count} devices are too many here, {BUILDER_DEVICES_MAX} at most: use `martlet ring`"
    )))
}

//! The admin address: health and metrics for anyone who can reach it, the rest for those who know
//! the root secret.

use std::sync::{Arc, OnceLock};

use axum::extract::{Query, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use martlet_protocol::backend::{Backend, DeviceHealth, DeviceStatus};
use martlet_protocol::entry::{Body, Object};
use martlet_proxy::{Error, ExtentPlace, ObjectStore};
use martlet_replicator::WorkerStatus;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::credentials::AdminToken;
use super::metrics::{AskWorkers, Metrics};
use crate::admin::wire::{
    self, DeviceLine, ExtentLine, ObjectExtents, Refusal, ServerStatus, WorkerLine,
};

/// What the admin address can ask, once the server is open.
pub(crate) struct Parts {
    pub(crate) store: ObjectStore,
    pub(crate) nodes: Vec<Arc<dyn Backend>>,
    pub(crate) metrics: Metrics,
    pub(crate) workers: AskWorkers,
}

/// What the admin address knows.
pub(crate) struct Operator {
    token: AdminToken,
    parts: OnceLock<Parts>,
    stage: Mutex<Stage>,
}

/// How far the server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Opening,
    Open,
    Draining,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Readiness {
    ready: bool,
    reasons: Vec<String>,
}

type Shared = State<Arc<Operator>>;

impl Operator {
    /// Before anything is open.
    pub(crate) fn new(token: AdminToken) -> Self {
        Self { token, parts: OnceLock::new(), stage: Mutex::new(Stage::Opening) }
    }

    /// From now on the server serves.
    pub(crate) fn open(&self, parts: Parts) {
        if self.parts.set(parts).is_ok() {
            *self.stage.lock() = Stage::Open;
        }
    }

    /// From now on it only finishes what it has begun.
    pub(crate) fn drain(&self) {
        *self.stage.lock() = Stage::Draining;
    }

    /// All that answers at the admin address.
    pub(crate) fn router(self: Arc<Self>) -> Router {
        let protected = Router::new()
            .route(wire::EXTENTS, get(extents))
            .route(wire::STATUS, get(status))
            .route(wire::WORKERS, get(workers))
            .route_layer(middleware::from_fn_with_state(self.clone(), require_token));
        Router::new()
            .route("/healthz", get(|| async { "ok\n" }))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics))
            .merge(protected)
            .with_state(self)
    }

    async fn devices(&self) -> Vec<DeviceStatus> {
        let mut devices = Vec::new();
        for node in self.parts.get().map_or(&[][..], |parts| &parts.nodes) {
            match node.devices().await {
                Ok(those) => devices.extend(those),
                Err(error) => tracing::warn!(%error, "a node does not tell of its devices"),
            }
        }
        devices.sort_by_key(|device| device.device);
        devices
    }

    async fn readiness(&self) -> Readiness {
        let stage = *self.stage.lock();
        readiness(stage, &self.devices().await)
    }
}

/// Whether the server should be sent requests: it is open, and a device serves. Reasons are also
/// given for what is wrong and does not keep it from serving.
fn readiness(stage: Stage, devices: &[DeviceStatus]) -> Readiness {
    let mut reasons = Vec::new();
    match stage {
        Stage::Opening => reasons.push("the devices are being opened".to_owned()),
        Stage::Draining => reasons.push("the server is stopping".to_owned()),
        Stage::Open => {}
    }
    for device in devices {
        let (name, reason) = describe(&device.health);
        if device.health != DeviceHealth::Ready {
            let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
            reasons.push(format!("device {} is {name}{reason}", device.device));
        }
    }
    let serves =
        devices.iter().any(|it| matches!(it.health, DeviceHealth::Ready | DeviceHealth::Full));
    Readiness { ready: stage == Stage::Open && serves, reasons }
}

fn describe(health: &DeviceHealth) -> (&'static str, Option<&str>) {
    match health {
        DeviceHealth::Ready => ("ready", None),
        DeviceHealth::Full => ("full", None),
        DeviceHealth::Suspect(reason) => ("suspect", Some(reason)),
        DeviceHealth::Offline(reason) => ("offline", Some(reason)),
    }
}

async fn readyz(State(operator): Shared) -> Response {
    let readiness = operator.readiness().await;
    let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(readiness)).into_response()
}

async fn metrics(State(operator): Shared) -> Response {
    let Some(parts) = operator.parts.get() else {
        return refuse(StatusCode::SERVICE_UNAVAILABLE, "the devices are being opened");
    };
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], parts.metrics.text()).into_response()
}

async fn require_token(State(operator): Shared, request: Request, next: Next) -> Response {
    let given = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = given.and_then(|value| value.strip_prefix("Bearer "));
    if token.is_some_and(|token| operator.token.is(token)) {
        return next.run(request).await;
    }
    refuse(StatusCode::UNAUTHORIZED, "this needs the token of the root secret: use martlet admin")
}

fn refuse(status: StatusCode, sentence: &str) -> Response {
    (status, Json(Refusal { error: sentence.to_owned() })).into_response()
}

async fn status(State(operator): Shared) -> Json<ServerStatus> {
    let devices = operator.devices().await;
    let Readiness { ready, reasons } = readiness(*operator.stage.lock(), &devices);
    Json(ServerStatus {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ready,
        reasons,
        devices: devices.into_iter().map(device_line).collect(),
    })
}

fn device_line(status: DeviceStatus) -> DeviceLine {
    let (health, reason) = describe(&status.health);
    DeviceLine {
        device: status.device.0,
        health: health.to_owned(),
        reason: reason.map(str::to_owned),
        path: status.path,
        total_bytes: status.total_bytes,
        free_bytes: status.free_bytes,
        extents: status.extents,
        extent_bytes: status.extent_bytes,
        quarantined: status.quarantined,
    }
}

async fn workers(State(operator): Shared) -> Json<Vec<WorkerLine>> {
    let workers = operator.parts.get().map(|parts| (parts.workers)()).unwrap_or_default();
    Json(workers.into_iter().map(worker_line).collect())
}

fn worker_line(status: WorkerStatus) -> WorkerLine {
    let totals = status.totals;
    WorkerLine {
        worker: status.name.to_owned(),
        steps: status.steps,
        failures: status.failures,
        rate: status.rate,
        items: totals.items,
        freed_extents: totals.freed,
        freed_bytes: totals.freed_bytes,
        kept: totals.kept,
        backlog: totals.backlog,
        oldest_age_ms: totals.oldest_age_ms,
        yields: status.yields,
        idle: totals.idle,
        error: status.error,
    }
}

#[derive(Deserialize)]
struct WhichObject {
    bucket: String,
    key: String,
}

async fn extents(State(operator): Shared, Query(which): Query<WhichObject>) -> Response {
    let Some(parts) = operator.parts.get() else {
        return refuse(StatusCode::SERVICE_UNAVAILABLE, "the devices are being opened");
    };
    match parts.store.places(&which.bucket, &which.key).await {
        Ok((object, places)) => Json(object_extents(which, &object, places)).into_response(),
        Err(error @ (Error::NoSuchBucket | Error::NoSuchKey)) => {
            refuse(StatusCode::NOT_FOUND, &error.to_string())
        }
        Err(error) => refuse(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

fn object_extents(which: WhichObject, object: &Object, places: Vec<ExtentPlace>) -> ObjectExtents {
    let stored = match object.body {
        Body::Empty => "empty",
        Body::Inline { .. } => "inline",
        Body::Extents(_) | Body::Spilled { .. } => "extents",
    };
    let line = |place: ExtentPlace| ExtentLine {
        id: place.extent.id.to_string(),
        object_offset: place.object_offset,
        device: place.device.0,
        path: place.location.path,
        offset: place.location.offset,
        length: place.location.length,
        blake3: hex::encode(place.extent.blake3),
    };
    ObjectExtents {
        bucket: which.bucket,
        key: which.key,
        size: object.size,
        etag: object.etag.to_string(),
        stored: stored.to_owned(),
        extents: places.into_iter().map(line).collect(),
    }
}

#[cfg(test)]
mod tests {
    use martlet_protocol::{DeviceId, DeviceIdentity};

    use super::*;

    fn device(id: u32, health: DeviceHealth) -> DeviceStatus {
        DeviceStatus {
            device: DeviceId(id),
            identity: DeviceIdentity([0; 16]),
            voting: true,
            path: "/x".into(),
            health,
            total_bytes: 1,
            free_bytes: 1,
            extent_bytes: 0,
            extents: 0,
            quarantined: 0,
            hints: 0,
        }
    }

    #[test]
    fn ready_is_an_open_server_with_a_device_that_serves() {
        let offline = || device(1, DeviceHealth::Offline("no disk".into()));
        let ready = || device(0, DeviceHealth::Ready);
        assert!(!readiness(Stage::Opening, &[]).ready);
        assert!(!readiness(Stage::Open, &[offline()]).ready);
        assert!(!readiness(Stage::Draining, &[ready()]).ready);
        assert!(readiness(Stage::Open, &[device(0, DeviceHealth::Full)]).ready);
        let some = readiness(Stage::Open, &[ready(), offline()]);
        let reasons = vec!["device d1 is offline: no disk".to_owned()];
        assert_eq!(some, Readiness { ready: true, reasons });
    }
}

//! Admin API of an embedded server: status, capacity and dispersion.

use std::sync::{Arc, Weak};

use async_trait::async_trait;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use martlet_admin_api::forecast::{Capacity, RingSpread};
use martlet_admin_api::{self as wire, DeviceLine, FinalizeReply, ProcessReport, ServerStatus};
use martlet_membership::forecast::capacity::DeviceReport;
use martlet_membership::{forecast, release_line};
use martlet_protocol::backend::DeviceStatus;
use martlet_protocol::release::FORMATS;
use martlet_protocol::{Backend, PolicyId, Release};
use martlet_ring::Ring;
use martlet_serving::access::RouteAccess;
use martlet_serving::api::{ApiDoc, ApiMethod, ApiRoutes};
use martlet_serving::operator::{Health, Operator, Readiness, RoleCondition, refuse};
use martlet_storage_node::{Reserve, StorageNode};

use super::devices::POLICY;
use crate::process::admin_status::{condition, device_lines, worker_lines};
use crate::process::direct::lending_limits;
use crate::process::memory::MemorySplit;
use crate::process::sources::WorkerSource;

/// Backends of all devices, including the missing ones.
#[derive(Clone)]
pub(crate) struct ServerBackends(pub(crate) Vec<Arc<dyn Backend>>);

impl ServerBackends {
    async fn devices(&self) -> Vec<DeviceStatus> {
        let mut devices = Vec::new();
        for node in &self.0 {
            match node.devices().await {
                Ok(those) => devices.extend(those),
                Err(error) => tracing::warn!(%error, "could not get the devices of a node"),
            }
        }
        devices.sort_by_key(|device| device.device);
        devices
    }
}

/// Condition of a server: its devices, and limits of the direct socket.
pub(crate) struct ServerHealth {
    pub(crate) nodes: ServerBackends,
    pub(crate) node: Arc<StorageNode>,
}

#[async_trait]
impl Health for ServerHealth {
    async fn condition(&self) -> RoleCondition {
        let mut condition = condition(&self.nodes.devices().await);
        condition.reasons.extend(lending_limits(&self.node));
        condition
    }
}

/// Source of an embedded server's status.
#[derive(Clone)]
pub(crate) struct ServerStatusSource {
    pub(crate) operator: Weak<Operator>,
    pub(crate) nodes: ServerBackends,
    /// Node with the format level of all devices.
    pub(crate) node: Arc<StorageNode>,
    pub(crate) workers: WorkerSource,
    /// Reserve of each device.
    pub(crate) reserve: Reserve,
    pub(crate) memory: MemorySplit,
    pub(crate) index: Arc<Ring>,
    /// Rings of extents, by the number of their policy, from 0.
    pub(crate) data: Vec<Arc<Ring>>,
}

impl ServerStatusSource {
    /// Returns the routes of `martlet admin` for status, capacity, dispersion and finalization.
    pub(crate) fn routes(self) -> ApiRoutes {
        let of_process =
            ApiDoc::reply::<ServerStatus>(RouteAccess::Read, "Show the status of the process");
        let forecast =
            ApiDoc::reply::<Capacity>(RouteAccess::Read, "Forecast the fullness of all devices");
        let spread = ApiDoc::reply::<Vec<RingSpread>>(
            RouteAccess::Read,
            "Show balance and dispersion of the rings",
        );
        let finalized = ApiDoc::reply::<FinalizeReply>(
            RouteAccess::Operate,
            "Raise the format level of the devices",
        );
        ApiRoutes::new()
            .get(wire::STATUS, of_process, status)
            .get(wire::CAPACITY, forecast, capacity)
            .get(wire::DISPERSION, spread, dispersion)
            .on(ApiMethod::Post, wire::FINALIZE, finalized, finalize)
            .with_state(self)
    }

    async fn devices(&self) -> Vec<DeviceLine> {
        // Devices of a server have no names, only numbers and folders.
        device_lines(self.nodes.devices().await, self.reserve, |_| String::new()).await
    }

    fn rings(&self) -> impl Iterator<Item = (String, &Arc<Ring>)> {
        let name = |ring: &Ring| match ring.identity().policy {
            POLICY => "data".to_owned(),
            PolicyId(number) => format!("data-{number}"),
        };
        let data = self.data.iter().map(move |ring| (name(ring), ring));
        std::iter::once(("index".to_owned(), &self.index)).chain(data)
    }
}

async fn status(State(source): State<ServerStatusSource>) -> Response {
    let Some(operator) = source.operator.upgrade() else {
        return refuse(StatusCode::SERVICE_UNAVAILABLE, "the process is stopping");
    };
    let Readiness { ready, reasons } = operator.readiness().await;
    let own = ProcessReport {
        admin_address: operator.address(),
        ready,
        reasons,
        devices: source.devices().await,
        workers: worker_lines(&source.workers),
        memory: Some(source.memory.line()),
        release: Some(release_line(&Release::own(source.node.format_level()))),
        ..ProcessReport::of("server")
    };
    Json(ServerStatus { own, ..ServerStatus::default() }).into_response()
}

async fn finalize(State(source): State<ServerStatusSource>) -> Response {
    let before = source.node.format_level();
    match source.node.raise_format_level(FORMATS.newest).await {
        Ok(()) => Json(FinalizeReply { level: FORMATS.newest, before }).into_response(),
        Err(error) => {
            let sentence = format!("a device can't be raised: {error}");
            refuse(StatusCode::SERVICE_UNAVAILABLE, &sentence)
        }
    }
}

async fn capacity(State(source): State<ServerStatusSource>) -> Response {
    let devices = source.devices().await.into_iter();
    let reports: Vec<DeviceReport> =
        devices.map(|device| DeviceReport { node: "server".into(), device }).collect();
    Json(forecast::capacity::project(&source.data, &reports, Vec::new())).into_response()
}

async fn dispersion(State(source): State<ServerStatusSource>) -> Response {
    let spread = source.rings().map(|(name, ring)| forecast::spread::of(&name, ring));
    Json(spread.collect::<Vec<_>>()).into_response()
}

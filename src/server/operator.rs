//! What the admin address of an embedded server tells of its devices.

use std::sync::Arc;

use async_trait::async_trait;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use martlet_protocol::Backend;
use martlet_protocol::backend::DeviceStatus;

use crate::admin::wire::{self, ServerStatus};
use crate::process::operator::{Condition, Health, Operator, Readiness, refuse};
use crate::process::tell::{condition, device_line};

/// Who answers for the devices, those that are missing included.
#[derive(Clone)]
pub(crate) struct Nodes(pub(crate) Vec<Arc<dyn Backend>>);

impl Nodes {
    async fn devices(&self) -> Vec<DeviceStatus> {
        let mut devices = Vec::new();
        for node in &self.0 {
            match node.devices().await {
                Ok(those) => devices.extend(those),
                Err(error) => tracing::warn!(%error, "a node does not tell of its devices"),
            }
        }
        devices.sort_by_key(|device| device.device);
        devices
    }
}

#[async_trait]
impl Health for Nodes {
    async fn condition(&self) -> Condition {
        condition(&self.devices().await)
    }
}

/// Where `martlet admin status` finds its answer.
pub(crate) fn status(operator: &Arc<Operator>, nodes: Nodes) -> Router {
    let state = (Arc::downgrade(operator), nodes);
    let answer = move || {
        let (operator, nodes) = state.clone();
        async move {
            let Some(operator) = operator.upgrade() else {
                return refuse(StatusCode::SERVICE_UNAVAILABLE, "it is stopping");
            };
            let Readiness { ready, reasons } = operator.readiness().await;
            let devices = nodes.devices().await.into_iter().map(device_line).collect();
            Json(ServerStatus { ready, reasons, devices, ..ServerStatus::of("server") })
                .into_response()
        }
    };
    Router::new().route(wire::STATUS, get(answer))
}

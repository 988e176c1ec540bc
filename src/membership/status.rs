//! What a member tells operators of the cluster as it sees it.

use std::sync::{Arc, Weak};

use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use futures::future::BoxFuture;
use martlet_protocol::http::RingTags;

use super::Member;
use super::nodes::Node;
use super::routes::line;
use crate::admin::wire::{self, DeviceLine, NodeLine, ServerStatus};
use crate::process::operator::{Operator, Readiness, refuse};

/// Asks for the devices that the process has open.
pub(crate) type AskLines = Arc<dyn Fn() -> BoxFuture<'static, Vec<DeviceLine>> + Send + Sync>;

/// Where `martlet admin status` finds its answer.
pub(crate) fn route(
    role: &str,
    operator: &Arc<Operator>,
    member: &Arc<Member>,
    devices: AskLines,
) -> Router {
    let state = (Arc::downgrade(operator), member.clone(), Arc::<str>::from(role));
    let answer = move || {
        let (state, devices) = (state.clone(), devices.clone());
        async move {
            let (operator, member, role) = state;
            let Some(operator) = Weak::upgrade(&operator) else {
                return refuse(StatusCode::SERVICE_UNAVAILABLE, "it is stopping");
            };
            let Readiness { ready, reasons } = operator.readiness().await;
            let devices = devices().await;
            let status = ServerStatus { ready, reasons, devices, ..member.status(&role) };
            Json(status).into_response()
        }
    };
    Router::new().route(wire::STATUS, get(answer))
}

impl Member {
    /// How the cluster looks from here.
    fn status(&self, role: &str) -> ServerStatus {
        ServerStatus {
            rings: self.keeper.rings().tags().into_iter().map(line).collect(),
            nodes: self.nodes.all().iter().map(|node| self.node_line(node)).collect(),
            clock_ahead_ms: self.clock.own_ahead_ms(),
            ..ServerStatus::of(role)
        }
    }

    fn node_line(&self, node: &Node) -> NodeLine {
        let history = &node.history;
        let heard_ms_ago =
            history.silent_for().map(|it| u64::try_from(it.as_millis()).unwrap_or(u64::MAX));
        let figures = history.figures();
        let rings = history.rings();
        NodeLine {
            name: node.name.clone(),
            address: node.backend.address().to_owned(),
            answers: history.answers(),
            heard_ms_ago,
            replies: figures.replies,
            silences: figures.silences,
            latency_us: figures.latency_us,
            clock_ahead_ms: self.clock.ahead_ms(&node.name),
            rings: rings.iter().flat_map(RingTags::iter).map(line).collect(),
        }
    }
}

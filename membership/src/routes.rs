//! Routes of a storage node besides its backend: rings, introductions and reports.
//!
//! | | |
//! |---|---|
//! | `GET /v1/rings` | tags of the node's rings, as JSON |
//! | `GET /v1/rings/{name}` | a ring, as its file |
//! | `PUT /v1/rings/{name}` | offers a ring; returns as JSON whether it was accepted |
//! | `POST /v1/introduce` | introduces a device of another node; returns the record before as JSON
//! |
//! | `PUT /v1/format-level` | raises the format level; returns as JSON the reason if it stays |
//! | `POST /v1/report` | stores the report of a process |
//! | `GET /v1/status` | own report and those received, as JSON; `?own_only=true`: own report alone |
//!
//! They are added to the backend's routes, under the same authentication.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Extension, Json, Router};
use martlet_admin_api::RingLine;
use martlet_protocol::http::{Peer, RingTag};
use martlet_serving::folder::DataFolder;
use serde::{Deserialize, Serialize};

use super::Member;
use super::format_level::{LevelAnswer, LevelOrder};
use super::keeper::OfferOutcome;
use super::peers::{Introduction, Peers};
use super::report::{REPORT_BYTES_MAX, ReportSource, StatusAnswer};
use super::rings::RingName;

/// Path of the node's rings.
pub const RINGS: &str = "/v1/rings";
/// Path for the introduction of devices.
pub(crate) const INTRODUCE: &str = "/v1/introduce";
/// Path that raises the format level.
pub(crate) const FORMAT_LEVEL: &str = "/v1/format-level";
/// Path for the reports of processes.
pub(crate) const REPORT: &str = "/v1/report";
/// Path of the node's own report and the reports that it has received.
pub const STATUS: &str = "/v1/status";
/// Path of the node's own report alone. Nodes of earlier releases also return what they received.
pub(crate) const OWN_STATUS: &str = "/v1/status?own_only=true";
/// Maximum bytes of a ring. A ring of 2^24 partitions with 8 replicas is smaller.
const RING_BYTES_MAX: usize = 256 << 20;

/// Returns the path of a ring.
pub fn ring(name: RingName) -> String {
    format!("{RINGS}/{name}")
}

/// Reply with the tags of a node's rings.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingsAnswer {
    /// Name of the node.
    pub node: String,
    /// Tags of its rings.
    pub rings: Vec<RingLine>,
}

/// Outcome of an offered ring.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferAnswer {
    /// True if the ring is in use now and was not before.
    pub taken: bool,
    /// True if the ring waits until the ring change before it is over.
    #[serde(default)]
    pub waits: bool,
    /// Reason for the refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// State behind the routes.
#[derive(Clone)]
pub struct Host {
    /// Name of the node.
    pub name: Arc<str>,
    /// The node as a member.
    pub member: Arc<Member>,
    /// Records of devices.
    pub peers: Arc<Peers>,
    /// Data folder of the node.
    pub folder: Arc<DataFolder>,
    /// Source of the node's own report.
    pub report: ReportSource,
}

/// Returns the routes of a node.
pub fn router(host: Host) -> Router {
    Router::new()
        .route(RINGS, get(rings))
        .route("/v1/rings/{name}", get(read_ring).put(offer_ring))
        .route(INTRODUCE, post(introduce))
        .route(FORMAT_LEVEL, put(raise_level))
        .route(REPORT, post(receive_report))
        .route(STATUS, get(status))
        .layer(DefaultBodyLimit::max(RING_BYTES_MAX))
        .with_state(host)
}

/// Formats the tag of a ring.
pub(crate) fn line(tag: RingTag) -> RingLine {
    RingLine { name: tag.name, epoch: tag.epoch, hash: hex::encode(tag.hash) }
}

async fn rings(State(host): State<Host>) -> Json<RingsAnswer> {
    let rings = host.member.keeper.rings().tags().into_iter().map(line).collect();
    Json(RingsAnswer { node: host.name.to_string(), rings })
}

async fn read_ring(State(host): State<Host>, Path(name): Path<String>) -> Response {
    let rings = host.member.keeper.rings();
    match name.parse().ok().and_then(|name| rings.get(name)) {
        Some(ring) => ring.encode().into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn offer_ring(
    State(host): State<Host>,
    Path(name): Path<String>,
    bytes: Bytes,
) -> Json<OfferAnswer> {
    let offered = blocking(move || {
        let name: RingName = name.parse()?;
        let offer = host.member.keeper.offer(name, &bytes)?;
        host.member.nodes.follow(&host.member.keeper.rings());
        Ok(offer)
    });
    Json(match offered.await {
        Ok(offer) => OfferAnswer {
            taken: offer == OfferOutcome::Taken,
            waits: offer == OfferOutcome::Waits,
            refused: None,
        },
        Err(error) => OfferAnswer { taken: false, waits: false, refused: Some(error) },
    })
}

async fn raise_level(State(host): State<Host>, body: Bytes) -> Response {
    let Ok(LevelOrder { level }) = serde_json::from_slice(&body) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let refused = host.member.level.raise(level).await.err();
    Json(LevelAnswer { refused }).into_response()
}

async fn receive_report(
    State(host): State<Host>,
    sender: Option<Extension<Peer>>,
    body: Bytes,
) -> StatusCode {
    let report = serde_json::from_slice(&body).ok().filter(|_| body.len() <= REPORT_BYTES_MAX);
    let Some(report) = report else { return StatusCode::BAD_REQUEST };
    host.member.reports.record(report, sender.map(|Extension(Peer(address))| address));
    StatusCode::OK
}

#[derive(Debug, Default, Deserialize)]
struct StatusQuery {
    #[serde(default)]
    own_only: bool,
}

async fn status(State(host): State<Host>, Query(query): Query<StatusQuery>) -> Json<StatusAnswer> {
    let own = (host.report)().await;
    let heard = if query.own_only { Vec::new() } else { host.member.reports.received() };
    Json(StatusAnswer { own, heard })
}

async fn introduce(State(host): State<Host>, body: Bytes) -> Response {
    let Ok(introduction) = serde_json::from_slice::<Introduction>(&body) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let met = blocking(move || {
        host.peers
            .record_introduction(&host.folder, introduction)
            .map_err(|failure| failure.to_string())
    });
    match met.await {
        Ok(remembered) => Json(remembered).into_response(),
        Err(error) => {
            tracing::error!(error, "could not store an introduced device");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(error) => Err(format!("internal error: {error}")),
    }
}

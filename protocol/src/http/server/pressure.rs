//! Duration of client requests at a node. It is reported in every reply to background work, so that
//! background work yields (see `martlet-replicator`'s `Foreground`).
//!
//! Uploads of extents aren't measured: they last as long as their clients send.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::Method;

use crate::http::announce::put_clients_wait;
use crate::http::request::BACKGROUND;
use crate::latency::Latency;

/// Average duration of client requests. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Pressure(Arc<Latency>);

impl Pressure {
    /// Adds the duration of a client request that succeeded.
    pub(super) fn observe(&self, took: Duration) {
        self.0.observe(took);
    }

    /// Returns the average duration of client requests.
    pub(super) fn get(&self) -> Duration {
        self.0.get()
    }
}

/// Measures a client request; reports the average in replies to background work.
pub(super) async fn measure(
    State(pressure): State<Pressure>,
    request: Request,
    next: Next,
) -> Response {
    if request.headers().contains_key(BACKGROUND) {
        let mut response = next.run(request).await;
        put_clients_wait(response.headers_mut(), pressure.get());
        return response;
    }
    let is_call = request.uri().path().starts_with("/v1/d/") && request.method() != Method::PUT;
    let began = Instant::now();
    let response = next.run(request).await;
    // Refused requests end at once, and would make an overloaded node look idle.
    if is_call && response.status().is_success() {
        pressure.observe(began.elapsed());
    }
    response
}

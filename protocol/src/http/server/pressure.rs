//! How long clients wait at a node, measured of the requests that are made for them and told in every
//! reply to background work, so that it steps back (see `martlet-replicator`'s `Foreground`).
//!
//! Uploads of extents are left out: they last as long as clients take to send.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::Method;

use crate::http::announce::put_clients_wait;
use crate::http::request::BACKGROUND;
use crate::latency::Latency;

/// What requests for clients take. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Pressure(Arc<Latency>);

/// Measures a request for a client; tells background work of those.
pub(super) async fn measure(
    State(pressure): State<Pressure>,
    request: Request,
    next: Next,
) -> Response {
    if request.headers().contains_key(BACKGROUND) {
        let mut response = next.run(request).await;
        put_clients_wait(response.headers_mut(), pressure.0.get());
        return response;
    }
    let is_call = request.uri().path().starts_with("/v1/d/") && request.method() != Method::PUT;
    let began = Instant::now();
    let response = next.run(request).await;
    // One that is refused at once would make a node that has its hands full look idle.
    if is_call && response.status().is_success() {
        pressure.0.observe(began.elapsed());
    }
    response
}

//! The server half: a backend served over HTTP.
//!
//! * [`serve`](mod@serve): connections.
//! * [`guard`]: authentication of requests.
//! * [`flight`]: limits on concurrent requests; [`pressure`]: duration of client requests.
//! * [`calls`]: index calls; [`extents`]: streams; [`body`]: request bodies; [`trailing_hashes`]: hashes behind
//!   the bytes of an extent.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware;
use axum::routing::{get, post, put};

use self::flight::Flight;
use self::pressure::Pressure;
use crate::backend::Backend;

mod body;
mod calls;
mod extents;
mod flight;
mod guard;
mod pressure;
mod serve;
mod trailing_hashes;

pub use guard::guarded;
pub use serve::{ServeOptions, serve};

/// Options of a server.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Most index calls in flight, and also most streams of extents in flight; further requests
    /// receive 503.
    pub in_flight_max: usize,
    /// Timeout of an index call without a deadline header.
    pub call: Duration,
    /// Longest pause within a request body. It exceeds the clients' own timeouts for nodes, because
    /// a proxy's upload may wait for a slow S3 client.
    pub idle: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self { in_flight_max: 1024, call: Duration::from_secs(5), idle: Duration::from_mins(1) }
    }
}

/// State shared by the handlers.
#[derive(Clone)]
struct HandlerState {
    backend: Arc<dyn Backend>,
    options: Arc<ServerOptions>,
}

/// Routes all calls of `backend` under `/v1/`. The router doesn't authenticate: wrap it in
/// [`guarded`].
pub fn router(backend: Arc<dyn Backend>, options: ServerOptions) -> Router {
    let places =
        || middleware::from_fn_with_state(Flight::new(options.in_flight_max), flight::limit);
    let index_calls = Router::new()
        .route("/v1/devices", get(calls::devices))
        .route("/v1/d/{device}/{call}", post(calls::call))
        .layer(places());
    let streams = Router::new()
        .route("/v1/d/{device}/extents/{id}", put(extents::write).get(extents::read))
        .layer(places());
    let served = HandlerState { backend, options: Arc::new(options) };
    index_calls
        .merge(streams)
        .layer(middleware::from_fn_with_state(Pressure::default(), pressure::measure))
        .with_state(served)
}

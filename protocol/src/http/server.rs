//! The server half: a backend for others to call.
//!
//! * [`serve`](mod@serve): connections.
//! * [`guard`]: who may ask.
//! * [`flight`]: how many at a time; [`pressure`]: how long clients wait.
//! * [`calls`]: index calls; [`extents`]: streams; [`taken`]: what comes in.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware;
use axum::routing::{get, post, put};

use self::flight::Flight;
use self::pressure::Pressure;
use crate::backend::Backend;

mod calls;
mod extents;
mod flight;
mod guard;
mod pressure;
mod serve;
mod taken;

pub use guard::guarded;
pub use serve::{ServeOptions, serve};

/// How a server behaves.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Index calls in flight, and as many streams of extents beside them; more are told to come again.
    pub in_flight_max: usize,
    /// How long an index call may take, if its caller doesn't say.
    pub call: Duration,
    /// How long a client may send nothing of a body that it has begun. It is longer than clients
    /// wait for a node: what they send may come from slow clients of their own.
    pub idle: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self { in_flight_max: 1024, call: Duration::from_secs(5), idle: Duration::from_mins(1) }
    }
}

/// What the handlers share.
#[derive(Clone)]
struct Served {
    backend: Arc<dyn Backend>,
    options: Arc<ServerOptions>,
}

/// All of `backend` under `/v1/`. Nothing is checked here: put it under [`guarded`].
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
    let served = Served { backend, options: Arc::new(options) };
    index_calls
        .merge(streams)
        .layer(middleware::from_fn_with_state(Pressure::default(), pressure::measure))
        .with_state(served)
}

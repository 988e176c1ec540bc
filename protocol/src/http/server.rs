//! The server half: a backend served over HTTP.
//!
//! * [`serve`](mod@serve): connections. [`handler`]: options, and the state of handlers.
//! * [`guard`]: authentication of requests.
//! * [`flight`]: limits on concurrent requests; [`pressure`]: duration of client requests.
//! * [`channel`]: many calls on one connection; [`upgrade`]: the request that opens a channel.
//! * [`calls`]: index calls; [`extents`]: streams; [`body`]: request bodies; [`trailing_hashes`]: hashes behind
//!   the bytes of an extent.

use std::sync::Arc;

use axum::Router;
use axum::middleware;
use axum::routing::{get, post, put};

use self::flight::Flight;
use self::handler::HandlerState;
use self::pressure::Pressure;
use super::channel::PATH as CHANNEL_PATH;
use super::spanned_backend::SpannedBackend;
use crate::backend::Backend;

mod body;
mod calls;
mod channel;
mod extents;
mod flight;
mod guard;
mod handler;
mod pressure;
mod serve;
mod trailing_hashes;
mod upgrade;

pub use guard::guarded;
pub use handler::{CallObserver, ServedCall, ServerOptions};
pub use serve::{ServeOptions, serve};

/// Routes all calls of `backend` under `/v1/`. The router doesn't authenticate: wrap it in
/// [`guarded`].
pub fn router(backend: Arc<dyn Backend>, options: ServerOptions) -> Router {
    let permits = Flight::new(options.in_flight_max);
    let places = |of: Flight| middleware::from_fn_with_state(of, flight::limit);
    let index_calls = Router::new()
        .route("/v1/devices", get(calls::devices))
        .route("/v1/d/{device}/{call}", post(calls::call))
        .layer(places(permits.clone()));
    let streams = Router::new()
        .route("/v1/d/{device}/extents/{id}", put(extents::write).get(extents::read))
        .layer(places(Flight::new(options.in_flight_max)));
    let pressure = Pressure::default();
    let backend: Arc<dyn Backend> = match options.spans {
        Some(_) => Arc::new(SpannedBackend::of_node(backend)),
        None => backend,
    };
    let served = HandlerState {
        backend,
        options: Arc::new(options),
        index_calls: permits,
        pressure: pressure.clone(),
    };
    index_calls
        .merge(streams)
        .layer(middleware::from_fn_with_state(pressure, pressure::measure))
        .route(CHANNEL_PATH, get(upgrade::open))
        .with_state(served)
}

//! The server half: a backend served over HTTP.
//!
//! * [`serve`](mod@serve): connections.
//! * [`guard`]: authentication of requests.
//! * [`flight`]: limits on concurrent requests; [`pressure`]: duration of client requests.
//! * [`channel`]: many calls on one connection; [`upgrade`]: the request that opens a channel.
//! * [`calls`]: index calls; [`extents`]: streams; [`body`]: request bodies; [`trailing_hashes`]: hashes behind
//!   the bytes of an extent.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware;
use axum::routing::{get, post, put};
use http::StatusCode;

use self::flight::Flight;
use self::pressure::Pressure;
use super::channel::PATH as CHANNEL_PATH;
use crate::backend::{Backend, CallKind};
use crate::id::DeviceId;

mod body;
mod calls;
mod channel;
mod extents;
mod flight;
mod guard;
mod pressure;
mod serve;
mod trailing_hashes;
mod upgrade;

pub use guard::guarded;
pub use serve::{ServeOptions, serve};

/// A call of a channel that was made for a client's request, after its end.
#[derive(Clone, Copy, Debug)]
pub struct ServedCall {
    /// Device of the call.
    pub device: DeviceId,
    /// Kind of the call.
    pub kind: CallKind,
    /// Status that a reply over HTTP would have.
    pub status: StatusCode,
    /// Time from the arrival of the call to its reply.
    pub took: Duration,
}

/// Receiver of served calls. A server calls the receiver under the id of the client's request.
pub type CallObserver = Arc<dyn Fn(ServedCall) + Send + Sync>;

/// Options of a server.
#[derive(Clone)]
pub struct ServerOptions {
    /// Most index calls in flight, and also most streams of extents in flight; further requests
    /// receive 503.
    pub in_flight_max: usize,
    /// Timeout of an index call without a deadline header.
    pub call: Duration,
    /// Longest pause within a request body. It exceeds the clients' own timeouts for nodes, because
    /// a proxy's upload may wait for a slow S3 client.
    pub idle: Duration,
    /// Receiver of calls of channels that were made for clients' requests.
    pub call_observer: Option<CallObserver>,
}

impl fmt::Debug for ServerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerOptions")
            .field("in_flight_max", &self.in_flight_max)
            .field("call", &self.call)
            .field("idle", &self.idle)
            .finish_non_exhaustive()
    }
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            in_flight_max: 1024,
            call: Duration::from_secs(5),
            idle: Duration::from_mins(1),
            call_observer: None,
        }
    }
}

/// State shared by the handlers.
#[derive(Clone)]
struct HandlerState {
    backend: Arc<dyn Backend>,
    options: Arc<ServerOptions>,
    /// Permits of index calls, over HTTP and by channels.
    index_calls: Flight,
    pressure: Pressure,
}

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

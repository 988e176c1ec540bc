//! Options of a server, and the state that its handlers share.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;

use super::flight::Flight;
use super::pressure::Pressure;
use crate::backend::{Backend, CallKind};
use crate::id::DeviceId;
use crate::trace::SpanSink;

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
    /// Receiver of the spans of sampled requests; none if the node records no spans. Calls of
    /// channels have their scope already; a layer around the router gives requests over HTTP theirs,
    /// by [`scope_of_headers`](crate::http::scope_of_headers).
    pub spans: Option<Arc<dyn SpanSink>>,
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
            spans: None,
        }
    }
}

/// State shared by the handlers.
#[derive(Clone)]
pub(super) struct HandlerState {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) options: Arc<ServerOptions>,
    /// Permits of index calls, over HTTP and by channels.
    pub(super) index_calls: Flight,
    pub(super) pressure: Pressure,
}

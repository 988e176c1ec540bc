//! The client half: a backend for a remote node.
//!
//! * [`breaker`]: fails calls to an unreachable node at once, for 200 ms to 2 s.
//! * [`connection`]: pooled connections.
//! * [`exchange`]: one request and its reply, with signature, timeout and error classes.
//! * [`extents`], [`upload`], [`download`]: streams of extents.
//! * [`backend`]: the calls of the backend trait.
//!
//! Dropping a call or a stream cuts its connection, and the node drops its work for the call. The
//! outcome of a dropped write is unknown, as after a timeout.
//!
//! The client doesn't hash the bytes of extents: that would cost 0.2 CPU seconds a GiB for each
//! copy. Nodes hash what they store. The caller, which sends the bytes to several nodes, compares
//! the [`ExtentRef`](crate::extent::ExtentRef)s.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method};

use self::breaker::Breaker;
use self::connection::Pool;
use self::exchange::SmallRequest;
use super::{ClusterKey, NodeReport, Tls};
use crate::clock::{Clock, SystemClock};
use crate::error::{Error, Result};

mod backend;
mod breaker;
mod connection;
mod download;
mod exchange;
mod extents;
mod upload;

/// Options of a client.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Clock for the dates of requests.
    pub clock: Arc<dyn Clock>,
    /// Timeout for making a connection.
    pub connect: Duration,
    /// Timeout of an index call.
    pub call: Duration,
    /// Longest time in which a node may send or accept nothing of a stream.
    pub idle: Duration,
    /// Timeout for syncing an extent after its last byte, and for calls that verify stored data.
    pub finish: Duration,
    /// Most idle connections in the pool.
    pub idle_connections_max: usize,
    /// Longest reply of [`HttpBackend::get`], `put` and `post`, in bytes.
    pub reply_bytes_max: usize,
    /// Certificates, if the nodes require TLS.
    pub tls: Option<Tls>,
    /// True if all requests are background work: nodes don't count them as client requests, and
    /// report the duration of client requests in their replies.
    pub is_background: bool,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            clock: Arc::new(SystemClock),
            connect: Duration::from_secs(1),
            call: Duration::from_secs(5),
            idle: Duration::from_secs(10),
            finish: Duration::from_secs(30),
            idle_connections_max: 64,
            reply_bytes_max: 64 * 1024 * 1024,
            tls: None,
            is_background: false,
        }
    }
}

type ReportObserver = Arc<dyn Fn(NodeReport) + Send + Sync>;

/// A backend for a remote node.
#[derive(Debug)]
pub struct HttpBackend(Arc<RemoteNode>);

/// The remote node, with the client's options, pool and breaker.
struct RemoteNode {
    address: String,
    host: HeaderValue,
    key: ClusterKey,
    options: ClientOptions,
    heard: ReportObserver,
    pool: Pool,
    breaker: Breaker,
}

impl HttpBackend {
    /// Creates a client for the node whose internal port is at `address` (`host:port`). No
    /// connection is made yet. `heard` receives the node's state from each reply. The client calls
    /// `heard` during every call, so `heard` must be quick.
    pub fn new(
        address: impl Into<String>,
        key: ClusterKey,
        options: ClientOptions,
        heard: ReportObserver,
    ) -> Self {
        let address = address.into();
        let host = HeaderValue::try_from(&address).unwrap_or(HeaderValue::from_static("node"));
        let pool = Pool::new(options.idle_connections_max);
        let breaker = Breaker::default();
        Self(Arc::new(RemoteNode { address, host, key, options, heard, pool, breaker }))
    }

    /// Address of the node (`host:port`).
    pub fn address(&self) -> &str {
        &self.0.address
    }

    /// Sends GET to `path`, which begins with `/` and may be a path added by the node's binary.
    pub async fn get(&self, path: &str) -> Result<Bytes> {
        self.small(Method::GET, path, Bytes::new(), true).await
    }

    /// Sends `body` to `path` by PUT.
    pub async fn put(&self, path: &str, body: Bytes) -> Result<Bytes> {
        self.small(Method::PUT, path, body, false).await
    }

    /// Sends `body` to `path` by POST.
    pub async fn post(&self, path: &str, body: Bytes) -> Result<Bytes> {
        self.small(Method::POST, path, body, false).await
    }

    async fn small(&self, method: Method, path: &str, body: Bytes, again: bool) -> Result<Bytes> {
        let uri =
            path.parse().map_err(|_| Error::invalid(format!("{path} is not a valid path")))?;
        let (reply_bytes_max, wait) = (self.0.options.reply_bytes_max, self.0.options.call);
        self.0.call_once(SmallRequest { method, uri, body, reply_bytes_max, again, wait }).await
    }
}

impl fmt::Debug for RemoteNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteNode").field("address", &self.address).finish_non_exhaustive()
    }
}

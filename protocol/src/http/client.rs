//! The client half: a backend whose node is elsewhere.
//!
//! * [`breaker`]: a node that can't be reached is left alone for a while.
//! * [`connection`]: connections that are used again.
//! * [`exchange`]: one request and its reply, signed, in time, and told apart when it fails.
//! * [`extents`], [`upload`], [`download`]: extents on their way.
//! * [`backend`]: the calls of the seam.
//!
//! Dropping a call or a stream cuts its connection, and the node stops working for it. Whether a
//! write was carried out then is unknown, as it is after a timeout.
//!
//! What an extent's bytes hash to isn't computed here: that would cost 0.2 CPU seconds a GiB for
//! each copy. Nodes hash what they store, and the caller, who sends the same bytes to several, sees
//! whether their [`ExtentRef`](crate::extent::ExtentRef)s agree.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method};

use self::breaker::Breaker;
use self::connection::Pool;
use self::exchange::Ask;
use super::{ClusterKey, Heard, Tls};
use crate::clock::{Clock, SystemClock};
use crate::error::{Error, Result};

mod backend;
mod breaker;
mod connection;
mod download;
mod exchange;
mod extents;
mod upload;

/// How a client behaves.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Dates the requests.
    pub clock: Arc<dyn Clock>,
    /// How long a connection may take to be made.
    pub connect: Duration,
    /// How long an index call may take.
    pub call: Duration,
    /// How long a node may send or take nothing of a stream.
    pub idle: Duration,
    /// How long a node may take to sync an extent when it has all its bytes, and to verify some of
    /// what it holds.
    pub finish: Duration,
    /// Connections that are kept while nobody uses them.
    pub idle_connections_max: usize,
    /// The longest reply of [`HttpBackend::get`] and its like.
    pub reply_bytes_max: usize,
    /// Certificates, if the nodes ask for them.
    pub tls: Option<Tls>,
    /// True when all of it is background work: nodes don't count it as made for clients, and tell how
    /// long those wait.
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

type Hear = Arc<dyn Fn(Heard) + Send + Sync>;

/// A backend whose node is elsewhere.
#[derive(Debug)]
pub struct HttpBackend(Arc<Node>);

/// The node, and how it is spoken to.
struct Node {
    address: String,
    host: HeaderValue,
    key: ClusterKey,
    options: ClientOptions,
    heard: Hear,
    pool: Pool,
    breaker: Breaker,
}

impl HttpBackend {
    /// The node whose internal port is at `address` (`host:port`). No connection is made yet.
    /// `heard` is told what each reply says of its node; it is called on the path of every call, so
    /// it must be quick.
    pub fn new(
        address: impl Into<String>,
        key: ClusterKey,
        options: ClientOptions,
        heard: Hear,
    ) -> Self {
        let address = address.into();
        let host = HeaderValue::try_from(&address).unwrap_or(HeaderValue::from_static("node"));
        let pool = Pool::new(options.idle_connections_max);
        let breaker = Breaker::default();
        Self(Arc::new(Node { address, host, key, options, heard, pool, breaker }))
    }

    /// Where the node is.
    pub fn address(&self) -> &str {
        &self.0.address
    }

    /// Asks the node for `path`, which begins with `/` and may be one that its binary added.
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
        let uri = path.parse().map_err(|_| Error::invalid(format!("{path} is no path")))?;
        let (reply_bytes_max, wait) = (self.0.options.reply_bytes_max, self.0.options.call);
        self.0.ask(Ask { method, uri, body, reply_bytes_max, again, wait }).await
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("address", &self.address).finish_non_exhaustive()
    }
}

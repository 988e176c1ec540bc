//! The client half: a backend for a remote node.
//!
//! * [`options`], [`remote_node`]: settings of a client, and the state that its calls share.
//! * [`breaker`]: fails calls to an unreachable node at once, for 200 ms to 2 s.
//! * [`connection`]: pooled connections.
//! * [`channel`], [`channel_slot`], [`channel_opening`], [`waiting_calls`]: the connection of short
//!   calls.
//! * [`exchange`]: one request and its reply, with signature, timeout and error classes.
//! * [`extents`], [`upload`], [`download`]: streams of extents.
//! * [`backend`]: the calls of the backend trait.
//!
//! Dropping a call or a stream cuts its connection, and the node drops its work for the call. The
//! outcome of a dropped write is unknown, as after a timeout.
//!
//! The client doesn't hash the bytes of extents. The caller, which sends the bytes to several nodes,
//! may bring their hashes, which follow the bytes; without them the node hashes what it stores. The
//! caller compares the [`ExtentRef`](crate::extent::ExtentRef)s of its copies.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Method};

use self::breaker::Breaker;
use self::channel_slot::ChannelSlot;
use self::connection::Pool;
use self::exchange::{SmallRequest, Target};
pub use self::options::ClientOptions;
use self::remote_node::RemoteNode;
use super::ClusterKey;
use super::announce::ReportObserver;
use crate::error::{Error, Result};

mod backend;
mod breaker;
mod channel;
mod channel_opening;
mod channel_slot;
mod connection;
mod download;
mod exchange;
mod extents;
mod options;
mod remote_node;
mod upload;
mod waiting_calls;

/// A backend for a remote node.
#[derive(Debug)]
pub struct HttpBackend(Arc<RemoteNode>);

impl HttpBackend {
    /// Creates a client for the node whose internal port is at `address` (`host:port`). No
    /// connection is made yet. `report_observer` receives the node's state from each reply. The
    /// client calls `report_observer` during every call, so `report_observer` must be quick.
    pub fn new(
        address: impl Into<String>,
        key: ClusterKey,
        options: ClientOptions,
        report_observer: ReportObserver,
    ) -> Self {
        let address = address.into();
        let host = HeaderValue::try_from(&address).unwrap_or(HeaderValue::from_static("node"));
        let pool = Pool::new(options.idle_connections_max);
        let breaker = Breaker::default();
        let channel = ChannelSlot::default();
        Self(Arc::new(RemoteNode {
            address,
            host,
            key,
            options,
            report_observer,
            pool,
            channel,
            breaker,
        }))
    }

    /// Address of the node (`host:port`).
    pub fn address(&self) -> &str {
        &self.0.address
    }

    /// Returns true if short calls go by a channel now.
    pub fn has_channel(&self) -> bool {
        self.0.channel.is_open()
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
        let target = Target::Path(method, uri);
        self.0.call_once(SmallRequest { target, body, reply_bytes_max, again, wait }).await
    }
}

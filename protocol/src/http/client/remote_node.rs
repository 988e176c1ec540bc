//! The remote node of a client: its address, and the state that all calls share.

use std::fmt;
use std::sync::Arc;

use http::HeaderValue;

use super::breaker::Breaker;
use super::connection::Pool;
use super::options::ClientOptions;
use crate::http::{ClusterKey, NodeReport};

/// Receiver of a node's state; clients call the receiver for each reply.
pub(super) type ReportObserver = Arc<dyn Fn(NodeReport) + Send + Sync>;

/// The remote node, with the client's options, pool and breaker.
pub(super) struct RemoteNode {
    pub(super) address: String,
    pub(super) host: HeaderValue,
    pub(super) key: ClusterKey,
    pub(super) options: ClientOptions,
    pub(super) report_observer: ReportObserver,
    pub(super) pool: Pool,
    pub(super) breaker: Breaker,
}

impl fmt::Debug for RemoteNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteNode").field("address", &self.address).finish_non_exhaustive()
    }
}

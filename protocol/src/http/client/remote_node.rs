//! The remote node of a client: its address, and the state that all calls share.

use std::fmt;

use http::{HeaderMap, HeaderValue};

use super::breaker::Breaker;
use super::channel_slot::ChannelSlot;
use super::connection::Pool;
use super::options::ClientOptions;
use crate::error::{Error, Result};
use crate::http::ClusterKey;
use crate::http::announce::ReportObserver;

/// The remote node, with the client's options, pool and breaker.
pub(super) struct RemoteNode {
    pub(super) address: String,
    pub(super) host: HeaderValue,
    pub(super) key: ClusterKey,
    pub(super) options: ClientOptions,
    pub(super) report_observer: ReportObserver,
    pub(super) pool: Pool,
    pub(super) channel: ChannelSlot,
    pub(super) breaker: Breaker,
}

impl RemoteNode {
    /// Returns the version of the internal protocol that this process and the node speak, by the
    /// headers of a reply.
    pub(super) fn common_wire(&self, headers: &HeaderMap) -> Result<u16> {
        let node = format_args!("the node at {}", self.address);
        let common = self.options.release.common_wire(&"this process", &node, headers);
        common.map_err(Error::unavailable)
    }
}

impl fmt::Debug for RemoteNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteNode").field("address", &self.address).finish_non_exhaustive()
    }
}

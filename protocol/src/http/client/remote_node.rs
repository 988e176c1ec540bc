//! The remote node of a client: its address, and the state that all calls share.

use std::fmt;

use http::HeaderValue;

use super::breaker::Breaker;
use super::channel_slot::ChannelSlot;
use super::connection::Pool;
use super::options::ClientOptions;
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

impl fmt::Debug for RemoteNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteNode").field("address", &self.address).finish_non_exhaustive()
    }
}

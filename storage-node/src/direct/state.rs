//! State that the connections of a direct socket share.

use std::sync::Arc;

use martlet_protocol::Clock;
use martlet_protocol::extent_token::ExtentTokenKey;

use super::figures::DirectCounters;
use super::listener::Peer;
use super::options::DirectTimes;
use super::packet::{RefusalCode, Reply};
use super::quota::Quota;
use crate::node::StorageNode;

/// State that the connections of a server share.
pub(super) struct DirectState {
    pub(super) node: Arc<StorageNode>,
    pub(super) uids: Vec<u32>,
    pub(super) key: ExtentTokenKey,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) times: DirectTimes,
    pub(super) quota: Quota,
    pub(super) counters: DirectCounters,
}

impl DirectState {
    /// Refuses a new client, and closes its connection.
    pub(super) fn turn_away(&self, peer: Peer, code: RefusalCode, sentence: &str) {
        self.counters.refused(code);
        tracing::info!(uid = peer.uid(), sentence, "refused a client of the direct socket");
        let refusal = Reply::Refused { request: 0, code, sentence };
        // A new connection has room for one packet; the client may have gone.
        let _ = peer.try_send(&refusal.encode(), &[]);
        peer.close();
    }
}

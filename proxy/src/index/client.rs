//! Quorum reads and writes of index registers.

use std::sync::Arc;

use martlet_protocol::stamp::StampSource;

use super::compare_and_set::BallotClient;
use super::contended::Contended;
use super::replicas::ReplicaClient;

/// Quorum reads and writes of index registers.
pub(crate) struct RegisterClient {
    pub(crate) replicas: Arc<ReplicaClient>,
    pub(crate) ballots: BallotClient,
    pub(crate) stamps: Arc<StampSource>,
    /// Keys with recent write conflicts.
    pub(super) contended: Contended,
}

impl RegisterClient {
    pub(crate) fn new(replicas: Arc<ReplicaClient>, stamps: Arc<StampSource>) -> Self {
        let ballots = BallotClient::new(replicas.clone(), stamps.clone());
        Self { replicas, ballots, stamps, contended: Contended::new() }
    }
}

//! Order of the requests of a read.

use martlet_protocol::backend::{RegisterView, Want};
use martlet_protocol::{DeviceId, RegisterKey};

use super::calls::Calls;
use super::replica_set::{RegisterQuery, ReplicaSet, Role};
use super::replicas::ReplicaClient;

/// Requests of one read to a register's members, a few at a time.
pub(super) struct MemberQueries<'a> {
    replicas: &'a ReplicaClient,
    replica_set: &'a ReplicaSet,
    key: &'a RegisterKey,
    /// All members, in the order of this read.
    members: Vec<DeviceId>,
    /// Number of members that were queried, the first ones.
    queried: usize,
    pub(super) calls: Calls<RegisterView>,
}

impl<'a> MemberQueries<'a> {
    pub(super) fn new(
        replicas: &'a ReplicaClient,
        replica_set: &'a ReplicaSet,
        key: &'a RegisterKey,
    ) -> Self {
        let members = replicas.in_turn(replica_set);
        Self { replicas, replica_set, key, members, queried: 0, calls: Calls::new() }
    }

    /// Sends requests until the queried devices except `without` form a quorum of each set. The
    /// first request uses the first `Want`, the rest the second. Returns true if any was sent.
    pub(super) fn query(&mut self, without: &[DeviceId], wants: [Want; 2]) -> bool {
        let [mut want, others] = wants;
        let mut any = false;
        loop {
            let queried = self.members[..self.queried].iter().copied();
            let queried = queried.filter(|device| !without.contains(device));
            if self.replica_set.has_quorum(&queried) || !self.query_next(want) {
                return any;
            }
            (want, any) = (others, true);
        }
    }

    /// Sends requests to all remaining members.
    pub(super) fn query_all(&mut self, want: Want) {
        while self.query_next(want) {}
    }

    fn query_next(&mut self, want: Want) -> bool {
        let Some(&device) = self.members.get(self.queried) else { return false };
        self.queried += 1;
        let query = RegisterQuery { key: self.key, want };
        self.replicas.query(&mut self.calls, self.replica_set, device, Role::Member, query);
        true
    }
}

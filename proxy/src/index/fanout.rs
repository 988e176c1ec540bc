//! Order of the requests of a read.

use martlet_protocol::backend::{RegisterView, Want};
use martlet_protocol::{DeviceId, RegisterKey};

use super::place::{Calls, Place, Role};
use super::replicas::ReplicaClient;

/// Requests of one read to a register's members, a few at a time.
pub(super) struct Asking<'a> {
    replicas: &'a ReplicaClient,
    place: &'a Place,
    key: &'a RegisterKey,
    left: std::vec::IntoIter<DeviceId>,
    asked: Vec<DeviceId>,
    pub(super) calls: Calls<RegisterView>,
}

impl<'a> Asking<'a> {
    pub(super) fn new(replicas: &'a ReplicaClient, place: &'a Place, key: &'a RegisterKey) -> Self {
        let left = replicas.in_turn(place).into_iter();
        Self { replicas, place, key, left, asked: Vec::new(), calls: Calls::new() }
    }

    /// Sends requests until the queried devices except `without` form a quorum of each set. The
    /// first request uses the first `Want`, the rest the second. Returns true if any was sent.
    pub(super) fn ask(&mut self, without: &[DeviceId], wants: [Want; 2]) -> bool {
        let [mut want, others] = wants;
        let mut any = false;
        loop {
            let asked = self.asked.iter().copied().filter(|device| !without.contains(device));
            if self.place.has_quorum(asked) || !self.ask_next(want) {
                return any;
            }
            (want, any) = (others, true);
        }
    }

    /// Sends requests to all remaining members.
    pub(super) fn ask_all(&mut self, want: Want) {
        while self.ask_next(want) {}
    }

    fn ask_next(&mut self, want: Want) -> bool {
        let Some(device) = self.left.next() else { return false };
        self.asked.push(device);
        self.replicas.ask(&mut self.calls, self.place, (device, Role::Member), self.key, want);
        true
    }
}

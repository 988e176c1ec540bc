//! Order of the requests of a read.

use std::sync::atomic::Ordering;

use martlet_protocol::backend::{RegisterView, Want};
use martlet_protocol::{DeviceId, RegisterKey};

use super::place::{Calls, Place, Role};
use crate::store::Inner;

/// Requests of one read to a register's members, a few at a time.
pub(super) struct Asking<'a> {
    inner: &'a Inner,
    place: &'a Place,
    key: &'a RegisterKey,
    left: std::vec::IntoIter<DeviceId>,
    asked: Vec<DeviceId>,
    pub(super) calls: Calls<RegisterView>,
}

impl<'a> Asking<'a> {
    pub(super) fn new(inner: &'a Inner, place: &'a Place, key: &'a RegisterKey) -> Self {
        let left = inner.in_turn(place).into_iter();
        Self { inner, place, key, left, asked: Vec::new(), calls: Calls::new() }
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
        self.inner.ask(&mut self.calls, self.place, (device, Role::Member), self.key, want);
        true
    }
}

impl Inner {
    /// Members in the order of this read: those that count in all sets come first, each group
    /// rotated to spread the load. Recently failed devices come last.
    pub(super) fn in_turn(&self, place: &Place) -> Vec<DeviceId> {
        let mut members: Vec<_> = place.members().collect();
        if members.len() > 1 {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed);
            let common = place.sets.common();
            let (both, one) = members.split_at_mut(common);
            for part in [both, one].into_iter().filter(|part| !part.is_empty()) {
                part.rotate_left(turn % part.len());
            }
            let shunned: Vec<_> = members.iter().map(|d| self.silent.shuns(*d)).collect();
            if shunned.contains(&true) {
                let mut shunned = shunned.into_iter();
                let (last, first): (Vec<_>, _) =
                    members.into_iter().partition(|_| shunned.next() == Some(true));
                members = first;
                members.extend(last);
            }
        }
        members
    }
}

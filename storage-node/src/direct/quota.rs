//! Bounds on connections and leased bytes, in total and by user.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// Bounds of a direct socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct QuotaLimits {
    pub(super) connections: usize,
    pub(super) connections_per_uid: usize,
    pub(super) bytes: u64,
    pub(super) bytes_per_uid: u64,
}

/// Counts of what clients hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) connections: usize,
    pub(super) leases: usize,
    pub(super) bytes: u64,
}

/// Accounts of all clients. Clones share their state.
#[derive(Clone, Debug)]
pub(super) struct Quota {
    limits: QuotaLimits,
    accounts: Arc<Mutex<Accounts>>,
}

#[derive(Debug, Default)]
struct Accounts {
    all: Held,
    /// Users that hold something.
    by_uid: HashMap<u32, Held>,
}

/// Share of a quota; gives it back when dropped.
#[derive(Debug)]
pub(super) struct Share {
    uid: u32,
    held: Held,
    accounts: Arc<Mutex<Accounts>>,
}

impl Quota {
    /// Creates a quota of which nothing is held.
    pub(super) fn new(limits: QuotaLimits) -> Self {
        Self { limits, accounts: Arc::default() }
    }

    /// Counts a connection; none if there are too many.
    pub(super) fn connect(&self, uid: u32) -> Option<Share> {
        self.take(uid, Held { connections: 1, ..Held::default() })
    }

    /// Counts a lease of `bytes`; none if too many bytes are leased.
    pub(super) fn lease(&self, uid: u32, bytes: u64) -> Option<Share> {
        self.take(uid, Held { leases: 1, bytes, ..Held::default() })
    }

    fn take(&self, uid: u32, more: Held) -> Option<Share> {
        let mut accounts = self.accounts.lock();
        let all = accounts.all.plus(more);
        let own = accounts.by_uid.get(&uid).copied().unwrap_or_default().plus(more);
        let QuotaLimits { connections, connections_per_uid, bytes, bytes_per_uid } = self.limits;
        let fits = all.connections <= connections
            && own.connections <= connections_per_uid
            && all.bytes <= bytes
            && own.bytes <= bytes_per_uid;
        if !fits {
            return None;
        }
        accounts.all = all;
        accounts.by_uid.insert(uid, own);
        Some(Share { uid, held: more, accounts: self.accounts.clone() })
    }

    /// Returns what all clients hold.
    pub(super) fn held(&self) -> Held {
        self.accounts.lock().all
    }
}

impl Held {
    fn plus(self, more: Self) -> Self {
        Self {
            connections: self.connections + more.connections,
            leases: self.leases + more.leases,
            bytes: self.bytes.saturating_add(more.bytes),
        }
    }

    fn minus(self, less: Self) -> Self {
        Self {
            connections: self.connections - less.connections,
            leases: self.leases - less.leases,
            bytes: self.bytes - less.bytes,
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut accounts = self.accounts.lock();
        accounts.all = accounts.all.minus(self.held);
        if let Some(own) = accounts.by_uid.get_mut(&self.uid) {
            *own = own.minus(self.held);
            if *own == Held::default() {
                accounts.by_uid.remove(&self.uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bound_holds_and_shares_are_given_back() {
        let limits =
            QuotaLimits { connections: 3, connections_per_uid: 2, bytes: 100, bytes_per_uid: 60 };
        let quota = Quota::new(limits);
        let (one, two) = (quota.connect(1), quota.connect(1));
        assert!(one.is_some() && two.is_some());
        assert!(quota.connect(1).is_none(), "of a user");
        let three = quota.connect(2);
        assert!(three.is_some() && quota.connect(3).is_none(), "of all");
        let leased = quota.lease(1, 60);
        assert!(leased.is_some());
        assert!(quota.lease(1, 1).is_none(), "of a user");
        assert!(quota.lease(2, 41).is_none(), "of all");
        let other = quota.lease(2, 40);
        assert_eq!(quota.held(), Held { connections: 3, leases: 2, bytes: 100 });
        drop((one, two, three, leased, other));
        assert_eq!(quota.held(), Held::default());
        assert!(quota.accounts.lock().by_uid.is_empty());
        assert!(quota.lease(1, u64::MAX).is_none());
    }
}

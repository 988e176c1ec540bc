//! Turns of work that takes much memory, with a share of each tenant.
//!
//! A turn is one of few, so the memory of all is bounded. A tenant whose work waits, or is slow, holds no
//! more than its share: the other turns are for other tenants.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::bucket::busy;
use crate::error::Result;

/// Number of shares. Tenants whose names have equal hashes have one share together.
const SHARES: usize = 64;

/// Turns of one process.
pub(super) struct TenantTurns {
    all: Arc<Semaphore>,
    shares: [Arc<Semaphore>; SHARES],
    hasher: RandomState,
}

/// A turn, which its drop returns. It may move to another thread with its work.
#[derive(Debug)]
pub(super) struct TenantTurn {
    _permits: [OwnedSemaphorePermit; 2],
}

impl TenantTurns {
    /// Makes `at_once` turns, of which a tenant has at most `share` at once.
    pub(super) fn new(at_once: usize, share: usize) -> Self {
        let turns = |count: usize| Arc::new(Semaphore::new(count));
        let shares = std::array::from_fn(|_| turns(share));
        Self { all: turns(at_once), shares, hasher: RandomState::new() }
    }

    /// Waits for a turn of a tenant.
    pub(super) async fn acquire(&self, tenant: &str) -> Result<TenantTurn> {
        let share = usize::try_from(self.hasher.hash_one(tenant) % SHARES as u64);
        let share = &self.shares[share.expect("a small number")];
        // The share comes first: who waits for it keeps no other tenant waiting.
        let share = share.clone().acquire_owned().await.map_err(|_| busy())?;
        let one = self.all.clone().acquire_owned().await.map_err(|_| busy())?;
        Ok(TenantTurn { _permits: [share, one] })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    async fn acquire(turns: &TenantTurns, tenant: &str) -> Option<TenantTurn> {
        timeout(Duration::from_secs(1), turns.acquire(tenant)).await.ok().map(Result::unwrap)
    }

    /// A tenant with another share than `a`.
    fn other(turns: &TenantTurns) -> String {
        let share = |tenant: &str| turns.hasher.hash_one(tenant) % SHARES as u64;
        let mut others = (0..).map(|at| format!("tenant {at}"));
        others.find(|other| share(other) != share("a")).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_tenant_has_its_share_and_leaves_the_rest_to_others() {
        let turns = TenantTurns::new(3, 2);
        let other = other(&turns);
        let mut held =
            vec![acquire(&turns, "a").await.unwrap(), acquire(&turns, "a").await.unwrap()];
        assert!(acquire(&turns, "a").await.is_none(), "its share is taken");
        held.push(acquire(&turns, &other).await.unwrap());
        assert!(acquire(&turns, &other).await.is_none(), "all turns are taken");
        held.remove(0);
        assert!(acquire(&turns, &other).await.is_some(), "a waiter that left took nothing along");
        assert!(acquire(&turns, "a").await.is_some());
    }
}

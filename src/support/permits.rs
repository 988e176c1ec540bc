//! Bounds on the requests of other processes that are under way: of all principals, of each key, and to
//! each process.

use std::sync::Arc;

use martlet_serving::places::{Place, Places};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Most requests of all principals.
const ALL_MAX: usize = 32;
/// Most requests of one key.
const OF_KEY_MAX: usize = 8;
/// Most requests to one process.
const TO_PROCESS_MAX: usize = 4;

/// Requests under way.
#[derive(Debug)]
pub(super) struct RelayPermits {
    all: Arc<Semaphore>,
    of_keys: Places,
    to_processes: Places,
}

/// Place of a request among those of its key and among all.
pub(super) type RequestPlace = (Place, OwnedSemaphorePermit);

impl Default for RelayPermits {
    fn default() -> Self {
        let all = Arc::new(Semaphore::new(ALL_MAX));
        Self { all, of_keys: Places::new(OF_KEY_MAX), to_processes: Places::new(TO_PROCESS_MAX) }
    }
}

impl RelayPermits {
    /// Takes a place for a request of a key; none if the key or all keys together have too many. A drop
    /// returns the place.
    pub(super) fn of_key(&self, key: &str) -> Option<RequestPlace> {
        Some((self.of_keys.take(key)?, self.all.clone().try_acquire_owned().ok()?))
    }

    /// Takes a place for a request to the process at an address; none if it has too many.
    pub(super) fn to_process(&self, address: &str) -> Option<Place> {
        self.to_processes.take(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_key_and_one_process_leave_places_to_others() {
        let permits = RelayPermits::default();
        let of_one: Vec<_> = (0..OF_KEY_MAX).map(|_| permits.of_key("K1").unwrap()).collect();
        assert!(permits.of_key("K1").is_none());
        let to_one: Vec<_> =
            (0..TO_PROCESS_MAX).map(|_| permits.to_process("n2:9001").unwrap()).collect();
        assert!(permits.to_process("n2:9001").is_none());
        assert!(permits.to_process("n3:9001").is_some());
        let others = (2..=4).flat_map(|at| (0..OF_KEY_MAX).map(move |_| at));
        let others: Vec<_> = others.map(|at| permits.of_key(&format!("K{at}")).unwrap()).collect();
        assert!(permits.of_key("K5").is_none(), "all places are taken");
        drop((of_one, to_one, others));
        assert!(permits.of_key("K1").is_some() && permits.to_process("n2:9001").is_some());
        assert_eq!(permits.all.available_permits(), ALL_MAX);
    }
}

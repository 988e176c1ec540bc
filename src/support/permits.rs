//! Bounds on the requests of other processes that are under way: of all principals, of each key, and to
//! each process.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// Most requests of all principals.
const ALL_MAX: usize = 32;
/// Most requests of one key.
const OF_KEY_MAX: usize = 8;
/// Most requests to one process.
const TO_PROCESS_MAX: usize = 4;

/// Counts of requests under way.
#[derive(Clone, Debug, Default)]
pub(super) struct RelayPermits(Arc<Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    of_keys: BTreeMap<String, usize>,
    to_processes: BTreeMap<String, usize>,
}

/// Place of a request, which a drop returns.
#[derive(Debug)]
pub(super) struct Permit {
    counts: RelayPermits,
    kind: PermitKind,
    name: String,
}

#[derive(Clone, Copy, Debug)]
enum PermitKind {
    OfKey,
    ToProcess,
}

impl RelayPermits {
    /// Takes a place for a request of a key; none if the key or all keys together have too many.
    pub(super) fn of_key(&self, key: &str) -> Option<Permit> {
        let mut counts = self.0.lock();
        if counts.all >= ALL_MAX || !add(&mut counts.of_keys, key, OF_KEY_MAX) {
            return None;
        }
        counts.all += 1;
        Some(Permit { counts: self.clone(), kind: PermitKind::OfKey, name: key.to_owned() })
    }

    /// Takes a place for a request to the process at an address; none if it has too many.
    pub(super) fn to_process(&self, address: &str) -> Option<Permit> {
        add(&mut self.0.lock().to_processes, address, TO_PROCESS_MAX).then(|| Permit {
            counts: self.clone(),
            kind: PermitKind::ToProcess,
            name: address.to_owned(),
        })
    }
}

/// Adds one to a count below its limit.
fn add(counts: &mut BTreeMap<String, usize>, name: &str, max: usize) -> bool {
    let count = counts.entry(name.to_owned()).or_default();
    let has_place = *count < max;
    *count += usize::from(has_place);
    has_place
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut counts = self.counts.0.lock();
        let of_kind = match self.kind {
            PermitKind::OfKey => {
                counts.all -= 1;
                &mut counts.of_keys
            }
            PermitKind::ToProcess => &mut counts.to_processes,
        };
        // Names without requests take no memory.
        if let Some(count) = of_kind.get_mut(&self.name) {
            *count -= 1;
            if *count == 0 {
                of_kind.remove(&self.name);
            }
        }
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
        let counts = permits.0.lock();
        assert_eq!((counts.all, counts.of_keys.len(), counts.to_processes.len()), (0, 0, 0));
    }
}

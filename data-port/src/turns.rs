//! Turns for concurrent requests, and the shares of tenants.
//!
//! The last eighth of the turns is for tenants that have few: a tenant with half of the turns or
//! more gets none of it. So slow readers of one tenant leave turns for others. All unsigned readers
//! together have an eighth of the turns, as at the S3 port.

use std::collections::HashMap;
use std::sync::Arc;

use martlet_protocol::extent_token::ANONYMOUS_TENANT;
use parking_lot::Mutex;

/// Turns of a port. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Turns(Arc<TurnState>);

struct TurnState {
    all: usize,
    taken: Mutex<TakenTurns>,
}

#[derive(Default)]
struct TakenTurns {
    count: usize,
    by_tenant: HashMap<String, usize>,
}

/// A turn, given back when it is dropped.
pub(crate) struct Turn {
    turns: Turns,
    tenant: String,
}

impl Turns {
    /// Turns for at most `all` requests.
    pub(crate) fn new(all: usize) -> Self {
        Self(Arc::new(TurnState { all, taken: Mutex::default() }))
    }

    /// Takes a turn for a tenant; none if all are taken, or the tenant has its share.
    pub(crate) fn take(&self, tenant: &str) -> Option<Turn> {
        let mut taken = self.0.taken.lock();
        let own = taken.by_tenant.get(tenant).copied().unwrap_or(0);
        let (all, count) = (self.0.all, taken.count);
        let share = if tenant == ANONYMOUS_TENANT {
            (all / 8).max(1)
        } else if all - count <= all / 8 {
            all / 2
        } else {
            all
        };
        if count >= all || own >= share {
            return None;
        }
        taken.count += 1;
        *taken.by_tenant.entry(tenant.to_owned()).or_default() += 1;
        Some(Turn { turns: self.clone(), tenant: tenant.to_owned() })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut taken = self.turns.0.taken.lock();
        taken.count -= 1;
        if let Some(own) = taken.by_tenant.get_mut(&self.tenant) {
            *own -= 1;
            if *own == 0 {
                taken.by_tenant.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_turns_are_for_tenants_that_have_few() {
        let turns = Turns::new(16);
        let mut greedy: Vec<Turn> = std::iter::from_fn(|| turns.take("greedy")).collect();
        assert_eq!(greedy.len(), 14);
        let others: Vec<Turn> = std::iter::from_fn(|| turns.take("other")).collect();
        assert_eq!(others.len(), 2, "all turns are taken");
        greedy.clear();
        assert!(turns.take("greedy").is_some());
        drop(others);
        assert!(turns.0.taken.lock().by_tenant.is_empty());
    }

    #[test]
    fn unsigned_readers_have_an_eighth() {
        let turns = Turns::new(17);
        let unsigned: Vec<Turn> = std::iter::from_fn(|| turns.take(ANONYMOUS_TENANT)).collect();
        assert_eq!(unsigned.len(), 2);
        let others: Vec<Turn> = std::iter::from_fn(|| turns.take("other")).collect();
        assert_eq!(others.len(), 13, "the last turns are for further tenants");
        drop(unsigned);
        assert!(turns.take(ANONYMOUS_TENANT).is_some());
        assert!(Turns::new(7).take(ANONYMOUS_TENANT).is_some(), "there is one at least");
    }

    #[test]
    fn few_turns_are_whole() {
        let turns = Turns::new(1);
        let one = turns.take("one");
        assert!(one.is_some() && turns.take("other").is_none());
        drop(one);
        assert!(turns.take("one").is_some());
    }
}

//! Bound on the requests under way of each holder: an access key, a user, or a process that is queried.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// Requests under way, by their holders. Cheap to clone. Holders without requests take no memory.
#[derive(Clone, Debug)]
pub struct Places {
    max: usize,
    taken: Arc<Mutex<HashMap<String, usize>>>,
}

/// Place of a request, which its drop returns.
#[derive(Debug)]
pub struct Place {
    places: Places,
    holder: String,
}

impl Places {
    /// Makes places for at most `max` requests of each holder, at least one.
    pub fn new(max: usize) -> Self {
        Self { max: max.max(1), taken: Arc::default() }
    }

    /// Takes a place; none if too many requests of the holder are under way.
    pub fn take(&self, holder: &str) -> Option<Place> {
        let mut taken = self.taken.lock();
        let count = taken.entry(holder.to_owned()).or_default();
        if *count >= self.max {
            return None;
        }
        *count += 1;
        Some(Place { places: self.clone(), holder: holder.to_owned() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock();
        if let Some(count) = taken.get_mut(&self.holder) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.holder);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_has_so_many_places_and_gets_them_back() {
        const MAX: usize = 24;
        let places = Places::new(MAX);
        let mut held: Vec<Place> = (0..MAX).filter_map(|_| places.take("a")).collect();
        assert_eq!(held.len(), MAX);
        assert!(places.take("a").is_none() && places.take("b").is_some());
        held.pop();
        assert!(places.take("a").is_some());
        drop(held);
        assert!(places.taken.lock().is_empty());
    }
}

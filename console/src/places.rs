//! Bound on the requests of one access key that are under way: all keys share the connections.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// Maximum number of requests of one key under way. A browser has six connections.
pub(crate) const PLACES_MAX: usize = 24;

/// Requests under way, by access key.
#[derive(Clone, Default)]
pub(crate) struct Places(Arc<Mutex<HashMap<String, usize>>>);

/// Place of a request, which its drop returns.
pub(crate) struct Place {
    places: Places,
    key: String,
}

impl Places {
    /// Takes a place; none if too many requests of the key are under way.
    pub(crate) fn take(&self, key: &str) -> Option<Place> {
        let mut taken = self.0.lock();
        let count = taken.entry(key.to_owned()).or_default();
        if *count >= PLACES_MAX {
            return None;
        }
        *count += 1;
        Some(Place { places: self.clone(), key: key.to_owned() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.0.lock();
        if let Some(count) = taken.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_so_many_places_and_gets_them_back() {
        let places = Places::default();
        let mut held: Vec<Place> = (0..PLACES_MAX).filter_map(|_| places.take("a")).collect();
        assert_eq!(held.len(), PLACES_MAX);
        assert!(places.take("a").is_none() && places.take("b").is_some());
        held.pop();
        assert!(places.take("a").is_some());
        drop(held);
        assert!(places.0.lock().is_empty());
    }
}

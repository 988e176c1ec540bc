//! Bound on the requests of one principal that are under way: all principals share the connections. Keys
//! of one user count together, as the user makes keys.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// Maximum number of requests of one principal under way. A browser has six connections.
pub(crate) const PLACES_MAX: usize = 24;

/// Requests under way, by the holder of their access key.
#[derive(Clone, Default)]
pub(crate) struct Places(Arc<Mutex<HashMap<String, usize>>>);

/// Place of a request, which its drop returns.
pub(crate) struct Place {
    places: Places,
    holder: String,
}

impl Places {
    /// Takes a place; none if too many requests of the holder are under way.
    pub(crate) fn take(&self, holder: &str) -> Option<Place> {
        let mut taken = self.0.lock();
        let count = taken.entry(holder.to_owned()).or_default();
        if *count >= PLACES_MAX {
            return None;
        }
        *count += 1;
        Some(Place { places: self.clone(), holder: holder.to_owned() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.0.lock();
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

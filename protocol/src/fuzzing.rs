//! Fuzz targets of this crate: stored bytes, and bytes between nodes.
//!
//! * [`ENTRIES`]: entries, manifests, keys, records of extents and documents of buckets.
//! * [`FRAMES`]: channels, calls, replies, frames of extents, and heads of internal requests.

mod entries;

pub use self::entries::ENTRIES;
pub use crate::http::FRAMES;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_inputs_of_entries() {
        let replayed = ENTRIES.replay();
        assert!(replayed.accepted >= replayed.seeds / 2, "{replayed:?}");
    }

    #[test]
    fn kept_inputs_of_frames() {
        let replayed = FRAMES.replay();
        assert!(replayed.accepted >= replayed.seeds / 2, "{replayed:?}");
    }
}

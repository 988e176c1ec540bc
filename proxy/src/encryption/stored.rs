//! Stored sizes of an object's parts.

use martlet_protocol::entry::{Mark, Object};

use super::keys::is_salted;
use super::layout::Segment;

/// Stored size of each part of an object, or of the whole if its parts are unknown.
pub(crate) fn stored_sizes(object: &Object, parts: &[u64]) -> Vec<u64> {
    let is_whole = parts.iter().sum::<u64>() != object.size || parts.is_empty();
    let sizes = if is_whole { std::slice::from_ref(&object.size) } else { parts };
    match object.attributes.marks.get(Mark::Encryption) {
        None => sizes.to_vec(),
        Some(document) => {
            let salted = is_salted(document);
            sizes.iter().map(|&bytes| Segment { bytes, salted }.stored()).collect()
        }
    }
}

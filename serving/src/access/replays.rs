//! Memory of the signatures of changes, so that a process accepts each one once.
//!
//! A signature stays until its date is too old to be accepted anyway. The memory is bounded: when it
//! is full, changes that are signed are refused for a while. Only holders of a key can fill it.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::signature::SKEW_MS_MAX;

/// Maximum number of remembered signatures: 27 changes a second for ten minutes.
const SIGNATURES_MAX: usize = 16_384;

/// Outcome of a look at a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplayCheck {
    /// The signature is new, and remembered from now on.
    New,
    /// The signature was accepted before.
    Repeated,
    /// Too many signatures are remembered.
    Full,
}

/// Signatures of accepted changes, with their dates in milliseconds since 1970.
#[derive(Debug, Default)]
pub(crate) struct Replays(Mutex<HashMap<String, u64>>);

impl Replays {
    /// Remembers the signature of a change. `signed_ms` is its date.
    pub(crate) fn check(&self, signature: &str, signed_ms: u64, now_ms: u64) -> ReplayCheck {
        let mut known = self.0.lock();
        if known.contains_key(signature) {
            return ReplayCheck::Repeated;
        }
        if known.len() >= SIGNATURES_MAX {
            known.retain(|_, signed_ms| signed_ms.saturating_add(SKEW_MS_MAX) >= now_ms);
        }
        if known.len() >= SIGNATURES_MAX {
            return ReplayCheck::Full;
        }
        known.insert(signature.to_owned(), signed_ms);
        ReplayCheck::New
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_new_once_and_the_memory_is_bounded() {
        let replays = Replays::default();
        let at_ms = 1_000_000;
        assert_eq!(replays.check("a", at_ms, at_ms), ReplayCheck::New);
        assert_eq!(replays.check("a", at_ms, at_ms), ReplayCheck::Repeated);
        for number in 1..SIGNATURES_MAX {
            assert_eq!(replays.check(&number.to_string(), at_ms, at_ms), ReplayCheck::New);
        }
        assert_eq!(replays.check("b", at_ms, at_ms), ReplayCheck::Full);
        let later_ms = at_ms + SKEW_MS_MAX;
        assert_eq!(replays.check("b", later_ms, later_ms), ReplayCheck::Full);
        assert_eq!(replays.check("a", at_ms, later_ms), ReplayCheck::Repeated);
        assert_eq!(replays.check("b", later_ms, later_ms + 1), ReplayCheck::New);
        assert_eq!(replays.0.lock().len(), 1, "the others are too old to be accepted");
    }
}

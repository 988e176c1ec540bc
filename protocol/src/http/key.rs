//! The shared secret of a cluster, and the daily key derived from it.
//!
//! Neither key is ever printed. Deriving the daily key costs four HMACs, so it is kept. At
//! midnight, and for clocks that differ slightly, the keys of two days are in use.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use aws_sigv4::sign::v4::{calculate_signature, generate_signing_key};
use parking_lot::RwLock;

use crate::error::Error;

const DAY_MS: u64 = 24 * 60 * 60 * 1000;
/// Days whose keys are kept: today, and its neighbour at midnight.
const DAYS_KEPT_MAX: usize = 2;

/// The secret shared by the members of a cluster. Cheap to clone.
#[derive(Clone)]
pub struct ClusterKey(Arc<KeyMaterial>);

struct KeyMaterial {
    text: String,
    days: RwLock<Vec<(u64, [u8; 32])>>,
}

impl ClusterKey {
    /// Signs `text` with the key of the day of `now_ms`; hexadecimal.
    pub(super) fn sign(&self, now_ms: u64, text: &[u8]) -> String {
        calculate_signature(self.of_day(now_ms / DAY_MS), text)
    }

    /// Feeds the key to a hasher that derives the keys of a channel.
    pub(super) fn feed(&self, hasher: &mut blake3::Hasher) {
        hasher.update(self.0.text.as_bytes());
    }

    fn of_day(&self, day: u64) -> [u8; 32] {
        let known = self.0.days.read().iter().find(|known| known.0 == day).map(|known| known.1);
        known.unwrap_or_else(|| self.derive(day))
    }

    fn derive(&self, day: u64) -> [u8; 32] {
        let time = UNIX_EPOCH + Duration::from_millis(day * DAY_MS);
        let derived = generate_signing_key(&self.0.text, time, "martlet", "internal");
        let mut key = [0; 32];
        key.copy_from_slice(derived.as_ref());
        let mut days = self.0.days.write();
        if days.len() >= DAYS_KEPT_MAX {
            days.remove(0);
        }
        days.push((day, key));
        key
    }
}

impl FromStr for ClusterKey {
    type Err = Error;

    /// Parses 64 hexadecimal digits; ignores surrounding white space.
    fn from_str(text: &str) -> Result<Self, Error> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text.trim(), &mut bytes)
            .map_err(|_| Error::invalid("a cluster key must be 64 hexadecimal digits"))?;
        Ok(Self(Arc::new(KeyMaterial { text: hex::encode(bytes), days: RwLock::default() })))
    }
}

impl fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterKey(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

    #[test]
    fn only_64_digits_are_a_key() {
        assert!(format!(" {HEX}\n").parse::<ClusterKey>().is_ok());
        for wrong in ["", &HEX[1..], &format!("{HEX}00"), &HEX.replace('0', "x")] {
            let error = wrong.parse::<ClusterKey>().unwrap_err();
            assert!(wrong.is_empty() || !error.to_string().contains(wrong), "{error}");
        }
    }

    #[test]
    fn keys_are_never_printed() {
        let key: ClusterKey = HEX.parse().unwrap();
        key.sign(0, b"x");
        assert_eq!(format!("{key:?}"), "ClusterKey(…)");
    }

    #[test]
    fn signatures_differ_by_text_day_and_key_and_few_days_are_kept() {
        let key: ClusterKey = HEX.parse().unwrap();
        let same: ClusterKey = HEX.to_uppercase().parse().unwrap();
        let other: ClusterKey = HEX.replace("00", "01").parse().unwrap();
        let first = key.sign(5, b"x");
        assert_eq!(first, same.sign(DAY_MS - 1, b"x"));
        for different in [key.sign(5, b"y"), key.sign(DAY_MS, b"x"), other.sign(5, b"x")] {
            assert_ne!(first, different);
        }
        for day in 0..10 {
            key.sign(day * DAY_MS, b"x");
        }
        assert_eq!(key.0.days.read().len(), DAYS_KEPT_MAX);
    }
}

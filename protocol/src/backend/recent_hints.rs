//! Hints of a device in the order of their arrival: the last ones, numbered in memory.
//!
//! A worker that has offered all hints reads those that came since, and not all of them again. Numbers begin at
//! the time of the opening. So a position from before it lies below the remembered ones, and its holder
//! knows that it missed some.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::registers::Hint;

/// Most keys that a device remembers, of some 100 bytes each, and 1 KiB at most.
pub const RECENT_HINTS_MAX: usize = 4096;
/// Numbers for each millisecond between two openings.
const NUMBERS_PER_MS: u64 = 1 << 20;

/// Page of hints in the order of their arrival.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrivedHints {
    /// Hints that the device still keeps.
    pub hints: Vec<Hint>,
    /// Number of the last hint that was looked at.
    pub last: u64,
    /// True if hints may have come between the position of the caller and the first one of this page.
    pub missed: bool,
}

/// Keys of the last hints of a device.
#[derive(Debug)]
pub struct RecentHints<K> {
    keys: VecDeque<K>,
    /// Number of the last key.
    last: u64,
}

/// Keys in the order of their arrival.
#[derive(Debug, PartialEq, Eq)]
pub struct RecentPage<K> {
    /// Keys of hints; some may have been forgotten meanwhile.
    pub keys: Vec<K>,
    /// As in [`ArrivedHints::last`].
    pub last: u64,
    /// As in [`ArrivedHints::missed`].
    pub missed: bool,
}

impl<K> Default for RecentHints<K> {
    fn default() -> Self {
        Self::opened(0)
    }
}

impl<K> RecentHints<K> {
    /// Creates an empty list of a device that is opened at `now_ms`.
    pub fn opened(now_ms: u64) -> Self {
        Self { keys: VecDeque::new(), last: now_ms.wrapping_mul(NUMBERS_PER_MS) }
    }

    /// Adds the key of a hint that is on disk.
    pub fn push(&mut self, key: K) {
        if self.keys.len() == RECENT_HINTS_MAX {
            self.keys.pop_front();
        }
        self.keys.push_back(key);
        self.last += 1;
    }
}

impl<K: Clone> RecentHints<K> {
    /// Returns at most `limit` keys above the number `after`. Without `after`, and from a position that isn't
    /// remembered, returns no keys, and the number of the last one.
    pub fn after(&self, after: Option<u64>, limit: usize) -> RecentPage<K> {
        let remembered = self.keys.len();
        let ahead = after.and_then(|after| self.last.checked_sub(after));
        let Some(ahead) = ahead.and_then(|ahead| usize::try_from(ahead).ok()) else {
            return self.missed();
        };
        if ahead > remembered {
            return self.missed();
        }
        let keys: Vec<K> = self.keys.range(remembered - ahead..).take(limit).cloned().collect();
        let last = self.last - (ahead - keys.len()) as u64;
        RecentPage { keys, last, missed: false }
    }

    fn missed(&self) -> RecentPage<K> {
        RecentPage { keys: Vec::new(), last: self.last, missed: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(keys: &[u64], last: u64) -> RecentPage<u64> {
        RecentPage { keys: keys.to_vec(), last, missed: false }
    }

    #[test]
    fn keys_come_in_the_order_of_their_arrival_from_a_position_on() {
        let mut recent = RecentHints::opened(0);
        let start = recent.after(None, 10);
        assert_eq!(start, RecentPage { keys: Vec::new(), last: 0, missed: true });
        assert_eq!(recent.after(Some(0), 10), page(&[], 0));
        for key in 1..=5 {
            recent.push(key);
        }
        assert_eq!(recent.after(Some(0), 2), page(&[1, 2], 2));
        assert_eq!(recent.after(Some(2), 2), page(&[3, 4], 4));
        assert_eq!(recent.after(Some(4), 2), page(&[5], 5));
        assert_eq!(recent.after(Some(5), 2), page(&[], 5));
        assert_eq!(recent.after(Some(3), 0), page(&[], 3));
    }

    #[test]
    fn positions_that_are_not_remembered_are_reported() {
        let mut recent = RecentHints::opened(7);
        let first = recent.after(None, 1).last;
        let most = RECENT_HINTS_MAX as u64;
        for key in 0..most {
            recent.push(key);
        }
        assert_eq!(recent.after(Some(first), 1), page(&[0], first + 1));
        recent.push(most);
        let missed = RecentPage { keys: Vec::new(), last: first + most + 1, missed: true };
        assert_eq!(recent.after(Some(first), 1), missed);
        assert_eq!(recent.after(Some(first + 1), 1), page(&[1], first + 2));
        // The device was opened again, a millisecond later, or by a clock that went back.
        for reopened_ms in [8, 6] {
            let reopened = RecentHints::<u64>::opened(reopened_ms);
            assert!(reopened.after(Some(first + most), 1).missed, "{reopened_ms}");
        }
    }
}

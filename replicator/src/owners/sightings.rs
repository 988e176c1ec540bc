//! Sightings: times at which a device of the index ring was seen without hints.
//!
//! A hint is a first-hand write, and is refused once its commit window is over (rule X2). So a
//! device that had no hint at some time can't get one that names an extent whose window was over by
//! then. While that device is silent, only younger extents wait for it. Extents of uploads wait in
//! any case: the object that takes them over is written later, in a window of its own.
//!
//! Times are kept in a cursor, rounded down to an hour. So a process that starts while a device is
//! out knows the device too; a lost time means that everything waits.

use std::collections::HashMap;
use std::sync::Arc;

use martlet_protocol::DeviceId;
use martlet_protocol::backend::OwnerClaim;
use martlet_protocol::limits::{CLOCK_SKEW_MS_MAX, COMMIT_WINDOW_MS};
use parking_lot::Mutex;

use crate::cursors::{Cursors, MemoryCursors};

/// Name under which the times are stored.
const NAME: &str = "hints-seen";
/// Unit of stored times, in milliseconds.
const STORED_MS: u64 = 60 * 60 * 1000;

/// Margin for three clocks: that of the node with the extent, of the silent device, and of this
/// process.
const SKEW_MS: u64 = 3 * CLOCK_SKEW_MS_MAX;

/// Last time at which each device had no hints, in milliseconds since 1970.
pub(crate) struct Sightings {
    cursors: Arc<dyn Cursors>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    by_device: HashMap<DeviceId, u64>,
    saved_hour: u64,
}

/// Devices that don't answer: the earliest time at which each of them had no hints.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SilentDevices(Option<u64>);

impl Default for Sightings {
    fn default() -> Self {
        Self::load(Arc::new(MemoryCursors::default()))
    }
}

impl Sightings {
    /// Loads the times that were stored last.
    pub(crate) fn load(cursors: Arc<dyn Cursors>) -> Self {
        let saved = cursors.load(NAME).unwrap_or_default();
        let one = |word: &str| {
            let (device, hour) = word.split_once(':')?;
            let hour: u64 = hour.parse().ok()?;
            Some((DeviceId(device.parse().ok()?), hour.checked_mul(STORED_MS)?))
        };
        let by_device = saved.split(' ').filter_map(one).collect();
        Self { cursors, seen: Mutex::new(Seen { by_device, saved_hour: 0 }) }
    }

    /// Records that a device had no hints at `now_ms` or later. Times that lie ahead are forgotten:
    /// the clock was wrong then.
    pub(crate) fn note(&self, device: DeviceId, now_ms: u64) {
        let mut seen = self.seen.lock();
        // An earlier time is the safe one.
        seen.by_device.insert(device, now_ms);
        let hour = now_ms / STORED_MS;
        if hour != seen.saved_hour {
            seen.saved_hour = hour;
            seen.by_device.retain(|_, ms| *ms <= now_ms);
            let words =
                seen.by_device.iter().map(|(id, ms)| format!("{}:{}", id.0, ms / STORED_MS));
            let line = words.collect::<Vec<_>>().join(" ");
            self.cursors.save(NAME, &line);
        }
    }

    /// Returns the last time at which a device had no hints; none if that lies ahead of `now_ms`.
    pub(crate) fn of(&self, device: DeviceId, now_ms: u64) -> Option<u64> {
        let seen_ms = self.seen.lock().by_device.get(&device).copied();
        seen_ms.filter(|seen_ms| *seen_ms <= now_ms)
    }
}

impl SilentDevices {
    /// Adds a device that was last seen without hints at `seen_ms`, if ever.
    pub(crate) fn add(&mut self, seen_ms: Option<u64>) {
        let seen_ms = seen_ms.unwrap_or(0);
        self.0 = Some(self.0.map_or(seen_ms, |earliest| earliest.min(seen_ms)));
    }

    /// Returns true if a hint of one of them may name an extent of this owner that was born then.
    pub(crate) fn may_name(self, claim: &OwnerClaim, born_ms: u64) -> bool {
        self.0.is_some() && (claim.upload.is_some() || self.may_name_born(born_ms))
    }

    /// Returns true if a hint of one of them may name an extent that was born then, and belongs to
    /// no upload.
    pub(crate) fn may_name_born(self, born_ms: u64) -> bool {
        let window_ends = born_ms.saturating_add(COMMIT_WINDOW_MS + SKEW_MS);
        self.0.is_some_and(|seen_ms| window_ends >= seen_ms)
    }
}

#[cfg(test)]
mod tests {
    use martlet_protocol::{BucketId, Shard, UploadId};

    use super::*;

    const DAY_MS: u64 = 24 * 60 * 60 * 1000;

    fn claim(upload: Option<UploadId>) -> OwnerClaim {
        OwnerClaim { bucket: BucketId::ROOT, shard: Shard(0), key: "k".into(), upload }
    }

    #[test]
    fn a_silent_device_may_name_what_is_younger_than_its_last_sight() {
        let mut silent = SilentDevices::default();
        let (object, upload) = (claim(None), claim(Some(UploadId([1; 16]))));
        assert!(!silent.may_name(&upload, 5 * DAY_MS), "all answer");
        silent.add(Some(4 * DAY_MS));
        assert!(!silent.may_name(&object, 3 * DAY_MS - SKEW_MS - 1));
        assert!(silent.may_name(&object, 3 * DAY_MS - SKEW_MS));
        assert!(silent.may_name(&upload, 0));
        silent.add(Some(2 * DAY_MS));
        assert!(silent.may_name(&object, DAY_MS), "the earliest sight counts");
        silent.add(None);
        assert!(silent.may_name(&object, 0), "one was never seen");
    }

    #[test]
    fn times_survive_a_restart_rounded_down_and_nonsense_is_none() {
        let cursors: Arc<dyn Cursors> = Arc::new(MemoryCursors::default());
        let sightings = Sightings::load(cursors.clone());
        sightings.note(DeviceId(7), 3 * STORED_MS + 5);
        sightings.note(DeviceId(7), 3 * STORED_MS + 9);
        assert_eq!(sightings.of(DeviceId(7), u64::MAX), Some(3 * STORED_MS + 9));
        let again = Sightings::load(cursors.clone());
        assert_eq!(again.of(DeviceId(7), u64::MAX), Some(3 * STORED_MS));
        assert_eq!(again.of(DeviceId(8), u64::MAX), None);
        cursors.save(NAME, "7 8: x:1 9:x");
        let nonsense = Sightings::load(cursors);
        assert_eq!(
            (nonsense.of(DeviceId(7), u64::MAX), nonsense.of(DeviceId(9), u64::MAX)),
            (None, None)
        );
    }

    #[test]
    fn a_time_that_lies_ahead_counts_as_none_and_is_not_kept() {
        let cursors: Arc<dyn Cursors> = Arc::new(MemoryCursors::default());
        let sightings = Sightings::load(cursors.clone());
        let (ahead_ms, now_ms) = (90 * DAY_MS, DAY_MS);
        sightings.note(DeviceId(7), ahead_ms);
        sightings.note(DeviceId(8), ahead_ms);
        assert_eq!(sightings.of(DeviceId(7), now_ms), None);
        // The clock is right again.
        sightings.note(DeviceId(8), now_ms);
        assert_eq!(sightings.of(DeviceId(8), now_ms), Some(now_ms));
        let again = Sightings::load(cursors);
        assert_eq!(again.of(DeviceId(7), u64::MAX), None);
        assert_eq!(again.of(DeviceId(8), u64::MAX), Some(now_ms));
    }
}

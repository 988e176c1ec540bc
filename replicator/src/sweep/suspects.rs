//! Suspects: extents that the index did not need at their first check.
//!
//! They are stored as a cursor: groups of a device and a time, with the extents found then. A text
//! of all suspects takes less than 1 MiB.

use std::collections::BTreeMap;

use martlet_protocol::{DeviceId, ExtentId};

use crate::cursors::Cursors;

/// Name under which the suspects are stored.
const NAME: &str = "sweep-suspects";
/// Maximum number of suspects. The walk waits while there are as many, and devices that don't answer
/// then lose theirs.
pub(super) const SUSPECTS_MAX: usize = 16 * 1024;

/// Suspects of all devices.
#[derive(Debug, Default)]
pub(super) struct Suspects {
    all: BTreeMap<(DeviceId, ExtentId), Suspect>,
    is_saved: bool,
}

/// Times in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Suspect {
    since_ms: u64,
    /// Last check.
    checked_ms: u64,
}

impl Suspects {
    /// Loads the suspects that were saved last. An invalid group counts as none.
    pub(super) fn load(cursors: &dyn Cursors) -> Self {
        let mut all = BTreeMap::new();
        for group in cursors.load(NAME).unwrap_or_default().split(' ') {
            let mut words = group.split(':');
            let (Some(Ok(device)), Some(Ok(since_ms)), Some(ids)) = (
                words.next().map(str::parse::<u32>),
                words.next().map(str::parse::<u64>),
                words.next(),
            ) else {
                continue;
            };
            for id in ids.split(',').filter_map(|id| id.parse::<ExtentId>().ok()) {
                all.insert((DeviceId(device), id), Suspect { since_ms, checked_ms: since_ms });
            }
        }
        Self { all, is_saved: true }
    }

    /// Saves the suspects, if they have changed.
    pub(super) fn save(&mut self, cursors: &dyn Cursors) {
        if std::mem::replace(&mut self.is_saved, true) {
            return;
        }
        let mut groups: BTreeMap<(DeviceId, u64), Vec<String>> = BTreeMap::new();
        for ((device, id), suspect) in &self.all {
            groups.entry((*device, suspect.since_ms)).or_default().push(id.to_string());
        }
        let groups = groups
            .iter()
            .map(|((device, since_ms), ids)| format!("{}:{since_ms}:{}", device.0, ids.join(",")));
        cursors.save(NAME, &groups.collect::<Vec<_>>().join(" "));
    }

    /// Adds an extent; returns false if there is no room for it.
    pub(super) fn add(&mut self, device: DeviceId, id: ExtentId, now_ms: u64) -> bool {
        if self.is_full() && !self.all.contains_key(&(device, id)) {
            return false;
        }
        self.is_saved = false;
        let new = Suspect { since_ms: now_ms, checked_ms: now_ms };
        self.all.entry((device, id)).or_insert(new);
        true
    }

    /// Removes an extent: it is needed after all, or gone.
    pub(super) fn clear(&mut self, device: DeviceId, id: ExtentId) {
        self.is_saved &= self.all.remove(&(device, id)).is_none();
    }

    /// Removes the extents of a device.
    pub(super) fn clear_device(&mut self, device: DeviceId) {
        let count = self.all.len();
        self.all.retain(|(of, _), _| *of != device);
        self.is_saved &= self.all.len() == count;
    }

    /// Removes all extents.
    pub(super) fn clear_all(&mut self) {
        self.is_saved &= self.all.is_empty();
        self.all.clear();
    }

    /// Records a check of suspects.
    pub(super) fn postpone(&mut self, device: DeviceId, ids: &[ExtentId], now_ms: u64) {
        for id in ids {
            if let Some(suspect) = self.all.get_mut(&(device, *id)) {
                suspect.checked_ms = now_ms;
            }
        }
    }

    /// Returns suspects of one device that were last checked a grace time ago or earlier. A time in
    /// the future counts as none: the clock has stepped back.
    pub(super) fn ripe(
        &self,
        now_ms: u64,
        grace_ms: u64,
        limit: usize,
    ) -> Option<(DeviceId, Vec<ExtentId>)> {
        let is_ripe = |it: &Suspect| {
            it.checked_ms < now_ms && it.checked_ms.saturating_add(grace_ms) <= now_ms
        };
        let mut ripe =
            self.all.iter().filter(|(_, it)| is_ripe(it)).map(|(key, _)| *key).peekable();
        let (device, _) = *ripe.peek()?;
        let of_device = ripe.take_while(|(of, _)| *of == device).take(limit);
        Some((device, of_device.map(|(_, id)| id).collect()))
    }

    /// Returns true if there is no room for more.
    pub(super) fn is_full(&self) -> bool {
        self.all.len() >= SUSPECTS_MAX
    }

    pub(super) fn len(&self) -> u64 {
        self.all.len() as u64
    }

    /// Returns the time at which the oldest was found.
    pub(super) fn oldest_ms(&self) -> Option<u64> {
        self.all.values().map(|suspect| suspect.since_ms).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cursors::MemoryCursors;

    fn id(number: u8) -> ExtentId {
        ExtentId([number; 16])
    }

    #[test]
    fn suspects_are_ripe_a_grace_time_after_each_check_device_by_device() {
        let mut suspects = Suspects::default();
        for number in 0..3 {
            assert!(suspects.add(DeviceId(u32::from(number / 2)), id(number), 100));
        }
        assert_eq!(suspects.ripe(109, 10, 9), None);
        assert_eq!(suspects.ripe(100, 0, 9), None, "not in the step that found them");
        assert_eq!(suspects.ripe(50, 10, 9), None, "the clock stepped back");
        assert_eq!(suspects.ripe(110, 10, 1), Some((DeviceId(0), vec![id(0)])));
        suspects.postpone(DeviceId(0), &[id(0)], 110);
        assert_eq!(suspects.ripe(110, 10, 9), Some((DeviceId(0), vec![id(1)])));
        suspects.clear(DeviceId(0), id(1));
        assert_eq!(suspects.ripe(110, 10, 9), Some((DeviceId(1), vec![id(2)])));
        assert_eq!(suspects.ripe(120, 10, 9), Some((DeviceId(0), vec![id(0)])));
        assert_eq!((suspects.len(), suspects.oldest_ms()), (2, Some(100)));
    }

    #[test]
    fn suspects_survive_a_restart_and_nonsense_is_none() {
        let (cursors, mut suspects) = (MemoryCursors::default(), Suspects::default());
        for (device, number, at_ms) in [(1, 1, 50), (1, 2, 50), (1, 3, 60), (4, 1, 50)] {
            suspects.add(DeviceId(device), id(number), at_ms);
        }
        suspects.save(&cursors);
        assert_eq!(Suspects::load(&cursors).all, suspects.all);
        suspects.clear(DeviceId(4), id(1));
        suspects.save(&cursors);
        assert_eq!(Suspects::load(&cursors).len(), 3);
        cursors.save(NAME, "1:x:00 : 2 3:9:zz,4:1");
        assert_eq!(Suspects::load(&cursors).len(), 0);
    }

    #[test]
    fn a_full_list_takes_no_more_until_one_goes() {
        let mut suspects = Suspects::default();
        for number in 0..SUSPECTS_MAX as u64 {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&number.to_be_bytes());
            assert!(suspects.add(DeviceId(0), ExtentId(bytes), 1));
        }
        assert!(suspects.is_full() && !suspects.add(DeviceId(1), id(9), 1));
        assert!(suspects.add(DeviceId(0), ExtentId([0; 16]), 2), "it is known already");
        suspects.clear(DeviceId(0), ExtentId([0; 16]));
        assert!(suspects.add(DeviceId(1), id(9), 1));
    }
}

//! Duration of silence of devices from which homes are taking over. They are waited for, because
//! then nothing must be rebuilt; but a drained device may be dead.

use std::collections::BTreeMap;

use martlet_protocol::DeviceId;

use super::plan::FragmentPresence;

/// Time in milliseconds for which a silent device is waited for.
pub(super) const PATIENCE_MS: u64 = 15 * 60 * 1000;

/// Silent devices.
#[derive(Default)]
pub(super) struct Silence(BTreeMap<DeviceId, SilentPeriod>);

struct SilentPeriod {
    since_ms: u64,
    last_ms: u64,
}

impl Silence {
    /// Records which devices have answered now, and stops waiting for devices that were silent too
    /// long.
    pub(super) fn record<'a>(
        &mut self,
        seen: impl Iterator<Item = &'a mut FragmentPresence>,
        now_ms: u64,
    ) {
        for seen in seen {
            let Some((device, presence)) = seen.previous else { continue };
            if presence.is_some() {
                self.0.remove(&device);
            } else if self.is_over(device, now_ms) {
                seen.previous = None;
            }
        }
    }

    /// Returns true if a silent device is waited for no longer.
    fn is_over(&mut self, device: DeviceId, now_ms: u64) -> bool {
        let new = SilentPeriod { since_ms: now_ms, last_ms: now_ms };
        let spell = self.0.entry(device).or_insert(new);
        // After a long time without queries, the device's state in between is unknown.
        if now_ms.saturating_sub(spell.last_ms) > PATIENCE_MS {
            spell.since_ms = now_ms;
        }
        spell.last_ms = now_ms;
        now_ms.saturating_sub(spell.since_ms) >= PATIENCE_MS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: DeviceId = DeviceId(1);
    const B: DeviceId = DeviceId(2);

    #[test]
    fn each_silent_device_is_waited_for_by_itself() {
        let mut silence = Silence::default();
        assert!(!silence.is_over(A, 0));
        assert!(!silence.is_over(B, PATIENCE_MS / 2));
        assert!(silence.is_over(A, PATIENCE_MS));
        assert!(!silence.is_over(B, PATIENCE_MS));
        assert!(silence.is_over(B, PATIENCE_MS * 3 / 2));
    }

    #[test]
    fn a_spell_that_nobody_watched_begins_anew() {
        let mut silence = Silence::default();
        assert!(!silence.is_over(A, 0));
        assert!(!silence.is_over(A, 5 * PATIENCE_MS));
        assert!(silence.is_over(A, 6 * PATIENCE_MS));
    }
}

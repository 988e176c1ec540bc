//! Duration of silence and of giving of devices from which homes are taking over.
//!
//! A silent device is waited for, because then nothing must be rebuilt; but a drained device may be
//! dead. A device that gives for long has more fragments than it can copy alone: others rebuild
//! them beside it.

use std::collections::BTreeMap;

use martlet_protocol::DeviceId;
use martlet_protocol::backend::Presence;

use super::plan::FragmentPresence;

/// Time in milliseconds for which a silent device is waited for.
pub(super) const PATIENCE_MS: u64 = 15 * 60 * 1000;
/// Time in milliseconds after which others help a device that gives. A rebuild reads as much as
/// several copies do, so short moves are left to their givers.
pub(super) const GIVES_ALONE_MS: u64 = 60 * 60 * 1000;
/// Time in milliseconds without a query after which a device that gave begins anew: several passes.
const GIVING_GAP_MS: u64 = 24 * 60 * 60 * 1000;

/// Spells of silence and of giving.
#[derive(Default)]
pub(super) struct Silence {
    silent: Spells,
    giving: Spells,
}

/// Spells by device.
#[derive(Default)]
struct Spells(BTreeMap<DeviceId, Spell>);

struct Spell {
    since_ms: u64,
    last_ms: u64,
}

impl Silence {
    /// Records which devices have answered now and which give, stops waiting for devices that were
    /// silent too long, and marks the fragments of devices that have given for long.
    pub(super) fn record<'a>(
        &mut self,
        seen: impl Iterator<Item = &'a mut FragmentPresence>,
        now_ms: u64,
    ) {
        for seen in seen {
            let Some((device, presence)) = seen.previous else { continue };
            if presence.is_some() {
                self.silent.0.remove(&device);
            } else if self.silent.lasts(device, now_ms, PATIENCE_MS) >= PATIENCE_MS {
                seen.previous = None;
            }
            if presence == Some(Presence::Here) && seen.at_home == Some(Presence::Missing) {
                let gives_ms = self.giving.lasts(device, now_ms, GIVING_GAP_MS);
                seen.is_late = gives_ms >= GIVES_ALONE_MS;
            }
        }
    }
}

impl Spells {
    /// Continues a device's spell; returns its duration in milliseconds. After more than `gap_ms`
    /// without a query the state in between is unknown, and the spell begins anew.
    fn lasts(&mut self, device: DeviceId, now_ms: u64, gap_ms: u64) -> u64 {
        let new = Spell { since_ms: now_ms, last_ms: now_ms };
        let spell = self.0.entry(device).or_insert(new);
        if now_ms.saturating_sub(spell.last_ms) > gap_ms {
            spell.since_ms = now_ms;
        }
        spell.last_ms = now_ms;
        now_ms.saturating_sub(spell.since_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: DeviceId = DeviceId(1);
    const B: DeviceId = DeviceId(2);

    /// Returns true if a silent device is waited for no longer.
    fn is_over(spells: &mut Spells, device: DeviceId, now_ms: u64) -> bool {
        spells.lasts(device, now_ms, PATIENCE_MS) >= PATIENCE_MS
    }

    #[test]
    fn each_silent_device_is_waited_for_by_itself() {
        let mut spells = Spells::default();
        assert!(!is_over(&mut spells, A, 0));
        assert!(!is_over(&mut spells, B, PATIENCE_MS / 2));
        assert!(is_over(&mut spells, A, PATIENCE_MS));
        assert!(!is_over(&mut spells, B, PATIENCE_MS));
        assert!(is_over(&mut spells, B, PATIENCE_MS * 3 / 2));
    }

    #[test]
    fn an_unobserved_silence_starts_again() {
        let mut spells = Spells::default();
        assert!(!is_over(&mut spells, A, 0));
        assert!(!is_over(&mut spells, A, 5 * PATIENCE_MS));
        assert!(is_over(&mut spells, A, 6 * PATIENCE_MS));
    }

    #[test]
    fn a_device_that_gives_for_long_is_helped_and_one_that_has_given_is_not() {
        let mut silence = Silence::default();
        let mut late = |at_home, giver, now_ms| {
            let mut seen = FragmentPresence {
                fragment: martlet_erasure::FragmentIndex(0),
                home: B,
                at_home: Some(at_home),
                previous: Some((giver, Some(Presence::Here))),
                others: Vec::new(),
                is_late: false,
            };
            silence.record([&mut seen].into_iter(), now_ms);
            seen.is_late
        };
        assert!(!late(Presence::Missing, A, 0));
        assert!(!late(Presence::Missing, A, GIVES_ALONE_MS - 1));
        assert!(!late(Presence::Missing, B, GIVES_ALONE_MS));
        assert!(late(Presence::Missing, A, GIVES_ALONE_MS));
        assert!(!late(Presence::Here, A, GIVES_ALONE_MS + 1), "it is at home");
        assert!(!late(Presence::Missing, A, GIVES_ALONE_MS + GIVING_GAP_MS + 2), "another drain");
    }
}

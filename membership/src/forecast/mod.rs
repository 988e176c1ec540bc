//! Forecasts from rings and device reports, as pure functions for operators' commands.
//!
//! * [`capacity`]: fullness of devices, and the bytes that can still be written.
//! * [`spread`]: balance and dispersion of the rings in use.
//! * [`moves`]: replicas that are moving.
//!
//! A ring gives the number of replicas that come and go, a device the number of bytes it holds. A
//! replica's size is the average of the device that it leaves.

pub mod capacity;
pub mod spread;

use std::collections::{BTreeMap, BTreeSet};

use martlet_admin_api::{ChangeLine, MovesLine};
use martlet_protocol::{DeviceId, Phase, Term};
use martlet_ring::Ring;

/// Summarizes the moving replicas of a ring. Returns `None` if nothing moves.
pub fn moves(name: &str, ring: &Ring) -> Option<MovesLine> {
    let steps = ring.moves();
    let mut partitions: Vec<u32> = steps.iter().map(|step| step.partition.0).collect();
    partitions.dedup();
    (!steps.is_empty()).then(|| MovesLine {
        ring: name.to_owned(),
        epoch: ring.epoch(),
        partitions: count(ring.partitions().count()),
        replicas: count(ring.partitions().map(|it| ring.primaries(it).len()).sum()),
        partitions_moving: count(partitions.len()),
        replicas_moving: count(steps.len()),
        change: None,
    })
}

/// Returns the progress of the index ring's last change at this term. `joined` maps each device to
/// the last change that it joined.
pub fn change(ring: &Ring, term: Term, joined: &BTreeMap<DeviceId, u64>) -> ChangeLine {
    let change = ring.change();
    let steps = ring.moves().iter().filter(|step| step.change == change);
    let receivers: BTreeSet<DeviceId> = steps
        .filter_map(|step| ring.primaries(step.partition).nth(usize::from(step.replica)))
        .collect();
    let has_joined = |id: &&DeviceId| joined.get(id).is_some_and(|last| *last >= change);
    let phase = match term.phase_of(change) {
        None => "waiting",
        Some(Phase::Old) => "old",
        Some(Phase::Joint) => "joint",
        Some(Phase::New) => "new",
    };
    ChangeLine {
        change,
        phase: phase.to_owned(),
        receivers: count(receivers.len()),
        joined: count(receivers.iter().filter(has_joined).count()),
    }
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{builder, device, next};

    #[test]
    fn a_successor_ring_lists_its_moves() {
        let mut builder = builder(0, 3);
        assert_eq!(moves("data-0", &next(&mut builder)), None);
        builder.add(device(4, "d1")).unwrap();
        let ring = next(&mut builder);
        let line = moves("data-0", &ring).unwrap();
        assert_eq!((line.partitions, line.replicas, line.epoch), (16, 48, 2));
        assert!((8..=16).contains(&line.replicas_moving), "{line:?}");
        assert_eq!(line.replicas_moving, line.partitions_moving, "one replica at a time");
    }

    #[test]
    fn p2_a_change_lists_deciders_and_complete_holders() {
        let mut builder = builder(0, 3);
        next(&mut builder);
        builder.add(device(4, "d1")).unwrap();
        let ring = next(&mut builder);
        let now = ring.change();
        let phase_of = |term, joined: &[(u32, u64)]| {
            let joined = joined.iter().map(|(id, last)| (DeviceId(*id), *last)).collect();
            let line = change(&ring, term, &joined);
            (line.phase, line.receivers, line.joined)
        };
        assert_eq!(phase_of(Term::NONE, &[]), ("waiting".into(), 1, 0));
        assert_eq!(phase_of(Term::of(now, Phase::Old), &[]), ("old".into(), 1, 0));
        let before = [(3, now - 1), (0, now)];
        assert_eq!(phase_of(Term::of(now, Phase::Joint), &before), ("joint".into(), 1, 0));
        assert_eq!(phase_of(Term::of(now, Phase::New), &[(3, now)]), ("new".into(), 1, 1));
    }
}

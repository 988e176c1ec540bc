//! Action on one extent of a device, from its presence on its primaries. Pure functions.
//!
//! Invariants:
//! * an extent is released only if every primary has it;
//! * nothing is copied while a primary reports a delete, unless the index needs the extent (rule
//!   X4);
//! * of the devices that could make a copy, the first in an order derived from the extent's id
//!   makes it, in any process and pass: two workers at different times never leave it to each
//!   other;
//! * over as many passes as holders, each other holder has its turn too, from the second pass on,
//!   so that a holder with an unreadable copy blocks nothing.

use martlet_protocol::backend::Presence;
use martlet_protocol::{DeviceId, ExtentId};

/// Presence on a primary; a silent device is none.
pub(super) type DevicePresence = (DeviceId, Option<Presence>);

/// Action on a device's copy of an extent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CopyAction {
    /// No action: primaries have it.
    Nothing,
    /// Copy to these primaries, which lack it: this device has the turn.
    Copy(Vec<DeviceId>),
    /// Release: all primaries have it, and this device is none of them.
    LetGo,
    /// A primary has its delete mark, and this device may have missed the delete: the index
    /// decides.
    Judge,
    /// A primary lacks it, and another device has the turn to copy it.
    Leave,
    /// Wait: not all primaries have answered.
    Wait,
}

/// Turn to make a copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyTurn {
    /// Position of the extent's first giver, modulo the number of its primaries.
    pub(crate) start: usize,
    /// Number of this process's passes before this one.
    pub(crate) pass: u64,
}

impl CopyTurn {
    /// Returns the turn of an extent in a pass.
    pub(crate) fn of(id: ExtentId, pass: u64) -> Self {
        // The first half is the placement, and the last byte numbers fragments.
        Self { start: usize::from(id.0[14]), pass }
    }

    /// Returns true if `device` has the turn. It is one of `givers`, which are a subset of `all` in
    /// order.
    pub(crate) fn is_of(self, device: DeviceId, all: &[DeviceId], givers: &[DeviceId]) -> bool {
        let start = self.start % all.len().max(1);
        let in_order = all[start..].iter().chain(&all[..start]).chain(givers);
        let mut order: Vec<DeviceId> = Vec::with_capacity(givers.len());
        for giver in in_order.filter(|it| givers.contains(it)) {
            if !order.contains(giver) {
                order.push(*giver);
            }
        }
        let turn = usize::try_from(self.pass % order.len().max(1) as u64).unwrap_or(0);
        order.first() == Some(&device) || order.get(turn) == Some(&device)
    }
}

/// Returns the action of `device`, which has the extent. `presences` is the presence on the
/// primaries, including this device if it is one.
pub(super) fn plan(device: DeviceId, presences: &[DevicePresence], turn: CopyTurn) -> CopyAction {
    let who = |wanted| {
        let those = presences.iter().filter(move |(_, presence)| *presence == Some(wanted));
        those.map(|(primary, _)| *primary)
    };
    if who(Presence::Deleted).next().is_some() {
        return CopyAction::Judge;
    }
    // An extent without a known ring may belong to an unknown one.
    if presences.is_empty() {
        return CopyAction::Wait;
    }
    let missing: Vec<DeviceId> = who(Presence::Missing).collect();
    let mut givers: Vec<DeviceId> = who(Presence::Here).collect();
    let is_stray = presences.iter().all(|(primary, _)| *primary != device);
    if missing.is_empty() {
        return match (is_stray, givers.len() == presences.len()) {
            (true, true) => CopyAction::LetGo,
            (false, _) => CopyAction::Nothing,
            (true, false) => CopyAction::Wait,
        };
    }
    if is_stray {
        givers.push(device);
    }
    let all: Vec<DeviceId> = presences.iter().map(|(primary, _)| *primary).collect();
    if turn.is_of(device, &all, &givers) { CopyAction::Copy(missing) } else { CopyAction::Leave }
}

/// Returns the action on an extent that the index needs. Primaries with its delete mark refuse
/// copies, and count as silent.
pub(super) fn plan_needed(
    device: DeviceId,
    mut presences: Vec<DevicePresence>,
    turn: CopyTurn,
) -> CopyAction {
    for (_, presence) in &mut presences {
        presence.take_if(|it| *it == Presence::Deleted);
    }
    plan(device, &presences, turn)
}

#[cfg(test)]
mod tests {
    use Presence::{Deleted, Here, Missing};

    use super::*;

    fn reported(all: &[Option<Presence>]) -> Vec<DevicePresence> {
        (0..).map(DeviceId).zip(all.iter().copied()).collect()
    }

    const STRAY: DeviceId = DeviceId(9);

    /// Turn in a pass, of an extent whose first giver is `start`.
    fn turn(start: usize, pass: u64) -> CopyTurn {
        CopyTurn { start, pass }
    }

    #[test]
    fn a_stray_is_let_go_only_when_all_primaries_have_it() {
        for (all, deed) in [
            ([Some(Here), Some(Here), Some(Here)], CopyAction::LetGo),
            ([Some(Here), Some(Here), None], CopyAction::Wait),
            ([None, None, None], CopyAction::Wait),
            ([Some(Here), Some(Here), Some(Deleted)], CopyAction::Judge),
            (
                [Some(Missing), None, Some(Missing)],
                CopyAction::Copy(vec![DeviceId(0), DeviceId(2)]),
            ),
        ] {
            assert_eq!(plan(STRAY, &reported(&all), turn(0, 0)), deed, "{all:?}");
        }
        assert_eq!(plan(STRAY, &[], turn(0, 0)), CopyAction::Wait);
    }

    #[test]
    fn a_primary_never_lets_go() {
        for second in [Some(Here), Some(Missing), Some(Deleted), None] {
            for third in [Some(Here), Some(Missing), Some(Deleted), None] {
                let all = reported(&[Some(Here), second, third]);
                assert_ne!(plan(DeviceId(0), &all, turn(0, 0)), CopyAction::LetGo, "{all:?}");
            }
        }
    }

    #[test]
    fn the_first_copies_in_every_pass_and_each_other_has_its_turn() {
        let all = reported(&[Some(Here), Some(Here), Some(Missing)]);
        let copy = CopyAction::Copy(vec![DeviceId(2)]);
        for (start, first) in [(0, 0), (1, 1), (2, 0), (3, 0)] {
            for pass in 0..4 {
                let deeds = [0, 1].map(|id| plan(DeviceId(id), &all, turn(start, pass)));
                let copying: Vec<usize> = (0..2).filter(|at| deeds[*at] == copy).collect();
                let expected = if pass % 2 == 0 { vec![first] } else { vec![0, 1] };
                assert_eq!(copying, expected, "{start}, {pass}");
            }
        }
        // A stray has its turn after the primaries that have a copy.
        let deeds: Vec<CopyAction> = (0..3).map(|pass| plan(STRAY, &all, turn(0, pass))).collect();
        assert_eq!(deeds, [CopyAction::Leave, CopyAction::Leave, copy]);
        // It copies at once if no other device can.
        let none = reported(&[Some(Missing), None, Some(Missing)]);
        for pass in 0..3 {
            assert!(matches!(plan(STRAY, &none, turn(1, pass)), CopyAction::Copy(_)));
        }
    }

    #[test]
    fn a_mark_on_a_needed_extent_counts_as_silence() {
        let all = reported(&[Some(Here), Some(Deleted), Some(Missing)]);
        let wanted = |all: &[DevicePresence]| plan_needed(DeviceId(0), all.to_vec(), turn(0, 0));
        assert_eq!(wanted(&all), CopyAction::Copy(vec![DeviceId(2)]));
        let all = reported(&[Some(Here), Some(Deleted), Some(Here)]);
        assert_eq!(wanted(&all), CopyAction::Nothing);
        assert_eq!(plan_needed(STRAY, all, turn(0, 0)), CopyAction::Wait, "it may be one of two");
    }

    #[test]
    fn no_extent_is_copied_while_a_primary_has_a_delete_mark() {
        let all = reported(&[Some(Here), Some(Deleted), Some(Missing)]);
        assert_eq!(plan(DeviceId(0), &all, turn(0, 0)), CopyAction::Judge);
        assert_eq!(plan(STRAY, &all, turn(0, 0)), CopyAction::Judge);
    }

    #[test]
    fn all_well_is_nothing_to_do() {
        let all = reported(&[Some(Here), Some(Here), None]);
        assert_eq!(plan(DeviceId(0), &all, turn(0, 5)), CopyAction::Nothing);
    }
}

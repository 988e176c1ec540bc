//! What is to be done with one extent of a device, from what its primaries say. Pure.
//!
//! Invariants:
//! * nothing is let go unless every primary says that it has it;
//! * nothing is copied while a primary says that it was deleted (rule X4);
//! * of those who could make a copy, whoever's turn it is makes it: over so many passes as there are
//!   holders each has its turn, so that one that can't read its copy holds up nobody.

use martlet_protocol::DeviceId;
use martlet_protocol::backend::Presence;

/// What a primary says; silence is none.
pub(super) type Said = (DeviceId, Option<Presence>);

/// What is to be done with a device's copy of an extent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    /// All is as it should be.
    Nothing,
    /// These primaries lack it, and it is this device's turn to give it to them.
    Copy(Vec<DeviceId>),
    /// All primaries have it, and this device is none of them.
    LetGo,
    /// A primary was told to delete it: this device may have missed that.
    Judge,
    /// Somebody lacks it, and it is another's turn to give it.
    Leave,
    /// Not all of those who must have it before it may go have answered.
    Wait,
}

/// What `device` is to do, which has the extent; `said` is what the primaries say, this device
/// among them if it is one.
pub(super) fn plan(device: DeviceId, said: &[Said], turn: u64) -> Deed {
    let who = |wanted| {
        let those = said.iter().filter(move |(_, presence)| *presence == Some(wanted));
        those.map(|(primary, _)| *primary)
    };
    if who(Presence::Deleted).next().is_some() {
        return Deed::Judge;
    }
    // An extent that belongs nowhere that is known may belong somewhere.
    if said.is_empty() {
        return Deed::Wait;
    }
    let missing: Vec<DeviceId> = who(Presence::Missing).collect();
    let mut givers: Vec<DeviceId> = who(Presence::Here).collect();
    let is_stray = said.iter().all(|(primary, _)| *primary != device);
    if missing.is_empty() {
        return match (is_stray, givers.len() == said.len()) {
            (true, true) => Deed::LetGo,
            (false, _) => Deed::Nothing,
            (true, false) => Deed::Wait,
        };
    }
    if is_stray {
        givers.push(device);
    }
    let turn = usize::try_from(turn % givers.len().max(1) as u64).unwrap_or(0);
    if givers.get(turn) == Some(&device) { Deed::Copy(missing) } else { Deed::Leave }
}

#[cfg(test)]
mod tests {
    use Presence::{Deleted, Here, Missing};

    use super::*;

    fn said(all: &[Option<Presence>]) -> Vec<Said> {
        (0..).map(DeviceId).zip(all.iter().copied()).collect()
    }

    const STRAY: DeviceId = DeviceId(9);

    #[test]
    fn a_stray_is_let_go_only_when_all_primaries_have_it() {
        for (all, deed) in [
            ([Some(Here), Some(Here), Some(Here)], Deed::LetGo),
            ([Some(Here), Some(Here), None], Deed::Wait),
            ([None, None, None], Deed::Wait),
            ([Some(Here), Some(Here), Some(Deleted)], Deed::Judge),
            ([Some(Missing), None, Some(Missing)], Deed::Copy(vec![DeviceId(0), DeviceId(2)])),
        ] {
            assert_eq!(plan(STRAY, &said(&all), 0), deed, "{all:?}");
        }
        assert_eq!(plan(STRAY, &[], 0), Deed::Wait);
    }

    #[test]
    fn a_primary_never_lets_go() {
        for second in [Some(Here), Some(Missing), Some(Deleted), None] {
            for third in [Some(Here), Some(Missing), Some(Deleted), None] {
                let all = said(&[Some(Here), second, third]);
                assert_ne!(plan(DeviceId(0), &all, 0), Deed::LetGo, "{all:?}");
            }
        }
    }

    #[test]
    fn exactly_one_copies_at_a_time_and_each_has_its_turn() {
        let all = said(&[Some(Here), Some(Here), Some(Missing)]);
        let copy = Deed::Copy(vec![DeviceId(2)]);
        for turn in 0..4 {
            let deeds = [0, 1].map(|id| plan(DeviceId(id), &all, turn));
            let copying: Vec<usize> = (0..2).filter(|at| deeds[*at] == copy).collect();
            assert_eq!(copying, [usize::try_from(turn).unwrap() % 2]);
        }
        // A stray has its turn after the primaries that have a copy.
        let deeds: Vec<Deed> = (0..3).map(|turn| plan(STRAY, &all, turn)).collect();
        assert_eq!(deeds, [Deed::Leave, Deed::Leave, copy]);
    }

    #[test]
    fn nothing_is_copied_while_a_primary_says_deleted() {
        let all = said(&[Some(Here), Some(Deleted), Some(Missing)]);
        assert_eq!(plan(DeviceId(0), &all, 0), Deed::Judge);
        assert_eq!(plan(STRAY, &all, 0), Deed::Judge);
    }

    #[test]
    fn all_well_is_nothing_to_do() {
        let all = said(&[Some(Here), Some(Here), None]);
        assert_eq!(plan(DeviceId(0), &all, 5), Deed::Nothing);
    }
}

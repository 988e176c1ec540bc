//! Action on one coded extent, from the presence of its fragments. Pure functions.
//!
//! Invariants:
//! * nothing is rebuilt while any device reports that a fragment was deleted (rule X4);
//! * a fragment that a device has, or may hold for the home, is not lost: replication brings it
//!   home. If its holder has copied for long, one watcher rebuilds the fragment beside it: the
//!   extent's id chooses the watcher, in any process and pass;
//! * of the watchers of a loss, the first in an order derived from the extent's id rebuilds it, in
//!   any process and pass. Over as many passes as watchers, each other watcher has its turn too, so
//!   that a failing watcher blocks nothing.
//!
//! The holder of a fragment watches the next fragments in cyclic order, as many as may be lost.
//! While no more are lost or out, each lost fragment has a watcher that is up, and no device must
//! query about all.

use martlet_erasure::FragmentIndex;
use martlet_protocol::DeviceId;
use martlet_protocol::backend::Presence;

use crate::replicate::plan::CopyTurn;

/// Presence of one fragment; a silent device is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FragmentPresence {
    pub(super) fragment: FragmentIndex,
    pub(super) home: DeviceId,
    pub(super) at_home: Option<Presence>,
    /// Device from which the home is taking over, if any.
    pub(super) previous: Option<(DeviceId, Option<Presence>)>,
    /// Presence on all other devices, once they were queried.
    pub(super) others: Vec<(DeviceId, Option<Presence>)>,
    /// True if the previous holder has copied for long, and still has fragments to copy.
    pub(super) is_late: bool,
}

/// Action on an extent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StripeAction {
    /// Every fragment is at home, or on its way home.
    Nothing,
    /// A fragment is lost, and another device has the turn to rebuild it.
    Leave,
    /// A device that may have a fragment did not answer.
    Wait,
    /// A fragment was deleted: the index decides.
    Judge,
    /// A fragment is missing at home: all other devices must be queried.
    Search,
    /// Rebuild these fragments.
    Build(Vec<FragmentIndex>),
    /// Too few fragments are left on all devices together.
    Lost,
}

impl FragmentPresence {
    /// Returns the devices that have the fragment.
    pub(super) fn holders(&self) -> impl Iterator<Item = DeviceId> {
        let home = (self.home, self.at_home);
        let all = [home].into_iter().chain(self.previous).chain(self.others.iter().copied());
        all.filter(|(_, presence)| *presence == Some(Presence::Here)).map(|(device, _)| device)
    }

    fn is_deleted(&self) -> bool {
        let all = [self.at_home].into_iter().chain(self.previous.map(|(_, presence)| presence));
        all.chain(self.others.iter().map(|(_, presence)| *presence))
            .any(|presence| presence == Some(Presence::Deleted))
    }

    /// Ignores delete marks that the index contradicts: these devices don't have the fragment.
    pub(super) fn forget_deleted(&mut self) {
        let presence = [&mut self.at_home].into_iter();
        let presence = presence.chain(self.previous.as_mut().map(|(_, presence)| presence));
        for presence in presence.chain(self.others.iter_mut().map(|(_, presence)| presence)) {
            if *presence == Some(Presence::Deleted) {
                *presence = None;
            }
        }
    }

    fn is_missing(&self) -> bool {
        self.at_home == Some(Presence::Missing) && self.holders().next().is_none()
    }

    /// Returns true if a device that did not answer is likely to have the fragment.
    fn is_uncertain(&self) -> bool {
        self.previous.is_some_and(|(_, presence)| presence.is_none())
    }
}

/// Returns the action of `device`, which has a fragment; `needed` fragments give all others.
pub(super) fn plan(
    device: DeviceId,
    seen: &[FragmentPresence],
    needed: u8,
    turn: CopyTurn,
    everyone_asked: bool,
) -> StripeAction {
    if seen.iter().any(FragmentPresence::is_deleted) {
        return StripeAction::Judge;
    }
    let missing = (0..seen.len()).filter(|at| seen[*at].is_missing());
    let (unsure, lost): (Vec<usize>, Vec<usize>) = missing.partition(|at| seen[*at].is_uncertain());
    if lost.is_empty() {
        return match late_of(device, seen, needed, turn) {
            late if !late.is_empty() => StripeAction::Build(late),
            _ if unsure.is_empty() => StripeAction::Nothing,
            _ => StripeAction::Wait,
        };
    }
    if !is_rebuilder(device, seen, needed, turn) {
        return StripeAction::Leave;
    }
    if !everyone_asked {
        return StripeAction::Search;
    }
    let left = seen.iter().filter(|seen| seen.holders().next().is_some()).count();
    if left >= usize::from(needed) {
        return StripeAction::Build(lost.into_iter().map(|at| seen[at].fragment).collect());
    }
    let is_silent = |seen: &FragmentPresence| {
        seen.at_home.is_none() || seen.is_uncertain() || seen.others.iter().any(|it| it.1.is_none())
    };
    if seen.iter().any(is_silent) { StripeAction::Wait } else { StripeAction::Lost }
}

/// Returns the late fragments that `device` rebuilds beside their holders: none if too few others
/// are left. Candidates are the holders at home that watch the fragment.
fn late_of(
    device: DeviceId,
    seen: &[FragmentPresence],
    needed: u8,
    turn: CopyTurn,
) -> Vec<FragmentIndex> {
    let is_late = |at: &usize| seen[*at].is_late && seen[*at].at_home == Some(Presence::Missing);
    let late: Vec<usize> = (0..seen.len()).filter(is_late).collect();
    let has_others = |at: &usize| !late.contains(at) && seen[*at].holders().next().is_some();
    if (0..seen.len()).filter(has_others).count() < usize::from(needed) {
        return Vec::new();
    }
    let is_chosen = |lost: &usize| {
        let watches = |at: &usize| watched(*at, seen.len(), needed).any(|it| it == *lost);
        let is_home = |at: &usize| seen[*at].at_home == Some(Presence::Here);
        let helpers: Vec<usize> = (0..seen.len()).filter(watches).filter(is_home).collect();
        let chosen = helpers.get(turn.start % helpers.len().max(1));
        chosen.is_some_and(|at| seen[*at].home == device)
    };
    late.iter().filter(|at| is_chosen(at)).map(|at| seen[*at].fragment).collect()
}

/// Returns true if `device` has the turn. Candidates are holders at home, or previous holders, that
/// watch a fragment missing at home; and `device`, if it holds a fragment for another home. The
/// holdings of other devices don't matter.
fn is_rebuilder(device: DeviceId, seen: &[FragmentPresence], needed: u8, turn: CopyTurn) -> bool {
    let (mut settled, mut givers) = (Vec::new(), Vec::new());
    for (at, of) in seen.iter().enumerate() {
        let previous = of.previous.filter(|(_, presence)| *presence == Some(Presence::Here));
        let home = (of.at_home == Some(Presence::Here)).then_some(of.home);
        let is_away = |at: usize| seen[at].at_home == Some(Presence::Missing);
        let watches = watched(at, seen.len(), needed).any(is_away);
        for holder in home.into_iter().chain(previous.map(|(device, _)| device)) {
            settled.push(holder);
            if watches && !givers.contains(&holder) {
                givers.push(holder);
            }
        }
    }
    if !settled.contains(&device) || givers.is_empty() {
        givers.push(device);
    }
    let homes: Vec<DeviceId> = seen.iter().map(|seen| seen.home).collect();
    turn.is_of(device, &homes, &givers)
}

/// Returns the positions watched by the holder of the fragment at `at` of `count`; `needed`
/// fragments give all others.
pub(super) fn watched(at: usize, count: usize, needed: u8) -> impl Iterator<Item = usize> {
    let spare = count.saturating_sub(usize::from(needed));
    (1..=spare).map(move |step| (at + step) % count)
}

#[cfg(test)]
mod tests {
    use Presence::{Deleted, Here, Missing};

    use super::*;

    /// Turn in a pass, of an extent whose first watcher is the first home.
    fn turn(pass: u64) -> CopyTurn {
        CopyTurn { start: 0, pass }
    }

    /// Fragment i has its home on device i.
    fn seen(homes: &[Option<Presence>]) -> Vec<FragmentPresence> {
        let one = |(number, at_home): (u8, &Option<Presence>)| FragmentPresence {
            fragment: FragmentIndex(number),
            home: DeviceId(u32::from(number)),
            at_home: *at_home,
            previous: None,
            others: Vec::new(),
            is_late: false,
        };
        (0..).zip(homes).map(one).collect()
    }

    /// Returns the holders' action; all but one may leave it to that one.
    fn decided(seen: &[FragmentPresence], everyone_asked: bool) -> StripeAction {
        let holders = seen.iter().flat_map(FragmentPresence::holders);
        let mut deeds: Vec<StripeAction> =
            holders.map(|device| plan(device, seen, 2, turn(0), everyone_asked)).collect();
        deeds.retain(|deed| *deed != StripeAction::Leave);
        deeds.dedup();
        assert_eq!(deeds.len(), 1, "{deeds:?} of {seen:?}");
        deeds.remove(0)
    }

    fn of(homes: &[Option<Presence>], everyone_asked: bool) -> StripeAction {
        decided(&seen(homes), everyone_asked)
    }

    #[test]
    fn a_lost_fragment_is_rebuilt_after_every_device_replied() {
        let one = [Some(Here), Some(Here), Some(Missing)];
        assert_eq!(of(&one, false), StripeAction::Search);
        assert_eq!(of(&one, true), StripeAction::Build(vec![FragmentIndex(2)]));
        let two = [Some(Here), Some(Missing), Some(Here), Some(Missing)];
        assert_eq!(of(&two, true), StripeAction::Build(vec![FragmentIndex(1), FragmentIndex(3)]));
        assert_eq!(of(&[Some(Here), Some(Here), Some(Here)], false), StripeAction::Nothing);
    }

    #[test]
    fn silence_is_no_loss() {
        assert_eq!(of(&[Some(Here), Some(Here), None], true), StripeAction::Nothing);
        assert_eq!(of(&[None, Some(Here), Some(Missing)], true), StripeAction::Wait);
        let mut moving = seen(&[Some(Here), Some(Here), Some(Missing)]);
        moving[2].previous = Some((DeviceId(7), None));
        assert_eq!(decided(&moving, false), StripeAction::Wait);
        // A silent device that is neither home nor previous holder doesn't block a rebuild.
        let mut stray = seen(&[Some(Here), Some(Here), Some(Missing)]);
        stray[2].others = vec![(DeviceId(8), None)];
        assert_eq!(decided(&stray, true), StripeAction::Build(vec![FragmentIndex(2)]));
        // But if too few are left, it may have the missing fragments.
        let mut few = seen(&[Some(Missing), Some(Here), Some(Missing)]);
        assert_eq!(decided(&few, true), StripeAction::Lost);
        few[0].others = vec![(DeviceId(8), None)];
        assert_eq!(decided(&few, true), StripeAction::Wait);
    }

    #[test]
    fn a_fragment_on_any_device_is_left_to_replication() {
        let mut moving = seen(&[Some(Here), Some(Here), Some(Missing)]);
        moving[2].previous = Some((DeviceId(7), Some(Here)));
        assert_eq!(decided(&moving, false), StripeAction::Nothing);
        let mut stray = seen(&[Some(Here), Some(Here), Some(Missing)]);
        stray[2].others = vec![(DeviceId(8), Some(Missing)), (DeviceId(9), Some(Here))];
        assert_eq!(decided(&stray, true), StripeAction::Nothing);
        // A fragment away from home is as good a source as any.
        let mut source = seen(&[None, Some(Here), Some(Missing)]);
        source[0].others = vec![(DeviceId(9), Some(Here))];
        assert_eq!(
            plan(DeviceId(1), &source, 2, turn(0), true),
            StripeAction::Build(vec![FragmentIndex(2)])
        );
    }

    #[test]
    fn a_fragment_missing_for_long_is_rebuilt_by_one_watcher() {
        let mut late = seen(&[Some(Here), Some(Missing), Some(Here), Some(Here), Some(Here)]);
        late[1].previous = Some((DeviceId(7), Some(Here)));
        let builders = |seen: &[FragmentPresence], start, pass| -> Vec<u32> {
            let acts = |id: &u32| {
                let action = plan(DeviceId(*id), seen, 3, CopyTurn { start, pass }, false);
                assert!(matches!(action, StripeAction::Nothing | StripeAction::Build(_)));
                action == StripeAction::Build(vec![FragmentIndex(1)])
            };
            [0, 2, 3, 4, 7].into_iter().filter(acts).collect()
        };
        assert_eq!(builders(&late, 0, 0), [0; 0]);
        late[1].is_late = true;
        for pass in 0..3 {
            // The holders of fragments 0 and 4 watch fragment 1.
            assert_eq!(builders(&late, 0, pass), [0]);
            assert_eq!(builders(&late, 1, pass), [4]);
        }
        late[0].at_home = None;
        assert_eq!(builders(&late, 0, 0), [4], "a silent watcher is left out");
        late[3].at_home = None;
        assert_eq!(builders(&late, 0, 0), [0; 0], "too few others are left");
    }

    #[test]
    fn nothing_is_made_of_what_was_deleted_anywhere() {
        for place in 0..3 {
            let mut deleted = seen(&[Some(Here), Some(Here), Some(Missing)]);
            match place {
                0 => deleted[1].at_home = Some(Deleted),
                1 => deleted[2].previous = Some((DeviceId(7), Some(Deleted))),
                _ => deleted[2].others = vec![(DeviceId(8), Some(Deleted))],
            }
            for device in [0, 1, 9].map(DeviceId) {
                assert_eq!(
                    plan(device, &deleted, 2, turn(0), place == 2),
                    StripeAction::Judge,
                    "{place}"
                );
            }
            deleted.iter_mut().for_each(FragmentPresence::forget_deleted);
            assert_ne!(
                plan(DeviceId(0), &deleted, 2, turn(0), true),
                StripeAction::Judge,
                "{place}"
            );
        }
    }

    #[test]
    fn the_first_who_watches_makes_it_in_every_pass_and_each_other_has_its_turn() {
        let all = seen(&[Some(Here), None, Some(Here), Some(Missing), Some(Here)]);
        let builds =
            |id, turn| matches!(plan(DeviceId(id), &all, 2, turn, true), StripeAction::Build(_));
        for (start, first) in [(0, 0), (1, 2), (2, 2), (3, 0), (4, 0), (5, 0)] {
            for pass in 0..7 {
                let building: Vec<u32> = [0, 2, 4]
                    .into_iter()
                    .filter(|id| builds(*id, CopyTurn { start, pass }))
                    .collect();
                let expected = if pass % 2 == 0 { vec![first] } else { vec![0, 2] };
                assert_eq!(building, expected, "{start}, {pass}");
            }
        }
        // The holder of a stray fragment has its turn last.
        let building: Vec<bool> = (0..3).map(|pass| builds(9, turn(pass))).collect();
        assert_eq!(building, [false, false, true]);
    }

    #[test]
    fn every_tolerable_loss_has_a_watching_device() {
        for (count, needed) in [(3, 2), (6, 4), (7, 5), (11, 8), (3, 1)] {
            let spare = count - usize::from(needed);
            let out = (0..1_usize << count).filter(|out| out.count_ones() as usize <= spare);
            for (out, lost) in out.flat_map(|out| (0..count).map(move |lost| (out, lost))) {
                let is_out = |at: usize| out & (1 << at) != 0;
                let watches = |at: usize| watched(at, count, needed).any(|next| next == lost);
                let found = (0..count).any(|at| !is_out(at) && watches(at));
                assert!(!is_out(lost) || found, "{lost} of {count}, out {out:b}");
            }
        }
    }
}

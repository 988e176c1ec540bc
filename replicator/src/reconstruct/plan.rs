//! What is to be done about one extent that is kept as fragments, from what devices say. Pure.
//!
//! Invariants:
//! * nothing is made while anybody says that a fragment of it was deleted (rule X4);
//! * what somebody has, or may be holding for the home, is not lost: replication brings it home;
//! * of those who watch over what is lost, the first in an order that the extent's id gives makes it, in
//!   whatever process and pass; over so many passes as there are watchers each other one has its turn
//!   too, so that one that can't holds up nobody.
//!
//! Who holds a fragment watches over those that come next, round in a circle, as many as may be lost.
//! While no more than that are lost or out, each that is lost has a watcher that is there, and nobody
//! has to ask about all.

use martlet_erasure::FragmentIndex;
use martlet_protocol::DeviceId;
use martlet_protocol::backend::Presence;

use crate::replicate::plan::Turn;

/// What is known of one fragment; silence is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) fragment: FragmentIndex,
    pub(super) home: DeviceId,
    pub(super) at_home: Option<Presence>,
    /// Whom the home is taking over from, if it is.
    pub(super) previous: Option<(DeviceId, Option<Presence>)>,
    /// What all others say, once they were asked.
    pub(super) others: Vec<(DeviceId, Option<Presence>)>,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    /// All is as it should be, or on its way there.
    Nothing,
    /// Something is lost, and it is another's turn to make it.
    Leave,
    /// Somebody who may have a fragment did not answer.
    Wait,
    /// A fragment of it was deleted: the index has the last word.
    Judge,
    /// Something is missing at home: whether others have it must be asked.
    Search,
    /// These are to be made.
    Build(Vec<FragmentIndex>),
    /// Fewer are left than it takes, wherever one looks.
    Lost,
}

impl Seen {
    /// Who has it.
    pub(super) fn holders(&self) -> impl Iterator<Item = DeviceId> {
        let home = (self.home, self.at_home);
        let all = [home].into_iter().chain(self.previous).chain(self.others.iter().copied());
        all.filter(|(_, said)| *said == Some(Presence::Here)).map(|(device, _)| device)
    }

    fn is_deleted(&self) -> bool {
        let all = [self.at_home].into_iter().chain(self.previous.map(|(_, said)| said));
        all.chain(self.others.iter().map(|(_, said)| *said))
            .any(|said| said == Some(Presence::Deleted))
    }

    /// Lets a delete be forgotten that the index knows nothing of: nobody there has it.
    pub(super) fn forget_deleted(&mut self) {
        let said = [&mut self.at_home].into_iter();
        let said = said.chain(self.previous.as_mut().map(|(_, said)| said));
        for said in said.chain(self.others.iter_mut().map(|(_, said)| said)) {
            if *said == Some(Presence::Deleted) {
                *said = None;
            }
        }
    }

    fn is_missing(&self) -> bool {
        self.at_home == Some(Presence::Missing) && self.holders().next().is_none()
    }

    /// Whether somebody who did not answer is likely to have it.
    fn is_uncertain(&self) -> bool {
        self.previous.is_some_and(|(_, said)| said.is_none())
    }
}

/// What `device` is to do, which has a fragment; `needed` of them give all others.
pub(super) fn plan(
    device: DeviceId,
    seen: &[Seen],
    needed: u8,
    turn: Turn,
    everyone_asked: bool,
) -> Deed {
    if seen.iter().any(Seen::is_deleted) {
        return Deed::Judge;
    }
    let missing = (0..seen.len()).filter(|at| seen[*at].is_missing());
    let (unsure, lost): (Vec<usize>, Vec<usize>) = missing.partition(|at| seen[*at].is_uncertain());
    if lost.is_empty() {
        return if unsure.is_empty() { Deed::Nothing } else { Deed::Wait };
    }
    if !gives(device, seen, needed, turn) {
        return Deed::Leave;
    }
    if !everyone_asked {
        return Deed::Search;
    }
    let left = seen.iter().filter(|seen| seen.holders().next().is_some()).count();
    if left >= usize::from(needed) {
        return Deed::Build(lost.into_iter().map(|at| seen[at].fragment).collect());
    }
    let is_silent = |seen: &Seen| {
        seen.at_home.is_none() || seen.is_uncertain() || seen.others.iter().any(|it| it.1.is_none())
    };
    if seen.iter().any(is_silent) { Deed::Wait } else { Deed::Lost }
}

/// Whether it is the turn of `device`: of those who hold what they should and watch over what is not at
/// home, and of `device` if it holds what others should. What others were found to hold changes nothing
/// about it.
fn gives(device: DeviceId, seen: &[Seen], needed: u8, turn: Turn) -> bool {
    let (mut settled, mut givers) = (Vec::new(), Vec::new());
    for (at, of) in seen.iter().enumerate() {
        let previous = of.previous.filter(|(_, said)| *said == Some(Presence::Here));
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

/// What is watched over by the holder of the fragment that is at `at` of `count`, `needed` of which
/// give all others.
pub(super) fn watched(at: usize, count: usize, needed: u8) -> impl Iterator<Item = usize> {
    let spare = count.saturating_sub(usize::from(needed));
    (1..=spare).map(move |step| (at + step) % count)
}

#[cfg(test)]
mod tests {
    use Presence::{Deleted, Here, Missing};

    use super::*;

    /// In a pass, of an extent whose first watcher is the first home.
    fn turn(pass: u64) -> Turn {
        Turn { start: 0, pass }
    }

    /// Fragment i is at home on device i.
    fn seen(homes: &[Option<Presence>]) -> Vec<Seen> {
        let one = |(number, at_home): (u8, &Option<Presence>)| Seen {
            fragment: FragmentIndex(number),
            home: DeviceId(u32::from(number)),
            at_home: *at_home,
            previous: None,
            others: Vec::new(),
        };
        (0..).zip(homes).map(one).collect()
    }

    /// What the holders do; all but one may leave it to that one.
    fn decided(seen: &[Seen], everyone_asked: bool) -> Deed {
        let holders = seen.iter().flat_map(Seen::holders);
        let mut deeds: Vec<Deed> =
            holders.map(|device| plan(device, seen, 2, turn(0), everyone_asked)).collect();
        deeds.retain(|deed| *deed != Deed::Leave);
        deeds.dedup();
        assert_eq!(deeds.len(), 1, "{deeds:?} of {seen:?}");
        deeds.remove(0)
    }

    fn of(homes: &[Option<Presence>], everyone_asked: bool) -> Deed {
        decided(&seen(homes), everyone_asked)
    }

    #[test]
    fn what_is_lost_is_made_once_everyone_was_asked() {
        let one = [Some(Here), Some(Here), Some(Missing)];
        assert_eq!(of(&one, false), Deed::Search);
        assert_eq!(of(&one, true), Deed::Build(vec![FragmentIndex(2)]));
        let two = [Some(Here), Some(Missing), Some(Here), Some(Missing)];
        assert_eq!(of(&two, true), Deed::Build(vec![FragmentIndex(1), FragmentIndex(3)]));
        assert_eq!(of(&[Some(Here), Some(Here), Some(Here)], false), Deed::Nothing);
    }

    #[test]
    fn silence_is_no_loss() {
        assert_eq!(of(&[Some(Here), Some(Here), None], true), Deed::Nothing);
        assert_eq!(of(&[None, Some(Here), Some(Missing)], true), Deed::Wait);
        let mut moving = seen(&[Some(Here), Some(Here), Some(Missing)]);
        moving[2].previous = Some((DeviceId(7), None));
        assert_eq!(decided(&moving, false), Deed::Wait);
        // A silent device that is neither home nor previous holder keeps nobody from mending.
        let mut stray = seen(&[Some(Here), Some(Here), Some(Missing)]);
        stray[2].others = vec![(DeviceId(8), None)];
        assert_eq!(decided(&stray, true), Deed::Build(vec![FragmentIndex(2)]));
        // But where too few are left, it may have what it takes.
        let mut few = seen(&[Some(Missing), Some(Here), Some(Missing)]);
        assert_eq!(decided(&few, true), Deed::Lost);
        few[0].others = vec![(DeviceId(8), None)];
        assert_eq!(decided(&few, true), Deed::Wait);
    }

    #[test]
    fn what_somebody_has_is_left_to_replication() {
        let mut moving = seen(&[Some(Here), Some(Here), Some(Missing)]);
        moving[2].previous = Some((DeviceId(7), Some(Here)));
        assert_eq!(decided(&moving, false), Deed::Nothing);
        let mut stray = seen(&[Some(Here), Some(Here), Some(Missing)]);
        stray[2].others = vec![(DeviceId(8), Some(Missing)), (DeviceId(9), Some(Here))];
        assert_eq!(decided(&stray, true), Deed::Nothing);
        // What lies elsewhere is as good a source as any.
        let mut source = seen(&[None, Some(Here), Some(Missing)]);
        source[0].others = vec![(DeviceId(9), Some(Here))];
        assert_eq!(
            plan(DeviceId(1), &source, 2, turn(0), true),
            Deed::Build(vec![FragmentIndex(2)])
        );
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
                assert_eq!(plan(device, &deleted, 2, turn(0), place == 2), Deed::Judge, "{place}");
            }
            deleted.iter_mut().for_each(Seen::forget_deleted);
            assert_ne!(plan(DeviceId(0), &deleted, 2, turn(0), true), Deed::Judge, "{place}");
        }
    }

    #[test]
    fn the_first_who_watches_makes_it_in_every_pass_and_each_other_has_its_turn() {
        let all = seen(&[Some(Here), None, Some(Here), Some(Missing), Some(Here)]);
        let builds = |id, turn| matches!(plan(DeviceId(id), &all, 2, turn, true), Deed::Build(_));
        for (start, first) in [(0, 0), (1, 2), (2, 2), (3, 0), (4, 0), (5, 0)] {
            for pass in 0..7 {
                let building: Vec<u32> =
                    [0, 2, 4].into_iter().filter(|id| builds(*id, Turn { start, pass })).collect();
                let mut expected = vec![first, [0, 2][usize::try_from(pass % 2).unwrap()]];
                expected.sort_unstable();
                expected.dedup();
                assert_eq!(building, expected, "{start}, {pass}");
            }
        }
        // Who holds one for somebody else has its turn after them.
        let building: Vec<bool> = (0..3).map(|pass| builds(9, turn(pass))).collect();
        assert_eq!(building, [false, false, true]);
    }

    #[test]
    fn whatever_is_lost_has_a_watcher_while_no_more_than_may_be_lost_are_out() {
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

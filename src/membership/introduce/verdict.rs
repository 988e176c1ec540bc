//! Verdict on a device that introduced itself (rule G1). Pure functions.
//!
//! Majorities intersect: most nodes remembered a device before it used its votes. So one of the
//! queried nodes has a record of its last opening. This node's own memory counts too, but a lost
//! memory does not vouch.

use martlet_protocol::DeviceId;
use martlet_storage_node::Incarnation;

use super::super::peers::{Introduction, Record, Remembered};

/// Facts about a device that introduced itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inquiry<'a> {
    pub(super) it: Introduction,
    /// True if the index ring has no predecessor.
    pub(super) is_first_ring: bool,
    /// True if the device is in the deciding set of some partition, as far as is known.
    pub(super) has_say: bool,
    /// True if no other device exists that this one could sync from.
    pub(super) is_alone: bool,
    /// Number of other nodes in the index ring.
    pub(super) others: usize,
    /// Records of the other nodes that answered.
    pub(super) answers: &'a [Remembered],
    /// This node's own record.
    pub(super) own: Remembered,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The device is new, and no device was in its place: it gets votes.
    Votes,
    /// The device is the one that most nodes remember, or its next opening: it may use its votes.
    Confirmed,
    /// The device replaces another one, or may have missed writes.
    HasToSync,
    /// A later opening than this device's exists, or another device's: it has to begin anew.
    Replaced(Incarnation),
    /// The device is known under this other id.
    Elsewhere(DeviceId),
    /// Too few nodes have answered.
    Wait,
}

pub(super) fn judge(inquiry: Inquiry<'_>) -> Verdict {
    let Inquiry { it, is_first_ring, has_say, is_alone, others, answers, own } = inquiry;
    if is_alone {
        return if it.voting { Verdict::Confirmed } else { Verdict::Votes };
    }
    let all = || answers.iter().chain([&own]);
    if let Some(id) = all().find_map(|answer| answer.elsewhere) {
        return Verdict::Elsewhere(id);
    }
    let records = || all().filter_map(Remembered::record);
    let strangers = records().filter(|record| !record.is_followed_by(&it));
    if let Some(newest) = strangers.map(|record| record.what).max_by_key(|it| it.generation) {
        return Verdict::Replaced(newest);
    }
    if it.voting {
        let vouching = records().filter(|record: &Record| record.vouches).count();
        let enough = it.confirmed || vouching * 2 > others + 1 || answers.len() == others;
        return if enough { Verdict::Confirmed } else { Verdict::Wait };
    }
    let is_majority = others == 0 || answers.len() * 2 > others;
    match is_majority {
        false => Verdict::Wait,
        // No device voted in this place, so no change depended on its vote.
        true if it.base.is_none() && (is_first_ring || !has_say) => Verdict::Votes,
        true => Verdict::HasToSync,
    }
}

#[cfg(test)]
mod tests {
    use martlet_protocol::DeviceIdentity;
    use martlet_storage_node::Uuid;

    use super::super::super::peers::Identity;
    use super::*;

    fn opening(device: u8, generation: u64) -> Incarnation {
        Incarnation { device: Uuid([device; 16]), generation, nonce: Uuid([device; 16]) }
    }

    fn remembered(what: Incarnation) -> Remembered {
        Remembered::of(Some(Record { what, voted: true, vouches: true }))
    }

    fn forgot(what: Incarnation) -> Remembered {
        Remembered::of(Some(Record { what, voted: true, vouches: false }))
    }

    fn nobody() -> Remembered {
        Remembered::of(None)
    }

    fn it(current: Incarnation, base: Option<Incarnation>, voting: bool) -> Introduction {
        let identity = Identity(DeviceIdentity(current.device.0));
        let (device, current) = (DeviceId(3), Some(current));
        Introduction { device, identity, voting, current, base, confirmed: false }
    }

    fn new(others: usize, answers: &[Remembered]) -> Inquiry<'_> {
        let it = it(opening(1, 10), None, false);
        let own = nobody();
        Inquiry { it, is_first_ring: true, has_say: true, is_alone: false, others, answers, own }
    }

    fn late_to(others: usize, answers: &[Remembered]) -> Inquiry<'_> {
        Inquiry { is_first_ring: false, ..new(others, answers) }
    }

    /// Device that returns, and that this node remembers unchanged.
    fn back(others: usize, answers: &[Remembered]) -> Inquiry<'_> {
        let it = it(opening(1, 20), Some(opening(1, 10)), true);
        Inquiry {
            it,
            own: remembered(opening(1, 10)),
            is_first_ring: false,
            ..new(others, answers)
        }
    }

    #[test]
    fn g1_a_new_device_of_a_new_cluster_votes_once_a_majority_of_the_others_was_asked() {
        let met =
            Remembered::of(Some(Record { what: opening(1, 10), voted: false, vouches: true }));
        assert_eq!(judge(new(0, &[])), Verdict::Votes);
        assert_eq!(judge(new(1, &[])), Verdict::Wait);
        assert_eq!(judge(new(1, &[nobody()])), Verdict::Votes);
        assert_eq!(judge(new(2, &[nobody()])), Verdict::Wait);
        assert_eq!(judge(new(2, &[nobody(), met])), Verdict::Votes);
        assert_eq!(judge(new(3, &[nobody(), met])), Verdict::Votes);
    }

    #[test]
    fn g1_a_blank_device_in_the_place_of_another_follows_it_and_has_to_sync() {
        let another = opening(2, 5);
        let replaced = Verdict::Replaced(another);
        assert_eq!(judge(new(3, &[nobody(), nobody(), remembered(another)])), replaced);
        let wiped = Inquiry { own: remembered(another), ..new(0, &[]) };
        assert_eq!(judge(wiped), replaced);
        let answers = [remembered(another), remembered(another)];
        let follows = Inquiry { it: it(opening(1, 10), Some(another), false), ..new(2, &answers) };
        assert_eq!(judge(follows), Verdict::HasToSync);
    }

    #[test]
    fn g1_a_device_of_a_later_ring_has_to_sync() {
        let answers = [nobody(), nobody()];
        let late = Inquiry { is_first_ring: false, ..new(2, &answers) };
        assert_eq!(judge(late), Verdict::HasToSync);
        let has_no_say = Inquiry { has_say: false, ..late };
        assert_eq!(judge(has_no_say), Verdict::Votes, "the change waits for its vote");
        let few = Inquiry { has_say: false, ..late_to(3, &answers[..1]) };
        assert_eq!(judge(few), Verdict::Wait);
        let answers = [remembered(opening(2, 5)), nobody()];
        let replaced = Inquiry { has_say: false, ..late_to(2, &answers) };
        assert_eq!(judge(replaced), Verdict::Replaced(opening(2, 5)), "another voted there");
        let alone = Inquiry { is_first_ring: false, is_alone: true, ..new(0, &[]) };
        assert_eq!(judge(alone), Verdict::Votes);
    }

    #[test]
    fn g1_a_device_that_comes_back_votes_once_most_nodes_know_nothing_later() {
        let same = remembered(opening(1, 10));
        assert_eq!(judge(back(0, &[])), Verdict::Confirmed);
        assert_eq!(judge(back(2, &[])), Verdict::Wait);
        assert_eq!(judge(back(2, &[same])), Verdict::Confirmed, "one node of three is down");
        assert_eq!(judge(back(3, &[same])), Verdict::Wait);
        assert_eq!(judge(back(3, &[same, remembered(opening(1, 20))])), Verdict::Confirmed);
        let older = remembered(opening(1, 7));
        assert_eq!(judge(back(2, &[older])), Verdict::Confirmed, "it was away then");
    }

    #[test]
    fn g1_one_node_that_remembers_a_later_one_is_enough_to_take_its_votes() {
        let same = remembered(opening(1, 10));
        for later in [opening(1, 15), opening(2, 15), opening(2, 10)] {
            let answers = [same, remembered(later)];
            assert_eq!(judge(back(2, &answers)), Verdict::Replaced(later));
            let answers = [same, same];
            let own = Inquiry { own: remembered(later), ..back(2, &answers) };
            assert_eq!(judge(own), Verdict::Replaced(later));
        }
        let answers = [remembered(opening(2, 15)), remembered(opening(2, 30))];
        assert_eq!(judge(back(2, &answers)), Verdict::Replaced(opening(2, 30)), "the newest");
    }

    #[test]
    fn g1_nodes_that_forgot_do_not_count_unless_all_have_answered() {
        let same = remembered(opening(1, 10));
        let answers = [same];
        let without = Inquiry { own: nobody(), ..back(2, &answers) };
        assert_eq!(judge(without), Verdict::Wait);
        let met_since = forgot(opening(1, 20));
        let without = Inquiry { own: met_since, ..back(2, &answers) };
        assert_eq!(judge(without), Verdict::Wait);
        let answers = [same, met_since];
        let without = Inquiry { own: met_since, ..back(2, &answers) };
        assert_eq!(judge(without), Verdict::Confirmed, "there is nobody else to ask");
    }

    #[test]
    fn g1_a_device_of_another_id_is_told_so_first() {
        let elsewhere = Remembered { elsewhere: Some(DeviceId(4)), ..nobody() };
        let answers = [elsewhere, remembered(opening(2, 15))];
        assert_eq!(judge(back(2, &answers)), Verdict::Elsewhere(DeviceId(4)));
    }
}

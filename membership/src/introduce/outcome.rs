//! Verdict on a device that introduced itself (rule G1). Pure functions.
//!
//! Majorities intersect: most nodes remembered a device before it used its votes. So one of the
//! queried nodes has a record of its last opening. This node's own memory counts too, but a lost
//! memory does not vouch.

use martlet_protocol::DeviceId;
use martlet_protocol::opening::Incarnation;

use super::super::peers::{DeviceRecord, FormerRecord, Introduction};

/// Facts about a device that introduced itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct IntroductionFacts<'a> {
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
    pub(super) answers: &'a [FormerRecord],
    /// This node's own record.
    pub(super) own: FormerRecord,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IntroductionOutcome {
    /// The device is new, and no device was in its place: it gets votes. A founder decides at once, and
    /// lacks no fence. Another one gets its fences before it decides (rule M2).
    Votes { is_founder: bool },
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

pub(super) fn decide(inquiry: IntroductionFacts<'_>) -> IntroductionOutcome {
    let IntroductionFacts { it, is_first_ring, has_say, is_alone, others, answers, own } = inquiry;
    if is_alone {
        let votes = IntroductionOutcome::Votes { is_founder: true };
        return if it.voting { IntroductionOutcome::Confirmed } else { votes };
    }
    let all = || answers.iter().chain([&own]);
    if let Some(id) = all().find_map(|answer| answer.elsewhere) {
        return IntroductionOutcome::Elsewhere(id);
    }
    let records = || all().filter_map(FormerRecord::record);
    let strangers = records().filter(|record| !record.is_followed_by(&it));
    if let Some(newest) = strangers.map(|record| record.what).max_by_key(|it| it.generation) {
        return IntroductionOutcome::Replaced(newest);
    }
    if it.voting {
        let vouching = records().filter(|record: &DeviceRecord| record.vouches).count();
        let enough = it.confirmed || vouching * 2 > others + 1 || answers.len() == others;
        return if enough { IntroductionOutcome::Confirmed } else { IntroductionOutcome::Wait };
    }
    let is_majority = others == 0 || answers.len() * 2 > others;
    match is_majority {
        false => IntroductionOutcome::Wait,
        // No device voted in this place, so no change depended on its vote.
        true if it.base.is_none() && (is_first_ring || !has_say) => {
            IntroductionOutcome::Votes { is_founder: is_first_ring }
        }
        true => IntroductionOutcome::HasToSync,
    }
}

#[cfg(test)]
mod tests {
    use martlet_protocol::DeviceIdentity;
    use martlet_protocol::opening::Uuid;

    use super::super::super::peers::IdentityDocument;
    use super::*;

    fn opening(device: u8, generation: u64) -> Incarnation {
        Incarnation { device: Uuid([device; 16]), generation, nonce: Uuid([device; 16]) }
    }

    fn remembered(what: Incarnation) -> FormerRecord {
        FormerRecord::of(Some(DeviceRecord { what, voted: true, vouches: true }))
    }

    fn forgot(what: Incarnation) -> FormerRecord {
        FormerRecord::of(Some(DeviceRecord { what, voted: true, vouches: false }))
    }

    fn no_record() -> FormerRecord {
        FormerRecord::of(None)
    }

    fn it(current: Incarnation, base: Option<Incarnation>, voting: bool) -> Introduction {
        let identity = IdentityDocument(DeviceIdentity(current.device.0));
        let (device, current) = (DeviceId(3), Some(current));
        Introduction { device, identity, voting, current, base, confirmed: false }
    }

    fn new(others: usize, answers: &[FormerRecord]) -> IntroductionFacts<'_> {
        let it = it(opening(1, 10), None, false);
        let own = no_record();
        IntroductionFacts {
            it,
            is_first_ring: true,
            has_say: true,
            is_alone: false,
            others,
            answers,
            own,
        }
    }

    fn late_to(others: usize, answers: &[FormerRecord]) -> IntroductionFacts<'_> {
        IntroductionFacts { is_first_ring: false, ..new(others, answers) }
    }

    /// Device that returns, and that this node remembers unchanged.
    fn back(others: usize, answers: &[FormerRecord]) -> IntroductionFacts<'_> {
        let it = it(opening(1, 20), Some(opening(1, 10)), true);
        IntroductionFacts {
            it,
            own: remembered(opening(1, 10)),
            is_first_ring: false,
            ..new(others, answers)
        }
    }

    #[test]
    fn g1_a_new_device_of_a_new_cluster_votes_after_a_majority_of_the_others_replied() {
        let met = FormerRecord::of(Some(DeviceRecord {
            what: opening(1, 10),
            voted: false,
            vouches: true,
        }));
        assert_eq!(decide(new(0, &[])), IntroductionOutcome::Votes { is_founder: true });
        assert_eq!(decide(new(1, &[])), IntroductionOutcome::Wait);
        assert_eq!(decide(new(1, &[no_record()])), IntroductionOutcome::Votes { is_founder: true });
        assert_eq!(decide(new(2, &[no_record()])), IntroductionOutcome::Wait);
        assert_eq!(
            decide(new(2, &[no_record(), met])),
            IntroductionOutcome::Votes { is_founder: true }
        );
        assert_eq!(
            decide(new(3, &[no_record(), met])),
            IntroductionOutcome::Votes { is_founder: true }
        );
    }

    #[test]
    fn g1_a_blank_device_in_the_place_of_another_follows_it_and_has_to_sync() {
        let another = opening(2, 5);
        let replaced = IntroductionOutcome::Replaced(another);
        assert_eq!(decide(new(3, &[no_record(), no_record(), remembered(another)])), replaced);
        let wiped = IntroductionFacts { own: remembered(another), ..new(0, &[]) };
        assert_eq!(decide(wiped), replaced);
        let answers = [remembered(another), remembered(another)];
        let follows =
            IntroductionFacts { it: it(opening(1, 10), Some(another), false), ..new(2, &answers) };
        assert_eq!(decide(follows), IntroductionOutcome::HasToSync);
    }

    #[test]
    fn g1_a_device_of_a_later_ring_has_to_sync() {
        let answers = [no_record(), no_record()];
        let late = IntroductionFacts { is_first_ring: false, ..new(2, &answers) };
        assert_eq!(decide(late), IntroductionOutcome::HasToSync);
        let has_no_say = IntroductionFacts { has_say: false, ..late };
        assert_eq!(
            decide(has_no_say),
            IntroductionOutcome::Votes { is_founder: false },
            "the change waits for its vote"
        );
        let few = IntroductionFacts { has_say: false, ..late_to(3, &answers[..1]) };
        assert_eq!(decide(few), IntroductionOutcome::Wait);
        let answers = [remembered(opening(2, 5)), no_record()];
        let replaced = IntroductionFacts { has_say: false, ..late_to(2, &answers) };
        assert_eq!(
            decide(replaced),
            IntroductionOutcome::Replaced(opening(2, 5)),
            "another voted there"
        );
        let alone = IntroductionFacts { is_first_ring: false, is_alone: true, ..new(0, &[]) };
        assert_eq!(decide(alone), IntroductionOutcome::Votes { is_founder: true });
    }

    #[test]
    fn g1_a_device_that_comes_back_votes_once_most_nodes_know_nothing_later() {
        let same = remembered(opening(1, 10));
        assert_eq!(decide(back(0, &[])), IntroductionOutcome::Confirmed);
        assert_eq!(decide(back(2, &[])), IntroductionOutcome::Wait);
        assert_eq!(
            decide(back(2, &[same])),
            IntroductionOutcome::Confirmed,
            "one node of three is down"
        );
        assert_eq!(decide(back(3, &[same])), IntroductionOutcome::Wait);
        assert_eq!(
            decide(back(3, &[same, remembered(opening(1, 20))])),
            IntroductionOutcome::Confirmed
        );
        let older = remembered(opening(1, 7));
        assert_eq!(decide(back(2, &[older])), IntroductionOutcome::Confirmed, "it was away then");
    }

    #[test]
    fn g1_one_node_that_remembers_a_later_one_is_enough_to_take_its_votes() {
        let same = remembered(opening(1, 10));
        for later in [opening(1, 15), opening(2, 15), opening(2, 10)] {
            let answers = [same, remembered(later)];
            assert_eq!(decide(back(2, &answers)), IntroductionOutcome::Replaced(later));
            let answers = [same, same];
            let own = IntroductionFacts { own: remembered(later), ..back(2, &answers) };
            assert_eq!(decide(own), IntroductionOutcome::Replaced(later));
        }
        let answers = [remembered(opening(2, 15)), remembered(opening(2, 30))];
        assert_eq!(
            decide(back(2, &answers)),
            IntroductionOutcome::Replaced(opening(2, 30)),
            "the newest"
        );
    }

    #[test]
    fn g1_nodes_that_forgot_do_not_count_unless_all_have_answered() {
        let same = remembered(opening(1, 10));
        let answers = [same];
        let without = IntroductionFacts { own: no_record(), ..back(2, &answers) };
        assert_eq!(decide(without), IntroductionOutcome::Wait);
        let met_since = forgot(opening(1, 20));
        let without = IntroductionFacts { own: met_since, ..back(2, &answers) };
        assert_eq!(decide(without), IntroductionOutcome::Wait);
        let answers = [same, met_since];
        let without = IntroductionFacts { own: met_since, ..back(2, &answers) };
        assert_eq!(decide(without), IntroductionOutcome::Confirmed, "there is nobody else to ask");
    }

    #[test]
    fn g1_a_device_of_another_id_is_refused_first() {
        let elsewhere = FormerRecord { elsewhere: Some(DeviceId(4)), ..no_record() };
        let answers = [elsewhere, remembered(opening(2, 15))];
        assert_eq!(decide(back(2, &answers)), IntroductionOutcome::Elsewhere(DeviceId(4)));
    }
}

//! Classification of recovery's findings: a pure function, called once with all findings.
//!
//! The rules, in order of precedence:
//! 1. A delete mark overrides every finding: the delete is completed.
//! 2. Contradictory and unreadable bytes go to quarantine, and are never deleted.
//! 3. If an id exists twice with different content, both go to quarantine. If the content is equal,
//!    one copy is kept.
//! 4. An unfinished write is removed, because it was not acknowledged. But a row in the table
//!    proves that it was once durable: then it is a contradiction.

use std::collections::{HashMap, HashSet};

use martlet_protocol::ExtentId;

/// A thing on disk that is an extent, or was about to become an extent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DiscoveredExtent {
    /// Id by its name or header.
    pub(super) id: ExtentId,
    /// Evidence in its bytes.
    pub(super) evidence: Evidence,
    /// True if the table has a row of it, which proves that it was durable once.
    pub(super) known: bool,
    /// True if the table has a delete mark for it.
    pub(super) marked: bool,
}

/// Evidence in the bytes of a thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Evidence {
    /// Written in part.
    Unfinished,
    /// Contradictory.
    Contradiction,
    /// The disk can't read it.
    Unreadable,
    /// Whole, with this length and BLAKE3.
    Whole(u32, [u8; 32]),
}

/// Action on a thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecoveryAction {
    /// Keep as an extent.
    Keep,
    /// Remove: it was never acknowledged.
    RemoveUnfinished,
    /// Remove: its delete had begun.
    RemoveDeleted,
    /// Remove: another copy is kept.
    RemoveDuplicate,
    /// Move to quarantine, for an operator.
    Quarantine,
}

/// Returns a verdict on each finding, in the order of `found`.
pub(super) fn classify(found: &[DiscoveredExtent]) -> Vec<RecoveryAction> {
    let mut content: HashMap<ExtentId, Vec<(u32, [u8; 32])>> = HashMap::new();
    for thing in found.iter().filter(|thing| !thing.marked) {
        if let Evidence::Whole(length, hash) = thing.evidence {
            content.entry(thing.id).or_default().push((length, hash));
        }
    }
    let mut kept = HashSet::new();
    let judge = |thing: &DiscoveredExtent| match thing.evidence {
        _ if thing.marked => RecoveryAction::RemoveDeleted,
        Evidence::Contradiction | Evidence::Unreadable => RecoveryAction::Quarantine,
        Evidence::Unfinished if thing.known => RecoveryAction::Quarantine,
        Evidence::Unfinished => RecoveryAction::RemoveUnfinished,
        Evidence::Whole(..) => {
            let all = &content[&thing.id];
            if all.iter().any(|other| *other != all[0]) {
                RecoveryAction::Quarantine
            } else if !kept.insert(thing.id) {
                RecoveryAction::RemoveDuplicate
            } else {
                RecoveryAction::Keep
            }
        }
    };
    found.iter().map(judge).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn things() -> impl Strategy<Value = Vec<DiscoveredExtent>> {
        let evidence = prop_oneof![
            Just(Evidence::Unfinished),
            Just(Evidence::Contradiction),
            Just(Evidence::Unreadable),
            (1..3_u32, 0..2_u8).prop_map(|(length, hash)| Evidence::Whole(length, [hash; 32])),
        ];
        let thing = (0..4_u8, evidence, any::<bool>(), proptest::bool::weighted(0.2)).prop_map(
            |(id, evidence, known, marked)| DiscoveredExtent {
                id: ExtentId([id; 16]),
                evidence,
                known,
                marked,
            },
        );
        proptest::collection::vec(thing, 0..8)
    }

    proptest! {
        #[test]
        fn every_id_is_kept_at_most_once_and_only_if_nothing_speaks_against_it(found in things()) {
            let verdicts = classify(&found);
            prop_assert_eq!(verdicts.len(), found.len());
            for (at, thing) in found.iter().enumerate() {
                let rivals = |other: &&DiscoveredExtent| other.id == thing.id && !other.marked;
                let whole = |other: &DiscoveredExtent| matches!(other.evidence, Evidence::Whole(..));
                let contents: HashSet<_> = found
                    .iter()
                    .filter(rivals)
                    .filter(|other| whole(other))
                    .map(|other| format!("{:?}", other.evidence))
                    .collect();
                let keeps = found
                    .iter()
                    .zip(&verdicts)
                    .filter(|(other, verdict)| other.id == thing.id && **verdict == RecoveryAction::Keep)
                    .count();
                prop_assert_eq!(keeps, usize::from(contents.len() == 1));
                match verdicts[at] {
                    RecoveryAction::Keep => prop_assert!(whole(thing) && !thing.marked),
                    RecoveryAction::RemoveDeleted => prop_assert!(thing.marked),
                    RecoveryAction::RemoveDuplicate => prop_assert!(whole(thing) && keeps == 1),
                    RecoveryAction::RemoveUnfinished => {
                        prop_assert!(thing.evidence == Evidence::Unfinished && !thing.known);
                    }
                    RecoveryAction::Quarantine => prop_assert!(!thing.marked),
                }
            }
        }

        #[test]
        fn only_unproven_marked_or_second_things_are_ever_removed(found in things()) {
            for (thing, verdict) in found.iter().zip(classify(&found)) {
                let is_unsound =
                    matches!(thing.evidence, Evidence::Contradiction | Evidence::Unreadable);
                if is_unsound && !thing.marked {
                    prop_assert_eq!(verdict, RecoveryAction::Quarantine);
                }
                if thing.evidence == Evidence::Unfinished && thing.known && !thing.marked {
                    prop_assert_eq!(verdict, RecoveryAction::Quarantine);
                }
            }
        }
    }

    #[test]
    fn two_contents_under_one_id_are_both_set_aside() {
        let thing = |hash: u8| DiscoveredExtent {
            id: ExtentId([1; 16]),
            evidence: Evidence::Whole(1, [hash; 32]),
            known: true,
            marked: false,
        };
        assert_eq!(classify(&[thing(1), thing(2)]), [RecoveryAction::Quarantine; 2]);
        assert_eq!(
            classify(&[thing(1), thing(1)]),
            [RecoveryAction::Keep, RecoveryAction::RemoveDuplicate]
        );
    }
}

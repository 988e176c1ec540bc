//! Withdrawals of generations, and their causes in stored records.

use serde::{Deserialize, Serialize};

use super::Generation;

/// Reason of a withdrawal by the number that a rule keeps. Earlier records have this text and no cause.
pub(crate) const ENOUGH: &str = "later generations of the series are enough";
/// Reason of a withdrawal of an emptied folder. Earlier records have this text and another cause.
pub(crate) const EMPTIED: &str = "all objects of the set were deleted";
/// Reason of a withdrawal of an abandoned save. Earlier records have this text and another cause.
pub(crate) const ABANDONED: &str = "abandoned";

/// Withdrawal of a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Withdrawal<'a> {
    pub(crate) cause: WithdrawalCause,
    pub(crate) reason: &'a str,
    /// True if the objects of the generation go too.
    pub(crate) deletes_objects: bool,
    /// True if a hold prevents it: rules wait for readers, requests don't.
    pub(crate) waits_for_holds: bool,
}

/// Cause of a withdrawal, as far as later steps depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum WithdrawalCause {
    /// A rule keeps a number of generations, and later ones are enough. The rule is applied again before objects are
    /// deleted.
    Retention,
    /// No object of the folder was current. The folder is listed again before objects are deleted.
    Emptied,
    /// A pending generation saw no write for as long as its rule says. The folder is listed again before objects are
    /// deleted.
    Abandoned,
    /// Any other cause, of later releases too.
    #[serde(other)]
    Other,
}

impl Generation {
    /// Cause of the withdrawal. Earlier records, and those that an earlier release changed, have some causes in their
    /// reasons alone.
    pub(crate) fn withdrawn_by(&self) -> WithdrawalCause {
        match (self.cause, self.reason.as_deref()) {
            (None, Some(ENOUGH)) => WithdrawalCause::Retention,
            (None | Some(WithdrawalCause::Other), Some(EMPTIED)) => WithdrawalCause::Emptied,
            (None | Some(WithdrawalCause::Other), Some(ABANDONED)) => WithdrawalCause::Abandoned,
            (cause, _) => cause.unwrap_or(WithdrawalCause::Other),
        }
    }
}

impl WithdrawalCause {
    /// Reason of a generation whose objects stay, because the cause of its withdrawal no longer held.
    pub(super) fn spared_reason(self) -> &'static str {
        match self {
            Self::Retention | Self::Other => {
                "later generations of the series were enough; the objects stay, as some of these are gone"
            }
            Self::Emptied => {
                "all objects of the set were deleted; the others stay, as the folder has objects again"
            }
            Self::Abandoned => "abandoned; the objects stay, as the folder was written to again",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{GenerationState, SetRecord};
    use super::*;

    /// Record of a release without causes: a generation that retention withdrew, and one that a client withdrew.
    const EARLIER: &str = r#"{"name":"run-1/step-1/","revision":7,"last":2,"intents":[],"generations":[
        {"number":1,"state":"removing","order":10,"marker":"v1","manifest":"m1","objects":3,"bytes":30,"noted_ms":5,
         "changed_ms":6,"reason":"later generations of the series are enough","held_until_ms":0,"deletes_objects":true,
         "has_pins":true,"is_published":false,"refuses_more":false,"is_deleting":false,"pinned":0},
        {"number":2,"state":"removing","order":11,"marker":"v2","manifest":"m2","objects":3,"bytes":30,"noted_ms":5,
         "changed_ms":6,"reason":"asked for","held_until_ms":0,"deletes_objects":true,"has_pins":true,
         "is_published":false,"refuses_more":false,"is_deleting":false,"pinned":0}],
        "last_order":11,"last_marker":11,"uncovered_since_ms":null}"#;

    fn retired(record: &SetRecord) -> Vec<u64> {
        let is_retired = |it: &&Generation| it.withdrawn_by() == WithdrawalCause::Retention;
        record.generations.iter().filter(is_retired).map(|it| it.number).collect()
    }

    /// Earlier releases had no causes for these reasons, and change causes that they don't know to `other`.
    #[test]
    fn objects_of_earlier_withdrawals_are_judged_again_too() {
        for (reason, cause) in
            [(EMPTIED, WithdrawalCause::Emptied), (ABANDONED, WithdrawalCause::Abandoned)]
        {
            for stored in ["", r#""cause":"other","#] {
                let text = EARLIER.replace(
                    r#""reason":"asked for","#,
                    &format!(r#""reason":"{reason}",{stored}"#),
                );
                let record: SetRecord = serde_json::from_str(&text).unwrap();
                assert_eq!(record.generations[1].withdrawn_by(), cause, "{text}");
            }
            let text = serde_json::to_string(&cause).unwrap();
            assert_eq!(serde_json::from_str::<WithdrawalCause>(&text).unwrap(), cause);
        }
    }

    #[test]
    fn records_of_releases_without_causes_are_read_by_their_reasons() {
        let record: SetRecord = serde_json::from_str(EARLIER).unwrap();
        assert_eq!(retired(&record), [1]);
        // A change of such a record leaves the generations as they were.
        let written = serde_json::to_string(&record).unwrap();
        assert!(!written.contains("cause"), "{written}");
        assert_eq!(serde_json::from_str::<SetRecord>(&written).unwrap(), record);
    }

    #[test]
    fn the_cause_counts_and_not_the_text() {
        let mut record: SetRecord = serde_json::from_str(EARLIER).unwrap();
        for generation in &mut record.generations {
            generation.state = GenerationState::Committed;
        }
        let by = |cause, reason| Withdrawal {
            cause,
            reason,
            deletes_objects: true,
            waits_for_holds: false,
        };
        assert!(record.withdraw(1, by(WithdrawalCause::Other, ENOUGH), 9));
        assert!(record.withdraw(2, by(WithdrawalCause::Retention, "in other words"), 9));
        assert_eq!(retired(&record), [2]);
        let written = serde_json::to_string(&record).unwrap();
        assert!(written.contains(r#""cause":"retention""#), "{written}");
        assert_eq!(serde_json::from_str::<SetRecord>(&written).unwrap(), record);
        let later = written.replace(r#""cause":"retention""#, r#""cause":"of a later release""#);
        assert_eq!(retired(&serde_json::from_str(&later).unwrap()), [] as [u64; 0]);
    }
}

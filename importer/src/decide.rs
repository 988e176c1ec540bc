//! Decision about a key: copy its object, or leave the target as it is.

use crate::client::operations::WriteCondition;
use crate::etag::{Sameness, compare};
use crate::listing::Listed;
use crate::plan::Overwrite;

/// Clocks that differ less are taken for equal, in milliseconds: replies show them to the second,
/// and late.
const SKEW_MS_MIN: i64 = 5_000;

/// Decision about a key of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Copy, under this condition.
    Copy(WriteCondition),
    /// The target has the object.
    Present,
    /// The target has another object, which stays.
    Keep,
}

/// Rules of the decision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) overwrite: Overwrite,
    pub(crate) has_opaque_etags: bool,
    /// Clock of the source minus that of the target, in milliseconds.
    pub(crate) skew_ms: i64,
}

impl Rules {
    /// Decides about an object of the source, and the target's object of the same key.
    pub(crate) fn decide(&self, source: &Listed, target: Option<&Listed>) -> Decision {
        let Some(target) = target else { return Decision::Copy(WriteCondition::Absent) };
        let replace = || Decision::Copy(WriteCondition::Unchanged(target.etag.clone()));
        if self.overwrite == Overwrite::Always {
            return replace();
        }
        let age_ms = self.source_is_newer_by(source, target);
        let is_same = match compare(source.facts(), target.facts(), self.has_opaque_etags) {
            Sameness::Same => true,
            Sameness::Different => false,
            // A copy is written after its source. Equal sizes and that order count as equality.
            Sameness::Unknown => age_ms.is_none_or(|it| it <= 0),
        };
        match self.overwrite {
            _ if is_same => Decision::Present,
            Overwrite::Changed if age_ms.is_some_and(|it| it > 0) => replace(),
            _ => Decision::Keep,
        }
    }

    /// Time of the source's write minus that of the target's, by one clock.
    fn source_is_newer_by(&self, source: &Listed, target: &Listed) -> Option<i64> {
        let (source, target) = (source.modified_ms?, target.modified_ms?);
        let skew_ms = if self.skew_ms.abs() < SKEW_MS_MIN { 0 } else { self.skew_ms };
        Some(source.cast_signed() - target.cast_signed() - skew_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MD5: &str = "d41d8cd98f00b204e9800998ecf8427e";
    const OTHER: &str = "0cc175b9c0f1b6a831c399e269772661";

    fn listed(etag: &str, seconds: u64) -> Listed {
        Listed { key: "key".into(), size: 5, etag: etag.into(), modified_ms: Some(seconds * 1000) }
    }

    fn rules(overwrite: Overwrite) -> Rules {
        Rules { overwrite, has_opaque_etags: false, skew_ms: 0 }
    }

    fn replaced(etag: &str) -> Decision {
        Decision::Copy(WriteCondition::Unchanged(etag.into()))
    }

    #[test]
    fn missing_objects_are_copied_and_equal_ones_are_not() {
        for overwrite in [Overwrite::Never, Overwrite::Changed] {
            let rules = rules(overwrite);
            let absent = rules.decide(&listed(MD5, 1), None);
            assert_eq!(absent, Decision::Copy(WriteCondition::Absent));
            assert_eq!(rules.decide(&listed(MD5, 9), Some(&listed(MD5, 1))), Decision::Present);
        }
        let always = rules(Overwrite::Always);
        assert_eq!(always.decide(&listed(MD5, 1), Some(&listed(MD5, 1))), replaced(MD5));
    }

    #[test]
    fn the_newer_object_stays() {
        let (source, target) = (listed(MD5, 100), listed(OTHER, 50));
        assert_eq!(rules(Overwrite::Never).decide(&source, Some(&target)), Decision::Keep);
        let changed = rules(Overwrite::Changed);
        assert_eq!(changed.decide(&source, Some(&target)), replaced(OTHER));
        assert_eq!(changed.decide(&source, Some(&listed(OTHER, 150))), Decision::Keep);
        // The source's clock is 60 s ahead.
        let skewed = Rules { skew_ms: 60_000, ..changed };
        assert_eq!(skewed.decide(&source, Some(&target)), Decision::Keep);
        let close = Rules { skew_ms: -4_000, ..changed };
        assert_eq!(close.decide(&source, Some(&listed(OTHER, 102))), Decision::Keep);
        let unknown = Listed { modified_ms: None, ..target };
        assert_eq!(changed.decide(&source, Some(&unknown)), Decision::Keep);
    }

    #[test]
    fn objects_with_incomparable_etags_are_equal_if_the_target_is_newer() {
        let changed = rules(Overwrite::Changed);
        let target = listed("opaque", 100);
        assert_eq!(changed.decide(&listed(MD5, 90), Some(&target)), Decision::Present);
        assert_eq!(changed.decide(&listed(MD5, 110), Some(&target)), replaced("opaque"));
        let never = rules(Overwrite::Never);
        assert_eq!(never.decide(&listed(MD5, 110), Some(&target)), Decision::Keep);
    }
}

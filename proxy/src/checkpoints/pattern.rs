//! Patterns of folders that hold checkpoints, such as `run-*/step-*/`.
//!
//! A pattern has a fixed number of segments, and `*` never crosses a slash. So a key lies in at most
//! one folder of a pattern, and the folder follows from the key alone.

/// Maximum number of segments of a pattern.
const SEGMENTS_MAX: usize = 16;
/// Maximum length of a pattern in bytes.
const BYTES_MAX: usize = 512;

/// A pattern of folder names. Each segment may contain `*`, which stands for any characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    segments: Vec<String>,
}

/// A folder, and the rest of a key below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Split<'k> {
    /// Name of the folder, with its last slash.
    pub(crate) folder: &'k str,
    /// The rest of the key; empty for the folder's own placeholder.
    pub(crate) rest: &'k str,
}

impl Pattern {
    /// Reads a pattern; an error says what is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let Some(path) = text.strip_suffix('/') else {
            return Err(format!("pattern {text:?} must end with a slash"));
        };
        let segments: Vec<String> = path.split('/').map(str::to_owned).collect();
        let is_bad = |segment: &String| segment.is_empty() || segment.contains("**");
        if text.len() > BYTES_MAX || segments.len() > SEGMENTS_MAX {
            return Err(format!(
                "pattern {text:?} has more than {BYTES_MAX} bytes or {SEGMENTS_MAX} segments"
            ));
        }
        if segments.iter().any(is_bad) || text.contains(['\0', '@']) {
            return Err(format!(
                "pattern {text:?} has an empty segment, a \"**\", an \"@\" or a NUL"
            ));
        }
        Ok(Self { segments })
    }

    /// The folder that holds a key, if the pattern matches it.
    pub(crate) fn split<'k>(&self, key: &'k str) -> Option<Split<'k>> {
        let mut at = 0;
        for segment in &self.segments {
            let length = key[at..].find('/')?;
            if !matches(segment.as_bytes(), &key.as_bytes()[at..at + length]) {
                return None;
            }
            at += length + 1;
        }
        Some(Split { folder: &key[..at], rest: &key[at..] })
    }

    /// Returns true if some key can lie in a folder of each pattern.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let pairs = self.segments.iter().zip(&other.segments);
        pairs.into_iter().all(|(one, another)| meet(one.as_bytes(), another.as_bytes()))
    }
}

/// Returns true if a segment with `*` matches a name. Takes at most the product of their lengths.
fn matches(segment: &[u8], name: &[u8]) -> bool {
    let (mut at, mut of, mut star) = (0, 0, None);
    while of < name.len() {
        match segment.get(at) {
            Some(b'*') => {
                star = Some((at, of));
                at += 1;
            }
            Some(byte) if *byte == name[of] => {
                at += 1;
                of += 1;
            }
            _ => {
                let Some((from, taken)) = star else { return false };
                star = Some((from, taken + 1));
                at = from + 1;
                of = taken + 1;
            }
        }
    }
    segment[at..].iter().all(|byte| *byte == b'*')
}

/// Returns true if a name exists that both segments match.
fn meet(one: &[u8], another: &[u8]) -> bool {
    // Whether the rests of both from a pair of positions on meet, from the ends backwards.
    let mut below = vec![false; another.len() + 1];
    for at in (0..=one.len()).rev() {
        let mut row = vec![false; another.len() + 1];
        for of in (0..=another.len()).rev() {
            row[of] = match (one.get(at), another.get(of)) {
                (None, None) => true,
                (Some(b'*'), None) => below[of],
                (None, Some(b'*')) => row[of + 1],
                (Some(b'*'), Some(_)) => below[of] || row[of + 1],
                (Some(_), Some(b'*')) => row[of + 1] || below[of],
                (Some(left), Some(right)) => left == right && below[of + 1],
                _ => false,
            };
        }
        below = row;
    }
    below[0]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pattern(text: &str) -> Pattern {
        Pattern::parse(text).unwrap()
    }

    #[test]
    fn a_key_leads_to_its_folder() {
        let steps = pattern("run-*/step-*/");
        let split = steps.split("run-a/step-10/shards/__0_0.distcp").unwrap();
        assert_eq!((split.folder, split.rest), ("run-a/step-10/", "shards/__0_0.distcp"));
        let placeholder = steps.split("run-a/step-10/").unwrap();
        assert_eq!((placeholder.folder, placeholder.rest), ("run-a/step-10/", ""));
        for outside in ["run-a/step-10", "run-a/other/x", "a/step-1/x", "run-a//x", "", "x"] {
            assert_eq!(steps.split(outside), None, "{outside}");
        }
        assert_eq!(pattern("*/").split("ä/b/c").unwrap().folder, "ä/");
    }

    #[test]
    fn malformed_patterns_are_refused() {
        let long = format!("{}/", "x".repeat(BYTES_MAX));
        let deep = "a/".repeat(SEGMENTS_MAX + 1);
        for text in ["", "/", "a", "a//b/", "/a/", "a/**/", "a@1/", "a\0/", &long, &deep] {
            assert!(Pattern::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn overlaps_are_found_at_any_depth() {
        for (one, another, overlap) in [
            ("a/", "b/", false),
            ("a/", "a/b/", true),
            ("run-*/", "*-1/step-*/", true),
            ("run-*/step-*/", "run-*/eval-*/", false),
            ("a*b/", "a*c/", false),
            ("a*b*/", "*bc/", true),
            ("*/", "x/", true),
        ] {
            assert_eq!(pattern(one).overlaps(&pattern(another)), overlap, "{one} {another}");
            assert_eq!(pattern(another).overlaps(&pattern(one)), overlap, "{another} {one}");
        }
    }

    proptest! {
        /// Patterns that match one name meet.
        #[test]
        fn patterns_with_a_common_match_overlap(
            one in "[ab*]{1,6}",
            another in "[ab*]{1,6}",
            name in "[ab]{0,8}",
        ) {
            let (one, another, name) = (one.as_bytes(), another.as_bytes(), name.as_bytes());
            if matches(one, name) && matches(another, name) {
                prop_assert!(meet(one, another));
            }
        }

        #[test]
        fn matching_never_panics(pattern in "[a-c*é]{1,8}/", key in "\\PC{0,20}") {
            if let Ok(pattern) = Pattern::parse(&pattern)
                && let Some(split) = pattern.split(&key)
            {
                prop_assert_eq!(format!("{}{}", split.folder, split.rest), key);
            }
        }
    }
}

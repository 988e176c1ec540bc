//! Checks that everything that a marker names is there.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::manifest::ManifestEntry;
use super::pickle::names_in;
use super::rules::Check;
use super::shard_index::shards_in;

/// Longest marker whose contents are checked, in bytes.
pub(crate) const MARKER_BYTES_MAX: u64 = 64 << 20;
/// End of the names of a distributed checkpoint's files.
const DISTCP: &str = ".distcp";
/// End of the name of an index of shards.
const INDEX: &str = ".index.json";
/// Names that a reason lists.
const SHOWN_MAX: usize = 3;

/// Returns true if the contents of this marker are to be checked.
pub(crate) fn reads(check: Check, marker: &str) -> bool {
    match check {
        Check::Dcp => true,
        Check::Hf => marker.ends_with(INDEX),
        Check::None => false,
    }
}

/// Reason why the noted objects aren't all that the marker names; none if they are.
pub(crate) fn missing(check: Check, marker: &[u8], noted: &[ManifestEntry]) -> Option<String> {
    let names = match names_of(check, marker) {
        Ok(names) => names,
        Err(why) => return Some(format!("the marker can't be read: {why}")),
    };
    let (known, below) = known_names(noted, &names);
    // A name in two folders could be another checkpoint's.
    let is_there =
        |name: &str| known.contains(name) || below.get(name).is_some_and(|count| *count == 1);
    let missing: Vec<&String> = names.iter().filter(|name| !is_there(name)).collect();
    let first = missing.iter().take(SHOWN_MAX).map(|name| name.as_str()).collect::<Vec<_>>();
    match missing.len() {
        0 => None,
        count => {
            Some(format!("{count} of {} objects are missing: {}", names.len(), first.join(" ")))
        }
    }
}

fn names_of(check: Check, marker: &[u8]) -> Result<BTreeSet<String>, String> {
    match check {
        Check::None => Ok(BTreeSet::new()),
        Check::Dcp => names_in(marker, DISTCP).map_err(|error| error.to_string()),
        Check::Hf => shards_in(marker).map_err(|error| error.to_string()),
    }
}

/// Names of the objects; and names of the marker that follow a slash in them, with the number of such
/// objects: writers may put shards below folders that the marker doesn't name.
fn known_names<'a>(
    noted: &'a [ManifestEntry],
    names: &BTreeSet<String>,
) -> (HashSet<&'a str>, HashMap<&'a str, usize>) {
    let known = noted.iter().map(|entry| entry.rest.as_str()).collect();
    let mut below_slash: HashMap<&str, usize> = HashMap::new();
    for entry in noted {
        let mut rest = entry.rest.as_str();
        while let Some((_, below)) = rest.split_once('/') {
            // No more names than the marker has, however many slashes the objects have.
            if names.contains(below) {
                *below_slash.entry(below).or_default() += 1;
            }
            rest = below;
        }
    }
    (known, below_slash)
}

#[cfg(test)]
mod tests {
    use martlet_protocol::Version;
    use martlet_protocol::entry::ETag;

    use super::*;

    fn noted(names: &[&str]) -> Vec<ManifestEntry> {
        let entry = |rest: &&str| ManifestEntry {
            rest: (*rest).to_owned(),
            version: Version::UNVERSIONED,
            size: 1,
            etag: ETag::Md5([0; 16]),
            modified_ms: 0,
        };
        names.iter().map(entry).collect()
    }

    const PICKLE: &[u8] = b"\x80\x04\x8c\x0c__0_0.distcp\x8c\x0c__1_0.distcp.";
    const JSON: &[u8] =
        br#"{"metadata": {"total_size": 5}, "weight_map": {"a": "1.st", "b": "1.st", "c": "2.st"}}"#;

    #[test]
    fn every_named_part_must_exist() {
        for (check, marker, whole, part, lacking) in [
            (Check::Dcp, PICKLE, ["__0_0.distcp", "__1_0.distcp"], "__0_0.distcp", "__1_0.distcp"),
            (Check::Hf, JSON, ["1.st", "2.st"], "1.st", "2.st"),
        ] {
            assert_eq!(missing(check, marker, &noted(&whole)), None);
            let why = missing(check, marker, &noted(&[part])).unwrap();
            assert_eq!(why, format!("1 of 2 objects are missing: {lacking}"));
        }
        assert_eq!(missing(Check::None, b"whatever", &[]), None);
    }

    #[test]
    fn shards_may_lie_in_folders() {
        let below = noted(&["x/0/__0_0.distcp", "y/__1_0.distcp"]);
        assert_eq!(missing(Check::Dcp, PICKLE, &below), None);
        for other in [
            &["x__0_0.distcp", "__1_0.distcp"][..],
            &["old/__0_0.distcp", "new/__0_0.distcp", "__1_0.distcp"][..],
        ] {
            assert!(missing(Check::Dcp, PICKLE, &noted(other)).is_some(), "{other:?}");
        }
    }

    #[test]
    fn a_marker_of_too_many_names_is_never_complete() {
        let weights: Vec<String> = (0..1_000_000).map(|at| format!(r#""{at}":"{at}""#)).collect();
        let marker = format!(r#"{{"weight_map": {{{}}}}}"#, weights.join(","));
        let why = missing(Check::Hf, marker.as_bytes(), &noted(&["1"])).unwrap();
        assert!(why.starts_with("the marker can't be read: the index names more than"), "{why}");
    }

    #[test]
    fn slashes_of_objects_take_no_memory_of_their_own() {
        let deep = "a/".repeat(500);
        let noted = noted(&[&format!("{deep}1.st"), &format!("{deep}2.st")]);
        let names = BTreeSet::from(["1.st".to_owned(), "a/2.st".to_owned(), "3.st".to_owned()]);
        let (known, below) = known_names(&noted, &names);
        assert_eq!((known.len(), below.len()), (2, 2), "{below:?}");
    }

    #[test]
    fn broken_markers_are_never_complete() {
        for (check, marker) in
            [(Check::Dcp, &b"not a pickle"[..]), (Check::Hf, &b"{}"[..]), (Check::Hf, &b"\xff"[..])]
        {
            let why = missing(check, marker, &noted(&["a"])).unwrap();
            assert!(why.starts_with("the marker can't be read"), "{why}");
        }
    }

    #[test]
    fn a_single_file_has_nothing_to_check() {
        assert!(reads(Check::Hf, "model.safetensors.index.json"));
        assert!(!reads(Check::Hf, "model.safetensors") && !reads(Check::None, "x"));
        assert!(reads(Check::Dcp, ".metadata"));
    }
}

//! Checkpoint rules of a bucket: a JSON document, and its parsed form.
//!
//! ```json
//! {"rules": [{"pattern": "run-*/step-*/", "profile": "dcp", "settle": 0, "recommit": "new"}]}
//! ```
//!
//! Invariant: the patterns of a document don't overlap, so a key belongs to at most one rule.

use std::sync::Arc;

use martlet_protocol::Setting;
use martlet_protocol::entry::Bucket;
use serde::{Deserialize, Serialize};

use super::pattern::{Pattern, Split};
use crate::error::{Error, Result};

/// Maximum number of rules of a bucket.
const RULES_MAX: usize = 64;
/// Maximum number of markers of a rule.
const MARKERS_MAX: usize = 16;
/// Longest duration of a rule: ten years, in seconds.
const SECONDS_MAX: u64 = 10 * 366 * 86_400;
/// Shortest time after which a folder without writes counts as abandoned, in seconds. Shorter times
/// would abandon saves that are being written.
const ABANDON_SECONDS_MIN: u64 = 3600;

/// Part of the names of Orbax's temporary folders, into which it writes its marker before it renames
/// them.
const ORBAX_TEMPORARY: &str = ".orbax-checkpoint-tmp";

/// Kind of writer, which determines default markers and checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Profile {
    /// `torch.distributed.checkpoint`: `.metadata`, which names `.distcp` files.
    Dcp,
    /// Megatron-core: `metadata.json`, written last.
    Megatron,
    /// Hugging Face: `model.safetensors.index.json`, which names shards, or `model.safetensors`.
    Hf,
    /// Orbax: `commit_success.txt`, which may arrive first.
    Orbax,
    /// Markers as the rule names them.
    Custom,
}

/// Check of a marker's contents before a generation is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Check {
    /// The `.distcp` files named in a pickle must exist.
    Dcp,
    /// The files named in a `weight_map` must exist.
    Hf,
    /// No check.
    None,
}

/// Handling of a marker that is written again after a generation was committed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Recommit {
    /// It makes a new generation.
    #[default]
    New,
    /// It makes none: a folder has one generation until that is withdrawn.
    Refuse,
}

/// A rule as an operator writes it. All times are in seconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRule {
    pattern: String,
    profile: Profile,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    markers: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    check: Option<Check>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    settle: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    keep: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    min_age: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    abandon_after: Option<u64>,
    #[serde(default)]
    recommit: Recommit,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRules {
    rules: Vec<WrittenRule>,
}

/// A checkpoint rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CheckpointRule {
    pub(crate) pattern: Pattern,
    /// Names of markers, relative to the folder.
    pub(crate) markers: Vec<String>,
    /// Check of a marker's contents.
    pub(crate) check: Check,
    /// Time after a marker in which more objects may come, in milliseconds.
    pub(crate) settle_ms: u64,
    /// Number of complete sets of a series to keep; none for all.
    pub(crate) keep: Option<u32>,
    /// Age below which no set is removed by `keep`, in milliseconds.
    pub(crate) min_age_ms: u64,
    /// Age at which an incomplete set without writes is abandoned, in milliseconds; none for never.
    pub(crate) abandon_after_ms: Option<u64>,
    /// Handling of a marker that is written again.
    pub(crate) recommit: Recommit,
    /// Part of the names of folders in which savers work, and which are never complete.
    temporary: Option<&'static str>,
}

/// Checkpoint rules of a bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckpointRules {
    rules: Vec<CheckpointRule>,
}

/// Place of a key among the folders of the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place<'r, 'k> {
    /// No rule covers the key.
    Outside,
    /// The key lies in a folder that a rule covers.
    Set { rule: &'r CheckpointRule, folder: &'k str, rest: &'k str },
    /// The key names a generation of a set: `SET@N/rest`.
    Generation { set: String, number: u64, folder: &'k str, rest: &'k str },
}

impl CheckpointRules {
    /// Reads and checks a document.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`], which names the rule and what is wrong.
    pub fn parse(document: &[u8]) -> Result<Self> {
        let invalid = |why: String| Error::InvalidArgument(format!("checkpoint rules: {why}"));
        let written: WrittenRules =
            serde_json::from_slice(document).map_err(|error| invalid(error.to_string()))?;
        if written.rules.is_empty() || written.rules.len() > RULES_MAX {
            return Err(invalid(format!("1 to {RULES_MAX} rules are allowed")));
        }
        let mut rules: Vec<CheckpointRule> = Vec::new();
        for written in written.rules {
            let rule = CheckpointRule::of(&written).map_err(invalid)?;
            if rules.iter().any(|other| other.pattern.overlaps(&rule.pattern)) {
                let text = &written.pattern;
                return Err(invalid(format!("pattern {text:?} overlaps an earlier one")));
            }
            rules.push(rule);
        }
        Ok(Self { rules })
    }

    /// Returns true if a bucket has rules, readable or not.
    pub(crate) fn exist(bucket: &Bucket) -> bool {
        bucket.settings.get(Setting::Checkpoints).is_some()
    }

    /// Parsed rules of a bucket, kept with the cached bucket; none if it has none.
    ///
    /// # Errors
    /// A stored document that this version can't read: requests that need the rules fail.
    pub(crate) fn of(bucket: &Bucket) -> Result<Option<Arc<Self>>> {
        let Some(document) = bucket.settings.get(Setting::Checkpoints) else { return Ok(None) };
        let parsed =
            bucket.settings.parsed_rules(|| ParsedRules(Self::parse(document).ok().map(Arc::new)));
        let Some(rules) = &parsed.0 else {
            let message = "the bucket's checkpoint rules can't be read";
            return Err(martlet_protocol::Error::corrupt(message).into());
        };
        Ok(Some(rules.clone()))
    }

    /// Place of a key.
    pub(crate) fn place<'k>(&self, key: &'k str) -> Place<'_, 'k> {
        for rule in &self.rules {
            let Some(Split { folder, rest }) = rule.pattern.split(key) else { continue };
            return match numbered(folder) {
                None => Place::Set { rule, folder, rest },
                Some((set, number)) => Place::Generation { set, number, folder, rest },
            };
        }
        Place::Outside
    }

    /// The rule of a set, if a rule covers a set of this name.
    pub(crate) fn of_set(&self, set: &str) -> Option<&CheckpointRule> {
        match self.place(set) {
            Place::Set { rule, folder, rest: "" } if folder == set => Some(rule),
            _ => None,
        }
    }
}

/// Parent folder of a set, with its last slash; empty at the top of the bucket.
pub(crate) fn series_of(set: &str) -> &str {
    let folder = set.strip_suffix('/').unwrap_or(set);
    folder.rfind('/').map_or("", |at| &set[..=at])
}

/// Parsed form of the document of a cached bucket; none if it can't be read.
struct ParsedRules(Option<Arc<CheckpointRules>>);

/// Set and number of a folder `SET@N/`.
fn numbered(folder: &str) -> Option<(String, u64)> {
    let (set, number) = folder.strip_suffix('/')?.rsplit_once('@')?;
    let is_number = !number.is_empty()
        && !number.contains('/')
        && number.bytes().all(|byte| byte.is_ascii_digit());
    let number = number.parse().ok().filter(|_| is_number)?;
    Some((format!("{set}/"), number))
}

impl CheckpointRule {
    fn of(written: &WrittenRule) -> Result<Self, String> {
        let WrittenRule { pattern: text, profile, markers, check, recommit, .. } = written;
        let pattern = Pattern::parse(text)?;
        let markers = match markers {
            Some(markers) => markers.clone(),
            None => default_markers(*profile).iter().map(|it| (*it).to_owned()).collect(),
        };
        let is_bad = |marker: &String| marker.is_empty() || marker.contains('\0');
        if markers.len() > MARKERS_MAX || markers.iter().any(is_bad) {
            return Err(format!("rule {text:?} has more than {MARKERS_MAX} markers, or a bad one"));
        }
        let seconds = |name: &str, value: Option<u64>| match value {
            Some(value) if value > SECONDS_MAX => {
                Err(format!("rule {text:?}: {name} is more than {SECONDS_MAX} seconds"))
            }
            value => Ok(value.map(|seconds| seconds * 1000)),
        };
        if written.keep == Some(0) {
            return Err(format!("rule {text:?}: keep must be at least 1"));
        }
        let abandon_after_ms = seconds("abandon_after", written.abandon_after)?;
        if abandon_after_ms.is_some_and(|ms| ms < ABANDON_SECONDS_MIN * 1000) {
            return Err(format!(
                "rule {text:?}: abandon_after must be at least {ABANDON_SECONDS_MIN} seconds"
            ));
        }
        Ok(Self {
            pattern,
            markers,
            check: check.unwrap_or_else(|| default_check(*profile)),
            settle_ms: seconds("settle", written.settle)?
                .unwrap_or_else(|| default_settle_ms(*profile)),
            keep: written.keep,
            min_age_ms: seconds("min_age", written.min_age)?.unwrap_or_default(),
            abandon_after_ms,
            recommit: *recommit,
            temporary: (*profile == Profile::Orbax).then_some(ORBAX_TEMPORARY),
        })
    }

    /// Returns true if a name relative to the folder is a marker.
    pub(crate) fn is_marker(&self, rest: &str) -> bool {
        self.markers.iter().any(|marker| marker == rest)
    }

    /// Returns true if a marker in the folder means nothing: the saver will rename the folder.
    pub(crate) fn is_temporary(&self, folder: &str) -> bool {
        self.temporary.is_some_and(|part| folder.contains(part))
    }
}

fn default_markers(profile: Profile) -> &'static [&'static str] {
    match profile {
        Profile::Dcp => &[".metadata"],
        Profile::Megatron => &["metadata.json"],
        Profile::Hf => &["model.safetensors.index.json", "model.safetensors"],
        Profile::Orbax => &["commit_success.txt"],
        Profile::Custom => &[],
    }
}

fn default_check(profile: Profile) -> Check {
    match profile {
        Profile::Dcp => Check::Dcp,
        Profile::Hf => Check::Hf,
        Profile::Megatron | Profile::Orbax | Profile::Custom => Check::None,
    }
}

/// Orbax renames its marker together with the other objects, so they may come after it.
fn default_settle_ms(profile: Profile) -> u64 {
    if profile == Profile::Orbax { 60_000 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(document: &str) -> CheckpointRules {
        CheckpointRules::parse(document.as_bytes()).unwrap()
    }

    fn refusal(document: &str) -> String {
        CheckpointRules::parse(document.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn orbax_writes_its_marker_before_it_renames_the_folder() {
        let document = |profile: &str| {
            format!(r#"{{"rules": [{{"pattern": "s/*/", "profile": "{profile}"}}]}}"#)
        };
        let (orbax, dcp) = (rules(&document("orbax")), rules(&document("dcp")));
        let is_temporary = |rules: &CheckpointRules, set: &str| {
            rules.of_set(set).is_some_and(|rule| rule.is_temporary(set))
        };
        assert!(is_temporary(&orbax, "s/7.orbax-checkpoint-tmp/"));
        assert!(is_temporary(&orbax, "s/7.orbax-checkpoint-tmp-1700000000/"));
        assert!(!is_temporary(&orbax, "s/7/"));
        assert!(!is_temporary(&dcp, "s/7.orbax-checkpoint-tmp/"));
    }

    #[test]
    fn profiles_have_markers_and_checks() {
        for (profile, marker, check, settle_ms) in [
            ("dcp", ".metadata", Check::Dcp, 0),
            ("megatron", "metadata.json", Check::None, 0),
            ("hf", "model.safetensors.index.json", Check::Hf, 0),
            ("orbax", "commit_success.txt", Check::None, 60_000),
        ] {
            let document =
                format!(r#"{{"rules": [{{"pattern": "s-*/", "profile": "{profile}"}}]}}"#);
            let rules = rules(&document);
            let Place::Set { rule, folder, rest } = rules.place("s-1/a/b") else { panic!() };
            assert_eq!((folder, rest), ("s-1/", "a/b"));
            assert!(rule.is_marker(marker) && !rule.is_marker("x") && !rule.is_marker(""));
            assert_eq!((rule.check, rule.settle_ms), (check, settle_ms), "{profile}");
            assert_eq!((rule.keep, rule.abandon_after_ms), (None, None));
        }
    }

    #[test]
    fn a_rule_overrides_the_default() {
        let rules = rules(
            r#"{"rules": [{"pattern": "s-*/", "profile": "custom", "markers": ["done"],
                "check": "hf", "settle": 5, "keep": 3, "min_age": 60, "abandon_after": 7200,
                "recommit": "refuse"}]}"#,
        );
        let rule = rules.of_set("s-1/").unwrap();
        assert!(rule.is_marker("done"));
        assert_eq!((rule.check, rule.settle_ms, rule.keep), (Check::Hf, 5000, Some(3)));
        assert_eq!((rule.min_age_ms, rule.abandon_after_ms), (60_000, Some(7_200_000)));
        assert_eq!(rule.recommit, Recommit::Refuse);
        for name in ["s-1", "s-1/a", "t-1/", "", "s-1@3/"] {
            assert!(rules.of_set(name).is_none(), "{name}");
        }
    }

    #[test]
    fn errors_name_the_rule_and_the_reason() {
        let rule = |fields: &str| format!(r#"{{"rules": [{{"pattern": "a/", {fields}}}]}}"#);
        for (document, why) in [
            ("{}".to_owned(), "missing field `rules`"),
            (r#"{"rules": []}"#.to_owned(), "1 to 64 rules"),
            ("[".to_owned(), "EOF"),
            (rule(r#""profile": "tf""#), "unknown variant `tf`"),
            (rule(r#""profile": "dcp", "kep": 3"#), "unknown field `kep`"),
            (rule(r#""profile": "dcp", "keep": 0"#), "keep must be at least 1"),
            (rule(r#""profile": "dcp", "settle": 999999999999"#), "settle is more"),
            (rule(r#""profile": "dcp", "abandon_after": 10"#), "abandon_after must be at least"),
            (rule(r#""profile": "dcp", "markers": [""]"#), "or a bad one"),
            (
                r#"{"rules": [{"pattern": "a", "profile": "dcp"}]}"#.to_owned(),
                "must end with a slash",
            ),
            (
                r#"{"rules": [{"pattern": "a-*/", "profile": "dcp"},
                              {"pattern": "*/b/", "profile": "hf"}]}"#
                    .to_owned(),
                "overlaps",
            ),
        ] {
            let said = refusal(&document);
            assert!(said.contains(why), "{said} lacks {why}");
        }
    }

    #[test]
    fn a_generation_is_named_by_its_number() {
        let rules = rules(r#"{"rules": [{"pattern": "r/s-*/", "profile": "dcp"}]}"#);
        let generation = |key| match rules.place(key) {
            Place::Generation { set, number, folder, rest } => {
                Some((set, number, folder.to_owned(), rest.to_owned()))
            }
            _ => None,
        };
        let folder = "r/s-1@12/".to_owned();
        assert_eq!(generation("r/s-1@12/a/b"), Some(("r/s-1/".into(), 12, folder, "a/b".into())));
        for key in ["r/s-1@/a", "r/s-1@x/a", "r/s-1@+3/a", "r/s@99999999999999999999/a", "r@1/s/a"]
        {
            assert_eq!(generation(key), None, "{key}");
        }
        assert_eq!(rules.place("other"), Place::Outside);
    }
}

//! Releases: the versions of the internal protocol that a process speaks, and the formats of stored
//! data that it knows.
//!
//! ```text
//! wire=0-1 formats=2-2 level=2 name=0.1.0
//! ```
//!
//! Two processes speak the highest version that both know. The *format level* of a cluster is one
//! number for all formats of stored data: entries, devices, volumes, files of data folders. Nodes
//! write the formats of that level. A later release raises no level by itself: an operator does,
//! once all processes run that release. So a cluster returns to the release before until then.

use std::fmt;
use std::str::FromStr;

/// Versions of the internal protocol that this release speaks. Version 0 is that of releases before
/// versions were announced; version 1 frames the heads of calls in channels.
pub const WIRE: VersionRange = VersionRange { oldest: 0, newest: 1 };

/// Format levels at which this release runs.
pub const FORMATS: VersionRange = VersionRange { oldest: 2, newest: 2 };

/// Longest text of a release, in bytes. Longer texts are not read.
const RELEASE_BYTES_MAX: usize = 256;

/// Versions from the oldest to the newest, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionRange {
    /// Oldest version.
    pub oldest: u16,
    /// Newest version.
    pub newest: u16,
}

impl VersionRange {
    /// Returns the highest version of both ranges; none if they don't overlap.
    pub fn common(self, other: Self) -> Option<u16> {
        let newest = self.newest.min(other.newest);
        (newest >= self.oldest.max(other.oldest)).then_some(newest)
    }

    /// Returns true if the range contains a version.
    pub fn contains(self, version: u16) -> bool {
        (self.oldest..=self.newest).contains(&version)
    }

    /// Range in words: `version 1`, or `versions 1 to 3`.
    fn named(self, noun: &str) -> String {
        if self.oldest == self.newest {
            format!("{noun} {}", self.newest)
        } else {
            format!("{noun}s {} to {}", self.oldest, self.newest)
        }
    }
}

impl fmt::Display for VersionRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.oldest, self.newest)
    }
}

impl FromStr for VersionRange {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (oldest, newest) = text.split_once('-').ok_or(())?;
        let number = |text: &str| text.parse::<u16>().map_err(|_| ());
        let range = Self { oldest: number(oldest)?, newest: number(newest)? };
        if range.oldest <= range.newest { Ok(range) } else { Err(()) }
    }
}

/// Release of a process, as it announces itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// Versions of the internal protocol that the process speaks.
    pub wire: VersionRange,
    /// Format levels at which the process runs.
    pub formats: VersionRange,
    /// Format level that the process knows of its cluster.
    pub level: u16,
    /// Name of the release, such as `0.1.0`.
    pub name: String,
}

impl Release {
    /// Returns this release, at a format level of its cluster.
    pub fn own(level: u16) -> Self {
        Self { wire: WIRE, formats: FORMATS, level, name: env!("CARGO_PKG_VERSION").to_owned() }
    }

    /// Returns the release of a process that announces none.
    pub fn unannounced() -> Self {
        let (wire, formats) = (VersionRange { oldest: 0, newest: 0 }, FORMATS_UNANNOUNCED);
        Self { wire, formats, level: formats.newest, name: "without a version".to_owned() }
    }

    /// Reads an announcement; none stands for [`Release::unannounced`]. Unknown fields are passed
    /// over, and fields that are missing or unreadable are those of an unannounced release.
    pub fn announced(text: Option<&str>) -> Self {
        let mut release = Self::unannounced();
        let text = text.filter(|text| text.len() <= RELEASE_BYTES_MAX).unwrap_or_default();
        for field in text.split(' ') {
            match field.split_once('=') {
                Some(("wire", range)) => release.wire = range.parse().unwrap_or(release.wire),
                Some(("formats", range)) => {
                    release.formats = range.parse().unwrap_or(release.formats);
                }
                Some(("level", level)) => release.level = level.parse().unwrap_or(release.level),
                Some(("name", name)) => name.clone_into(&mut release.name),
                _ => {}
            }
        }
        release
    }

    /// Returns the version that this process and another speak with each other.
    ///
    /// # Errors
    /// A sentence, if they have no version in common. `own` and `other` are the nouns for the two
    /// processes, such as `this node` and `the caller`.
    pub fn common_wire(
        &self,
        own: &dyn fmt::Display,
        other: &dyn fmt::Display,
        theirs: &Self,
    ) -> Result<u16, String> {
        self.wire.common(theirs.wire).ok_or_else(|| {
            let (older, needed) = if self.wire.newest < theirs.wire.oldest {
                (own, theirs.wire.oldest)
            } else {
                (other, self.wire.oldest)
            };
            format!(
                "{own} (release {}) speaks {} of the internal protocol, and {other} (release {}) \
                 speaks {}: upgrade {older} to a release that speaks version {needed}",
                self.name,
                self.wire.named("version"),
                theirs.name,
                theirs.wire.named("version"),
            )
        })
    }

    /// Returns the reason if this release can't run at a format level.
    pub fn refuses_level(&self, level: u16) -> Option<String> {
        if self.formats.contains(level) {
            return None;
        }
        let action = if level > self.formats.newest {
            "start the release that the cluster was finalized with, or a later one"
        } else {
            "start the release before, and finalize the cluster with it first"
        };
        Some(format!(
            "the format level of the cluster is {level}, and release {} knows {}: {action}",
            self.name,
            self.formats.named("level"),
        ))
    }
}

/// Format levels of releases that announce none.
const FORMATS_UNANNOUNCED: VersionRange = VersionRange { oldest: 2, newest: 2 };

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { wire, formats, level, name } = self;
        write!(f, "wire={wire} formats={formats} level={level} name={name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(oldest: u16, newest: u16) -> VersionRange {
        VersionRange { oldest, newest }
    }

    fn release(oldest: u16, newest: u16, name: &str) -> Release {
        Release { wire: range(oldest, newest), name: name.to_owned(), ..Release::own(2) }
    }

    #[test]
    fn the_highest_common_version_is_spoken() {
        for (a, b, common) in [
            (range(0, 1), range(0, 0), Some(0)),
            (range(0, 1), range(0, 1), Some(1)),
            (range(0, 1), range(1, 2), Some(1)),
            (range(2, 3), range(0, 1), None),
        ] {
            assert_eq!((a.common(b), b.common(a)), (common, common), "{a} and {b}");
        }
    }

    #[test]
    fn a_release_is_read_as_it_was_announced() {
        let own = Release::own(2);
        assert_eq!(Release::announced(Some(&own.to_string())), own);
        assert_eq!(Release::announced(None), Release::unannounced());
        assert!(own.to_string().len() <= RELEASE_BYTES_MAX);
    }

    #[test]
    fn unknown_fields_pass_and_missing_ones_have_defaults() {
        let later = Release::announced(Some("wire=1-2 codec=zstd name=0.9.0 level=x formats=9-1"));
        assert_eq!((later.wire, later.name.as_str()), (range(1, 2), "0.9.0"));
        assert_eq!((later.level, later.formats), (2, range(2, 2)), "unreadable fields");
        let long = format!("wire=5-6 {}", "x".repeat(RELEASE_BYTES_MAX));
        assert_eq!(Release::announced(Some(&long)), Release::unannounced());
    }

    #[test]
    fn a_refusal_names_both_versions_and_the_process_to_upgrade() {
        let (old, new) = (release(0, 1, "0.1.0"), release(2, 3, "0.3.0"));
        let refusal = new.common_wire(&"this node", &"the caller", &old).unwrap_err();
        assert_eq!(
            refusal,
            "this node (release 0.3.0) speaks versions 2 to 3 of the internal protocol, and the \
             caller (release 0.1.0) speaks versions 0 to 1: upgrade the caller to a release that \
             speaks version 2"
        );
        let refusal = old.common_wire(&"this process", &"the node n2", &new).unwrap_err();
        assert!(refusal.ends_with("upgrade this process to a release that speaks version 2"));
        let unannounced = Release::unannounced();
        let refusal = new.common_wire(&"this node", &"the caller", &unannounced).unwrap_err();
        assert!(refusal.contains("(release without a version) speaks version 0:"), "{refusal}");
        assert_eq!(old.common_wire(&"a", &"b", &unannounced), Ok(0));
    }

    #[test]
    fn a_level_beyond_a_release_is_refused_by_a_sentence() {
        let own = Release { formats: range(2, 3), ..Release::own(2) };
        assert_eq!((own.refuses_level(2), own.refuses_level(3)), (None, None));
        let refusal = own.refuses_level(4).unwrap();
        assert!(refusal.contains("is 4, and release 0.1.0 knows levels 2 to 3"), "{refusal}");
        assert!(own.refuses_level(1).unwrap().contains("finalize"));
    }
}

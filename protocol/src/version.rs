//! Versions of an object, and their ids for clients.
//!
//! The current version of a key is in the key's own register; each noncurrent version has a
//! register of its own ([`RegisterKey::version`](crate::RegisterKey::version)). A key has at most
//! one version without an id, the *null* version, written before the bucket had versioning or while
//! it was suspended.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::id::WriteId;

/// Version of an entry within its key; permanent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Version {
    /// Position among the versions of the key; later versions have higher positions.
    pub position: u64,
    /// Write that created the version; none for the null version.
    pub id: Option<WriteId>,
}

impl Version {
    /// Version of entries written before their bucket had versioning: below all other versions.
    pub const UNVERSIONED: Self = Self { position: 0, id: None };

    /// Returns the version id for clients.
    pub fn name(self) -> VersionId {
        match self.id {
            None => VersionId::Null,
            Some(write_id) => VersionId::Numbered { position: self.position, write_id },
        }
    }
}

/// Version id for clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VersionId {
    /// The null version.
    Null,
    /// A version with an id. The id contains the position, so that the version's register is found
    /// without a search.
    Numbered {
        /// Position among the versions of the key.
        position: u64,
        /// Write that created the version.
        write_id: WriteId,
    },
}

/// Error for text that is not a version id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the version id is malformed")]
pub struct NoVersionId;

impl fmt::Display for VersionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Numbered { position, write_id } => write!(f, "{position:016x}{write_id}"),
        }
    }
}

impl FromStr for VersionId {
    type Err = NoVersionId;

    fn from_str(text: &str) -> Result<Self, NoVersionId> {
        if text == "null" {
            return Ok(Self::Null);
        }
        let mut bytes = [0; 24];
        hex::decode_to_slice(text, &mut bytes).map_err(|_| NoVersionId)?;
        let (mut position, mut write_id) = ([0; 8], [0; 16]);
        position.copy_from_slice(&bytes[..8]);
        write_id.copy_from_slice(&bytes[8..]);
        let id =
            Self::Numbered { position: u64::from_be_bytes(position), write_id: WriteId(write_id) };
        // Only lower-case digits: a version has one text form.
        if id.to_string() == text { Ok(id) } else { Err(NoVersionId) }
    }
}

/// Versioning state of a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Versioning {
    /// Never enabled: a write replaces the existing object.
    #[default]
    Off,
    /// Being enabled for the first time: writes behave as in `Suspended`, until every device
    /// refuses plain writes to the bucket.
    Preparing,
    /// A write keeps existing versions.
    Enabled,
    /// A write replaces the null version, and keeps other versions.
    Suspended,
}

impl Versioning {
    const fn word(self) -> &'static str {
        match self {
            Self::Off => "Off",
            Self::Preparing => "Preparing",
            Self::Enabled => "Enabled",
            Self::Suspended => "Suspended",
        }
    }

    /// True if overwritten versions may have to be kept, so that writes need ballots.
    pub const fn keeps_versions(self) -> bool {
        !matches!(self, Self::Off)
    }
}

/// Versioning setting of a bucket; document format `Enabled 1764000000000`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VersioningSetting {
    /// Versioning state.
    pub state: Versioning,
    /// Time in milliseconds since 1970 that separates orders: writes from before versioning lie
    /// below, and ballots that keep versions lie above.
    pub above_ms: u64,
}

impl VersioningSetting {
    /// Returns the setting as a bucket's document.
    pub fn document(self) -> Vec<u8> {
        format!("{} {}", self.state.word(), self.above_ms).into_bytes()
    }

    /// Decodes a document of [`VersioningSetting::document`]; no document means `Off`. An unknown
    /// state of a later version is read as `Suspended`, so that existing versions are kept.
    pub fn of(document: Option<&[u8]>) -> Self {
        let Some(document) = document else { return Self::default() };
        let text = std::str::from_utf8(document).unwrap_or_default();
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let state = [Versioning::Preparing, Versioning::Enabled, Versioning::Off];
        let state = state.into_iter().find(|state| state.word() == word);
        let state = state.unwrap_or(Versioning::Suspended);
        Self { state, above_ms: rest.parse().unwrap_or_default() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ids_are_read_as_they_are_written(position in any::<u64>(), id in any::<[u8; 16]>()) {
            let version = Version { position, id: Some(WriteId(id)) };
            let text = version.name().to_string();
            prop_assert_eq!(text.len(), 48);
            prop_assert_eq!(text.parse::<VersionId>(), Ok(version.name()));
        }

        #[test]
        fn foreign_ids_name_no_version(text in "[0-9a-fA-Fnul]{0,60}") {
            if let Ok(id) = text.parse::<VersionId>() {
                prop_assert_eq!(id.to_string(), text);
            }
        }
    }

    #[test]
    fn the_null_version_is_called_null() {
        assert_eq!(Version::UNVERSIONED.name().to_string(), "null");
        assert_eq!("null".parse(), Ok(VersionId::Null));
        assert_eq!("".parse::<VersionId>(), Err(NoVersionId));
        assert_eq!("Null".parse::<VersionId>(), Err(NoVersionId));
    }

    #[test]
    fn versioning_settings_are_read_as_written_and_unknown_ones_keep_versions() {
        use Versioning::{Enabled, Off, Preparing, Suspended};
        for state in [Off, Preparing, Enabled, Suspended] {
            let setting = VersioningSetting { state, above_ms: 77 };
            assert_eq!(VersioningSetting::of(Some(&setting.document())), setting);
            assert_eq!(state.keeps_versions(), state != Off);
        }
        assert_eq!(VersioningSetting::of(None).state, Off);
        for unknown in [&b"Later 5"[..], b"", b"\xff", b"Later"] {
            assert_eq!(VersioningSetting::of(Some(unknown)).state, Suspended, "{unknown:?}");
        }
    }
}

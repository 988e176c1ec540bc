//! Versions of an object: what tells them apart, and how clients name them.
//!
//! The current version of a key is in the key's own register; each other one has a register beside it
//! ([`RegisterKey::version`](crate::RegisterKey::version)). Of versions without an id (written before
//! the bucket had versions, or while they were suspended) a key has one at most, the *null* version.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::id::WriteId;

/// Which version of its key an entry is. It stays with it for life, whatever is said about it since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Version {
    /// Its place among the versions of the key: later ones have a higher one.
    pub position: u64,
    /// The write that brought it; none of the null version.
    pub id: Option<WriteId>,
}

impl Version {
    /// What was written before its bucket had versions: below all others.
    pub const UNVERSIONED: Self = Self { position: 0, id: None };

    /// What clients call it.
    pub fn name(self) -> VersionId {
        match self.id {
            None => VersionId::Null,
            Some(write_id) => VersionId::Numbered { position: self.position, write_id },
        }
    }
}

/// What a client calls a version of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VersionId {
    /// The one without an id.
    Null,
    /// One with an id: its place is part of it, so that its register is found without a search.
    Numbered {
        /// Its place among the versions of the key.
        position: u64,
        /// The write that brought it.
        write_id: WriteId,
    },
}

/// Text that names no version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no version has such an id")]
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
        // A version has one name, whatever case hexadecimal digits may have.
        if id.to_string() == text { Ok(id) } else { Err(NoVersionId) }
    }
}

/// Whether a bucket keeps the versions of its objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Versioning {
    /// It never did: a write replaces what was there.
    #[default]
    Off,
    /// It is about to, for the first time: written as while suspended, until everyone knows.
    Preparing,
    /// A write keeps what was there.
    Enabled,
    /// A write replaces the null version, and keeps the others.
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

    /// Whether what is overwritten may have to be kept, so that writes go by ballots.
    pub const fn keeps_versions(self) -> bool {
        !matches!(self, Self::Off)
    }
}

/// What the settings of a bucket say about versions: `Enabled 1764000000000`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VersioningSetting {
    /// Whether they are kept.
    pub state: Versioning,
    /// Whatever was written before they were kept has an order below this time, in milliseconds
    /// since 1970; ballots that keep versions are above it.
    pub above_ms: u64,
}

impl VersioningSetting {
    /// Its document.
    pub fn document(self) -> Vec<u8> {
        format!("{} {}", self.state.word(), self.above_ms).into_bytes()
    }

    /// The inverse of [`VersioningSetting::document`]; of none, that they were never kept. What a
    /// later version of this software set keeps them at least.
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
    fn what_is_set_is_read_back_and_the_unknown_keeps_versions() {
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

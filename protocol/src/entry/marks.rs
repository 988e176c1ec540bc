//! Marks: named documents about one object or upload, beside its attributes.
//!
//! Nodes store marks without decoding them. Marks with unknown names are kept, because a later
//! version may have set them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Names of marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mark {
    /// The access control list.
    Acl,
    /// Pins of checkpoint generations: forbid removal until they are released.
    Checkpoint,
    /// Encryption of the bytes.
    Encryption,
    /// Initiator of an upload; only on uploads.
    Initiator,
    /// Legal hold: forbids removal until it is lifted.
    LegalHold,
    /// Opaque ETags of an upload and its parts; only on uploads.
    OpaqueETags,
    /// Retention: time until which removal is forbidden.
    Retention,
}

impl Mark {
    /// All marks.
    pub const ALL: [Self; 7] = [
        Self::Acl,
        Self::Checkpoint,
        Self::Encryption,
        Self::Initiator,
        Self::LegalHold,
        Self::OpaqueETags,
        Self::Retention,
    ];

    /// Permanent name in entries.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Acl => "acl",
            Self::Checkpoint => "checkpoint",
            Self::Encryption => "encryption",
            Self::Initiator => "initiator",
            Self::LegalHold => "legal-hold",
            Self::OpaqueETags => "opaque-etags",
            Self::Retention => "retention",
        }
    }
}

/// Marks of an object or upload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Marks(BTreeMap<String, Vec<u8>>);

impl Marks {
    /// Returns a mark's document, if set.
    pub fn get(&self, mark: Mark) -> Option<&[u8]> {
        self.0.get(mark.name()).map(Vec::as_slice)
    }

    /// Sets a mark's document, replacing any before.
    pub fn set(&mut self, mark: Mark, document: Vec<u8>) {
        self.0.insert(mark.name().to_owned(), document);
    }

    /// Removes a mark; returns true if it was set.
    pub fn remove(&mut self, mark: Mark) -> bool {
        self.0.remove(mark.name()).is_some()
    }

    /// Removes all marks but one.
    pub(super) fn keep(&mut self, mark: Mark) {
        self.0.retain(|name, _| name == mark.name());
    }

    /// True if no mark is set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_for_good() {
        let names = [
            "acl",
            "checkpoint",
            "encryption",
            "initiator",
            "legal-hold",
            "opaque-etags",
            "retention",
        ];
        assert_eq!(Mark::ALL.map(Mark::name), names);
    }

    #[test]
    fn documents_are_set_replaced_and_removed_each_by_itself() {
        let mut marks = Marks::default();
        for mark in Mark::ALL {
            assert!(!marks.remove(mark));
            marks.set(mark, mark.name().into());
        }
        marks.set(Mark::Acl, b"other".to_vec());
        assert!(marks.remove(Mark::Retention));
        assert_eq!(marks.get(Mark::Acl), Some(&b"other"[..]));
        assert_eq!(marks.get(Mark::LegalHold), Some(&b"legal-hold"[..]));
        assert_eq!(marks.get(Mark::Retention), None);
        assert!(!marks.is_empty() && Marks::default().is_empty());
    }

    #[test]
    fn values_of_later_versions_are_kept() {
        let later = Marks(BTreeMap::from([("ice-age".to_owned(), vec![7])]));
        let bytes = postcard::to_stdvec(&later).unwrap();
        let mut marks: Marks = postcard::from_bytes(&bytes).unwrap();
        marks.set(Mark::Acl, vec![1]);
        marks.remove(Mark::Acl);
        assert_eq!(postcard::to_stdvec(&marks).unwrap(), bytes);
    }
}

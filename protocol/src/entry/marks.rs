//! What is set about one object or part beside what its client says of it: documents by name.
//!
//! Nodes keep them and know nothing of what they say. Documents of names that this version does not
//! know are kept: a later one may have set them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What can be set about an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mark {
    /// Who is granted what, by an access control list.
    Acl,
    /// How its bytes are encrypted.
    Encryption,
    /// Who began it: of uploads alone.
    Initiator,
    /// That it may not be removed until somebody says otherwise.
    LegalHold,
    /// Until when it may not be removed.
    Retention,
}

impl Mark {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Acl, Self::Encryption, Self::Initiator, Self::LegalHold, Self::Retention];

    /// Its name in an entry, for good.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Acl => "acl",
            Self::Encryption => "encryption",
            Self::Initiator => "initiator",
            Self::LegalHold => "legal-hold",
            Self::Retention => "retention",
        }
    }
}

/// The documents that are set about an object or a part.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Marks(BTreeMap<String, Vec<u8>>);

impl Marks {
    /// A document, if it is set.
    pub fn get(&self, mark: Mark) -> Option<&[u8]> {
        self.0.get(mark.name()).map(Vec::as_slice)
    }

    /// Sets a document, in place of the one before.
    pub fn set(&mut self, mark: Mark, document: Vec<u8>) {
        self.0.insert(mark.name().to_owned(), document);
    }

    /// Removes a document; whether it was set.
    pub fn remove(&mut self, mark: Mark) -> bool {
        self.0.remove(mark.name()).is_some()
    }

    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_for_good() {
        let names = ["acl", "encryption", "initiator", "legal-hold", "retention"];
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
    fn what_a_later_version_set_is_kept() {
        let later = Marks(BTreeMap::from([("ice-age".to_owned(), vec![7])]));
        let bytes = postcard::to_stdvec(&later).unwrap();
        let mut marks: Marks = postcard::from_bytes(&bytes).unwrap();
        marks.set(Mark::Acl, vec![1]);
        marks.remove(Mark::Acl);
        assert_eq!(postcard::to_stdvec(&marks).unwrap(), bytes);
    }
}

//! Settings of a bucket: the documents of its sub-resources, as accepted.
//!
//! Documents are validated when they are set; this module treats them as bytes. Their total length
//! is bounded, so that a page of buckets fits into one reply. Documents with unknown names are
//! kept, because a later version may have set them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::derived::Derived;
use crate::limits::{POLICY_BYTES_MAX, SETTINGS_BYTES_MAX};

/// Names of bucket settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Setting {
    /// The access control list.
    Acl,
    /// Checkpoint rules.
    Checkpoints,
    /// CORS rules.
    Cors,
    /// Default encryption of new objects.
    Encryption,
    /// Kind of the ETags of new objects.
    ETags,
    /// Lifecycle rules.
    Lifecycle,
    /// Target of access logs.
    Logging,
    /// Event notification rules.
    Notification,
    /// Object lock, with its default retention.
    ObjectLock,
    /// Ownership of objects written by other tenants.
    OwnershipControls,
    /// The bucket policy.
    Policy,
    /// Ids of the principals in the policy, as resolved when it was set.
    PolicyPrincipals,
    /// Restrictions on public access.
    PublicAccessBlock,
    /// Quota of the bucket.
    Quota,
    /// Tags of the bucket.
    Tagging,
    /// Versioning state.
    Versioning,
}

impl Setting {
    /// All settings.
    pub const ALL: [Self; 16] = [
        Self::Acl,
        Self::Checkpoints,
        Self::Cors,
        Self::Encryption,
        Self::ETags,
        Self::Lifecycle,
        Self::Logging,
        Self::Notification,
        Self::ObjectLock,
        Self::OwnershipControls,
        Self::Policy,
        Self::PolicyPrincipals,
        Self::PublicAccessBlock,
        Self::Quota,
        Self::Tagging,
        Self::Versioning,
    ];

    /// Permanent name in entries.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Acl => "acl",
            Self::Checkpoints => "checkpoints",
            Self::Cors => "cors",
            Self::Encryption => "encryption",
            Self::ETags => "etags",
            Self::Lifecycle => "lifecycle",
            Self::Logging => "logging",
            Self::Notification => "notification",
            Self::ObjectLock => "object-lock",
            Self::OwnershipControls => "ownership-controls",
            Self::Policy => "policy",
            Self::PolicyPrincipals => "policy-principals",
            Self::PublicAccessBlock => "public-access-block",
            Self::Quota => "quota",
            Self::Tagging => "tagging",
            Self::Versioning => "versioning",
        }
    }

    /// Longest document of this setting, in bytes.
    pub const fn bytes_max(self) -> usize {
        match self {
            Self::Policy => POLICY_BYTES_MAX,
            _ => SETTINGS_BYTES_MAX,
        }
    }
}

/// A document, or all documents of a bucket together, exceed their bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong {
    /// Length in bytes.
    pub bytes: usize,
    /// Bound in bytes.
    pub bytes_max: usize,
}

/// Configuration documents of a bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Settings {
    documents: BTreeMap<String, Vec<u8>>,
    /// Parsed documents. Each change of the documents clears the field.
    #[serde(skip)]
    parsed: Derived,
    /// Parsed checkpoint rules, which other requests need than the documents above.
    #[serde(skip)]
    parsed_rules: Derived,
}

impl Settings {
    /// Returns a setting's document, if set.
    pub fn get(&self, setting: Setting) -> Option<&[u8]> {
        self.documents.get(setting.name()).map(Vec::as_slice)
    }

    /// Sets a document, replacing any before.
    ///
    /// # Errors
    /// [`TooLong`] when the document exceeds its own bound, or all documents their total bound;
    /// then nothing changes.
    pub fn set(&mut self, setting: Setting, document: Vec<u8>) -> Result<(), TooLong> {
        let name = setting.name();
        let (bytes, bytes_max) = (document.len(), setting.bytes_max());
        if bytes > bytes_max {
            return Err(TooLong { bytes, bytes_max });
        }
        let others = self.documents.iter().filter(|(key, _)| *key != name);
        let others: usize = others.map(|(key, document)| key.len() + document.len()).sum();
        let (bytes, bytes_max) = (others + name.len() + bytes, SETTINGS_BYTES_MAX);
        if bytes > bytes_max {
            return Err(TooLong { bytes, bytes_max });
        }
        self.forget_parsed();
        self.documents.insert(name.to_owned(), document);
        Ok(())
    }

    /// Removes a document; returns true if it was set.
    pub fn remove(&mut self, setting: Setting) -> bool {
        self.forget_parsed();
        self.documents.remove(setting.name()).is_some()
    }

    fn forget_parsed(&mut self) {
        (self.parsed, self.parsed_rules) = (Derived::default(), Derived::default());
    }

    /// Returns the bytes of all documents together.
    pub fn document_bytes(&self) -> usize {
        self.documents.values().map(Vec::len).sum()
    }

    /// Returns the parsed form of these documents. Calls `parse` unless these settings keep a form
    /// of type `T` from an earlier call. Clones keep none.
    pub fn parsed<T: Send + Sync + 'static>(&self, parse: impl FnOnce() -> T) -> Arc<T> {
        self.parsed.get_or_init(parse)
    }

    /// Returns the parsed form of the checkpoint rules, as [`Settings::parsed`] does. It is kept
    /// beside the other documents' form.
    pub fn parsed_rules<T: Send + Sync + 'static>(&self, parse: impl FnOnce() -> T) -> Arc<T> {
        self.parsed_rules.get_or_init(parse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_for_good() {
        let names = Setting::ALL.map(Setting::name);
        let known = [
            "acl",
            "checkpoints",
            "cors",
            "encryption",
            "etags",
            "lifecycle",
            "logging",
            "notification",
            "object-lock",
            "ownership-controls",
            "policy",
            "policy-principals",
            "public-access-block",
            "quota",
            "tagging",
            "versioning",
        ];
        assert_eq!(names, known);
    }

    #[test]
    fn documents_are_set_replaced_and_removed_each_by_itself() {
        let mut settings = Settings::default();
        for setting in Setting::ALL {
            assert_eq!(settings.get(setting), None);
            assert!(!settings.remove(setting));
            settings.set(setting, setting.name().into()).unwrap();
        }
        for setting in Setting::ALL {
            assert_eq!(settings.get(setting), Some(setting.name().as_bytes()));
        }
        settings.set(Setting::Acl, b"other".to_vec()).unwrap();
        assert_eq!(settings.get(Setting::Acl), Some(&b"other"[..]));
        assert!(settings.remove(Setting::Cors));
        assert_eq!(settings.get(Setting::Cors), None);
        assert_eq!(settings.get(Setting::Tagging), Some(&b"tagging"[..]));
    }

    #[test]
    fn a_document_too_long_changes_nothing() {
        let mut settings = Settings::default();
        let most = POLICY_BYTES_MAX;
        let refused = settings.set(Setting::Policy, vec![b' '; most + 1]);
        assert_eq!(refused, Err(TooLong { bytes: most + 1, bytes_max: most }));
        settings.set(Setting::Policy, vec![b' '; most]).unwrap();
        let rest = SETTINGS_BYTES_MAX - most - "policy".len() - "cors".len();
        settings.set(Setting::Cors, vec![b' '; rest]).unwrap();
        let before = settings.clone();
        for (setting, bytes) in [(Setting::Cors, rest + 1), (Setting::Tagging, 0)] {
            assert!(settings.set(setting, vec![b' '; bytes]).is_err(), "{setting:?}");
            assert_eq!(settings, before);
        }
        settings.set(Setting::Cors, vec![b'x'; rest]).expect("it replaces one as long");
    }

    #[test]
    fn documents_are_parsed_once_until_they_change() {
        let mut settings = Settings::default();
        assert_eq!(*settings.parsed(|| 1), 1);
        assert_eq!(*settings.parsed(|| 2), 1, "kept");
        assert_eq!((*settings.parsed_rules(|| 7), *settings.parsed(|| 2)), (7, 1), "both are kept");
        assert_eq!(*settings.clone().parsed(|| 3), 3, "a clone keeps none");
        settings.set(Setting::Acl, vec![1]).unwrap();
        assert_eq!((*settings.parsed(|| 4), *settings.parsed_rules(|| 8)), (4, 8));
        settings.remove(Setting::Acl);
        assert_eq!(*settings.parsed(|| 5), 5);
        assert_eq!(settings, Settings::default(), "parsed forms are no part of the settings");
    }

    #[test]
    fn values_of_later_versions_are_kept() {
        let documents = BTreeMap::from([("ice-age".to_owned(), vec![7])]);
        let later = Settings { documents, ..Settings::default() };
        let bytes = postcard::to_stdvec(&later).unwrap();
        let mut settings: Settings = postcard::from_bytes(&bytes).unwrap();
        settings.set(Setting::Acl, vec![1]).unwrap();
        settings.remove(Setting::Acl);
        assert_eq!(postcard::to_stdvec(&settings).unwrap(), bytes);
    }
}

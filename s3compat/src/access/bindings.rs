//! Bindings of the names in a document to the ids that they meant when it was put.
//!
//! A name may pass to another principal after its holder is deleted; an id is never reused. So the
//! names in a document are bound to ids when it is put, and the ids are stored beside it. The
//! document itself stays unchanged, byte for byte.
//!
//! Invariants:
//! * Bindings apply only to the document that they were made for, by its hash.
//! * A name without a binding matches no principal.
//! * A document without bindings is from an earlier version: its names match their current holders.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Maximum number of names in one document.
pub(crate) const NAMES_MAX: usize = 256;

/// A name in a document: of an account, or of a user or role of an account.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BoundName {
    pub(crate) account: String,
    pub(crate) member: Option<(PrincipalKind, String)>,
}

/// Kind of principal within an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PrincipalKind {
    User,
    Role,
}

impl BoundName {
    pub(super) fn account(account: &str) -> Self {
        Self { account: account.to_owned(), member: None }
    }

    pub(super) fn member(account: &str, member: PrincipalKind, name: &str) -> Self {
        Self { member: Some((member, name.to_owned())), ..Self::account(account) }
    }

    /// Name as it is stored.
    fn text(&self) -> String {
        let account = &self.account;
        match &self.member {
            None => account.clone(),
            Some((PrincipalKind::User, name)) => format!("{account}/user/{name}"),
            Some((PrincipalKind::Role, name)) => format!("{account}/role/{name}"),
        }
    }
}

/// Ids of the principals that a document names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Bindings {
    /// Hash of the document: the first 16 bytes of BLAKE3, in hexadecimal.
    of: String,
    /// Names, and the ids of accounts, users and roles. An account's own keys have the account's
    /// id.
    ids: BTreeMap<String, String>,
}

fn hash(document: &[u8]) -> String {
    hex::encode(&blake3::hash(document).as_bytes()[..16])
}

impl Bindings {
    /// Binds the names of a document.
    pub(crate) fn new(document: &[u8], ids: impl IntoIterator<Item = (BoundName, String)>) -> Self {
        let ids = ids.into_iter().map(|(name, id)| (name.text(), id)).collect();
        Self { of: hash(document), ids }
    }

    /// Encodes the bindings for storage beside the document.
    pub(crate) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("texts can be written")
    }

    /// Decodes stored bindings; `None` if they are another document's.
    pub(crate) fn decode(kept: Option<&[u8]>, document: &[u8]) -> Option<Self> {
        let bindings: Self = serde_json::from_slice(kept?).ok()?;
        (bindings.of == hash(document)).then_some(bindings)
    }

    /// Id of a name. An unbound name has an empty id, which matches no principal.
    pub(super) fn id(&self, name: &BoundName) -> String {
        self.ids.get(&name.text()).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_one_documents_and_know_no_other_names() {
        let name = BoundName::member("alice", PrincipalKind::User, "carol");
        let bindings = Bindings::new(b"{}", [(name.clone(), "7".to_owned())]);
        let kept = bindings.encode();
        let read = Bindings::decode(Some(&kept), b"{}").unwrap();
        assert_eq!((read.id(&name), &read), ("7".to_owned(), &bindings));
        assert_eq!(read.id(&BoundName::member("alice", PrincipalKind::Role, "carol")), "");
        assert_eq!(Bindings::decode(Some(&kept), b"{ }"), None, "another document");
        assert_eq!(Bindings::decode(None, b"{}"), None);
    }
}

//! Documents about tenants, users and access keys.
//!
//! Nodes store these documents without decoding them. A document may contain a secret, so its
//! `Debug` output has only its length.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Document about a tenant, user or access key, in its writer's encoding.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AccountDocument(Vec<u8>);

impl AccountDocument {
    /// Creates a document from its bytes.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// Returns the document's bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for AccountDocument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AccountDocument({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Entry, Value};
    use crate::id::WriteId;
    use crate::stamp::{Stamp, WriterId};

    #[test]
    fn a_document_comes_back_and_is_never_printed() {
        let value = Value::Account(AccountDocument::new(b"a very secret text".to_vec()));
        let order = Stamp { time: 77, writer: WriterId(5) };
        let entry = Entry { order, write_id: WriteId([3; 16]), value };
        let read = Entry::decode(&entry.encode()).unwrap();
        assert_eq!(read, entry);
        let printed = format!("{read:?} {read:#?}");
        assert!(printed.contains("18 bytes") && !printed.contains("115"), "{printed}");
        assert!(read.value.body().is_none() && !read.value.is_tombstone());
    }
}

//! Data keys, what wraps them, and what an object keeps of its own: [`Mark::Encryption`].
//!
//! ```text
//! version (1) | postcard of: wrapped by whom | salt (32) | wrapped key (48) | whether parts have salts
//! ```
//!
//! The key that wraps is made of the master's or customer's and the salt, so it wraps this one data key
//! only. Bucket and key of the object are authenticated with it: a document opens nothing elsewhere.

use std::fmt;

use martlet_protocol::BucketId;
use martlet_protocol::entry::{Mark, Marks};
use martlet_protocol::id::random_bytes;
use martlet_protocol::{Error, Result};
use ring::aead::{Aad, Nonce};
use serde::{Deserialize, Serialize};

use super::cipher::{SegmentKey, aes};
use crate::accounts::Vault;

const VERSION: u8 = 1;
const BY_CUSTOMERS: &str = "martlet 2026 data keys wrapped by a key of a customer";

/// A key that a client brings and that nobody keeps. It is never printed.
#[derive(Clone)]
pub struct CustomerKey([u8; 32]);

impl CustomerKey {
    /// The key of these bytes.
    pub fn new(bytes: &[u8; 32]) -> Self {
        Self(blake3::derive_key(BY_CUSTOMERS, bytes))
    }
}

impl fmt::Debug for CustomerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CustomerKey(…)")
    }
}

/// The key of one object's bytes.
pub(crate) struct Secret {
    key: [u8; 32],
    /// Whether its parts have keys of their own.
    pub(crate) salted: bool,
}

/// Who can unwrap a data key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Wrapper {
    /// Who brings the customer's key.
    Customer,
    /// Who has the master key of this name.
    Master(String),
}

#[derive(Serialize, Deserialize)]
struct Document {
    by: Wrapper,
    salt: [u8; 32],
    wrapped: Vec<u8>,
    salted: bool,
}

/// What an encrypted object or upload keeps, and where it belongs.
pub(crate) struct Locked {
    document: Document,
    place: Vec<u8>,
}

/// Where a document belongs.
fn place(bucket: BucketId, key: &str) -> Vec<u8> {
    [&bucket.0[..], key.as_bytes()].concat()
}

/// Whether the parts of an encrypted object begin with salts. What can't be read has none.
pub(super) fn is_salted(document: &[u8]) -> bool {
    decode(document).is_ok_and(|document| document.salted)
}

fn decode(document: &[u8]) -> Result<Document> {
    match document.split_first() {
        Some((&VERSION, rest)) => postcard::from_bytes(rest).map_err(|error| {
            Error::corrupt("what is said of an object's encryption does not decode")
                .with_source(error)
        }),
        _ => Err(Error::corrupt("an object is encrypted in a way that this version doesn't know")),
    }
}

/// The key that wraps one data key.
fn wrapping(root: &[u8; 32], salt: &[u8; 32]) -> ring::aead::LessSafeKey {
    aes(blake3::keyed_hash(root, salt).as_bytes())
}

/// The only nonce under a key that wraps once.
fn once() -> Nonce {
    Nonce::assume_unique_for_key([0; 12])
}

impl Secret {
    /// A new one for an object.
    pub(super) fn random(salted: bool) -> Self {
        Self { key: random_bytes(), salted }
    }

    /// The key of a segment: of a part by its salt, of the whole by none.
    pub(crate) fn segment(&self, salt: &[u8]) -> SegmentKey {
        SegmentKey::new(blake3::keyed_hash(&self.key, salt).as_bytes())
    }

    /// The document for an object, which whoever has `root` can unwrap.
    pub(super) fn lock(
        &self,
        by: Wrapper,
        root: &[u8; 32],
        (bucket, key): (BucketId, &str),
    ) -> Vec<u8> {
        let salt = random_bytes();
        let mut wrapped = self.key.to_vec();
        let aad = Aad::from(place(bucket, key));
        let sealed = wrapping(root, &salt).seal_in_place_append_tag(once(), aad, &mut wrapped);
        sealed.expect("a key is short");
        let document = Document { by, salt, wrapped, salted: self.salted };
        postcard::to_extend(&document, vec![VERSION]).expect("a document can be encoded")
    }
}

impl Locked {
    /// What the marks of an object say, if it is encrypted.
    pub(crate) fn of(marks: &Marks, (bucket, key): (BucketId, &str)) -> Result<Option<Self>> {
        let Some(document) = marks.get(Mark::Encryption) else { return Ok(None) };
        Ok(Some(Self { document: decode(document)?, place: place(bucket, key) }))
    }

    /// Who can unwrap it.
    pub(super) fn by(&self) -> &Wrapper {
        &self.document.by
    }

    /// The data key, if this is the root that wrapped it.
    pub(super) fn open(&self, root: &[u8; 32]) -> Option<Secret> {
        let Document { salt, wrapped, salted, .. } = &self.document;
        let mut wrapped = wrapped.clone();
        let aad = Aad::from(&self.place);
        let key = wrapping(root, salt).open_in_place(once(), aad, &mut wrapped).ok()?;
        Some(Secret { key: (&*key).try_into().ok()?, salted: *salted })
    }
}

impl CustomerKey {
    pub(super) fn root(&self) -> &[u8; 32] {
        &self.0
    }
}

impl Vault {
    /// The name of the master key that wraps, and what wraps.
    pub(super) fn wrapping(&self) -> Option<(Wrapper, &[u8; 32])> {
        self.first_root().map(|(name, root)| (Wrapper::Master(name.to_owned()), root))
    }

    /// What the master key of a name unwraps.
    pub(super) fn unwrap(&self, name: &str, locked: &Locked) -> Result<Secret> {
        let root = self.root(name).ok_or_else(|| {
            Error::internal(format!(
                "an object needs the master key {name}, which this process was not given"
            ))
        })?;
        locked.open(root).ok_or_else(|| {
            Error::corrupt(format!("an object's key is not what the master key {name} wrapped"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts::MasterKey;

    const HOME: BucketId = BucketId([7; 16]);

    fn vault(keys: &[u8]) -> Vault {
        Vault::new(keys.iter().map(|byte| MasterKey::new(&[*byte; 32])).collect())
    }

    fn marks(document: Vec<u8>) -> Marks {
        let mut marks = Marks::default();
        marks.set(Mark::Encryption, document);
        marks
    }

    fn locked(document: &[u8], place: (BucketId, &str)) -> Locked {
        Locked::of(&marks(document.to_vec()), place).unwrap().unwrap()
    }

    #[test]
    fn only_the_key_that_wrapped_unwraps_and_only_where_it_belongs() {
        let secret = Secret::random(true);
        let customer = CustomerKey::new(&[1; 32]);
        let document = secret.lock(Wrapper::Customer, customer.root(), (HOME, "k"));
        let here = locked(&document, (HOME, "k"));
        let opened = here.open(customer.root()).unwrap();
        assert_eq!((opened.key, opened.salted), (secret.key, true));
        assert!(here.open(CustomerKey::new(&[2; 32]).root()).is_none());
        for place in [(HOME, "other"), (BucketId([8; 16]), "k")] {
            assert!(locked(&document, place).open(customer.root()).is_none());
        }
        let found = document.windows(8).any(|it| it == &secret.key[..8]);
        assert!(!found, "the document holds the key in clear");
    }

    #[test]
    fn the_first_master_key_wraps_and_all_unwrap() {
        let secret = Secret::random(false);
        let lock = |vault: &Vault| {
            let (by, root) = vault.wrapping().unwrap();
            locked(&secret.lock(by, root, (HOME, "k")), (HOME, "k"))
        };
        let unwrap = |vault: &Vault, locked: &Locked| {
            let Wrapper::Master(name) = locked.by() else { panic!("a master key wrapped it") };
            vault.unwrap(name, locked).map(|secret| secret.key).map_err(|error| error.to_string())
        };
        let old = lock(&vault(&[1]));
        let new = lock(&vault(&[2, 1]));
        assert_eq!(unwrap(&vault(&[2, 1]), &old), Ok(secret.key));
        assert_eq!(unwrap(&vault(&[2]), &new), Ok(secret.key));
        assert!(unwrap(&vault(&[1]), &new).unwrap_err().contains("was not given"));
        assert!(vault(&[]).wrapping().is_none());
    }

    #[test]
    fn each_segment_has_a_key_of_its_own() {
        let secret = Secret::random(true);
        let seal = |salt: &[u8]| {
            let plain = bytes::Bytes::from_static(b"the same bytes");
            secret.segment(salt).seal(0, &[plain], true, bytes::BytesMut::new())
        };
        assert_ne!(seal(&[1; 16]), seal(&[2; 16]));
        assert_ne!(seal(&[1; 16]), seal(&[]));
        assert_eq!(seal(&[1; 16]), seal(&[1; 16]));
    }

    #[test]
    fn documents_of_before_are_read_and_those_of_later_refused() {
        let golden = hex::decode(format!("0100{}30{}01", "aa".repeat(32), "bb".repeat(48)));
        let locked = locked(&golden.unwrap(), (HOME, "k"));
        assert_eq!(locked.by(), &Wrapper::Customer);
        assert!(locked.document.salted && locked.document.salt == [0xaa; 32]);
        for wrong in [vec![], vec![2, 0], vec![VERSION, 9]] {
            assert!(Locked::of(&marks(wrong.clone()), (HOME, "k")).is_err(), "{wrong:?}");
            assert!(!is_salted(&wrong));
        }
        assert!(Locked::of(&Marks::default(), (HOME, "k")).unwrap().is_none());
    }

    #[test]
    fn customers_keys_are_never_printed() {
        assert_eq!(format!("{:?}", CustomerKey::new(&[1; 32])), "CustomerKey(…)");
    }
}

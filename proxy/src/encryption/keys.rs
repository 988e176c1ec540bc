//! Data keys, their wrapping keys, and the document stored with an object: [`Mark::Encryption`].
//!
//! ```text
//! version (1) | postcard of: wrapper | salt (32) | wrapped key (48) | true if parts have salts
//!               in version 2 also: numbers of the parts, unless they count up from 1
//! ```
//!
//! In version 2, a part's number enters its key. Parts are stored in order of their numbers, so a
//! wrong manifest can't exchange parts. Version 1 is read, and is written for objects without
//! parts.
//!
//! The wrapping key is derived from the master or customer key and the salt, so it wraps only this
//! data key. Bucket and key of the object are authenticated with it, so a document copied to
//! another object doesn't open.

use std::fmt;

use martlet_protocol::BucketId;
use martlet_protocol::entry::{Mark, Marks};
use martlet_protocol::id::random_bytes;
use martlet_protocol::{Error, Result};
use ring::aead::{Aad, Nonce};
use serde::{Deserialize, Serialize};

use super::cipher::{SegmentKey, aes};
use crate::keyring::Vault;

const VERSION: u8 = 1;
/// Version that binds parts to their numbers.
const VERSION_OF_PARTS: u8 = 2;
const BY_CUSTOMERS: &str = "martlet 2026 data keys wrapped by a key of a customer";

/// A key that a client sends, which is never stored or printed.
#[derive(Clone)]
pub struct CustomerKey([u8; 32]);

impl CustomerKey {
    /// The key derived from these bytes.
    pub fn new(bytes: &[u8; 32]) -> Self {
        Self(blake3::derive_key(BY_CUSTOMERS, bytes))
    }
}

impl fmt::Debug for CustomerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CustomerKey(…)")
    }
}

/// The data key of one object.
pub(crate) struct Secret {
    key: [u8; 32],
    /// True if its parts have salted keys of their own.
    pub(crate) salted: bool,
    parts: PartNumbers,
    /// Number of the part that it is for, if parts are bound to their numbers.
    number: Option<u16>,
}

/// Binding of parts' keys to part numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum PartNumbers {
    /// Keys don't depend on numbers.
    #[default]
    Unbound,
    /// Bound; the numbers count up from 1.
    InARow,
    /// Bound; a bit set of the numbers, with number 1 in the lowest bit of the first byte.
    Chosen(Vec<u8>),
}

/// Key that wraps a data key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Wrapper {
    /// The customer's key.
    Customer,
    /// The master key of this name.
    Master(String),
}

#[derive(Serialize, Deserialize)]
struct Document {
    by: Wrapper,
    salt: [u8; 32],
    wrapped: Vec<u8>,
    salted: bool,
    #[serde(skip)]
    parts: PartNumbers,
}

/// The encryption document of an object or upload, and the associated data of its address.
pub(crate) struct Locked {
    document: Document,
    associated_data: Vec<u8>,
}

/// An object or upload by bucket and key, which its document is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ObjectAddress<'a> {
    pub(crate) bucket: BucketId,
    pub(crate) key: &'a str,
}

impl ObjectAddress<'_> {
    /// Associated data that binds a document to its bucket and key.
    fn associated_data(self) -> Vec<u8> {
        [&self.bucket.0[..], self.key.as_bytes()].concat()
    }
}

/// Returns true if the parts of an encrypted object begin with salts; false for an unreadable
/// document.
pub(super) fn is_salted(document: &[u8]) -> bool {
    decode(document).is_ok_and(|document| document.salted)
}

fn decode(document: &[u8]) -> Result<Document> {
    let unread = |error| {
        Error::corrupt("an object's encryption metadata can't be decoded").with_source(error)
    };
    match document.split_first() {
        Some((&VERSION, rest)) => postcard::from_bytes(rest).map_err(unread),
        Some((&VERSION_OF_PARTS, rest)) => {
            let (mut document, rest): (Document, _) =
                postcard::take_from_bytes(rest).map_err(unread)?;
            let chosen: Option<Vec<u8>> = postcard::from_bytes(rest).map_err(unread)?;
            document.parts = chosen.map_or(PartNumbers::InARow, PartNumbers::Chosen);
            Ok(document)
        }
        _ => Err(Error::corrupt("an object's encryption is unknown to this version")),
    }
}

fn encode(document: &Document) -> Vec<u8> {
    let of_version = |version| postcard::to_extend(document, vec![version]);
    let encoded = match &document.parts {
        PartNumbers::Unbound => of_version(VERSION),
        PartNumbers::InARow => {
            of_version(VERSION_OF_PARTS).map(|bytes| [&bytes[..], &[0]].concat())
        }
        PartNumbers::Chosen(numbers) => of_version(VERSION_OF_PARTS)
            .and_then(|bytes| postcard::to_extend(&Some(numbers), bytes)),
    };
    encoded.expect("a document can be encoded")
}

/// Stores in an object's marks which parts of its upload it consists of: their numbers, in order.
pub(crate) fn choose_parts(marks: &mut Marks, numbers: &[u32]) -> Result<()> {
    let Some(document) = marks.get(Mark::Encryption) else { return Ok(()) };
    let mut document = decode(document)?;
    if document.parts != PartNumbers::Unbound {
        document.parts = PartNumbers::of(numbers);
        marks.set(Mark::Encryption, encode(&document));
    }
    Ok(())
}

impl PartNumbers {
    fn of(numbers: &[u32]) -> Self {
        if numbers.iter().copied().eq((1..).take(numbers.len())) {
            return Self::InARow;
        }
        let mut bits = Vec::new();
        for number in numbers {
            let (at, bit) = ((number - 1) as usize / 8, (number - 1) % 8);
            bits.resize(bits.len().max(at + 1), 0);
            bits[at] |= 1 << bit;
        }
        Self::Chosen(bits)
    }

    /// Part number at a position in the object; none if parts are not bound to their numbers.
    fn number_at(&self, place: usize) -> Result<Option<u16>> {
        let number = match self {
            Self::Unbound => return Ok(None),
            Self::InARow => Some(place + 1),
            Self::Chosen(bits) => {
                let is_chosen = |at: &usize| (bits[at / 8] >> (at % 8)) & 1 == 1;
                (0..bits.len() * 8).filter(is_chosen).nth(place).map(|at| at + 1)
            }
        };
        let number = number.and_then(|number| u16::try_from(number).ok());
        number.map(Some).ok_or_else(|| Error::corrupt("an object has more parts than part numbers"))
    }
}

/// The key that wraps one data key.
fn wrapping(root: &[u8; 32], salt: &[u8; 32]) -> ring::aead::LessSafeKey {
    aes(blake3::keyed_hash(root, salt).as_bytes())
}

/// The constant nonce of a key that wraps once.
fn once() -> Nonce {
    Nonce::assume_unique_for_key([0; 12])
}

impl Secret {
    /// A new data key.
    pub(super) fn random(salted: bool) -> Self {
        let parts = if salted { PartNumbers::InARow } else { PartNumbers::Unbound };
        Self { key: random_bytes(), salted, parts, number: None }
    }

    /// The data key for the upload's part of this number.
    pub(crate) fn of_part(&self, number: u16) -> Self {
        let number = (self.parts != PartNumbers::Unbound).then_some(number);
        Self { key: self.key, salted: self.salted, parts: self.parts.clone(), number }
    }

    /// The data key for the part at a position in an object.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](martlet_protocol::ErrorKind::Corrupt) if the object has fewer parts.
    pub(crate) fn of_part_at(&self, place: usize) -> Result<Self> {
        let number = self.parts.number_at(place)?;
        Ok(Self { key: self.key, salted: self.salted, parts: self.parts.clone(), number })
    }

    /// Key of a segment: derived from salt and number for a part, from neither for a whole object.
    pub(crate) fn segment(&self, salt: &[u8]) -> SegmentKey {
        let mut made_of = salt.to_vec();
        if let Some(number) = self.number {
            made_of.extend(number.to_be_bytes());
        }
        SegmentKey::new(blake3::keyed_hash(&self.key, &made_of).as_bytes())
    }

    /// The document for an object, wrapped by a key derived from `root`.
    pub(crate) fn lock(&self, by: Wrapper, root: &[u8; 32], object: ObjectAddress<'_>) -> Vec<u8> {
        let salt = random_bytes();
        let mut wrapped = self.key.to_vec();
        let aad = Aad::from(object.associated_data());
        let sealed = wrapping(root, &salt).seal_in_place_append_tag(once(), aad, &mut wrapped);
        sealed.expect("a key is short");
        encode(&Document { by, salt, wrapped, salted: self.salted, parts: self.parts.clone() })
    }
}

impl Locked {
    /// Reads the document from an object's marks; none if it isn't encrypted.
    pub(crate) fn of(marks: &Marks, object: ObjectAddress<'_>) -> Result<Option<Self>> {
        let Some(document) = marks.get(Mark::Encryption) else { return Ok(None) };
        let (document, associated_data) = (decode(document)?, object.associated_data());
        Ok(Some(Self { document, associated_data }))
    }

    /// The key that wraps it.
    pub(crate) fn by(&self) -> &Wrapper {
        &self.document.by
    }

    /// Unwraps the data key; none if `root` doesn't match.
    pub(super) fn open(&self, root: &[u8; 32]) -> Option<Secret> {
        let Document { salt, wrapped, salted, parts, .. } = &self.document;
        let mut wrapped = wrapped.clone();
        let aad = Aad::from(&self.associated_data);
        let key = wrapping(root, salt).open_in_place(once(), aad, &mut wrapped).ok()?;
        let key = (&*key).try_into().ok()?;
        Some(Secret { key, salted: *salted, parts: parts.clone(), number: None })
    }
}

impl CustomerKey {
    pub(super) fn root(&self) -> &[u8; 32] {
        &self.0
    }
}

impl Vault {
    /// Name and root of the master key that wraps.
    pub(crate) fn wrapping(&self) -> Option<(Wrapper, &[u8; 32])> {
        self.first_root().map(|(name, root)| (Wrapper::Master(name.to_owned()), root))
    }

    /// Unwraps a data key by the master key with this name.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`](martlet_protocol::ErrorKind::Internal) without that key;
    /// [`ErrorKind::Corrupt`](martlet_protocol::ErrorKind::Corrupt) if it doesn't match.
    pub(crate) fn unwrap(&self, name: &str, locked: &Locked) -> Result<Secret> {
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
    use crate::keyring::MasterKey;

    const ADDRESS: ObjectAddress<'_> = ObjectAddress { bucket: BucketId([7; 16]), key: "k" };

    fn vault(keys: &[u8]) -> Vault {
        Vault::new(keys.iter().map(|byte| MasterKey::new(&[*byte; 32])).collect())
    }

    fn marks(document: Vec<u8>) -> Marks {
        let mut marks = Marks::default();
        marks.set(Mark::Encryption, document);
        marks
    }

    fn locked(document: &[u8], object: ObjectAddress<'_>) -> Locked {
        Locked::of(&marks(document.to_vec()), object).unwrap().unwrap()
    }

    #[test]
    fn only_the_key_that_wrapped_unwraps_and_only_where_it_belongs() {
        let secret = Secret::random(true);
        let customer = CustomerKey::new(&[1; 32]);
        let document = secret.lock(Wrapper::Customer, customer.root(), ADDRESS);
        let here = locked(&document, ADDRESS);
        let opened = here.open(customer.root()).unwrap();
        assert_eq!((opened.key, opened.salted), (secret.key, true));
        assert!(here.open(CustomerKey::new(&[2; 32]).root()).is_none());
        for object in [
            ObjectAddress { key: "other", ..ADDRESS },
            ObjectAddress { bucket: BucketId([8; 16]), ..ADDRESS },
        ] {
            assert!(locked(&document, object).open(customer.root()).is_none());
        }
        let found = document.windows(8).any(|it| it == &secret.key[..8]);
        assert!(!found, "the document holds the key in clear");
    }

    #[test]
    fn the_first_master_key_wraps_and_all_unwrap() {
        let secret = Secret::random(false);
        let lock = |vault: &Vault| {
            let (by, root) = vault.wrapping().unwrap();
            locked(&secret.lock(by, root, ADDRESS), ADDRESS)
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
        let locked = locked(&golden.unwrap(), ADDRESS);
        assert_eq!(locked.by(), &Wrapper::Customer);
        assert!(locked.document.salted && locked.document.salt == [0xaa; 32]);
        assert_eq!(locked.document.parts, PartNumbers::Unbound);
        let golden = format!("0200{}30{}010102d007", "aa".repeat(32), "bb".repeat(48));
        let chosen = self::locked(&hex::decode(golden).unwrap(), ADDRESS).document.parts;
        assert_eq!(chosen, PartNumbers::Chosen(vec![0xd0, 0x07]));
        for wrong in [vec![], vec![2, 0], vec![VERSION, 9]] {
            assert!(Locked::of(&marks(wrong.clone()), ADDRESS).is_err(), "{wrong:?}");
            assert!(!is_salted(&wrong));
        }
        assert!(Locked::of(&Marks::default(), ADDRESS).unwrap().is_none());
    }

    #[test]
    fn each_part_has_a_key_of_its_number_and_those_of_before_have_none() {
        let seal = |secret: &Secret| {
            let plain = bytes::Bytes::from_static(b"the same bytes");
            secret.segment(&[1; 16]).seal(0, &[plain], true, bytes::BytesMut::new())
        };
        let secret = Secret::random(true);
        assert_ne!(seal(&secret.of_part(1)), seal(&secret.of_part(2)));
        assert_eq!(seal(&secret.of_part(2)), seal(&secret.of_part_at(1).unwrap()));
        let before = Secret { parts: PartNumbers::Unbound, ..Secret::random(true) };
        let alone = SegmentKey::new(blake3::keyed_hash(&before.key, &[1; 16]).as_bytes());
        let plain = bytes::Bytes::from_static(b"the same bytes");
        let alone = alone.seal(0, &[plain], true, bytes::BytesMut::new());
        assert_eq!(seal(&before.of_part(2)), alone);
        assert_eq!(seal(&before.of_part_at(9).unwrap()), alone);
    }

    #[test]
    fn documents_list_chosen_parts_unless_consecutive() {
        let customer = CustomerKey::new(&[1; 32]);
        let lock = |secret: &Secret| secret.lock(Wrapper::Customer, customer.root(), ADDRESS);
        let number_at = |marks: &Marks, place| {
            let locked = Locked::of(marks, ADDRESS).unwrap().unwrap();
            let secret = locked.open(customer.root()).unwrap();
            // Wrapping again keeps the part numbers.
            let again = self::locked(&lock(&secret), ADDRESS);
            assert_eq!(again.document.parts, locked.document.parts);
            secret.of_part_at(place).map(|secret| secret.number).ok()
        };
        let document = lock(&Secret::random(true));
        assert_eq!((document[0], document.last()), (VERSION_OF_PARTS, Some(&0)));
        let mut in_a_row = marks(document.clone());
        choose_parts(&mut in_a_row, &[1, 2, 3]).unwrap();
        assert_eq!(in_a_row.get(Mark::Encryption), Some(&document[..]));
        assert_eq!(number_at(&in_a_row, 2), Some(Some(3)));
        let mut chosen = marks(document);
        choose_parts(&mut chosen, &[2, 9, 10_000]).unwrap();
        let places = [0, 1, 2, 3].map(|place| number_at(&chosen, place));
        assert_eq!(places, [Some(Some(2)), Some(Some(9)), Some(Some(10_000)), None]);
        let before = Secret { parts: PartNumbers::Unbound, ..Secret::random(true) };
        let mut marks = marks(lock(&before));
        let as_it_was = marks.clone();
        choose_parts(&mut marks, &[5]).unwrap();
        assert_eq!((&marks, number_at(&marks, 0)), (&as_it_was, Some(None)));
        choose_parts(&mut Marks::default(), &[5]).unwrap();
    }

    #[test]
    fn customers_keys_are_never_printed() {
        assert_eq!(format!("{:?}", CustomerKey::new(&[1; 32])), "CustomerKey(…)");
    }
}

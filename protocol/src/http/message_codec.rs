//! Decoding of messages from senders of other releases.
//!
//! A message is the postcard of a struct or a tuple. A later release appends fields to a message,
//! with `#[serde(default)]`, and changes nothing else:
//!
//! * Bytes after the last known field are passed over: a later release appended them.
//! * Fields that the bytes don't reach have their defaults: the sender is of an earlier release. A
//!   field without a default is required.
//!
//! Both rules hold for the fields of the message alone. A struct within a message has a fixed
//! layout, because other bytes follow. Each field takes at least one byte.

use postcard::Error;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, SeqAccess, VariantAccess, Visitor};

type PlainDeserializer<'de> = postcard::Deserializer<'de, postcard::de_flavors::Slice<'de>>;

/// Decodes a message.
pub(super) fn decode_message<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> Result<T, Error> {
    T::deserialize(Message { bytes })
}

/// Bytes of one message.
#[derive(Clone, Copy)]
pub(super) struct Message<'de> {
    pub(super) bytes: &'de [u8],
}

impl<'de> Message<'de> {
    fn plain(self) -> PlainDeserializer<'de> {
        postcard::Deserializer::from_bytes(self.bytes)
    }
}

/// Forwards types without fields to postcard.
macro_rules! forward {
    ($($method:ident)*) => {
        $(
            fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
                self.plain().$method(visitor)
            }
        )*
    };
}

impl<'de> Deserializer<'de> for Message<'de> {
    type Error = Error;

    forward! {
        deserialize_any deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32
        deserialize_i64 deserialize_i128 deserialize_u8 deserialize_u16 deserialize_u32
        deserialize_u64 deserialize_u128 deserialize_f32 deserialize_f64 deserialize_char
        deserialize_str deserialize_string deserialize_bytes deserialize_byte_buf
        deserialize_option deserialize_unit deserialize_seq deserialize_map
        deserialize_identifier deserialize_ignored_any
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.plain().deserialize_unit_struct(name, visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(Fields { rest: self.bytes, left: len })
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_tuple(len, visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_tuple(fields.len(), visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.plain().deserialize_enum(name, variants, visitor)
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

/// A message as the fields of a variant whose number is known.
impl<'de> VariantAccess<'de> for Message<'de> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_tuple(len, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_tuple(fields.len(), visitor)
    }
}

/// Fields of a message that are left to decode.
struct Fields<'de> {
    rest: &'de [u8],
    left: usize,
}

impl<'de> SeqAccess<'de> for Fields<'de> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        if self.left == 0 || self.rest.is_empty() {
            return Ok(None);
        }
        self.left -= 1;
        let mut field: PlainDeserializer<'de> = postcard::Deserializer::from_bytes(self.rest);
        let value = seed.deserialize(&mut field)?;
        self.rest = field.finalize()?;
        Ok(Some(value))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

#[cfg(test)]
mod tests {
    use serde::Serialize;

    use super::*;

    /// A message of this release.
    #[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
    struct Present {
        key: Vec<u8>,
        limit: u64,
    }

    /// The message of the next release.
    #[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
    struct Later {
        key: Vec<u8>,
        limit: u64,
        #[serde(default)]
        prefix: Option<String>,
        #[serde(default)]
        depth: u8,
    }

    fn present() -> Present {
        Present { key: vec![1, 2, 3], limit: 300 }
    }

    fn later() -> Later {
        Later { key: vec![1, 2, 3], limit: 300, prefix: Some("é".into()), depth: 9 }
    }

    #[test]
    fn fields_of_a_later_release_pass() {
        let bytes = postcard::to_stdvec(&later()).unwrap();
        assert_eq!(decode_message::<Present>(&bytes).unwrap(), present());
        assert_eq!(decode_message::<Later>(&bytes).unwrap(), later());
    }

    #[test]
    fn fields_that_an_earlier_release_lacks_have_defaults() {
        let bytes = postcard::to_stdvec(&present()).unwrap();
        let expected = Later { prefix: None, depth: 0, ..later() };
        assert_eq!(decode_message::<Later>(&bytes).unwrap(), expected);
        let (key, limit): (Vec<u8>, u64) = decode_message(&bytes).unwrap();
        assert_eq!((key, limit), (vec![1, 2, 3], 300));
    }

    #[test]
    fn fields_without_a_default_are_required_and_cut_fields_are_errors() {
        let bytes = postcard::to_stdvec(&later()).unwrap();
        // The key takes 4 bytes, the limit 2, the prefix 4, the depth 1.
        for length in 0..bytes.len() {
            let is_whole = [6, 10].contains(&length);
            let decoded = decode_message::<Later>(&bytes[..length]);
            assert_eq!(decoded.is_ok(), is_whole, "{length} bytes: {decoded:?}");
        }
    }

    #[test]
    fn messages_without_fields_are_plain_postcard() {
        assert_eq!(decode_message::<()>(b"later"), Ok(()));
        assert_eq!(decode_message::<u64>(&[0xac, 0x02, 7]), Ok(300));
        assert_eq!(decode_message::<Vec<u8>>(&[1, 9, 7]), Ok(vec![9]));
        assert_eq!(decode_message::<Option<u8>>(&[0]), Ok(None));
        assert_eq!(decode_message::<[u8; 2]>(&[5, 6, 7]), Ok([5, 6]));
        assert!(decode_message::<[u8; 2]>(&[5]).is_err());
    }
}

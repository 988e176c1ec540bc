//! Settings of buckets as stored documents.

use s3s::S3Result;
use s3s::xml::{Deserialize, Deserializer, Serialize, Serializer};

use crate::errors::internal;

/// Serializes a setting to the document that is stored.
pub(crate) fn to_document<T: Serialize>(value: &T) -> Vec<u8> {
    let mut document = Vec::with_capacity(256);
    let written = value.serialize(&mut Serializer::new(&mut document));
    written.expect("writing to a Vec can't fail");
    document
}

/// The inverse of [`to_document`].
pub(crate) fn from_document<T: for<'xml> Deserialize<'xml>>(document: &[u8]) -> S3Result<T> {
    let mut deserializer = Deserializer::new(document);
    T::deserialize(&mut deserializer).map_err(|error| {
        tracing::error!(%error, "could not read a setting of a bucket");
        internal()
    })
}

#[cfg(test)]
mod tests {
    use s3s::dto::{Tag, Tagging};

    use super::*;

    #[test]
    fn documents_keep_every_character_of_xml() {
        for text in ["", "a", "<&>\"'", "ü\u{1f511}", " spaces ", "a\tb"] {
            let tag = Tag { key: Some(text.to_owned()), value: Some(String::new()) };
            let tagging = Tagging { tag_set: vec![tag] };
            let document = to_document(&tagging);
            let read: Tagging = from_document(&document).unwrap();
            assert_eq!(read.tag_set[0].key.as_deref(), Some(text));
        }
    }

    #[test]
    fn a_document_of_another_kind_is_our_own_mistake() {
        let error = from_document::<Tagging>(b"<CORSConfiguration/>").unwrap_err();
        assert_eq!(error.code().as_str(), "InternalError");
    }
}

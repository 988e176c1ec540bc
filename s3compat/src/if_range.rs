//! `If-Range`: a range is returned only from the expected object, otherwise the whole object.

use martlet_protocol::entry::Object;

use crate::date::Timestamp;

/// Validator that the object must match for a range to be returned; any other object is returned
/// whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum IfRange {
    /// Matches the object with this ETag.
    Tag(String),
    /// Matches the object that was modified in exactly this second since 1970.
    ModifiedS(u64),
    /// Matches no object: the header is invalid, or names a weak tag.
    None,
}

impl IfRange {
    /// Reads the header.
    pub(crate) fn parse(text: &str) -> Self {
        let tag = text.strip_prefix('"').and_then(|tag| tag.strip_suffix('"'));
        match (tag, Timestamp::parse_header(text)) {
            (Some(tag), _) => Self::Tag(tag.to_owned()),
            (None, Some(time)) => Self::ModifiedS(time.unix_ms() / 1000),
            (None, None) => Self::None,
        }
    }

    /// True if the object matches.
    pub(crate) fn is(&self, object: &Object) -> bool {
        match self {
            Self::Tag(tag) => object.etag.to_string() == *tag,
            Self::ModifiedS(second) => object.modified_ms / 1000 == *second,
            Self::None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use martlet_protocol::entry::{Attributes, Body, ETag};

    use super::*;

    #[test]
    fn a_range_is_of_one_object_only() {
        let object = Object {
            size: 1,
            etag: ETag::Md5([0xab; 16]),
            modified_ms: 784_111_777_999,
            attributes: Attributes::default(),
            checksums: Vec::new(),
            upload: None,
            body: Body::Empty,
            version: None,
        };
        let tag = "ab".repeat(16);
        for (text, is_it) in [
            (format!("\"{tag}\""), true),
            (format!("W/\"{tag}\""), false),
            (tag, false),
            ("\"cd\"".into(), false),
            ("Sun, 06 Nov 1994 08:49:37 GMT".into(), true),
            ("Sun, 06 Nov 1994 08:49:38 GMT".into(), false),
            ("*".into(), false),
        ] {
            assert_eq!(IfRange::parse(&text).is(&object), is_it, "{text}");
        }
    }
}

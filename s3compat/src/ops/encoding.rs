//! Encoding of names in listings: plain, or percent-encoded on request.
//!
//! XML 1.0 cannot represent most control characters. So only clients that set `encoding-type=url`
//! can receive every key.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use s3s::S3Result;
use s3s::dto::EncodingType;

use crate::messages;

/// All characters but letters, digits and those that S3 leaves plain. A space becomes `%20`, which
/// both kinds of decoders read as a space.
const ENCODED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');

/// Encoding of names in one listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    /// No encoding.
    Plain,
    /// Percent-encoded.
    Url,
}

impl Encoding {
    /// Parses the encoding type of a request.
    pub(super) fn requested(encoding: Option<&str>) -> S3Result<Self> {
        match encoding {
            None | Some("") => Ok(Self::Plain),
            Some(EncodingType::URL) => Ok(Self::Url),
            Some(other) => Err(messages::ENCODING_TYPE.argument("encoding-type", other).into()),
        }
    }

    /// Encodes a name.
    pub(super) fn write(self, name: String) -> String {
        match self {
            Self::Plain => name,
            Self::Url => percent_encoded(&name).to_string(),
        }
    }

    /// Encodes a name only where needed: where decoding would change it, or XML cannot represent
    /// it. Some clients decode all names of a listing but its prefix.
    pub(super) fn write_sparingly(self, name: String) -> String {
        let is_itself = |char: char| match char {
            '%' | '+' => false,
            '\t' | '\n' => true,
            other => !other.is_control() && !matches!(other, '\u{fffe}' | '\u{ffff}'),
        };
        if name.chars().all(is_itself) { name } else { self.write(name) }
    }

    /// Name of the encoding in the reply.
    pub(super) fn name(self) -> Option<&'static str> {
        (self == Self::Url).then_some(EncodingType::URL)
    }

    /// Encoding type in the reply.
    pub(super) fn wire(self) -> Option<EncodingType> {
        self.name().map(EncodingType::from_static)
    }
}

/// Percent-encodes a name. The result needs no escape in XML.
pub(super) fn percent_encoded(name: &str) -> PercentEncode<'_> {
    utf8_percent_encode(name, ENCODED)
}

/// Percent-encodes a key for the path of a URL.
pub(super) fn path_of(key: &str) -> String {
    percent_encoded(key).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_encoding_keeps_slashes_and_nothing_odd() {
        let write = |name: &str| Encoding::Url.write(name.to_owned());
        assert_eq!(write("a/b-c_d.e~f"), "a/b-c_d.e~f");
        assert_eq!(write("a b+c%d"), "a%20b%2Bc%25d");
        assert_eq!(write("ü\n*"), "%C3%BC%0A%2A");
        assert_eq!(Encoding::Plain.write("a b".to_owned()), "a b");
    }

    #[test]
    fn only_ambiguous_characters_are_url_encoded() {
        let write = |name: &str| Encoding::Url.write_sparingly(name.to_owned());
        for name in ["", "a b/ü", "\n", "a\tb", "<&>"] {
            assert_eq!(write(name), name);
        }
        assert_eq!(write("a b+c"), "a%20b%2Bc");
        assert_eq!(write("a%d"), "a%25d");
        assert_eq!(write("\r\u{1}"), "%0D%01");
        assert_eq!(Encoding::Plain.write_sparingly("a%d".to_owned()), "a%d");
    }

    #[test]
    fn url_is_the_only_encoding() {
        let encoding_of = |name: &'static str| Encoding::requested(Some(name));
        assert_eq!(encoding_of("url").unwrap(), Encoding::Url);
        assert_eq!(encoding_of("").unwrap(), Encoding::Plain);
        assert!(encoding_of("base64").is_err());
        assert_eq!(Encoding::requested(None).unwrap(), Encoding::Plain);
    }
}

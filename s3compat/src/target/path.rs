//! Target of a request: one path for authentication and for storage.
//!
//! The path is percent-decoded once and encoded once by S3's rule. Nothing is normalized: `..`, `.`
//! and `//` are ordinary parts of a key.

use std::borrow::Cow;

use martlet_protocol::limits::KEY_BYTES_MAX;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

use crate::messages;
use crate::refusal::Refusal;

/// Encodes all but S3's unreserved characters.
const VALUE: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// As [`VALUE`], without slashes, which separate parts of a path.
const PATH: &AsciiSet = &VALUE.remove(b'/');

/// Target of a request: the service, a bucket, or a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestTarget {
    bucket: Option<String>,
    key: Option<String>,
    /// Path of the request, encoded by S3's rule, as it is signed.
    signed_path: String,
    /// True if the host names the bucket.
    is_host_style: bool,
}

impl RequestTarget {
    /// Parses the raw path of a request; `host_bucket` is the bucket that the host names.
    pub fn parse(raw_path: &str, host_bucket: Option<&str>) -> Result<Self, Refusal> {
        let decoded = decode(raw_path, false)?;
        let Some(rest) = decoded.strip_prefix('/') else {
            return Err(messages::PATH.refusal());
        };
        if rest.contains('\0') {
            return Err(messages::KEY_NUL.refusal());
        }
        let (bucket, key) = match (host_bucket, rest) {
            (Some(bucket), key) => (Some(bucket), key),
            (None, "") => (None, ""),
            (None, rest) => match rest.split_once('/') {
                Some((bucket, key)) => (Some(bucket), key),
                None => (Some(rest), ""),
            },
        };
        check_bucket(bucket)?;
        if key.len() > KEY_BYTES_MAX {
            return Err(messages::KEY_TOO_LONG
                .refusal()
                .with_detail("Size", key.len().to_string())
                .with_detail("MaxSizeAllowed", KEY_BYTES_MAX.to_string()));
        }
        let signed_path = Cow::from(percent_encode(decoded.as_bytes(), PATH)).into_owned();
        let key = (!key.is_empty()).then(|| key.to_owned());
        let is_host_style = host_bucket.is_some();
        Ok(Self { bucket: bucket.map(str::to_owned), key, signed_path, is_host_style })
    }

    /// Bucket, if one is named.
    pub fn bucket(&self) -> Option<&str> {
        self.bucket.as_deref()
    }

    /// Key, if one is named.
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// `/bucket/key`, encoded by S3's rule, even if the host names the bucket.
    pub fn path(&self) -> Cow<'_, str> {
        match self.bucket() {
            Some(bucket) if self.is_host_style => format!("/{bucket}{}", self.signed_path).into(),
            _ => Cow::Borrowed(&self.signed_path),
        }
    }

    /// Replaces bucket and key. The path stays the one that was signed.
    pub(crate) fn rename(&mut self, bucket: String, key: Option<String>) {
        (self.bucket, self.key) = (Some(bucket), key);
    }

    pub(crate) fn signed_path(&self) -> &str {
        &self.signed_path
    }
}

/// Refuses bucket names with characters that could make a path ambiguous: a part of S3's rules.
fn check_bucket(bucket: Option<&str>) -> Result<(), Refusal> {
    let Some(bucket) = bucket else { return Ok(()) };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    if (1..=255).contains(&bucket.len()) && bucket.bytes().all(is_plain) {
        return Ok(());
    }
    Err(messages::BUCKET_NAME.refusal())
}

/// Percent-decodes strictly. With `plus_is_space`, as in a query, a plus becomes a space.
pub(crate) fn decode(text: &str, plus_is_space: bool) -> Result<Cow<'_, str>, Refusal> {
    let is_special = |byte: &u8| *byte == b'%' || (plus_is_space && *byte == b'+');
    if !text.as_bytes().iter().any(is_special) {
        return Ok(Cow::Borrowed(text));
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => decode_pair(bytes.next(), bytes.next()).ok_or_else(invalid_uri)?,
            b'+' if plus_is_space => b' ',
            other => other,
        });
    }
    String::from_utf8(decoded).map(Cow::Owned).map_err(|_| invalid_uri())
}

fn decode_pair(high: Option<u8>, low: Option<u8>) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high?)? * 16 + digit(low?)?).ok()
}

fn invalid_uri() -> Refusal {
    messages::INVALID_URI.refusal()
}

/// Appends a query name or value, encoded by S3's rule.
pub(super) fn push_encoded(out: &mut String, text: &str) {
    out.extend(percent_encode(text.as_bytes(), VALUE));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::refusal::Code;

    fn parse(path: &str) -> RequestTarget {
        RequestTarget::parse(path, None).unwrap()
    }

    #[test]
    fn paths_name_buckets_and_keys() {
        for (path, bucket) in [("/", None), ("/b", Some("b")), ("/b/", Some("b"))] {
            let target = parse(path);
            assert_eq!((target.bucket(), target.key()), (bucket, None), "{path}");
        }
        assert_eq!(parse("/b/a%20b+c%2Fd").key(), Some("a b+c/d"));
        assert_eq!(parse("/b/a%20b+c%2Fd").path(), "/b/a%20b%2Bc/d");
        for odd in ["../../etc/passwd", "/a", "a//b", "a/./b", "a/", "a\r\nb", "ключ", "."] {
            let encoded = percent_encode(odd.as_bytes(), PATH).to_string();
            assert_eq!(parse(&format!("/b/{encoded}")).key(), Some(odd));
        }
    }

    #[test]
    fn a_host_may_name_the_bucket() {
        let target = RequestTarget::parse("/a/b%3D", Some("photos")).unwrap();
        assert_eq!((target.bucket(), target.key()), (Some("photos"), Some("a/b=")));
        assert_eq!((&*target.path(), target.signed_path()), ("/photos/a/b%3D", "/a/b%3D"));
        let target = RequestTarget::parse("/", Some("photos")).unwrap();
        assert_eq!((target.bucket(), target.key()), (Some("photos"), None));
    }

    #[test]
    fn malformed_values_are_refused() {
        let code = |path: &str| RequestTarget::parse(path, None).unwrap_err().code;
        assert_eq!(code("/b/%ff"), Code::InvalidUri);
        assert_eq!(code("/b/%f"), Code::InvalidUri);
        assert_eq!(code("/b/%zz"), Code::InvalidUri);
        assert_eq!(code("/b/%+1"), Code::InvalidUri);
        assert_eq!(code("*"), Code::InvalidUri);
        assert_eq!(code("/b/a%00b"), Code::InvalidArgument);
        assert_eq!(code("//key"), Code::InvalidBucketName);
        assert_eq!(code("/b%20c"), Code::InvalidBucketName);
        assert_eq!(code(&format!("/b/{}", "k".repeat(1025))), Code::KeyTooLong);
        assert_eq!(parse(&format!("/b/{}", "%6b".repeat(1024))).key().unwrap().len(), 1024);
    }

    proptest! {
        #[test]
        fn every_key_survives(key in "[^\0]{1,250}") {
            let encoded = percent_encode(key.as_bytes(), NON_ALPHANUMERIC).to_string();
            let target = parse(&format!("/b/{encoded}"));
            prop_assert_eq!(target.key(), Some(key.as_str()));
            // The encoding is canonical: parsing it again changes nothing.
            let again = parse(&target.path());
            prop_assert_eq!(again.path(), target.path());
            prop_assert_eq!(again.key(), Some(key.as_str()));
        }
    }
}

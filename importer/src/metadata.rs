//! Metadata that a copy keeps.

use http::header::{CONTENT_ENCODING, HeaderName};
use http::{HeaderMap, HeaderValue};

/// Headers that are kept besides those that begin with [`USER`].
const KEPT: [&str; 7] = [
    "content-type",
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "expires",
    "x-amz-website-redirect-location",
];
const USER: &str = "x-amz-meta-";
/// Encoding of a body on its way, which some stores keep by mistake.
const CHUNKED: &str = "aws-chunked";

/// Returns the headers of the source's reply that the copy keeps.
pub(crate) fn kept(source: &HeaderMap) -> HeaderMap {
    let is_kept =
        |name: &HeaderName| KEPT.contains(&name.as_str()) || name.as_str().starts_with(USER);
    let mut kept = HeaderMap::new();
    for (name, value) in source.iter().filter(|(name, _)| is_kept(name)) {
        kept.append(name, value.clone());
    }
    if let Some(encoding) = kept.remove(CONTENT_ENCODING) {
        kept.extend(lasting(&encoding).map(|it| (CONTENT_ENCODING, it)));
    }
    kept
}

/// Returns an encoding without that of the way; `None` if no other is left.
fn lasting(encoding: &HeaderValue) -> Option<HeaderValue> {
    let Ok(text) = encoding.to_str() else { return Some(encoding.clone()) };
    let lasting: Vec<_> = text.split(',').map(str::trim).filter(|it| *it != CHUNKED).collect();
    let lasting = lasting.join(", ");
    (!lasting.is_empty()).then(|| HeaderValue::try_from(lasting).expect("a part of a header"))
}

/// Marks a request's body as chunked, before its lasting encoding.
pub(crate) fn mark_chunked(headers: &mut HeaderMap) {
    let value = match headers.get(CONTENT_ENCODING).map(HeaderValue::as_bytes) {
        Some(lasting) => HeaderValue::from_bytes(&[b"aws-chunked,", lasting].concat()),
        None => Ok(HeaderValue::from_static(CHUNKED)),
    };
    headers.insert(CONTENT_ENCODING, value.expect("a header and letters"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn metadata_is_kept_and_nothing_else() {
        let expected = [
            ("content-type", "text/plain"),
            ("cache-control", "no-store"),
            ("content-disposition", "inline"),
            ("content-encoding", "gzip"),
            ("content-language", "ga"),
            ("expires", "Thu, 01 Jan 1970 00:00:00 GMT"),
            ("x-amz-meta-a", "1"),
            ("x-amz-meta-", "2"),
        ];
        let mut source = headers(&expected);
        source.extend(headers(&[
            ("content-length", "5"),
            ("etag", "\"x\""),
            ("x-amz-storage-class", "GLACIER_IR"),
            ("x-amz-object-lock-mode", "GOVERNANCE"),
            ("x-amz-server-side-encryption", "AES256"),
            ("server", "S"),
        ]));
        assert_eq!(kept(&source), headers(&expected));
    }

    #[test]
    fn the_encoding_of_the_way_is_dropped() {
        for (stored, expected) in [
            ("aws-chunked", None),
            ("aws-chunked,gzip", Some("gzip")),
            ("gzip, br", Some("gzip, br")),
        ] {
            let mut made = kept(&headers(&[("content-encoding", stored)]));
            let text = made.get(CONTENT_ENCODING).map(|it| it.to_str().unwrap());
            assert_eq!(text, expected);
            mark_chunked(&mut made);
            assert!(made[CONTENT_ENCODING].as_bytes().starts_with(b"aws-chunked"));
        }
    }
}

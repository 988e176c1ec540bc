//! The canonical request of SigV4: the bytes that a signature covers.

use http::HeaderMap;
use sha2::{Digest, Sha256};

use super::head::RequestHead;

/// Parts of the canonical request that the signature itself declares.
#[derive(Clone, Copy, Debug)]
pub(super) struct SignedParts<'a> {
    /// Signed headers as the client listed them, such as `host;x-amz-date`.
    pub(super) signed_headers: &'a str,
    /// Value of `x-amz-content-sha256`, or its substitute.
    pub(super) payload: &'a str,
}

/// Canonical request with `path`.
pub(super) fn canonical_request(
    head: &RequestHead<'_>,
    path: &str,
    covered: SignedParts<'_>,
) -> String {
    let mut out = String::with_capacity(1024);
    out.push_str(head.method.as_str());
    out.push('\n');
    out.push_str(path);
    out.push('\n');
    head.query.push_canonical(&mut out);
    out.push('\n');
    for name in covered.signed_headers.split(';') {
        out.push_str(name);
        out.push(':');
        push_values(&mut out, head.headers, name);
        out.push('\n');
    }
    out.push('\n');
    out.push_str(covered.signed_headers);
    out.push('\n');
    out.push_str(covered.payload);
    out
}

/// String to sign: the hash of a canonical request, a date and a scope.
pub(super) fn string_to_sign(canonical_request: &str, date: &str, scope: &str) -> String {
    let digest = hex::encode(Sha256::digest(canonical_request));
    ["AWS4-HMAC-SHA256", date, scope, &digest].join("\n")
}

/// Appends all values of a header, comma-separated, with runs of whitespace replaced by one space.
fn push_values(out: &mut String, headers: &HeaderMap, name: &str) {
    for (at, value) in headers.get_all(name).iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        // Header values may be other than UTF-8. Signatures of such values never match.
        let value = String::from_utf8_lossy(value.as_bytes());
        for (at, word) in value.split_ascii_whitespace().enumerate() {
            if at > 0 {
                out.push(' ');
            }
            out.push_str(word);
        }
    }
}

//! The canonical request of SigV4: the bytes that a signature covers.

use http::HeaderMap;
use sha2::{Digest, Sha256};

use super::authenticator::Head;

/// What of a signature's own words goes into the canonical request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Covered<'a> {
    /// `host;x-amz-date`, as the client listed them.
    pub(super) signed_headers: &'a str,
    /// The value of `x-amz-content-sha256`, or what stands for it.
    pub(super) payload: &'a str,
}

/// The canonical request with `path` in it.
pub(super) fn canonical_request(head: &Head<'_>, path: &str, covered: Covered<'_>) -> String {
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

/// What is signed: the hash of a canonical request, a date and a scope.
pub(super) fn string_to_sign(canonical_request: &str, date: &str, scope: &str) -> String {
    let digest = hex::encode(Sha256::digest(canonical_request));
    ["AWS4-HMAC-SHA256", date, scope, &digest].join("\n")
}

/// All values of a header, comma-separated, with runs of spaces made one.
fn push_values(out: &mut String, headers: &HeaderMap, name: &str) {
    for (at, value) in headers.get_all(name).iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        // Header values need not be UTF-8; what isn't can't be signed in a way that matches.
        let value = String::from_utf8_lossy(value.as_bytes());
        for (at, word) in value.split_ascii_whitespace().enumerate() {
            if at > 0 {
                out.push(' ');
            }
            out.push_str(word);
        }
    }
}

//! Links without signatures and keys, so that readers of a log can't reuse them.

use percent_encoding::percent_decode_str;

/// Query keys that sign a request, in lower case.
const SIGNING: [&str; 3] = ["x-amz-signature", "signature", "x-amz-security-token"];
/// Common part of the query keys with a customer's key or its digest: links may carry headers in
/// the query.
const OF_CUSTOMERS: &str = "-customer-key";

/// Passes a link on in parts, with the values of secret query keys replaced. Names are compared as a
/// server reads them: percent-decoded and in any case.
pub(super) fn without_secrets(link: &str, mut show: impl FnMut(&str)) {
    let Some(mark) = link.find('?') else { return show(link) };
    // Start of the text that is not shown yet.
    let mut rest = 0;
    let mut at = mark + 1;
    for pair in link[at..].split('&') {
        let name = pair.split_once('=').map_or(pair, |(name, _)| name);
        if is_secret(name) {
            show(&link[rest..at + name.len()]);
            show("=REDACTED");
            rest = at + pair.len();
        }
        at += pair.len() + 1;
    }
    show(&link[rest..]);
}

/// Returns true if the value of a query key is secret.
fn is_secret(name: &str) -> bool {
    if name.contains('%') {
        is_secret_name(&percent_decode_str(name).decode_utf8_lossy())
    } else {
        is_secret_name(name)
    }
}

/// Returns true if the value of a query key is secret. `name` is decoded.
fn is_secret_name(name: &str) -> bool {
    let of_customers = || {
        let parts = name.as_bytes().windows(OF_CUSTOMERS.len());
        // Most parts differ in their first byte.
        let mut begun = parts.filter(|part| part[0] == b'-');
        begun.any(|part| part.eq_ignore_ascii_case(OF_CUSTOMERS.as_bytes()))
    };
    SIGNING.iter().any(|secret| name.eq_ignore_ascii_case(secret)) || of_customers()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(link: &str) -> String {
        let mut text = String::new();
        without_secrets(link, |part| text.push_str(part));
        text
    }

    #[test]
    fn signatures_are_not_shown() {
        let link = "/b/k?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature=abc&versionId=1";
        let expected = "/b/k?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature=REDACTED&versionId=1";
        assert_eq!(shown(link), expected);
        let old = "/b?AWSAccessKeyId=a&Signature=s%3D&Expires=1";
        assert_eq!(shown(old), "/b?AWSAccessKeyId=a&Signature=REDACTED&Expires=1");
        let last = "/b?Signature&&Signature=a=b&signature=";
        let all = "/b?Signature=REDACTED&&Signature=REDACTED&signature=REDACTED";
        assert_eq!(shown(last), all);
        for plain in ["/b/k", "/", "", "/b?", "/b?a=1&&b", "/b/k&Signature=a"] {
            assert_eq!(shown(plain), plain);
        }
    }

    #[test]
    fn secret_names_are_known_in_any_spelling() {
        for (name, is_secret) in [
            ("x-amz-security-token", true),
            ("X-Amz-Security-Token", true),
            ("X-Amz-%53ignature", true),
            ("x%2damz-security%2Dtoken", true),
            ("x-amz-server-side-encryption-customer-key", true),
            ("X-Amz-Copy-Source-Server-Side-Encryption-Customer-Key", true),
            ("x-amz-server-side-encryption-customer-algorithm", false),
            ("X-Amz-SignedHeaders", false),
        ] {
            let link = format!("/b/k?a=1&{name}=s3cret%3D&b=2");
            let value = if is_secret { "REDACTED" } else { "s3cret%3D" };
            let expected = format!("/b/k?a=1&{name}={value}&b=2");
            assert_eq!(shown(&link), expected);
            assert_eq!(shown(&format!("https://h{link}")), format!("https://h{expected}"));
        }
    }
}

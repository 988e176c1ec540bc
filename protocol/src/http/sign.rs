//! Signatures of internal requests: their coverage, creation and verification.
//!
//! ```text
//! martlet-internal-1 \n method \n path \n query \n
//! then each x-martlet-* header but the signature, by name:  name:value \n
//! ```
//!
//! The text is signed by HMAC-SHA256 with the cluster's daily key, as SigV4 derives it. The headers
//! include the date and the digest of the body, so both are covered. A request without a digest has
//! no body; [`STREAMED`] marks a body that the signature doesn't cover.
//!
//! A signature is valid for 15 minutes before and after its date. An attacker on the wire could
//! replay a request in that time. Replays are harmless: write ids, ballots and extent ids are used
//! once, and TLS hides the requests.

use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use subtle::ConstantTimeEq;

use super::ClusterKey;

pub(super) const DATE: HeaderName = HeaderName::from_static("x-martlet-date");
pub(super) const SIGNATURE: HeaderName = HeaderName::from_static("x-martlet-signature");
pub(super) const DIGEST: HeaderName = HeaderName::from_static("x-martlet-digest");
/// Digest header of a body that the signature doesn't cover.
pub(super) const STREAMED: HeaderValue = HeaderValue::from_static("streamed");

const PREFIX: &str = "x-martlet-";
const VERSION: &[u8] = b"martlet-internal-1";
/// Largest difference between a request's date and the node's clock.
pub(super) const WINDOW_MS: u64 = 15 * 60 * 1000;

/// Digest of the body in a signed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Digest {
    /// No body.
    Empty,
    /// Any body: not covered by the signature.
    Streamed,
    /// A body with this BLAKE3.
    Blake3([u8; 32]),
}

/// Reason to refuse a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RefusalReason {
    /// Not signed, or not in this version's format.
    Unsigned,
    /// Date too far from the node's clock.
    Date,
    /// Signature of another request, or by another key.
    Signature,
}

/// Dates and signs a request whose other headers are complete.
pub(super) fn sign(
    key: &ClusterKey,
    method: &Method,
    uri: &Uri,
    headers: &mut HeaderMap,
    now_ms: u64,
) {
    headers.insert(DATE, HeaderValue::from(now_ms));
    let signature = key.sign(now_ms, &text(method, uri, headers));
    let signature = HeaderValue::try_from(signature).expect("hexadecimal digits are a header");
    headers.insert(SIGNATURE, signature);
}

/// Returns the digest header of a body.
pub(super) fn digest(body: &[u8]) -> HeaderValue {
    let hash = blake3::hash(body).to_hex();
    HeaderValue::from_str(&hash).expect("hexadecimal digits are a header")
}

/// Verifies a request's head and returns the expected digest of its body.
pub(super) fn verify(
    key: &ClusterKey,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    now_ms: u64,
) -> Result<Digest, RefusalReason> {
    let date = single(headers, &DATE).ok_or(RefusalReason::Unsigned)?;
    let date_ms: u64 = date.parse().map_err(|_| RefusalReason::Unsigned)?;
    let given = single(headers, &SIGNATURE).ok_or(RefusalReason::Unsigned)?;
    if now_ms.abs_diff(date_ms) > WINDOW_MS {
        return Err(RefusalReason::Date);
    }
    let expected = key.sign(date_ms, &text(method, uri, headers));
    if !bool::from(expected.as_bytes().ct_eq(given.as_bytes())) {
        return Err(RefusalReason::Signature);
    }
    let mut hash = [0; 32];
    match headers.get(DIGEST) {
        None => Ok(Digest::Empty),
        Some(value) if value == STREAMED => Ok(Digest::Streamed),
        Some(value) => match hex::decode_to_slice(value, &mut hash) {
            Ok(()) => Ok(Digest::Blake3(hash)),
            Err(_) => Err(RefusalReason::Unsigned),
        },
    }
}

fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

fn text(method: &Method, uri: &Uri, headers: &HeaderMap) -> Vec<u8> {
    let mut covered: Vec<(&str, &HeaderValue)> = headers
        .iter()
        .filter(|(name, _)| name.as_str().starts_with(PREFIX) && *name != SIGNATURE)
        .map(|(name, value)| (name.as_str(), value))
        .collect();
    // The sort is stable, so that values of one name keep their order.
    covered.sort_by_key(|(name, _)| *name);
    let mut text = Vec::with_capacity(512);
    let query = uri.query().unwrap_or_default();
    for part in [VERSION, method.as_str().as_bytes(), uri.path().as_bytes(), query.as_bytes()] {
        text.extend_from_slice(part);
        text.push(b'\n');
    }
    for (name, value) in covered {
        text.extend_from_slice(name.as_bytes());
        text.push(b':');
        text.extend_from_slice(value.as_bytes());
        text.push(b'\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: u64 = 1_795_262_400_000;

    fn key(digit: char) -> ClusterKey {
        digit.to_string().repeat(64).parse().unwrap()
    }

    struct SampleRequest {
        key: ClusterKey,
        method: Method,
        uri: Uri,
        headers: HeaderMap,
        now_ms: u64,
    }

    /// A signed request, as received.
    fn sample() -> SampleRequest {
        let uri = Uri::from_static("/v1/d/3/read?a=1");
        let mut headers = HeaderMap::new();
        headers.insert(DIGEST, digest(b"body"));
        headers.insert("x-martlet-deadline", HeaderValue::from_static("5000"));
        headers.insert("host", HeaderValue::from_static("n1:7001"));
        sign(&key('a'), &Method::POST, &uri, &mut headers, NOW_MS);
        SampleRequest { key: key('a'), method: Method::POST, uri, headers, now_ms: NOW_MS }
    }

    fn verify_changed(change: impl FnOnce(&mut SampleRequest)) -> Result<Digest, RefusalReason> {
        let mut sent = sample();
        change(&mut sent);
        verify(&sent.key, &sent.method, &sent.uri, &sent.headers, sent.now_ms)
    }

    #[test]
    fn signed_requests_are_accepted() {
        let expected = Ok(Digest::Blake3(*blake3::hash(b"body").as_bytes()));
        assert_eq!(verify_changed(|_| ()), expected);
        let other_host = |sent: &mut SampleRequest| {
            sent.headers.insert("host", HeaderValue::from_static("n2"));
        };
        assert_eq!(verify_changed(other_host), expected, "a name for the node isn't part of it");
    }

    #[test]
    fn another_method_path_query_or_key_is_refused() {
        let wrong = Err(RefusalReason::Signature);
        assert_eq!(verify_changed(|sent| sent.method = Method::PUT), wrong);
        assert_eq!(verify_changed(|sent| sent.uri = Uri::from_static("/v1/d/4/read?a=1")), wrong);
        assert_eq!(verify_changed(|sent| sent.uri = Uri::from_static("/v1/d/3/read?a=2")), wrong);
        assert_eq!(verify_changed(|sent| sent.uri = Uri::from_static("/v1/d/3/read")), wrong);
        assert_eq!(verify_changed(|sent| sent.key = key('b')), wrong);
    }

    #[test]
    fn a_changed_added_or_missing_header_is_refused() {
        let set = |name: &'static str, value: &'static str| {
            verify_changed(move |sent| {
                sent.headers.insert(name, HeaderValue::from_static(value));
            })
        };
        assert_eq!(set("x-martlet-deadline", "9000"), Err(RefusalReason::Signature));
        assert_eq!(set("x-martlet-new", ""), Err(RefusalReason::Signature));
        assert_eq!(set("x-martlet-digest", "streamed"), Err(RefusalReason::Signature));
        assert_eq!(set("x-martlet-date", "1795262400001"), Err(RefusalReason::Signature));
        assert_eq!(set("x-martlet-date", "now"), Err(RefusalReason::Unsigned));
        for (name, refusal) in [
            ("x-martlet-deadline", RefusalReason::Signature),
            ("x-martlet-digest", RefusalReason::Signature),
            ("x-martlet-date", RefusalReason::Unsigned),
            ("x-martlet-signature", RefusalReason::Unsigned),
        ] {
            let without = verify_changed(|sent| drop(sent.headers.remove(name)));
            assert_eq!(without, Err(refusal), "{name}");
            let twice = verify_changed(|sent| {
                let value = sent.headers[name].clone();
                sent.headers.append(name, value);
            });
            assert!(twice.is_err(), "{name} came twice");
        }
    }

    #[test]
    fn a_signature_holds_for_a_quarter_of_an_hour_each_way() {
        for (now_ms, good) in [
            (NOW_MS + WINDOW_MS, true),
            (NOW_MS - WINDOW_MS, true),
            (NOW_MS + WINDOW_MS + 1, false),
            (NOW_MS - WINDOW_MS - 1, false),
            (0, false),
            (u64::MAX, false),
        ] {
            let judged = verify_changed(|sent| sent.now_ms = now_ms);
            assert_eq!(judged.is_ok(), good, "at {now_ms}");
            assert!(good || judged == Err(RefusalReason::Date));
        }
    }

    #[test]
    fn values_cannot_move_between_lines() {
        let text_of = |uri: &'static str, name: &'static str, value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_static(value));
            text(&Method::GET, &Uri::from_static(uri), &headers)
        };
        let all = [
            text_of("/a?b", "x-martlet-c", "d"),
            text_of("/a?b%0ax-martlet-c:d", "x-martlet-c", "d"),
            text_of("/a%0ab", "x-martlet-c", "d"),
            text_of("/a?b", "x-martlet-cd", ""),
            text_of("/a", "x-martlet-c", "d"),
        ];
        for (n, one) in all.iter().enumerate() {
            assert!(all.iter().skip(n + 1).all(|other| other != one), "{n}");
        }
    }

    #[test]
    fn a_request_without_a_digest_has_no_body() {
        let mut headers = HeaderMap::new();
        let uri = Uri::from_static("/v1/devices");
        sign(&key('a'), &Method::GET, &uri, &mut headers, NOW_MS);
        let verified = verify(&key('a'), &Method::GET, &uri, &headers, NOW_MS);
        assert_eq!(verified, Ok(Digest::Empty));
    }
}

//! Parts of signatures that both versions have: clocks, comparison, and refusals.

use http::header::DATE;
use subtle::ConstantTimeEq;

use super::head::{AMZ_DATE, RequestHead};
use crate::date::Timestamp;
use crate::messages;
use crate::refusal::Refusal;

/// Maximum difference of the client's and the server's clock.
pub(super) const SKEW_MS_MAX: u64 = 15 * 60 * 1000;

/// A request with unsigned headers that must be signed.
pub(super) fn not_signed(names: &[&str]) -> Refusal {
    messages::HEADERS_NOT_SIGNED.refusal().with_detail("HeadersNotSigned", names.join(", "))
}

/// Text behind the scheme of an `Authorization` header of Version 2: access key and signature, or
/// nothing.
pub(super) fn claim_of_v2(authorization: &str) -> Option<&str> {
    let claim = authorization.strip_prefix("AWS")?;
    (claim.is_empty() || claim.starts_with(' ')).then(|| claim.trim())
}

/// Compares in constant time.
pub(super) fn is_equal(expected: &str, given: &str) -> bool {
    expected.as_bytes().ct_eq(given.as_bytes()).into()
}

/// A signature that differs from the expected one.
pub(super) fn mismatch(access_key: &str, signature: &str, string_to_sign: &str) -> Refusal {
    messages::SIGNATURE
        .refusal()
        .with_detail("AWSAccessKeyId", access_key)
        .with_detail("StringToSign", string_to_sign)
        .with_detail("SignatureProvided", signature)
}

/// An access key that no holder has.
pub(super) fn unknown_key(access_key: &str) -> Refusal {
    messages::ACCESS_KEY.refusal().with_detail("AWSAccessKeyId", access_key)
}

/// Checks that the clocks of client and server differ by 15 minutes at most.
pub(super) fn check_skew(request: Timestamp, server: Timestamp) -> Result<(), Refusal> {
    if request.unix_ms().abs_diff(server.unix_ms()) <= SKEW_MS_MAX {
        return Ok(());
    }
    Err(messages::CLOCKS
        .refusal()
        .with_detail("RequestTime", request.to_basic())
        .with_detail("ServerTime", server.to_iso())
        .with_detail("MaxAllowedSkewMilliseconds", SKEW_MS_MAX.to_string()))
}

/// Signing time of a request, from its headers.
pub(super) fn header_time(head: &RequestHead<'_>) -> Result<Timestamp, Refusal> {
    let time = match head.header(&AMZ_DATE)? {
        Some(date) => Timestamp::parse_header(date),
        None => head.header(&DATE)?.and_then(Timestamp::parse_header),
    };
    time.ok_or_else(|| messages::DATE_HEADER.refusal())
}

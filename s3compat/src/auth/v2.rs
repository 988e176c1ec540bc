//! SigV2, in the `Authorization` header or in the query, for old clients and their links.
//!
//! It covers the method, three headers, every `x-amz-*` header, the path, and query keys that name
//! a sub-resource or override a response header. Of the body it covers only a Content-MD5.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use http::HeaderMap;
use http::header::DATE;
use sha1::Sha1;

use super::caller::CheckContext;
use super::credential::SecretKey;
use super::head::{AMZ_DATE, AuthenticatedHead, CONTENT_SHA256, Mechanism, RequestHead};
use super::payload::DeclaredPayload;
use super::signature::{check_skew, claim_of_v2, header_time, is_equal, mismatch};
use crate::messages;
use crate::refusal::Refusal;

/// Header or query key of a session's token.
const TOKEN: &str = "x-amz-security-token";

/// Query keys that are signed, in order.
const SIGNED_KEYS: [&str; 26] = [
    "acl",
    "cors",
    "delete",
    "lifecycle",
    "location",
    "logging",
    "notification",
    "object-lock",
    "partNumber",
    "policy",
    "requestPayment",
    "response-cache-control",
    "response-content-disposition",
    "response-content-encoding",
    "response-content-language",
    "response-content-type",
    "response-expires",
    "restore",
    "tagging",
    "torrent",
    "uploadId",
    "uploads",
    "versionId",
    "versioning",
    "versions",
    "website",
];

/// True if such a signature covers a query key.
pub(crate) fn signs(name: &str) -> bool {
    SIGNED_KEYS.contains(&name)
}

/// Date that a signature covers, and the mechanism, which decides its form.
#[derive(Clone, Copy)]
struct SignedDate<'a> {
    date: &'a str,
    mechanism: Mechanism,
}

/// Authenticates by the `Authorization` header.
pub(super) fn by_header(
    head: &RequestHead<'_>,
    authorization: &str,
    site: &CheckContext<'_>,
) -> Result<AuthenticatedHead, Refusal> {
    let pair = claim_of_v2(authorization).and_then(|claim| claim.split_once(':'));
    let (access_key, signature) =
        pair.ok_or_else(|| messages::AUTHORIZATION_V2.argument("Authorization", authorization))?;
    check_skew(header_time(head)?, site.now)?;
    // `x-amz-date` is signed like any other `x-amz-*` header.
    let date = if head.headers.contains_key(AMZ_DATE) { None } else { head.header(&DATE)? };
    let signed = SignedDate { date: date.unwrap_or_default(), mechanism: Mechanism::HeaderV2 };
    check(head, site, access_key, signature, signed)
}

/// Authenticates by `AWSAccessKeyId`, `Expires` and `Signature`.
pub(super) fn by_query(
    head: &RequestHead<'_>,
    site: &CheckContext<'_>,
) -> Result<AuthenticatedHead, Refusal> {
    let value = |name| head.query_get(name).ok_or_else(|| messages::QUERY_FIELDS_V2.refusal());
    let (access_key, expires) = (value("AWSAccessKeyId")?, value("Expires")?);
    let signature = value("Signature")?;
    let expires_s = Some(expires).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let expires_s = expires_s
        .and_then(|text| text.parse::<u64>().ok())
        .ok_or_else(|| messages::EXPIRES_V2.refusal())?;
    if site.now.unix_ms() / 1000 > expires_s {
        return Err(messages::EXPIRED.refusal().with_detail("ServerTime", site.now.to_iso()));
    }
    let signed = SignedDate { date: expires, mechanism: Mechanism::QueryV2 };
    check(head, site, access_key, signature, signed)
}

fn check(
    head: &RequestHead<'_>,
    site: &CheckContext<'_>,
    access_key: &str,
    signature: &str,
    signed: SignedDate<'_>,
) -> Result<AuthenticatedHead, Refusal> {
    let SignedDate { date, mechanism } = signed;
    let credential = site.credential(access_key)?;
    let text = string_to_sign(head, date, "");
    if is_ambiguous(head) {
        return Err(mismatch(access_key, signature, &text));
    }
    let is_right = |text: &str| is_equal(&sign(credential.secret(), text), signature);
    let is_known = is_right(&text) || (is_bare(head) && is_right(&string_to_sign(head, date, "/")));
    if !is_known {
        return Err(mismatch(access_key, signature, &text));
    }
    let announced = head.header(&CONTENT_SHA256)?.map(DeclaredPayload::parse).transpose()?;
    Ok(AuthenticatedHead {
        identity: credential.identity().clone(),
        payload: announced.unwrap_or(DeclaredPayload::Unsigned).without_signer()?,
        mechanism,
    })
}

/// Signature of `text`.
pub(super) fn sign(secret: &SecretKey, text: &str) -> String {
    let mut mac = Hmac::<Sha1>::new_from_slice(secret.expose().as_bytes())
        .expect("an HMAC takes a key of any length");
    mac.update(text.as_bytes());
    STANDARD.encode(mac.finalize().into_bytes())
}

/// True if the path is only a bucket's name: many clients sign such a path with a slash at its end.
fn is_bare(head: &RequestHead<'_>) -> bool {
    head.target.bucket().is_some() && head.target.key().is_none() && !head.raw_path.ends_with('/')
}

/// True if a signed value contains an `&` after decoding. Values are signed decoded, so one
/// signature would be valid for two requests: `a=x%26b=y` and `a=x&b=y`.
fn is_ambiguous(head: &RequestHead<'_>) -> bool {
    head.query.pairs().iter().any(|pair| signs(&pair.name) && pair.value.contains('&'))
}

/// String to sign, with `end` after the path.
fn string_to_sign(head: &RequestHead<'_>, date: &str, end: &str) -> String {
    let mut out = format!("{}\n", head.method);
    for name in ["content-md5", "content-type"] {
        push_values(&mut out, head.headers, name);
        out.push('\n');
    }
    out.push_str(date);
    out.push('\n');
    let mut names: Vec<&str> = head.headers.keys().map(http::HeaderName::as_str).collect();
    names.retain(|name| name.starts_with("x-amz-"));
    // The token is the only header that such a link may carry in its query.
    let token = head.query_get(TOKEN).filter(|_| !names.contains(&TOKEN));
    names.extend(token.map(|_| TOKEN));
    names.sort_unstable();
    for name in names {
        out.push_str(name);
        out.push(':');
        match token.filter(|_| name == TOKEN) {
            Some(token) => out.push_str(token),
            None => push_values(&mut out, head.headers, name),
        }
        out.push('\n');
    }
    push_resource(&mut out, head, end);
    out
}

/// Appends all values of a header, comma-separated; whitespace within values is kept.
fn push_values(out: &mut String, headers: &HeaderMap, name: &str) {
    for (at, value) in headers.get_all(name).iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        out.push_str(String::from_utf8_lossy(value.as_bytes()).trim());
    }
}

fn push_resource(out: &mut String, head: &RequestHead<'_>, end: &str) {
    match head.target.bucket() {
        // A bucket alone is signed with a slash at its end if the host names the bucket.
        Some(bucket) if head.target.signed_path() != head.target.path() => {
            out.push('/');
            out.push_str(bucket);
            out.push_str(head.raw_path);
        }
        _ => out.push_str(head.raw_path),
    }
    out.push_str(end);
    let mut separator = '?';
    for name in SIGNED_KEYS {
        let Some(pair) = head.query.pairs().iter().find(|pair| pair.name == name) else {
            continue;
        };
        out.push(separator);
        separator = '&';
        out.push_str(name);
        if pair.raw.contains('=') {
            out.push('=');
            out.push_str(&pair.value);
        }
    }
}

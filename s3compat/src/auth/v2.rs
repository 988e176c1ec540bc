//! SigV2 in the query: the links that old clients make.
//!
//! It covers the method, three headers, every `x-amz-*` header, the path and those query keys that
//! name a sub-resource or override a response header.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use sha1::Sha1;

use super::authenticator::{Authenticated, Head, Mechanism, Site};
use super::canonical::push_values;
use super::keys::Secret;
use super::payload::Announced;
use super::refusal::{Code, Refusal};
use super::v4::{is_equal, mismatch};

/// Where a session's token stands.
const TOKEN: &str = "x-amz-security-token";

/// Query keys that are signed, in order.
const SIGNED_KEYS: [&str; 25] = [
    "acl",
    "cors",
    "delete",
    "lifecycle",
    "location",
    "logging",
    "notification",
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

/// Authenticates by `AWSAccessKeyId`, `Expires` and `Signature`.
pub(super) fn by_query(head: &Head<'_>, site: &Site<'_>) -> Result<Authenticated, Refusal> {
    let value = |name| {
        head.query_get(name).ok_or_else(|| {
            let message = "Query-string authentication requires the Signature, Expires and \
                           AWSAccessKeyId parameters";
            Refusal::new(Code::AccessDenied, message)
        })
    };
    let (access_key, expires) = (value("AWSAccessKeyId")?, value("Expires")?);
    let signature = value("Signature")?;
    let expires_s = Some(expires).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let expires_s = expires_s.and_then(|text| text.parse::<u64>().ok()).ok_or_else(|| {
        Refusal::new(Code::AccessDenied, "Invalid date (should be seconds since epoch)")
    })?;
    if site.now.unix_ms() / 1000 > expires_s {
        return Err(Refusal::new(Code::AccessDenied, "Request has expired")
            .with_detail("ServerTime", site.now.to_iso()));
    }
    let credential = site.credential(access_key)?;
    let text = string_to_sign(head, expires);
    if !is_equal(&sign(credential.secret(), &text), signature) {
        return Err(mismatch(access_key, signature, &text));
    }
    let announced = head.header("x-amz-content-sha256")?.map(Announced::parse).transpose()?;
    Ok(Authenticated {
        identity: credential.identity().clone(),
        payload: announced.unwrap_or(Announced::Unsigned).without_signer()?,
        mechanism: Mechanism::QueryV2,
    })
}

/// The signature of `text`.
pub(super) fn sign(secret: &Secret, text: &str) -> String {
    let mut mac = Hmac::<Sha1>::new_from_slice(secret.expose().as_bytes())
        .expect("an HMAC takes a key of any length");
    mac.update(text.as_bytes());
    STANDARD.encode(mac.finalize().into_bytes())
}

fn string_to_sign(head: &Head<'_>, expires: &str) -> String {
    let mut out = format!("{}\n", head.method);
    for name in ["content-md5", "content-type"] {
        push_values(&mut out, head.headers, name);
        out.push('\n');
    }
    out.push_str(expires);
    out.push('\n');
    let mut names: Vec<&str> = head.headers.keys().map(http::HeaderName::as_str).collect();
    names.retain(|name| name.starts_with("x-amz-"));
    // The one header that such a link may carry in its query.
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
    push_resource(&mut out, head);
    out
}

fn push_resource(out: &mut String, head: &Head<'_>) {
    match head.target.bucket() {
        // A bucket alone is signed with a slash behind it when the host names it.
        Some(bucket) if head.target.signed_path() != head.target.path() => {
            out.push('/');
            out.push_str(bucket);
            out.push_str(head.raw_path);
        }
        _ => out.push_str(head.raw_path),
    }
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

//! SigV4, in the `Authorization` header or in the query of a presigned link.

use std::sync::Arc;

use super::caller::CheckContext;
use super::canonical::{SignedParts, canonical_request, string_to_sign};
use super::credential::Credential;
use super::head::{AuthenticatedHead, CONTENT_SHA256, Mechanism, RequestHead};
use super::payload::{DeclaredPayload, UNSIGNED_PAYLOAD};
use super::scope::{CredentialScope, CredentialSource};
use super::signature::{
    SKEW_MS_MAX, check_skew, claim_of_v2, header_time, is_equal, mismatch, not_signed,
};
use crate::date::Timestamp;
use crate::decode::{ChunkSigner, SigningKey};
use crate::messages;
use crate::refusal::Refusal;

pub(super) const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// Maximum lifetime of a link: seven days.
const EXPIRES_S_MAX: u64 = 7 * 24 * 60 * 60;

/// Headers that SDKs leave unsigned, and that can't change the operation.
const UNSIGNED_ALLOWED: [&str; 3] = ["x-amz-user-agent", "x-amz-checksum-mode", "x-amz-cf-id"];

/// A signature with its parameters.
struct PresentedSignature<'a> {
    place: CredentialSource,
    scope: CredentialScope<'a>,
    signed_headers: &'a str,
    signature: &'a str,
    time: Timestamp,
    payload: &'a str,
}

/// Authenticates by the `Authorization` header.
pub(super) fn by_header(
    head: &RequestHead<'_>,
    authorization: &str,
    site: &CheckContext<'_>,
) -> Result<AuthenticatedHead, Refusal> {
    let payload =
        head.header(&CONTENT_SHA256)?.ok_or_else(|| messages::MISSING_SHA256.refusal())?;
    by_header_over(payload, head, authorization, site).map(|(authenticated, _)| authenticated)
}

/// As [`by_header`], for a body with the hash `payload`. Also returns the signer's credential.
pub(super) fn by_header_over(
    payload: &str,
    head: &RequestHead<'_>,
    authorization: &str,
    site: &CheckContext<'_>,
) -> Result<(AuthenticatedHead, Arc<Credential>), Refusal> {
    let claim = PresentedSignature::from_header(payload, head, authorization)?;
    check_skew(claim.time, site.now)?;
    let authenticated = claim.verify(head, site, Mechanism::Header)?;
    Ok((authenticated, site.credential(claim.scope.access_key)?.clone()))
}

/// Authenticates by the query.
pub(super) fn by_query(
    head: &RequestHead<'_>,
    site: &CheckContext<'_>,
) -> Result<AuthenticatedHead, Refusal> {
    let claim = PresentedSignature::from_query(head)?;
    let expires_s = parse_expires(query_value(head, "X-Amz-Expires")?)?;
    let (signed, now) = (claim.time.unix_ms(), site.now.unix_ms());
    if signed > now + SKEW_MS_MAX {
        return Err(messages::NOT_YET_VALID.refusal());
    }
    if now > signed + expires_s * 1000 {
        return Err(messages::EXPIRED
            .refusal()
            .with_detail("X-Amz-Expires", expires_s.to_string())
            .with_detail("ServerTime", site.now.to_iso()));
    }
    claim.verify(head, site, Mechanism::Query)
}

impl<'a> PresentedSignature<'a> {
    fn from_header(
        payload: &'a str,
        head: &RequestHead<'a>,
        authorization: &'a str,
    ) -> Result<Self, Refusal> {
        let place = CredentialSource::Header;
        let fields = authorization
            .strip_prefix(ALGORITHM)
            .filter(|fields| fields.starts_with([' ', '\t']))
            .ok_or_else(|| unsupported(authorization))?;
        let (mut credential, mut signed_headers, mut signature) = (None, None, None);
        for field in fields.split(',') {
            let (name, value) = field.trim().split_once('=').unwrap_or_default();
            let slot = match name {
                "Credential" => &mut credential,
                "SignedHeaders" => &mut signed_headers,
                "Signature" => &mut signature,
                _ => return Err(place.malformed("it has an unknown field")),
            };
            if slot.replace(value).is_some() {
                return Err(place.malformed("it has a duplicate field"));
            }
        }
        let missing = |name: &str| place.malformed(&format!("it has no {name}"));
        let credential = credential.ok_or_else(|| missing("Credential"))?;
        Ok(Self {
            place,
            scope: CredentialScope::parse(credential, place)?,
            signed_headers: signed_headers.ok_or_else(|| missing("SignedHeaders"))?,
            signature: signature.ok_or_else(|| missing("Signature"))?,
            time: header_time(head)?,
            payload,
        })
    }

    fn from_query(head: &RequestHead<'a>) -> Result<Self, Refusal> {
        let place = CredentialSource::Query;
        if query_value(head, "X-Amz-Algorithm")? != ALGORITHM {
            return Err(messages::QUERY_ALGORITHM.refusal());
        }
        let date = query_value(head, "X-Amz-Date")?;
        let time = Timestamp::parse_basic(date).ok_or_else(|| messages::QUERY_DATE.refusal())?;
        let payload = match head.header(&CONTENT_SHA256)? {
            Some(payload) => payload,
            None => head.query_header("x-amz-content-sha256").unwrap_or(UNSIGNED_PAYLOAD),
        };
        Ok(Self {
            place,
            scope: CredentialScope::parse(query_value(head, "X-Amz-Credential")?, place)?,
            signed_headers: query_value(head, "X-Amz-SignedHeaders")?,
            signature: query_value(head, "X-Amz-Signature")?,
            time,
            payload,
        })
    }

    fn verify(
        &self,
        head: &RequestHead<'_>,
        site: &CheckContext<'_>,
        mechanism: Mechanism,
    ) -> Result<AuthenticatedHead, Refusal> {
        self.check_signed_headers(head)?;
        let announced = DeclaredPayload::of(head.method, self.payload)?;
        // A wrong region or service is reported before an unknown access key.
        self.scope.check(self.time, site.service, site.regions, self.place)?;
        let credential = site.credential(self.scope.access_key)?;
        let date = self.time.to_basic();
        let key = self.check_signature(head, site.service, credential, &date)?;
        let signer = || ChunkSigner::new(key, &date, self.scope.text, self.signature);
        Ok(AuthenticatedHead {
            identity: credential.identity().clone(),
            payload: announced.with_signer(signer),
            mechanism,
        })
    }

    /// Refuses unsigned headers that must be signed.
    fn check_signed_headers(&self, head: &RequestHead<'_>) -> Result<(), Refusal> {
        let is_signed = |name: &str| self.signed_headers.split(';').any(|signed| signed == name);
        let mut unsigned = Vec::new();
        if !is_signed("host") {
            unsigned.push("host");
        }
        for (name, value) in head.headers {
            let name = name.as_str();
            if !must_be_signed(name) || is_signed(name) {
                continue;
            }
            let is_in_query = self.place == CredentialSource::Query && head.is_hoisted(name, value);
            if !is_in_query {
                unsigned.push(name);
            }
        }
        if unsigned.is_empty() { Ok(()) } else { Err(not_signed(&unsigned)) }
    }

    /// Checks a signature over the path encoded by S3's rule, or over the raw path: some clients
    /// encode the path otherwise and sign it as they send it. Both decode to the same path.
    fn check_signature(
        &self,
        head: &RequestHead<'_>,
        service: &'static str,
        credential: &Credential,
        date: &str,
    ) -> Result<SigningKey, Refusal> {
        let key = credential.signing_key_for(service, self.time, self.scope.region);
        let covered = SignedParts { signed_headers: self.signed_headers, payload: self.payload };
        let canonical_path = head.target.signed_path();
        let sign = |path: &str| {
            let request = canonical_request(head, path, covered);
            let text = string_to_sign(&request, date, self.scope.text);
            let is_right = is_equal(&key.sign(text.as_bytes()), self.signature);
            (is_right, request, text)
        };
        let (is_right, request, text) = sign(canonical_path);
        if is_right || (head.raw_path != canonical_path && sign(head.raw_path).0) {
            return Ok(key);
        }
        Err(mismatch(self.scope.access_key, self.signature, &text)
            .with_detail("CanonicalRequest", request))
    }
}

/// Returns true if a header may change the operation: S3's own headers, and this store's.
pub(super) fn must_be_signed(name: &str) -> bool {
    let is_ours = name.starts_with("x-amz-") || name.starts_with("x-martlet-");
    is_ours && !UNSIGNED_ALLOWED.contains(&name)
}

fn unsupported(authorization: &str) -> Refusal {
    let is_known = claim_of_v2(authorization).is_some() || authorization.starts_with("AWS4-");
    if is_known {
        return Refusal::unsupported_mechanism();
    }
    messages::AUTHORIZATION_TYPE.argument("Authorization", authorization)
}

fn query_value<'a>(head: &RequestHead<'a>, name: &str) -> Result<&'a str, Refusal> {
    head.query_get(name).ok_or_else(|| messages::QUERY_FIELDS.refusal())
}

fn parse_expires(text: &str) -> Result<u64, Refusal> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // A negative lifetime has its own error.
    let is_negative = text.strip_prefix('-').is_some_and(is_number);
    match text.parse::<u64>() {
        _ if is_negative => Err(messages::EXPIRES_NEGATIVE.refusal()),
        _ if !is_number(text) => Err(messages::EXPIRES_NUMBER.refusal()),
        Ok(0) => Err(messages::EXPIRES_ZERO.refusal()),
        Ok(seconds) if seconds <= EXPIRES_S_MAX => Ok(seconds),
        _ => Err(messages::EXPIRES_WEEK.refusal()),
    }
}

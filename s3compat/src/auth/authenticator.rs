//! Choice and check of a request's signature mechanism.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName};
use martlet_protocol::Clock;
use sha2::{Digest, Sha256};

use super::caller::{Caller, CheckContext};
use super::config::AuthConfig;
use super::credential::Credential;
use super::head::{AuthenticatedHead, CONTENT_SHA256, Mechanism, RequestHead, single_header};
use super::keys::Keys;
use super::payload::DeclaredPayload;
use super::sessions::Sessions;
use super::signature::{claim_of_v2, not_signed};
use super::{v2, v4};
use crate::access::Identity;
use crate::date::Timestamp;
use crate::messages;
use crate::refusal::Refusal;
use crate::target::percent_decode as decode;

/// Header or query key of a session's token.
const TOKEN: &str = "x-amz-security-token";
const TOKEN_HEADER: HeaderName = HeaderName::from_static(TOKEN);

/// Access key that a request names, in a header or in the query.
fn claimed<'a>(headers: &'a HeaderMap, query: &'a str) -> Option<Cow<'a, str>> {
    if let Some(authorization) = headers.get(AUTHORIZATION) {
        let authorization = authorization.to_str().ok()?;
        if let Some(claim) = claim_of_v2(authorization) {
            return claim.split(':').next().map(Cow::Borrowed);
        }
        let (_, credential) = authorization.split_once("Credential=")?;
        return credential.split(['/', ',']).next().map(Cow::Borrowed);
    }
    let value = query.split('&').find_map(|pair| {
        pair.strip_prefix("X-Amz-Credential=").or_else(|| pair.strip_prefix("AWSAccessKeyId="))
    })?;
    let mut value = decode(value, true).ok()?;
    if let Some(end) = value.find('/') {
        match &mut value {
            Cow::Borrowed(text) => *text = &text[..end],
            Cow::Owned(text) => text.truncate(end),
        }
    }
    Some(value)
}

/// Session token of a request, from the header or the query.
///
/// # Errors
/// Two tokens that differ.
fn token<'a>(headers: &'a HeaderMap, query: &'a str) -> Result<Option<Cow<'a, str>>, Refusal> {
    let mut found = single_header(headers, &TOKEN_HEADER)?.map(Cow::Borrowed);
    for pair in query.split('&') {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if !decode(name, true)?.eq_ignore_ascii_case(TOKEN) {
            continue;
        }
        let value = decode(value, true)?;
        if found.as_ref().is_some_and(|found| *found != value) {
            return Err(Refusal::invalid_token());
        }
        found = Some(value);
    }
    Ok(found)
}

/// Authenticates requests.
#[derive(Clone, Debug)]
pub struct Authenticator {
    pub(super) config: AuthConfig,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) keys: Keys,
}

impl Authenticator {
    /// Creates an authenticator for `keys`.
    pub fn new(config: AuthConfig, clock: Arc<dyn Clock>, keys: Keys) -> Self {
        Self { config, clock, keys }
    }

    /// Claimed signer of a request from `peer`. Queries the directory of keys if necessary.
    pub(crate) async fn caller(
        &self,
        headers: &HeaderMap,
        query: &str,
        peer: Option<IpAddr>,
    ) -> Result<Caller, Refusal> {
        match claimed(headers, query) {
            Some(access_key) => {
                let token = token(headers, query)?;
                self.caller_of(&access_key, token.as_deref(), peer).await
            }
            None => Ok(Caller { peer, ..Caller::default() }),
        }
    }

    /// Claimed signer of an access key, and of a session's token.
    pub(crate) async fn caller_of(
        &self,
        access_key: &str,
        token: Option<&str>,
        peer: Option<IpAddr>,
    ) -> Result<Caller, Refusal> {
        if let Some(token) = token {
            let sessions = self.keys.sessions().ok_or_else(Refusal::invalid_token)?;
            let (keys, now_ms) = (self.keys.access_keys(), self.clock.now_ms());
            let credential = sessions.credential(keys, access_key, token, now_ms);
            let credential = Some(Box::pin(credential).await?);
            return Ok(Caller { credential, is_session: true, peer });
        }
        let is_fixed = self.keys.lookup(access_key).is_some();
        let credential =
            if is_fixed { None } else { self.keys.access_keys().find(access_key).await? };
        Ok(Caller { credential, is_session: false, peer })
    }

    /// State of sessions, if sessions are enabled.
    pub(crate) fn sessions(&self) -> Option<&Sessions> {
        self.keys.sessions()
    }

    /// Authenticates a form for a service beside S3, such as `sts`, by its signature over `body`.
    /// Returns the signer's credential.
    pub(crate) fn authenticate_form_request(
        &self,
        head: &RequestHead<'_>,
        body: &[u8],
        caller: &Caller,
        service: &'static str,
    ) -> Result<Arc<Credential>, Refusal> {
        let site = CheckContext { service, ..self.site(caller) };
        let authorization = head.header(&AUTHORIZATION)?.unwrap_or_default();
        let payload = hex::encode(Sha256::digest(body));
        let (authenticated, credential) = v4::by_header_over(&payload, head, authorization, &site)?;
        if let Some(who) = authenticated.identity.who() {
            who.check_source(caller.peer)?;
        }
        Ok(credential)
    }

    /// Authenticates a request. An unsigned request is anonymous.
    ///
    /// # Errors
    /// A wrong signature, or an address outside the signer's networks.
    pub fn authenticate(
        &self,
        head: &RequestHead<'_>,
        caller: &Caller,
    ) -> Result<AuthenticatedHead, Refusal> {
        let authenticated = self.prove(head, caller)?;
        if let Some(who) = authenticated.identity.who() {
            who.check_source(caller.peer)?;
        }
        if matches!(authenticated.mechanism, Mechanism::HeaderV2 | Mechanism::QueryV2) {
            check_covered(head.headers)?;
        }
        Ok(authenticated)
    }

    /// Context of a signature check at the current time.
    pub(super) fn site<'a>(&'a self, caller: &'a Caller) -> CheckContext<'a> {
        let now = Timestamp::from_unix_ms(self.clock.now_ms());
        let (keys, regions) = (self.keys.access_keys(), &self.config.regions);
        CheckContext { keys, caller, service: "s3", regions, now }
    }

    fn prove(&self, head: &RequestHead<'_>, caller: &Caller) -> Result<AuthenticatedHead, Refusal> {
        let site = self.site(caller);
        // An empty header counts as absent.
        let authorization = head.header(&AUTHORIZATION)?.filter(|text| !text.is_empty());
        let has = |name: &str| head.query_get(name).is_some();
        let v4_query = has("X-Amz-Signature") || has("X-Amz-Algorithm");
        let v2_query = has("Signature") || has("AWSAccessKeyId");
        if usize::from(authorization.is_some()) + usize::from(v4_query) + usize::from(v2_query) > 1
        {
            return Err(match authorization {
                Some(authorization) => {
                    messages::MECHANISMS.argument("Authorization", authorization)
                }
                None => messages::MECHANISMS.refusal(),
            });
        }
        let has_token =
            head.headers.contains_key(TOKEN_HEADER) || head.query_header(TOKEN).is_some();
        if has_token && !caller.is_session {
            return Err(Refusal::invalid_token());
        }
        match authorization {
            Some(authorization) if claim_of_v2(authorization).is_some() => {
                self.check_v2()?;
                v2::by_header(head, authorization, &site)
            }
            Some(authorization) => v4::by_header(head, authorization, &site),
            None if v4_query => v4::by_query(head, &site),
            None if v2_query => {
                self.check_v2()?;
                v2::by_query(head, &site)
            }
            None => anonymous(head),
        }
    }

    /// Refuses signatures of Version 2 unless the configuration allows them.
    fn check_v2(&self) -> Result<(), Refusal> {
        if self.config.allow_v2 { Ok(()) } else { Err(Refusal::unsupported_mechanism()) }
    }
}

/// Refuses `x-martlet-*` headers in a request with a signature of Version 2, which covers only S3's
/// headers.
fn check_covered(headers: &HeaderMap) -> Result<(), Refusal> {
    let names = headers.keys().map(HeaderName::as_str);
    let stray: Vec<&str> = names.filter(|name| name.starts_with("x-martlet-")).collect();
    if stray.is_empty() { Ok(()) } else { Err(not_signed(&stray)) }
}

fn anonymous(head: &RequestHead<'_>) -> Result<AuthenticatedHead, Refusal> {
    let announced = head.header(&CONTENT_SHA256)?;
    let announced = announced.map(|text| DeclaredPayload::of(head.method, text)).transpose()?;
    Ok(AuthenticatedHead {
        identity: Identity::Anonymous,
        payload: announced.unwrap_or(DeclaredPayload::Unsigned).without_signer()?,
        mechanism: Mechanism::None,
    })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_key_that_a_request_names_is_found_wherever_it_does() {
        let by_header = |value: &'static str| {
            let headers = [(AUTHORIZATION, HeaderValue::from_static(value))];
            claimed(&headers.into_iter().collect(), "X-Amz-Credential=OTHER").map(Cow::into_owned)
        };
        let named =
            by_header("AWS4-HMAC-SHA256 Credential=AKID/20260101/us-east-1/s3/aws4_request, x");
        assert_eq!(named.as_deref(), Some("AKID"));
        assert_eq!(by_header("AWS AKID:frJIUN8DYpKDtOLCwo//yllqDzg=").as_deref(), Some("AKID"));
        assert_eq!(by_header("Bearer AKID"), None, "a header counts, and not the query beside it");
        let by_query = |query| claimed(&HeaderMap::new(), query).map(Cow::into_owned);
        for query in [
            "list-type=2&X-Amz-Credential=AKID%2F20260101%2Fus-east-1%2Fs3%2Faws4_request",
            "X-Amz-Credential=AKID/20260101",
            "AWSAccessKeyId=AKID&Signature=x",
            "AWSAccessKeyId=%41KID",
        ] {
            assert_eq!(by_query(query).as_deref(), Some("AKID"), "{query}");
        }
        for query in ["", "prefix=AKID", "X-Amz-Credential=%ff"] {
            assert_eq!(by_query(query), None, "{query}");
        }
    }
}

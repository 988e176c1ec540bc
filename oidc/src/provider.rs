//! Requests to a provider: metadata, keys, the URL of a login, and the exchange of its code.

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use hyper::http::request::Builder;
use hyper::{Method, Request, StatusCode};
use martlet_protocol::Clock;
use parking_lot::Mutex;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rustls::ClientConfig;
use serde::Deserialize;
use url::Url;
use url::form_urlencoded::Serializer;

use crate::error::OidcError;
use crate::fetch::{Fetched, Fetcher};
use crate::metadata::{DISCOVERY, Metadata};
use crate::pkce::{AuthorizationRequest, CodeVerifier};

/// Maximum bytes of a discovery document.
const METADATA_BYTES_MAX: usize = 64 * 1024;
/// Maximum bytes of a key set.
const JWKS_BYTES_MAX: usize = 1 << 20;
/// Maximum bytes of a reply of the token endpoint.
const TOKENS_BYTES_MAX: usize = 256 * 1024;
/// Age at which metadata is fetched again, in milliseconds.
const METADATA_MS: u64 = 60 * 60 * 1000;
/// Pause after a failure, in milliseconds. Until then the failure is the answer.
const FAILURE_PAUSE_MS: u64 = 5_000;
const FORM: &str = "application/x-www-form-urlencoded";
/// Characters that stay in the credentials of a client (RFC 6749, section 2.3.1).
const CREDENTIALS: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Parts of a provider's client.
pub struct ProviderParts {
    /// Issuer, as tokens name it.
    pub issuer: String,
    /// Authorities that verify the provider's certificate.
    pub tls: Arc<ClientConfig>,
    /// Clock of the age of metadata.
    pub clock: Arc<dyn Clock>,
}

/// Client of a provider.
pub struct OidcProvider {
    issuer: String,
    fetcher: Fetcher,
    clock: Arc<dyn Clock>,
    known: Mutex<Known>,
    /// Held by the request for the metadata that is under way.
    flight: tokio::sync::Mutex<()>,
}

/// Metadata and the last failure, with their times in milliseconds.
#[derive(Default)]
struct Known {
    metadata: Option<(Arc<Metadata>, u64)>,
    failure: Option<(OidcError, u64)>,
}

/// Code of a callback, and what the provider needs besides.
pub struct CodeExchange<'a> {
    /// Code.
    pub code: &'a str,
    /// Secret of the login.
    pub verifier: &'a CodeVerifier,
    /// URL of the callback, as in the request that began the login.
    pub redirect_uri: &'a str,
    /// Id of the client.
    pub client_id: &'a str,
    /// Secret of the client, unless the client is public.
    pub client_secret: Option<&'a str>,
}

/// Success of the token endpoint.
#[derive(Deserialize)]
struct Tokens {
    id_token: Option<String>,
}

/// Refusal of the token endpoint (RFC 6749, section 5.2).
#[derive(Deserialize)]
struct TokenError {
    error: String,
}

impl fmt::Debug for OidcProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OidcProvider").field("issuer", &self.issuer).finish_non_exhaustive()
    }
}

impl OidcProvider {
    /// Makes a client. Nothing is fetched yet.
    pub fn new(parts: ProviderParts) -> Self {
        let ProviderParts { issuer, tls, clock } = parts;
        let fetcher = Fetcher::new(tls);
        Self {
            issuer,
            fetcher,
            clock,
            known: Mutex::default(),
            flight: tokio::sync::Mutex::default(),
        }
    }

    /// Returns the issuer.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// Fetches the provider's keys: the bytes of a JWKS document.
    ///
    /// # Errors
    /// [`OidcError::Unavailable`].
    pub async fn jwks(&self) -> Result<Bytes, OidcError> {
        let metadata = self.metadata().await?;
        self.get("the keys", &metadata.jwks, JWKS_BYTES_MAX).await
    }

    /// Returns the URL to which a browser is sent to sign in.
    ///
    /// # Errors
    /// [`OidcError::Unavailable`] without the metadata, or without an endpoint for logins.
    pub async fn authorization_url(
        &self,
        client_id: &str,
        request: AuthorizationRequest<'_>,
    ) -> Result<String, OidcError> {
        let metadata = self.metadata().await?;
        let endpoint = metadata.authorization.as_ref();
        let no_logins = || OidcError::unavailable("its metadata has no authorization_endpoint");
        let mut url = endpoint.ok_or_else(no_logins)?.clone();
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", client_id)
            .append_pair("redirect_uri", request.redirect_uri)
            .append_pair("scope", &request.scopes.join(" "))
            .append_pair("state", request.state)
            .append_pair("nonce", request.nonce)
            .append_pair("code_challenge", &request.verifier.challenge())
            .append_pair("code_challenge_method", "S256");
        Ok(url.into())
    }

    /// Returns true if a callback with this parameter `iss` is of the provider (RFC 9207).
    ///
    /// # Errors
    /// [`OidcError::Unavailable`] without the metadata.
    pub async fn is_issuer(&self, given: Option<&str>) -> Result<bool, OidcError> {
        let metadata = self.metadata().await?;
        Ok(given.map_or(!metadata.names_issuer, |given| given == self.issuer))
    }

    /// Exchanges a code for an ID token, which isn't verified yet.
    ///
    /// # Errors
    /// [`OidcError::Refused`] if the provider refuses the code or the client;
    /// [`OidcError::Unavailable`] without a reply that can be used.
    pub async fn exchange(&self, exchange: CodeExchange<'_>) -> Result<String, OidcError> {
        let metadata = self.metadata().await?;
        let no_tokens = || OidcError::unavailable("its metadata has no token_endpoint");
        let endpoint = metadata.token.as_ref().ok_or_else(no_tokens)?;
        let (request, body) = token_request(endpoint, metadata.secret_in_body, &exchange);
        let reply = self.fetcher.send("the tokens", request, body, TOKENS_BYTES_MAX).await?;
        id_token(&reply)
    }

    /// Returns the metadata, at most an hour old while the provider replies.
    async fn metadata(&self) -> Result<Arc<Metadata>, OidcError> {
        if let Some(metadata) = self.fresh()? {
            return Ok(metadata);
        }
        let _flight = self.flight.lock().await;
        if let Some(metadata) = self.fresh()? {
            return Ok(metadata);
        }
        let fetched = self.fetch_metadata().await;
        let now_ms = self.clock.now_ms();
        let mut known = self.known.lock();
        match fetched {
            Ok(metadata) => {
                let metadata = Arc::new(metadata);
                *known = Known { metadata: Some((metadata.clone(), now_ms)), failure: None };
                Ok(metadata)
            }
            Err(error) => {
                tracing::warn!(issuer = self.issuer, %error, "could not read a provider's metadata");
                known.failure = Some((error.clone(), now_ms));
                known.metadata.as_ref().map(|(metadata, _)| metadata.clone()).ok_or(error)
            }
        }
    }

    /// Returns metadata that is not fetched again: fresh metadata, or older one shortly after a
    /// failure. The failure, without any.
    fn fresh(&self) -> Result<Option<Arc<Metadata>>, OidcError> {
        let now_ms = self.clock.now_ms();
        let known = self.known.lock();
        let failure = known.failure.as_ref();
        let failure = failure.filter(|(_, at_ms)| now_ms.saturating_sub(*at_ms) < FAILURE_PAUSE_MS);
        match (&known.metadata, failure) {
            (Some((metadata, at_ms)), failure) => {
                let is_fresh = now_ms.saturating_sub(*at_ms) < METADATA_MS;
                Ok((is_fresh || failure.is_some()).then(|| metadata.clone()))
            }
            (None, Some((error, _))) => Err(error.clone()),
            (None, None) => Ok(None),
        }
    }

    async fn fetch_metadata(&self) -> Result<Metadata, OidcError> {
        let text = format!("{}{DISCOVERY}", self.issuer.trim_end_matches('/'));
        let url = crate::endpoint::parse(&text).map_err(OidcError::Unavailable)?;
        let body = self.get("the metadata", &url, METADATA_BYTES_MAX).await?;
        Metadata::parse(&self.issuer, &body).map_err(OidcError::Unavailable)
    }

    async fn get(&self, what: &str, url: &Url, bytes_max: usize) -> Result<Bytes, OidcError> {
        let request = Request::builder().method(Method::GET).uri(url.as_str());
        let reply = self.fetcher.send(what, request, Bytes::new(), bytes_max).await?;
        if reply.status != StatusCode::OK {
            let why = format!("{what}: the reply has the status {}", reply.status.as_u16());
            return Err(OidcError::Unavailable(why));
        }
        Ok(reply.body)
    }
}

/// Makes the request of an exchange. The secret is in the head, or in the body where the provider
/// accepts no other place.
fn token_request(
    endpoint: &Url,
    secret_in_body: bool,
    exchange: &CodeExchange<'_>,
) -> (Builder, Bytes) {
    let mut request = Request::builder().method(Method::POST).uri(endpoint.as_str());
    request = request.header(CONTENT_TYPE, FORM);
    let mut form = Serializer::new(String::new());
    form.append_pair("grant_type", "authorization_code")
        .append_pair("code", exchange.code)
        .append_pair("redirect_uri", exchange.redirect_uri)
        .append_pair("code_verifier", exchange.verifier.text());
    match exchange.client_secret {
        Some(secret) if !secret_in_body => {
            let encode = |text: &str| utf8_percent_encode(text, CREDENTIALS).to_string();
            let pair = format!("{}:{}", encode(exchange.client_id), encode(secret));
            request = request.header(AUTHORIZATION, format!("Basic {}", STANDARD.encode(pair)));
        }
        secret => {
            form.append_pair("client_id", exchange.client_id);
            if let Some(secret) = secret {
                form.append_pair("client_secret", secret);
            }
        }
    }
    (request, Bytes::from(form.finish()))
}

/// Returns the ID token of a reply.
fn id_token(reply: &Fetched) -> Result<String, OidcError> {
    if reply.status.is_success() {
        let tokens: Option<Tokens> = serde_json::from_slice(&reply.body).ok();
        let token = tokens.and_then(|tokens| tokens.id_token);
        return token.ok_or_else(|| {
            OidcError::unavailable("the tokens: the reply has no ID token; is openid a scope?")
        });
    }
    // Codes of errors are words of a closed list. Descriptions are free text, and are left out.
    let is_word = |text: &String| {
        text.len() <= 64 && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
    };
    let error: Option<TokenError> = serde_json::from_slice(&reply.body).ok();
    match error.map(|it| it.error).filter(is_word) {
        Some(code) if reply.status.is_client_error() => Err(OidcError::Refused(code)),
        _ => {
            let status = reply.status.as_u16();
            Err(OidcError::unavailable(format!("the tokens: the reply has the status {status}")))
        }
    }
}

//! Tokens of identity providers: verification of signature and claims.
//!
//! Invariants:
//! * No claim is trusted before the signature has been verified.
//! * The algorithm is one of a closed list, and the key must be for it. Keys in the token's header
//!   are ignored.
//! * The header only chooses the key; it is not trusted either.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;

use super::reply::{StsCode, StsError};
use crate::auth::{Algorithm, IdentityProvider, KeySet, TokenKey};

/// Limit of a token in bytes.
const TOKEN_BYTES_MAX: usize = 20_000;
/// Maximum difference of the provider's and this store's clock, in seconds.
const LEEWAY_S: f64 = 60.0;

/// Required issuer, audience and time of a token.
#[derive(Clone, Copy, Debug)]
pub(super) struct TokenRequirements<'a> {
    pub(super) issuer: &'a str,
    pub(super) audiences: &'a [String],
    pub(super) now_ms: u64,
}

/// Claims of a verified token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    /// Subject of the token.
    pub subject: String,
    /// All audiences of the token; at least one is expected here.
    pub audiences: Vec<String>,
    /// All claims, with those above.
    pub all: serde_json::Map<String, serde_json::Value>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    /// Critical extensions. None is supported, so any is refused.
    crit: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct RawClaims {
    iss: String,
    sub: String,
    aud: OneOrMore,
    exp: f64,
    iat: f64,
    nbf: Option<f64>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

/// Key that a token names, not verified; `None` if the token is malformed or its algorithm is not
/// supported.
fn named_key(token: &str) -> Option<TokenKey> {
    let header = token.split('.').next().filter(|_| token.len() <= TOKEN_BYTES_MAX)?;
    let header: Header = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(header).ok()?).ok()?;
    Some(TokenKey { kid: header.kid, algorithm: Algorithm::of(&header.alg)? })
}

/// Verifies a token by the provider's keys, and returns its claims.
///
/// # Errors
/// As [`verify`], or keys that can't be read.
pub(super) async fn verify_by(
    provider: &IdentityProvider,
    token: &str,
    now_ms: u64,
) -> Result<Claims, StsError> {
    let expected =
        TokenRequirements { issuer: &provider.issuer, audiences: &provider.audiences, now_ms };
    let Some(wanted) = named_key(token) else {
        return verify(token, &KeySet::default(), expected);
    };
    let keys = provider.keys(&wanted, now_ms).await.map_err(|why| {
        tracing::error!(why, "could not read the keys of an identity provider");
        let message = "The keys of the identity provider can't be read: try again";
        StsError::new(StsCode::IdpCommunicationError, message)
    })?;
    verify(token, &keys, expected)
}

/// Issuer that a token claims, not verified.
pub(super) fn claimed_issuer(token: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Issuer {
        iss: String,
    }
    let payload = token.split('.').nth(1)?;
    let payload = URL_SAFE_NO_PAD.decode(payload).ok()?;
    serde_json::from_slice::<Issuer>(&payload).ok().map(|it| it.iss)
}

/// Verifies a token of the provider, and returns its claims.
///
/// # Errors
/// A malformed token, an unknown key or algorithm, a wrong signature, or claims that aren't valid
/// now.
pub(super) fn verify(
    token: &str,
    keys: &KeySet,
    expected: TokenRequirements<'_>,
) -> Result<Claims, StsError> {
    let invalid = |why: &str| StsError::new(StsCode::InvalidIdentityToken, why.to_owned());
    if token.len() > TOKEN_BYTES_MAX {
        return Err(invalid("The web identity token is too long"));
    }
    let no_token = || invalid("The web identity token is not a signed JWT");
    let (signed, mark) = token.rsplit_once('.').ok_or_else(no_token)?;
    let (header, payload) = signed.split_once('.').ok_or_else(no_token)?;
    let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).map_err(|_| no_token());
    let header: Header = serde_json::from_slice(&decode(header)?).map_err(|_| no_token())?;
    let (payload, mark) = (decode(payload)?, decode(mark)?);
    let algorithm = Algorithm::of(&header.alg).filter(|_| header.crit.is_none());
    let algorithm = algorithm
        .ok_or_else(|| invalid("The web identity token must be signed by RS256, ES256 or EdDSA"))?;
    let key = keys.find(header.kid.as_deref(), algorithm);
    let key = key.ok_or_else(|| invalid("The provider has no key that matches the token"))?;
    if !key.signed(signed.as_bytes(), &mark) {
        return Err(invalid("The signature of the web identity token is invalid"));
    }
    let lacks = |_| invalid("The web identity token lacks one of iss, sub, aud, exp and iat");
    let claims: RawClaims = serde_json::from_slice(&payload).map_err(lacks)?;
    let all = serde_json::from_slice(&payload).map_err(lacks)?;
    claims.check(expected, all)
}

impl RawClaims {
    fn check(
        self,
        expected: TokenRequirements<'_>,
        all: serde_json::Map<String, serde_json::Value>,
    ) -> Result<Claims, StsError> {
        let say = |code, why: &str| Err(StsError::new(code, why.to_owned()));
        #[expect(clippy::cast_precision_loss, reason = "seconds need no more than 52 bits")]
        let now = (expected.now_ms / 1000) as f64;
        if self.iss != expected.issuer {
            return say(StsCode::InvalidIdentityToken, "The token belongs to another issuer");
        }
        let audiences = match self.aud {
            OneOrMore::One(one) => vec![one],
            OneOrMore::More(more) => more,
        };
        if !audiences.iter().any(|it| expected.audiences.contains(it)) {
            return say(StsCode::InvalidIdentityToken, "Incorrect token audience");
        }
        if now >= self.exp + LEEWAY_S {
            return say(StsCode::ExpiredTokenException, "The web identity token has expired");
        }
        let begins = self.nbf.unwrap_or(self.iat).max(self.iat);
        if begins > now + LEEWAY_S {
            return say(StsCode::IdpRejectedClaim, "The web identity token is not valid yet");
        }
        if self.sub.is_empty() {
            return say(StsCode::IdpRejectedClaim, "The web identity token has no subject");
        }
        Ok(Claims { subject: self.sub, audiences, all })
    }
}

#[cfg(test)]
mod tests;

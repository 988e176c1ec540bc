//! Verifiers of authorization codes (RFC 7636), and the request that begins a login.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use martlet_protocol::id::random_bytes;
use sha2::{Digest, Sha256};

/// Secret that only the process that began a login has: 256 random bits.
#[derive(Clone, PartialEq, Eq)]
pub struct CodeVerifier(String);

impl fmt::Debug for CodeVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CodeVerifier(…)")
    }
}

impl CodeVerifier {
    /// Makes a random verifier of 43 characters.
    #[expect(clippy::new_without_default, reason = "each value is another one")]
    pub fn new() -> Self {
        Self(URL_SAFE_NO_PAD.encode(random_bytes::<32>()))
    }

    /// Returns the text that the token endpoint receives.
    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// Returns the challenge of the method S256, which the browser carries to the provider.
    pub(crate) fn challenge(&self) -> String {
        URL_SAFE_NO_PAD.encode(Sha256::digest(self.0.as_bytes()))
    }
}

/// Request that a browser carries to the provider.
#[derive(Clone, Copy, Debug)]
pub struct AuthorizationRequest<'a> {
    /// URL of the callback, as registered at the provider.
    pub redirect_uri: &'a str,
    /// Scopes, `openid` among them.
    pub scopes: &'a [String],
    /// Random text that the callback must repeat.
    pub state: &'a str,
    /// Random text that the ID token must repeat.
    pub nonce: &'a str,
    /// Secret of the login, of which the request has the challenge.
    pub verifier: &'a CodeVerifier,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_those_of_the_rfc() {
        let verifier = CodeVerifier("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".to_owned());
        assert_eq!(verifier.challenge(), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
        let (one, other) = (CodeVerifier::new(), CodeVerifier::new());
        assert_eq!(one.text().len(), 43);
        assert!(one != other && !format!("{one:?}").contains(one.text()));
    }
}

//! Metadata of a provider: the discovery document (OpenID Connect Discovery 1.0, section 3).

use serde::Deserialize;
use url::Url;

use crate::endpoint;

/// Path of the document below the issuer.
pub(crate) const DISCOVERY: &str = "/.well-known/openid-configuration";
/// Method of code challenges that this client uses (RFC 7636).
const S256: &str = "S256";

/// Members of the document that this client uses.
#[derive(Deserialize)]
struct Document {
    issuer: String,
    jwks_uri: String,
    authorization_endpoint: Option<String>,
    token_endpoint: Option<String>,
    code_challenge_methods_supported: Option<Vec<String>>,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
}

/// Checked metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Metadata {
    pub(crate) jwks: Url,
    /// Endpoints of logins; a provider of tokens for programs may have none.
    pub(crate) authorization: Option<Url>,
    pub(crate) token: Option<Url>,
    /// True if callbacks must name the issuer (RFC 9207).
    pub(crate) names_issuer: bool,
    /// True if the client's secret is sent in the body, because the provider doesn't accept it in a
    /// header.
    pub(crate) secret_in_body: bool,
}

impl Metadata {
    /// Reads the document of `issuer`.
    ///
    /// # Errors
    /// A sentence: the document is malformed, of another issuer, or names URLs that this client
    /// doesn't fetch.
    pub(crate) fn parse(issuer: &str, text: &[u8]) -> Result<Self, String> {
        let document: Document = serde_json::from_slice(text)
            .map_err(|_| "the metadata is no discovery document".to_owned())?;
        if document.issuer != issuer {
            return Err("the metadata names another issuer than oidc_issuer".to_owned());
        }
        let methods = document.code_challenge_methods_supported;
        if methods.is_some_and(|methods| !methods.iter().any(|method| method == S256)) {
            return Err("the provider doesn't support code challenges by S256".to_owned());
        }
        let url =
            |text: Option<&String>| text.map(|text| endpoint::parse_of(issuer, text)).transpose();
        let accepted = document.token_endpoint_auth_methods_supported;
        let accepts = |wanted: &str| {
            accepted.as_ref().is_some_and(|accepted| accepted.iter().any(|it| it == wanted))
        };
        Ok(Self {
            jwks: endpoint::parse_of(issuer, &document.jwks_uri)?,
            authorization: url(document.authorization_endpoint.as_ref())?,
            token: url(document.token_endpoint.as_ref())?,
            names_issuer: document.authorization_response_iss_parameter_supported,
            secret_in_body: accepts("client_secret_post") && !accepts("client_secret_basic"),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const ISSUER: &str = "https://idp.example/realm";

    fn with(name: &str, value: Value) -> Result<Metadata, String> {
        let mut document = json!({
            "issuer": ISSUER,
            "jwks_uri": "https://idp.example/keys",
            "authorization_endpoint": "https://idp.example/authorize",
            "token_endpoint": "https://idp.example/token",
        });
        document[name] = value;
        Metadata::parse(ISSUER, document.to_string().as_bytes())
    }

    #[test]
    fn a_document_is_of_its_issuer_and_names_safe_urls() {
        let metadata = with("x", json!(1)).unwrap();
        assert_eq!(metadata.jwks.as_str(), "https://idp.example/keys");
        assert!(!metadata.names_issuer && !metadata.secret_in_body);
        for (name, value) in [
            ("issuer", json!("https://idp.example/other")),
            ("issuer", json!("https://idp.example/realm/")),
            ("issuer", Value::Null),
            ("jwks_uri", json!("http://idp.example/keys")),
            ("jwks_uri", json!("file:///etc/passwd")),
            ("jwks_uri", Value::Null),
            ("token_endpoint", json!("http://127.0.0.1/token")),
            ("authorization_endpoint", json!("javascript:alert(1)")),
            ("code_challenge_methods_supported", json!(["plain"])),
        ] {
            assert!(with(name, value.clone()).is_err(), "{name} {value}");
        }
        assert!(Metadata::parse(ISSUER, b"[]").is_err());
    }

    #[test]
    fn options_of_a_provider_are_read() {
        assert!(with("code_challenge_methods_supported", json!(["plain", "S256"])).is_ok());
        let of = |methods: Value| with("token_endpoint_auth_methods_supported", methods).unwrap();
        assert!(of(json!(["client_secret_post"])).secret_in_body);
        assert!(!of(json!(["client_secret_post", "client_secret_basic"])).secret_in_body);
        let named = with("authorization_response_iss_parameter_supported", json!(true));
        assert!(named.unwrap().names_issuer);
        assert_eq!(with("token_endpoint", Value::Null).unwrap().token, None);
    }
}

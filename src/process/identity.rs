//! Identity provider of a process: the client that fetches its keys, and the logins of the console.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use martlet_console::{IdTokenError, IdTokens, OidcParts, RoleSource, TokenClaims};
use martlet_oidc::{OidcProvider, ProviderParts, check_issuer};
use martlet_protocol::SystemClock;
use martlet_s3compat::{IdentityProvider, JwksSource, S3Service};
use martlet_serving::{Failure, client_config};

use super::console::ConsoleSettings;
use super::s3_port::S3Settings;

/// Maximum bytes of the file with the console's secret.
const SECRET_BYTES_MAX: usize = 4096;
/// Lengths of the session of a login, in seconds: those of the token service.
const SESSION_S: std::ops::RangeInclusive<u64> = 900..=43_200;

/// Source of keys: the provider itself.
#[derive(Debug)]
struct ProviderSource(Arc<OidcProvider>);

impl JwksSource for ProviderSource {
    fn fetch(&self) -> BoxFuture<'static, Result<Bytes, String>> {
        let provider = self.0.clone();
        async move { provider.jwks().await.map_err(|error| error.to_string()) }.boxed()
    }
}

/// Verifier of tokens: the token service of the store.
pub(crate) struct StoreTokens(pub(crate) S3Service);

#[async_trait]
impl IdTokens for StoreTokens {
    async fn verify(&self, token: &str) -> Result<TokenClaims, IdTokenError> {
        match self.0.verify_token(token).await {
            Ok(claims) => Ok(claims.all),
            Err(refusal) if refusal.is_passing => Err(IdTokenError::Unavailable),
            Err(refusal) => Err(IdTokenError::Invalid(refusal.message)),
        }
    }
}

impl S3Settings {
    /// Refuses an identity provider of which only some settings are set.
    pub(super) fn check_provider(&self) -> Result<(), Failure> {
        let Some(issuer) = &self.oidc_issuer else {
            let files = [&self.oidc_jwks_file, &self.oidc_ca_file];
            if self.oidc_audiences.is_empty() && files.iter().all(|file| file.is_none()) {
                return Ok(());
            }
            return Err(Failure::usage(
                "oidc_audiences, oidc_jwks_file and oidc_ca_file need oidc_issuer",
            ));
        };
        if self.oidc_audiences.is_empty() {
            return Err(Failure::usage(
                "an identity provider needs oidc_audiences, one of which its tokens must name",
            ));
        }
        if self.oidc_jwks_file.is_some() {
            return Ok(());
        }
        check_issuer(issuer).map_err(|why| {
            Failure::usage(format!(
                "oidc_issuer: {why}. Set oidc_jwks_file for a provider whose keys can't be fetched"
            ))
        })
    }

    /// Returns the identity provider whose tokens begin sessions, if one is set. Its keys are those of
    /// the file, or else are fetched.
    pub(super) fn providers(&self) -> Result<Vec<IdentityProvider>, Failure> {
        let Some(issuer) = self.oidc_issuer.clone() else { return Ok(Vec::new()) };
        let audiences = self.oidc_audiences.clone();
        let provider = if let Some(file) = &self.oidc_jwks_file {
            IdentityProvider::new(issuer, audiences, file.clone())
        } else {
            let source = Arc::new(ProviderSource(self.oidc_client(issuer.clone())?));
            IdentityProvider::fetching(issuer, audiences, source)
        };
        Ok(vec![provider])
    }

    fn oidc_client(&self, issuer: String) -> Result<Arc<OidcProvider>, Failure> {
        let tls = client_config(self.oidc_ca_file.as_deref(), "oidc_ca_file")?;
        let clock = Arc::new(SystemClock);
        Ok(Arc::new(OidcProvider::new(ProviderParts { issuer, tls, clock })))
    }
}

impl ConsoleSettings {
    /// Refuses logins by an identity provider of which only some settings are set.
    pub(crate) fn check(&self, s3: &S3Settings) -> Result<(), Failure> {
        if let Some(url) = &self.console_url {
            check_url(url)?;
        }
        let Some(client_id) = &self.console_oidc_client_id else {
            return self.check_without_client();
        };
        let Some(issuer) = &s3.oidc_issuer else {
            return Err(Failure::usage("console_oidc_client_id needs oidc_issuer"));
        };
        check_issuer(issuer).map_err(|why| Failure::usage(format!("oidc_issuer: {why}")))?;
        if !s3.oidc_audiences.contains(client_id) {
            return Err(Failure::usage(
                "console_oidc_client_id must be one of oidc_audiences: ID tokens name the client as \
                 their audience",
            ));
        }
        if !self.console_oidc_scopes.iter().any(|scope| scope == "openid") {
            return Err(Failure::usage("console_oidc_scopes must have openid"));
        }
        let seconds = self.console_oidc_session.as_secs();
        if !SESSION_S.contains(&seconds) {
            return Err(Failure::usage("console_oidc_session must be 15m to 12h"));
        }
        if self.console_oidc_role_claim.is_some() && self.console_oidc_client_secret_file.is_none()
        {
            return Err(Failure::usage(
                "console_oidc_role_claim needs console_oidc_client_secret_file: people could fetch ID \
                 tokens of a public client themselves, and take on any role that trusts them",
            ));
        }
        self.role_source().map(drop)
    }

    fn check_without_client(&self) -> Result<(), Failure> {
        let alone = [
            self.console_oidc_client_secret_file.is_some(),
            self.console_oidc_role.is_some(),
            self.console_oidc_role_claim.is_some(),
        ];
        if alone.contains(&true) {
            return Err(Failure::usage("the settings console_oidc_… need console_oidc_client_id"));
        }
        Ok(())
    }

    /// Refuses logins whose redirect URL would be that of the header `host`, beyond the loopback
    /// interface: the sender of a request chooses the header.
    pub(super) fn check_redirect(&self, address: SocketAddr) -> Result<(), Failure> {
        let is_known = self.console_url.is_some() || address.ip().is_loopback();
        if self.console_oidc_client_id.is_none() || is_known {
            return Ok(());
        }
        Err(Failure::usage(
            "logins by an identity provider at a console beyond the loopback interface need \
             console_url: the provider sends browsers back to it",
        ))
    }

    fn role_source(&self) -> Result<RoleSource, Failure> {
        let source = match (&self.console_oidc_role, &self.console_oidc_role_claim) {
            (Some(arn), None) => RoleSource::Arn(arn.clone()),
            (None, Some(claim)) => RoleSource::Claim(claim.clone()),
            _ => {
                return Err(Failure::usage(
                    "logins by an identity provider need one of console_oidc_role and \
                     console_oidc_role_claim",
                ));
            }
        };
        if source.is_valid() {
            return Ok(source);
        }
        Err(Failure::usage(
            "console_oidc_role must be like arn:aws:iam::TENANT:role/ROLE, and a claim has a name",
        ))
    }

    /// Returns the parts of logins by an identity provider, if they are set.
    pub(super) fn oidc(&self, s3: &S3Settings) -> Result<Option<OidcParts>, Failure> {
        let Some((client_id, issuer)) =
            self.console_oidc_client_id.clone().zip(s3.oidc_issuer.clone())
        else {
            return Ok(None);
        };
        let secret = self.console_oidc_client_secret_file.as_deref().map(secret_of).transpose()?;
        let host = issuer.split('/').nth(2).unwrap_or(&issuer).to_owned();
        Ok(Some(OidcParts {
            provider: s3.oidc_client(issuer)?,
            client_id,
            client_secret: secret,
            scopes: self.console_oidc_scopes.clone(),
            role: self.role_source()?,
            session_s: self.console_oidc_session.as_secs(),
            base_url: self.console_url.clone(),
            label: self.console_oidc_label.clone().unwrap_or(host),
        }))
    }
}

/// Refuses a URL of the console that can't be a redirect's: it has no path, query or user.
fn check_url(url: &str) -> Result<(), Failure> {
    let authority = ["https://", "http://"].iter().find_map(|scheme| url.strip_prefix(scheme));
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte);
    let is_url = authority.is_some_and(|it| !it.is_empty() && it.bytes().all(is_plain));
    if is_url {
        return Ok(());
    }
    Err(Failure::usage("console_url must be like https://console.example.com, without a path"))
}

/// Reads the secret of the console at the provider. The text is never part of an error.
fn secret_of(path: &Path) -> Result<String, Failure> {
    let name = path.display();
    let text = fs::read_to_string(path).map_err(|error| {
        Failure::usage(format!("the console_oidc_client_secret_file {name} can't be read: {error}"))
    })?;
    let secret = text.trim();
    if secret.is_empty() || secret.len() > SECRET_BYTES_MAX || secret.chars().any(char::is_control)
    {
        return Err(Failure::usage(format!(
            "the console_oidc_client_secret_file {name} must have one line with the secret"
        )));
    }
    Ok(secret.to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn provider() -> S3Settings {
        S3Settings {
            oidc_issuer: Some("https://idp.example/realm".into()),
            oidc_audiences: vec!["app".into(), "console".into()],
            ..S3Settings::default()
        }
    }

    fn console() -> ConsoleSettings {
        ConsoleSettings {
            console_oidc_client_id: Some("console".into()),
            console_oidc_role: Some("arn:aws:iam::lab:role/reader".into()),
            ..ConsoleSettings::default()
        }
    }

    #[test]
    fn keys_come_from_a_file_or_from_the_provider() {
        let none = S3Settings::default();
        assert!(none.check_provider().is_ok() && none.providers().unwrap().is_empty());
        assert!(provider().check_provider().is_ok());
        let refusal = |settings: S3Settings| settings.check_provider().unwrap_err().to_string();
        let unnamed = S3Settings { oidc_issuer: None, ..provider() };
        assert!(refusal(unnamed).contains("need oidc_issuer"));
        let open = S3Settings { oidc_audiences: Vec::new(), ..provider() };
        assert!(refusal(open).contains("needs oidc_audiences"));
        let clear = S3Settings { oidc_issuer: Some("http://idp.example".into()), ..provider() };
        assert!(refusal(clear.clone()).contains("oidc_jwks_file"));
        let file = S3Settings { oidc_jwks_file: Some("keys.json".into()), ..clear };
        assert!(file.check_provider().is_ok());
        assert_eq!(file.providers().unwrap().len(), 1);
    }

    #[test]
    fn logins_need_a_client_of_the_provider_and_one_role() {
        let refusal =
            |console: ConsoleSettings, s3: &S3Settings| console.check(s3).unwrap_err().to_string();
        assert!(ConsoleSettings::default().check(&S3Settings::default()).is_ok());
        assert!(console().check(&provider()).is_ok());
        assert!(refusal(console(), &S3Settings::default()).contains("needs oidc_issuer"));
        let strange = ConsoleSettings { console_oidc_client_id: Some("x".into()), ..console() };
        assert!(refusal(strange, &provider()).contains("one of oidc_audiences"));
        let both = ConsoleSettings {
            console_oidc_role_claim: Some("role".into()),
            console_oidc_client_secret_file: Some("client.secret".into()),
            ..console()
        };
        assert!(refusal(both, &provider()).contains("one of console_oidc_role"));
        for role in [None, Some("reader"), Some("arn:aws:iam::lab:user/reader")] {
            let role = role.map(str::to_owned);
            let console = ConsoleSettings { console_oidc_role: role, ..console() };
            assert!(console.check(&provider()).is_err());
        }
        let claim = ConsoleSettings {
            console_oidc_role: None,
            console_oidc_role_claim: Some("role".into()),
            ..console()
        };
        assert!(refusal(claim.clone(), &provider()).contains("needs console_oidc_client_secret"));
        let secret = Some("client.secret".into());
        let claim = ConsoleSettings { console_oidc_client_secret_file: secret, ..claim };
        assert!(claim.check(&provider()).is_ok());
        let session = Duration::from_mins(14);
        let short = ConsoleSettings { console_oidc_session: session, ..console() };
        assert!(refusal(short, &provider()).contains("15m to 12h"));
        let scopes = vec!["email".to_owned()];
        let scopes = ConsoleSettings { console_oidc_scopes: scopes, ..console() };
        assert!(refusal(scopes, &provider()).contains("must have openid"));
        let alone = ConsoleSettings { console_oidc_client_id: None, ..console() };
        assert!(refusal(alone, &provider()).contains("need console_oidc_client_id"));
    }

    #[test]
    fn the_consoles_url_leads_to_the_console_alone() {
        let check = |url: &str| {
            let settings =
                ConsoleSettings { console_url: Some(url.to_owned()), ..ConsoleSettings::default() };
            settings.check(&S3Settings::default()).is_ok()
        };
        assert!(check("https://console.example.com") && check("http://[::1]:9003"));
        for url in ["console.example.com", "https://", "https://a/b", "https://a@b", "ftp://a", ""]
        {
            assert!(!check(url), "{url}");
        }
    }

    #[test]
    fn redirects_lead_to_a_known_address() {
        let wide = "10.0.0.7:9003".parse().unwrap();
        let local = "127.0.0.1:9003".parse().unwrap();
        assert!(console().check_redirect(local).is_ok());
        let refusal = console().check_redirect(wide).unwrap_err().to_string();
        assert!(refusal.contains("need console_url"), "{refusal}");
        let url = Some("https://console.example.com".to_owned());
        let known = ConsoleSettings { console_url: url, ..console() };
        assert!(known.check_redirect(wide).is_ok());
        assert!(ConsoleSettings::default().check_redirect(wide).is_ok());
    }

    #[test]
    fn the_secret_is_read_from_a_file_and_never_printed() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("secret");
        assert!(secret_of(&file).unwrap_err().to_string().contains("can't be read"));
        fs::write(&file, "  \n").unwrap();
        assert!(secret_of(&file).is_err());
        fs::write(&file, "s3cret\nmore").unwrap();
        assert!(!secret_of(&file).unwrap_err().to_string().contains("s3cret"));
        fs::write(&file, "s3cret\n").unwrap();
        assert_eq!(secret_of(&file).unwrap(), "s3cret");
    }
}

//! S3 port of a process: its settings, its TLS and the credentials that it accepts.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use martlet_protocol::Clock;
use martlet_proxy::{Accounts, ObjectStore, StoreOptions, Vault};
use martlet_s3compat::auth::{AuthConfig, Keys, SecretKey};
use martlet_s3compat::http::HttpConfig;
use martlet_s3compat::{S3Service, SessionKey, TokenKey};
use martlet_serving::listen::{self, HEAD_BYTES_MAX, Port};
use martlet_serving::settings::{CommonSettings, SecretText, flag, list, number_from, span};
use martlet_serving::{Certificate, Failure, Size};
use martlet_topology::Cluster;
use serde::Deserialize;

use super::master_keys::MasterKeySettings;

/// Environment variable for tests only: minimum size of an upload's parts, in bytes.
const TEST_PART_BYTES_MIN: &str = "MARTLET_TEST_PART_BYTES_MIN";

/// Settings of a role with an S3 port.
#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
pub(crate) struct S3Settings {
    /// Address of the S3 port.
    pub(crate) s3_address: SocketAddr,
    /// PEM file with the TLS certificate. Without one the S3 port serves plain HTTP.
    pub(crate) s3_tls_certificate: Option<PathBuf>,
    /// PEM file with the certificate's private key.
    pub(crate) s3_tls_key: Option<PathBuf>,
    /// Host names under which `bucket.name` names a bucket.
    #[serde(deserialize_with = "list")]
    pub(crate) domains: Vec<String>,
    /// Name of the storage policy of new buckets. Default: the policy of the lowest number.
    pub(crate) default_policy: Option<String>,
    /// Access key of the root identity.
    pub(crate) root_access_key: Option<String>,
    /// Secret key of the root identity.
    pub(crate) root_secret_key: Option<SecretText>,
    /// Master keys, 64 hexadecimal digits each, separated by commas. The first key seals the
    /// secrets of access keys; all of them open secrets.
    pub(crate) master_keys: Option<SecretText>,
    /// File with the master keys, one on each line.
    pub(crate) master_key_file: Option<PathBuf>,
    /// True if secrets stored in clear are sealed after the start. By then all processes with an S3
    /// port must have the master key.
    #[serde(deserialize_with = "flag")]
    pub(crate) seal_secrets: bool,
    /// Master keys of object encryption, in the form of `master_keys`. The first key wraps data
    /// keys; all of them unwrap data keys.
    pub(crate) sse_master_key: Option<SecretText>,
    /// File with the master keys of object encryption, one on each line.
    pub(crate) sse_master_key_file: Option<PathBuf>,
    /// True if signatures of version 2 are accepted.
    #[serde(deserialize_with = "flag")]
    pub(crate) allow_signature_v2: bool,
    /// Issuer of the identity provider whose tokens may start sessions of roles.
    pub(crate) oidc_issuer: Option<String>,
    /// Accepted audiences: a token must name one of them.
    #[serde(deserialize_with = "list")]
    pub(crate) oidc_audiences: Vec<String>,
    /// JWKS file with the provider's signing keys. It is read again when it changes. Without one the
    /// keys are fetched from the provider.
    pub(crate) oidc_jwks_file: Option<PathBuf>,
    /// PEM file with the authorities of the provider's certificate. Default: those of the system.
    pub(crate) oidc_ca_file: Option<PathBuf>,
    /// Maximum number of concurrent requests, including replies being sent. Further requests wait.
    pub(crate) max_requests: usize,
    /// Maximum number of concurrent unsigned requests. Default: an eighth of `max_requests`.
    pub(crate) max_anonymous_requests: Option<usize>,
    /// Maximum number of requests that wait for their turn. Further requests are answered 503.
    /// Default: four times `max_requests`.
    pub(crate) max_waiting_requests: Option<usize>,
    /// Maximum time for which a request waits for its turn.
    #[serde(deserialize_with = "span")]
    pub(crate) request_wait_timeout: Duration,
    /// Maximum bytes of documents (bodies that are read whole) that all requests together hold.
    pub(crate) document_buffer: Size,
    /// Timeout for receiving a document.
    #[serde(deserialize_with = "span")]
    pub(crate) document_timeout: Duration,
    /// Maximum bytes of bodies that all writes together buffer on their way to devices.
    pub(crate) write_buffer: Size,
    /// Maximum bytes of extents that concurrent readers share. 0 turns sharing off.
    pub(crate) window_cache: Size,
    /// File of the access log, with one line for each request.
    pub(crate) access_log: Option<PathBuf>,
    /// Interval at which gathered log lines become an object in the log bucket of a bucket's owner.
    #[serde(deserialize_with = "span")]
    pub(crate) bucket_log_interval: Duration,
}

/// Minimum length of the root secret key: shorter secrets can be guessed from a signature.
const ROOT_SECRET_BYTES_MIN: usize = 16;
/// Minimum write buffer: a smaller one can't hold an extent with many parity fragments.
const WRITE_BUFFER_BYTES_MIN: u64 = 64 << 20;
/// Minimum document buffer, for two documents of the maximum length.
const DOCUMENT_BUFFER_BYTES_MIN: u64 = 8 << 20;

/// Root credentials, and the secret that tokens are made with.
#[derive(Clone, Copy)]
pub(crate) struct S3Secrets<'a> {
    /// Access key of the root identity.
    pub(crate) access_key: &'a str,
    /// Secret key of the root identity.
    pub(crate) secret_key: &'a SecretText,
    /// Random bytes that session and continuation tokens are made with. All proxies of a cluster
    /// share them, and they survive restarts. Clients hold such tokens, so the bytes must not
    /// derive from anything that a client could guess.
    pub(crate) tokens: &'a [u8; 32],
}

impl Default for S3Settings {
    fn default() -> Self {
        Self {
            s3_address: SocketAddr::from(([127, 0, 0, 1], 9000)),
            s3_tls_certificate: None,
            s3_tls_key: None,
            domains: vec!["localhost".to_owned()],
            default_policy: None,
            root_access_key: None,
            root_secret_key: None,
            master_keys: None,
            master_key_file: None,
            seal_secrets: false,
            sse_master_key: None,
            sse_master_key_file: None,
            allow_signature_v2: false,
            oidc_issuer: None,
            oidc_audiences: Vec::new(),
            oidc_jwks_file: None,
            oidc_ca_file: None,
            max_requests: 1024,
            max_anonymous_requests: None,
            max_waiting_requests: None,
            request_wait_timeout: Duration::from_secs(20),
            document_buffer: Size(64 << 20),
            document_timeout: Duration::from_mins(1),
            write_buffer: Size(256 << 20),
            window_cache: Size(256 << 20),
            access_log: None,
            bucket_log_interval: Duration::from_mins(1),
        }
    }
}

impl S3Settings {
    /// Names of these settings.
    pub(crate) const NAMES: [&str; 27] = [
        "s3_address",
        "s3_tls_certificate",
        "s3_tls_key",
        "domains",
        "default_policy",
        "root_access_key",
        "root_secret_key",
        "master_keys",
        "master_key_file",
        "seal_secrets",
        "sse_master_key",
        "sse_master_key_file",
        "allow_signature_v2",
        "oidc_issuer",
        "oidc_audiences",
        "oidc_jwks_file",
        "oidc_ca_file",
        "max_requests",
        "max_anonymous_requests",
        "max_waiting_requests",
        "request_wait_timeout",
        "document_buffer",
        "document_timeout",
        "write_buffer",
        "window_cache",
        "access_log",
        "bucket_log_interval",
    ];

    /// Names of those that hold secrets. Command lines are public, so that secrets have no flags.
    pub(crate) const SECRETS: [&str; 3] = ["root_secret_key", "master_keys", "sse_master_key"];

    /// Refuses invalid values and combinations.
    pub(crate) fn check(&self, admin_address: SocketAddr) -> Result<(), Failure> {
        if self.root_access_key.is_some() != self.root_secret_key.is_some() {
            return Err(Failure::usage(
                "only one of MARTLET_ROOT_ACCESS_KEY and MARTLET_ROOT_SECRET_KEY is set: set both \
                 or neither",
            ));
        }
        let is_odd = |key: &String| key.len() < 3 || key.contains(['/', ',']);
        if self.root_access_key.as_ref().is_some_and(is_odd) {
            return Err(Failure::usage(
                "the root access key needs at least 3 characters, without '/' and ','",
            ));
        }
        let is_short = |secret: &SecretText| secret.0.len() < ROOT_SECRET_BYTES_MIN;
        if self.root_secret_key.as_ref().is_some_and(is_short) {
            return Err(Failure::usage(format!(
                "the root secret key needs at least {ROOT_SECRET_BYTES_MIN} characters, because \
                 signatures allow offline guessing: make one with openssl rand -base64 30"
            )));
        }
        if self.max_requests == 0 {
            return Err(Failure::usage("max_requests must be at least 1"));
        }
        if self.max_anonymous_requests == Some(0) {
            return Err(Failure::usage(
                "max_anonymous_requests must be at least 1: to refuse anonymous requests, use \
                 bucket policies",
            ));
        }
        if self.document_buffer.0 < DOCUMENT_BUFFER_BYTES_MIN {
            return Err(Failure::usage(
                "document_buffer must be at least 8MiB, the size of two documents",
            ));
        }
        if self.write_buffer.0 < WRITE_BUFFER_BYTES_MIN {
            return Err(Failure::usage(
                "write_buffer must be at least 64MiB, which coded writes need",
            ));
        }
        self.check_provider()?;
        if self.s3_address == admin_address && self.s3_address.port() != 0 {
            return Err(Failure::usage(format!(
                "s3_address and admin_address can't share {admin_address}: choose another port for \
                 one"
            )));
        }
        Ok(())
    }

    /// Binds the S3 port.
    pub(crate) async fn listen(&self) -> Result<Port, Failure> {
        let certificate = self.certificate()?;
        let listener = listen::bind(self.s3_address, "--s3-address").await?;
        Ok(Port { listener, certificate })
    }

    /// Prints the S3 endpoint on standard output, and returns the endpoint's URL.
    pub(crate) fn announce(&self, address: SocketAddr) -> String {
        let is_secure = self.s3_tls_certificate.is_some();
        let endpoint = format!("{}://{address}", if is_secure { "https" } else { "http" });
        println!("Martlet serves S3 at {endpoint}");
        if !is_secure && !address.ip().is_loopback() {
            tracing::warn!(
                %address,
                "unencrypted connections from other machines are possible: set s3_tls_certificate \
                 and s3_tls_key"
            );
        }
        endpoint
    }

    /// Returns the files of the TLS certificate and its key, if both are set.
    pub(crate) fn certificate_files(&self) -> Option<(&Path, &Path)> {
        self.s3_tls_certificate.as_deref().zip(self.s3_tls_key.as_deref())
    }

    /// Loads the TLS certificate, if one is set.
    fn certificate(&self) -> Result<Option<Certificate>, Failure> {
        match (&self.s3_tls_certificate, &self.s3_tls_key) {
            (None, None) => Ok(None),
            (Some(chain), Some(key)) => Certificate::load("s3_tls", chain, key).map(Some),
            _ => Err(Failure::usage(
                "TLS at the S3 address needs both s3_tls_certificate and s3_tls_key",
            )),
        }
    }

    /// Returns the cluster with the default policy of the settings.
    pub(crate) fn with_default_policy(&self, cluster: Cluster) -> Result<Cluster, Failure> {
        let Some(name) = &self.default_policy else { return Ok(cluster) };
        cluster
            .with_default_policy(name)
            .map_err(|error| Failure::usage(format!("invalid default_policy: {error}")))
    }

    /// Returns the options of the object layer.
    pub(crate) fn store_options(&self) -> Result<StoreOptions, Failure> {
        let buffer_bytes_max = usize::try_from(self.write_buffer.0).unwrap_or(usize::MAX);
        let window_bytes_max = usize::try_from(self.window_cache.0).unwrap_or(usize::MAX);
        let mut options =
            StoreOptions { buffer_bytes_max, window_bytes_max, ..StoreOptions::default() };
        if let Some(bytes) = number_from(TEST_PART_BYTES_MIN)? {
            options.part_bytes_min = bytes;
        }
        Ok(options)
    }

    /// Returns the master keys that seal the secrets of access keys, if any are set.
    pub(crate) fn vault(&self) -> Result<Option<Vault>, Failure> {
        let settings = MasterKeySettings {
            keys_name: "master_keys",
            keys: self.master_keys.as_ref(),
            file_name: "master_key_file",
            file: self.master_key_file.as_deref(),
        };
        settings.vault()
    }

    /// Returns the master keys of object encryption, if any are set.
    pub(crate) fn sse_vault(&self) -> Result<Option<Vault>, Failure> {
        let settings = MasterKeySettings {
            keys_name: "sse_master_key",
            keys: self.sse_master_key.as_ref(),
            file_name: "sse_master_key_file",
            file: self.sse_master_key_file.as_deref(),
        };
        settings.vault()
    }

    /// Makes the S3 service in front of `objects`. It accepts the root key, the access keys of
    /// tenants, and sessions. Fails if the keys of the identity provider can't be fetched safely.
    pub(crate) fn open(
        &self,
        objects: ObjectStore,
        clock: Arc<dyn Clock>,
        secrets: S3Secrets<'_>,
        accounts: Accounts,
        common: &CommonSettings,
    ) -> Result<S3Service, Failure> {
        let S3Secrets { access_key, secret_key: SecretText(secret), tokens } = secrets;
        let config = HttpConfig {
            auth: AuthConfig { allow_v2: self.allow_signature_v2, ..AuthConfig::default() },
            domains: self.domains.clone(),
            header_bytes_max: HEAD_BYTES_MAX,
            body_idle: common.body_idle_timeout,
            requests_max: self.max_requests,
            waiting_max: self.max_waiting_requests.unwrap_or(self.max_requests.saturating_mul(4)),
            wait_max: self.request_wait_timeout,
            anonymous_requests_max: self.max_anonymous_requests,
            document_bytes_max: usize::try_from(self.document_buffer.0).unwrap_or(usize::MAX),
            document_time: self.document_timeout,
            body_rate_min: common.min_body_rate.0,
            // Bucket policies decide about anonymous requests.
            allow_anonymous: true,
            ..HttpConfig::default()
        };
        let sessions = SessionKey::derive(tokens);
        let keys = Keys::root(access_key, SecretKey::new(secret))
            .with_accounts(accounts.clone())
            .with_sessions(accounts, sessions, self.providers()?);
        Ok(S3Service::new(objects, config, clock, keys, TokenKey::derive(tokens)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_s3_setting_has_a_name() {
        let printed = format!("{:#?}", S3Settings::default());
        let fields =
            printed.lines().filter(|line| line.starts_with("    ") && !line.starts_with("     "));
        let fields = fields.filter_map(|line| line.trim().split_once(':'));
        assert_eq!(fields.map(|(name, _)| name).collect::<Vec<_>>(), S3Settings::NAMES);
    }

    #[test]
    fn root_keys_that_authenticate_no_request_are_refused() {
        let admin = SocketAddr::from(([127, 0, 0, 1], 9001));
        let root = |access: Option<&str>, secret: Option<&str>| S3Settings {
            root_access_key: access.map(str::to_owned),
            root_secret_key: secret.map(|secret| SecretText(secret.to_owned())),
            ..S3Settings::default()
        };
        let refusal = |settings: S3Settings| settings.check(admin).unwrap_err().to_string();
        assert!(root(None, None).check(admin).is_ok());
        assert!(root(Some("abc"), Some("1234567890123456")).check(admin).is_ok());
        assert!(refusal(root(Some("abc"), None)).contains("or neither"));
        assert!(refusal(root(Some("a/c"), Some("12345678"))).contains("without '/' and ','"));
        assert!(refusal(root(Some("abc"), Some("123456789012345"))).contains("at least 16"));
        let tight = S3Settings { write_buffer: Size(1 << 20), ..S3Settings::default() };
        assert!(refusal(tight).contains("at least 64MiB"));
        assert!(
            refusal(S3Settings { s3_address: admin, ..root(None, None) }).contains("can't share")
        );
    }

    #[test]
    fn master_keys_come_from_a_setting_or_a_file() {
        let key = "0a".repeat(32);
        let vault = |keys: Option<&str>, file: Option<PathBuf>| {
            let master_keys = keys.map(|keys| SecretText(keys.to_owned()));
            S3Settings { master_keys, master_key_file: file, ..S3Settings::default() }.vault()
        };
        assert!(vault(None, None).unwrap().is_none());
        assert!(vault(Some(&format!("{key},{key}")), None).unwrap().unwrap().seals());
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("master.key");
        let refusal = vault(None, Some(file.clone())).unwrap_err().to_string();
        assert!(refusal.contains("can't be read"), "{refusal}");
        std::fs::write(&file, format!("{key}\n\n{key}\n")).unwrap();
        assert!(vault(None, Some(file.clone())).unwrap().unwrap().seals());
        assert!(
            vault(Some(&key), Some(file.clone())).unwrap_err().to_string().contains("not both")
        );
        for wrong in ["", "0a", "not a key"] {
            let refusal = vault(Some(wrong), None).unwrap_err().to_string();
            assert!(refusal.contains("openssl rand -hex 32"), "{refusal}");
        }
        std::fs::write(&file, "\n").unwrap();
        assert!(vault(None, Some(file)).is_err());
    }
}

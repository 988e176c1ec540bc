//! TLS certificate of a port: read from two files, and again when they change.
//!
//! Renewal replaces the files one after the other. New connections get the new certificate within
//! [`LOOK_EVERY`]; open connections keep theirs. An unusable certificate is logged once, and the
//! previous one stays in use.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use martlet_protocol::http::CertificateInUse;
use parking_lot::RwLock;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::sync::watch;
use tokio::time::sleep;

use super::stop::wait_for_stop;
use crate::failure::Failure;

/// Interval between two reads of the files.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// ALPN names.
pub(crate) const HTTP_2: &[u8] = b"h2";
const HTTP_1: &[u8] = b"http/1.1";

/// Certificate and key in use, and the files that they come from.
pub struct Certificate {
    /// Beginning of the names of the two settings.
    settings: &'static str,
    chain: PathBuf,
    key: PathBuf,
    shown: Arc<CurrentCertificate>,
    in_use: Arc<CertificateInUse>,
    seen: CertificateFiles,
    /// ALPN protocols, the preferred one first.
    protocols: &'static [&'static [u8]],
}

/// Contents of the two files.
#[derive(Clone, PartialEq, Eq)]
struct CertificateFiles {
    chain: Vec<u8>,
    key: Vec<u8>,
}

/// Certificate for new connections.
#[derive(Debug)]
struct CurrentCertificate(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for CurrentCertificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().clone())
    }
}

impl Certificate {
    /// Loads a certificate with its intermediate certificates, and its private key. Both are PEM
    /// files. Errors name the settings `settings` + `_certificate` and `settings` + `_key`.
    pub fn load(settings: &'static str, chain: &Path, key: &Path) -> Result<Self, Failure> {
        let seen = CertificateFiles::read(chain, key).map_err(Failure::refused)?;
        let certified = seen.certified(settings).map_err(Failure::refused)?;
        let in_use = CertificateInUse::new(settings, &certified.cert);
        let shown = Arc::new(CurrentCertificate(RwLock::new(Arc::new(certified))));
        let protocols = &[HTTP_2, HTTP_1];
        let (chain, key) = (chain.to_owned(), key.to_owned());
        Ok(Self { settings, chain, key, shown, in_use, seen, protocols })
    }

    /// Offers HTTP/1.1 alone.
    pub(crate) fn for_http1(self) -> Self {
        Self { protocols: &[HTTP_1], ..self }
    }

    /// TLS settings of a listening socket: TLS 1.2 and 1.3, since S3 clients use both.
    pub(crate) fn server_config(&self) -> Arc<ServerConfig> {
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider has suites for both versions");
        let mut config = builder.with_no_client_auth().with_cert_resolver(self.shown.clone());
        config.alpn_protocols = self.protocols.iter().map(|it| it.to_vec()).collect();
        Arc::new(config)
    }

    /// Checks the files every [`LOOK_EVERY`], until the stop signal.
    pub async fn keep_up(mut self, mut stop: watch::Receiver<bool>) {
        loop {
            tokio::select! {
                () = sleep(LOOK_EVERY) => self.reload(),
                () = wait_for_stop(&mut stop) => return,
            }
        }
    }

    /// Replaces the certificate if the files have changed.
    fn reload(&mut self) {
        let seen = match CertificateFiles::read(&self.chain, &self.key) {
            Ok(seen) => seen,
            // The file may be in the middle of its replacement.
            Err(error) => return tracing::debug!(%error, "could not reload the certificate"),
        };
        if seen == self.seen {
            return;
        }
        match seen.certified(self.settings) {
            Ok(certified) => {
                self.in_use.replace(&certified.cert);
                *self.shown.0.write() = Arc::new(certified);
                tracing::info!(file = %self.chain.display(), "using the new certificate for new \
                    connections");
            }
            Err(error) => tracing::warn!(%error, "keeping the old certificate"),
        }
        self.seen = seen;
    }
}

impl CertificateFiles {
    fn read(chain: &Path, key: &Path) -> Result<Self, String> {
        let read = |path: &Path| {
            std::fs::read(path)
                .map_err(|error| format!("{} can't be read: {error}", path.display()))
        };
        Ok(Self { chain: read(chain)?, key: read(key)? })
    }

    fn certified(&self, settings: &str) -> Result<CertifiedKey, String> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.chain).collect();
        let chain =
            chain.map_err(|error| format!("{settings}_certificate is not a PEM file: {error}"))?;
        if chain.is_empty() {
            return Err(format!("{settings}_certificate contains no certificate"));
        }
        let key = PrivateKeyDer::from_pem_slice(&self.key)
            .map_err(|error| format!("{settings}_key contains no readable key: {error}"))?;
        CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(|error| {
            format!("{settings}_certificate and {settings}_key can't be used together: {error}")
        })
    }
}

#[cfg(test)]
mod tests {
    use rcgen::generate_simple_self_signed;

    use super::*;

    /// Writes a new self-signed certificate for localhost, and its key.
    fn renew(folder: &Path) -> CertificateDer<'static> {
        let made = generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        std::fs::write(folder.join("cert.pem"), made.cert.pem()).unwrap();
        std::fs::write(folder.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
        made.cert.der().clone()
    }

    fn load(folder: &Path) -> Result<Certificate, Failure> {
        Certificate::load("s3_tls", &folder.join("cert.pem"), &folder.join("key.pem"))
    }

    fn shown(certificate: &Certificate) -> CertificateDer<'static> {
        certificate.shown.0.read().cert[0].clone()
    }

    #[test]
    fn a_renewed_certificate_is_shown_and_a_useless_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let first = renew(folder.path());
        let mut certificate = load(folder.path()).unwrap();
        assert_eq!(shown(&certificate), first);
        certificate.reload();
        assert_eq!(shown(&certificate), first);
        // The new certificate is in place, but its key is not yet.
        let old_key = std::fs::read(folder.path().join("key.pem")).unwrap();
        let second = renew(folder.path());
        let new_key = std::fs::read(folder.path().join("key.pem")).unwrap();
        std::fs::write(folder.path().join("key.pem"), old_key).unwrap();
        certificate.reload();
        assert_eq!(shown(&certificate), first);
        std::fs::write(folder.path().join("key.pem"), new_key).unwrap();
        certificate.reload();
        assert_eq!(shown(&certificate), second);
        std::fs::remove_file(folder.path().join("cert.pem")).unwrap();
        certificate.reload();
        assert_eq!(shown(&certificate), second);
    }

    #[test]
    fn an_invalid_certificate_is_refused_with_its_setting() {
        let folder = tempfile::tempdir().unwrap();
        let refusal = || load(folder.path()).err().unwrap().to_string();
        assert!(refusal().contains("cert.pem can't be read"), "{}", refusal());
        renew(folder.path());
        std::fs::write(folder.path().join("cert.pem"), "nothing").unwrap();
        assert!(refusal().contains("s3_tls_certificate"), "{}", refusal());
        renew(folder.path());
        std::fs::write(folder.path().join("key.pem"), "nothing").unwrap();
        assert!(refusal().contains("s3_tls_key"), "{}", refusal());
    }
}

//! Mutual TLS between members of the cluster (optional).
//!
//! Both sides trust one authority only, not the system's authorities. TLS 1.3 only, since both ends
//! run Martlet. A node's certificate must be for the host in its ring entry. Requests are signed
//! with the cluster key as well: the certificate identifies the machine, and the key proves
//! membership of this cluster.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

use super::certificates::CertificateInUse;
use crate::error::{Error, Result};

/// Beginning of the names of the settings.
const SETTINGS: &str = "tls";

/// Paths of certificate, key and authority, as PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificate of this process, followed by intermediate certificates.
    pub certificate: PathBuf,
    /// Private key of the certificate.
    pub key: PathBuf,
    /// Authority certificates that must have issued the peers' certificates.
    pub authority: PathBuf,
}

/// TLS configuration of client and server. Cheap to clone.
#[derive(Clone)]
pub struct Tls {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    _in_use: Arc<CertificateInUse>,
}

impl Tls {
    /// Loads the configuration from PEM files.
    pub fn load(files: &TlsFiles) -> Result<Self> {
        let key = read(&files.key)?;
        Self::new(&read(&files.certificate)?, &key, &read(&files.authority)?)
    }

    /// Builds the configuration from certificate, key and authority in PEM.
    pub fn new(certificate: &[u8], key: &[u8], authority: &[u8]) -> Result<Self> {
        let chain = certificates(certificate, "certificate")?;
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|error| Error::invalid("the TLS key can't be read").with_source(error))?;
        let mut roots = RootCertStore::empty();
        for root in certificates(authority, "authority")? {
            roots.add(root).map_err(unfit)?;
        }
        let roots = Arc::new(roots);
        let in_use = CertificateInUse::new(SETTINGS, &chain);
        let provider = Arc::new(ring::default_provider());
        let client = client_config(&provider, &roots, chain.clone(), key.clone_key());
        let server = server_config(&provider, &roots, chain, key);
        Ok(Self {
            client: Arc::new(client.map_err(unfit)?),
            server: Arc::new(server.map_err(unfit)?),
            _in_use: in_use,
        })
    }

    /// Connects by TLS, and verifies that the peer's certificate is for the host of `address`.
    pub(super) async fn connect(
        &self,
        address: &str,
        stream: TcpStream,
    ) -> std::io::Result<client::TlsStream<TcpStream>> {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host).map_err(std::io::Error::other)?;
        TlsConnector::from(self.client.clone()).connect(name, stream).await
    }

    /// Accepts TLS, and verifies that the peer's certificate is from the authority.
    pub(super) async fn accept(
        &self,
        stream: TcpStream,
    ) -> std::io::Result<server::TlsStream<TcpStream>> {
        TlsAcceptor::from(self.server.clone()).accept(stream).await
    }
}

fn client_config(
    provider: &Arc<CryptoProvider>,
    roots: &Arc<RootCertStore>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ClientConfig, rustls::Error> {
    ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])?
        .with_root_certificates(roots.clone())
        .with_client_auth_cert(chain, key)
}

fn server_config(
    provider: &Arc<CryptoProvider>,
    roots: &Arc<RootCertStore>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerConfig, rustls::Error> {
    let members = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
        .build()
        .map_err(|error| rustls::Error::General(error.to_string()))?;
    ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(members)
        .with_single_cert(chain, key)
}

fn certificates(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>> {
    let found = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let unreadable = || format!("the TLS {what} can't be read");
    match found {
        Ok(found) if found.is_empty() => Err(Error::invalid(unreadable())),
        Ok(found) => Ok(found),
        Err(error) => Err(Error::invalid(unreadable()).with_source(error)),
    }
}

fn unfit(error: rustls::Error) -> Error {
    Error::invalid("certificate, key and authority can't be used for TLS").with_source(error)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| {
        Error::invalid(format!("{} can't be read", path.display())).with_source(error)
    })
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls(…)")
    }
}

//! TLS between members of the cluster, each showing a certificate (optional).
//!
//! Both sides trust one authority and no other: neither the system's nor any that a client brings.
//! TLS 1.3 only, as both ends are of this make. A node's certificate must be for the host that its
//! ring entry names. The cluster key is asked for all the same: a certificate says which machine it
//! is, and the key that it belongs here.

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

use crate::error::{Error, Result};

/// Where certificate, key and authority are, as PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate of this process, and those between it and the authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The certificates that others must have theirs from.
    pub authority: PathBuf,
}

/// What both halves need for TLS. Cheap to clone.
#[derive(Clone)]
pub struct Tls {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Tls {
    /// Reads the files.
    pub fn load(files: &TlsFiles) -> Result<Self> {
        let key = read(&files.key)?;
        Self::new(&read(&files.certificate)?, &key, &read(&files.authority)?)
    }

    /// Takes certificate, key and authority as PEM.
    pub fn new(certificate: &[u8], key: &[u8], authority: &[u8]) -> Result<Self> {
        let chain = certificates(certificate, "certificate")?;
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|error| Error::invalid("the TLS key can't be read").with_source(error))?;
        let mut roots = RootCertStore::empty();
        for root in certificates(authority, "authority")? {
            roots.add(root).map_err(unfit)?;
        }
        let roots = Arc::new(roots);
        let provider = Arc::new(ring::default_provider());
        let client = client_config(&provider, &roots, chain.clone(), key.clone_key());
        let server = server_config(&provider, &roots, chain, key);
        Ok(Self {
            client: Arc::new(client.map_err(unfit)?),
            server: Arc::new(server.map_err(unfit)?),
        })
    }

    /// Makes sure that the other end is the node at `address`.
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

    /// Makes sure that the other end is a member.
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

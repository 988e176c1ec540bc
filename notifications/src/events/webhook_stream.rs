//! Connections to webhooks: in clear, or over TLS with a certificate for the host's name.

use std::error::Error as StdError;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use hyper::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use martlet_serving::Failure;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tower::Service;

/// Timeout for a connection, including the TLS handshake.
const PATIENCE: Duration = Duration::from_secs(5);

type BoxError = Box<dyn StdError + Send + Sync>;

/// Connector to one host.
#[derive(Clone)]
pub(super) struct Connector {
    tcp: HttpConnector,
    tls: Option<WebhookTls>,
}

#[derive(Clone)]
struct WebhookTls {
    connector: TlsConnector,
    name: ServerName<'static>,
}

/// Connection to a webhook.
pub(super) enum WebhookStream {
    Plain(TokioIo<TcpStream>),
    Tls(Box<TokioIo<TlsStream<TcpStream>>>),
}

impl Connector {
    /// Connects in clear.
    pub(super) fn plain() -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        Self { tcp, tls: None }
    }

    /// Connects to `host` over TLS. The certificate's authority must be in `ca_file`, or trusted by
    /// this system if `ca_file` is `None`.
    pub(super) fn tls(host: &str, ca_file: Option<&Path>) -> Result<Self, Failure> {
        let name = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(name).map_err(|_| {
            Failure::usage(format!("\"{host}\" is not a host name that certificates can name"))
        })?;
        let roots = match ca_file {
            Some(path) => roots_of(path)?,
            None => system_roots()?,
        };
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider has suites for both versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector = TlsConnector::from(Arc::new(config));
        Ok(Self { tls: Some(WebhookTls { connector, name }), ..Self::plain() })
    }
}

/// Loads the certificate authorities of a PEM file.
fn roots_of(path: &Path) -> Result<RootCertStore, Failure> {
    let unusable = |why: &dyn std::fmt::Display| {
        Failure::usage(format!("the ca_file {} can't be used: {why}", path.display()))
    };
    let text = std::fs::read(path).map_err(|error| unusable(&error))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|error| unusable(&error))?;
        roots.add(certificate).map_err(|error| unusable(&error))?;
    }
    if roots.is_empty() {
        return Err(unusable(&"it contains no certificate (PEM)"));
    }
    Ok(roots)
}

/// Loads the certificate authorities that this system trusts.
fn system_roots() -> Result<RootCertStore, Failure> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
        return Err(Failure::usage(format!(
            "this system has no CA certificates to verify a webhook with{why}: set ca_file"
        )));
    }
    Ok(roots)
}

impl Service<Uri> for Connector {
    type Response = WebhookStream;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<WebhookStream, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.tcp.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, address: Uri) -> Self::Future {
        let (tcp, tls) = (self.tcp.call(address), self.tls.clone());
        let connect = async move {
            let stream = tcp.await?;
            let Some(WebhookTls { connector, name }) = tls else {
                return Ok::<_, BoxError>(WebhookStream::Plain(stream));
            };
            let stream = connector.connect(name, stream.into_inner()).await?;
            Ok(WebhookStream::Tls(Box::new(TokioIo::new(stream))))
        };
        Box::pin(async move {
            let late = |_| format!("no connection within {PATIENCE:?}");
            tokio::time::timeout(PATIENCE, connect).await.map_err(late)?
        })
    }
}

impl Connection for WebhookStream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for WebhookStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl Write for WebhookStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

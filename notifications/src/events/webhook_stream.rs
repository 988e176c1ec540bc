//! Connections to webhooks: in clear, or over TLS with a certificate for the host's name.

use std::error::Error as StdError;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use hyper::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use martlet_serving::{Failure, client_config};
use rustls::pki_types::ServerName;
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
        let connector = TlsConnector::from(client_config(ca_file, "ca_file")?);
        Ok(Self { tls: Some(WebhookTls { connector, name }), ..Self::plain() })
    }
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

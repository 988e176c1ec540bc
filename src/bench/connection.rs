//! Keep-alive connection to the server: HTTP/1 or HTTP/2, plain or by TLS.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::{Request, Response, StatusCode, Uri, Version, header};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore, crypto};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::error::{BenchError, BenchResult};

/// Maximum bytes of one read. Large reads save system calls for large bodies.
const READ_BYTES_MAX: usize = 1 << 20;
/// Bytes of an error's body that are searched for its code.
const ERROR_BYTES_MAX: usize = 16 << 10;
/// Flow-control window of an HTTP/2 stream, so that replies do not wait for window updates.
const WINDOW_BYTES: u32 = 4 << 20;

/// Host and address of the server, and the protocols to use.
#[derive(Clone)]
pub(super) struct Endpoint {
    pub(super) host: String,
    address: SocketAddr,
    tls: Option<EndpointTls>,
    is_http2: bool,
}

/// TLS client settings, and the name that the server's certificate must have.
#[derive(Clone)]
struct EndpointTls {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl Endpoint {
    /// Resolves `http://host[:port]` or `https://host[:port]`. HTTP/2 needs TLS, since the server
    /// agrees on a protocol by ALPN.
    pub(super) fn resolve(url: &str, is_http2: bool) -> BenchResult<Self> {
        let uri: Uri =
            url.parse().map_err(|_| BenchError::new(format_args!("not a URL: {url}")))?;
        let is_tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(malformed()),
        };
        if !matches!(uri.path(), "" | "/") {
            return Err(malformed());
        }
        if is_http2 && !is_tls {
            return Err(BenchError::new("--http2 needs an https:// endpoint"));
        }
        let authority = uri.authority().expect("a URL with a scheme has a host");
        let port = authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let host = authority.host().trim_matches(['[', ']']);
        let address = (host, port)
            .to_socket_addrs()
            .map_err(|error| BenchError::new(format_args!("{url}: {error}")))?
            .next()
            .ok_or_else(|| BenchError::new(format_args!("{url} has no address")))?;
        let tls = if is_tls { Some(EndpointTls::new(host, is_http2)?) } else { None };
        Ok(Self { host: authority.to_string(), address, tls, is_http2 })
    }

    /// Connects, and agrees on TLS if the endpoint uses it.
    async fn connect(&self) -> Result<Sender, String> {
        let stream = TcpStream::connect(self.address).await.map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let Some(EndpointTls { connector, name }) = &self.tls else {
            return Sender::http1(stream).await.map_err(|error| error.to_string());
        };
        let stream =
            connector.connect(name.clone(), stream).await.map_err(|error| error.to_string())?;
        let sender =
            if self.is_http2 { Sender::http2(stream).await } else { Sender::http1(stream).await };
        sender.map_err(|error| error.to_string())
    }
}

fn malformed() -> BenchError {
    BenchError::new("the endpoint must have the form http://host:port or https://host:port")
}

impl EndpointTls {
    /// Trusts the authorities of the system, or those in the file that `SSL_CERT_FILE` names.
    fn new(host: &str, is_http2: bool) -> BenchResult<Self> {
        let found = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(found.certs);
        if roots.is_empty() {
            return Err(BenchError::new(
                "this system has no CA certificates: name a file with them by SSL_CERT_FILE",
            ));
        }
        let mut config =
            ClientConfig::builder_with_provider(crypto::ring::default_provider().into())
                .with_safe_default_protocol_versions()
                .expect("the provider supports the default versions")
                .with_root_certificates(roots)
                .with_no_client_auth();
        if is_http2 {
            config.alpn_protocols = vec![b"h2".to_vec()];
        }
        let name = ServerName::try_from(host.to_owned())
            .map_err(|error| BenchError::new(format_args!("{host}: {error}")))?;
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), name })
    }
}

/// Outcome of a request.
#[derive(Debug)]
pub(super) enum RequestOutcome {
    /// Reply of 2xx, with the number of bytes in its body.
    Answered(u64),
    /// Any other reply, with S3's error code, or the HTTP status if it has none.
    Refused(String),
    /// No complete reply; the connection is closed.
    Broken(String),
}

/// Sending half of a connection. A task owns the other half; the task ends when the sender is
/// dropped or the server closes the connection, and the request in flight gets the error.
enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl Sender {
    async fn http1<S>(stream: S) -> hyper::Result<Self>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(READ_BYTES_MAX)
            .handshake(TokioIo::new(stream))
            .await?;
        tokio::spawn(async move { drop(connection.await) });
        Ok(Self::Http1(sender))
    }

    async fn http2<S>(stream: S) -> hyper::Result<Self>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .handshake(TokioIo::new(stream))
            .await?;
        tokio::spawn(async move { drop(connection.await) });
        Ok(Self::Http2(sender))
    }

    /// Returns true if the connection can take a request.
    async fn is_usable(&mut self) -> bool {
        match self {
            Self::Http1(sender) => sender.ready().await.is_ok(),
            Self::Http2(sender) => sender.ready().await.is_ok(),
        }
    }

    async fn send(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<Response<Incoming>> {
        match self {
            Self::Http1(sender) => sender.send_request(request).await,
            Self::Http2(sender) => sender.send_request(as_http2(request)).await,
        }
    }
}

/// Moves the host of a request into its URI, from which HTTP/2 takes `:scheme` and `:authority`.
fn as_http2(mut request: Request<Full<Bytes>>) -> Request<Full<Bytes>> {
    let host = request.headers_mut().remove(header::HOST);
    let host = host.as_ref().and_then(|host| host.to_str().ok()).unwrap_or_default();
    let uri = format!("https://{host}{}", request.uri());
    *request.uri_mut() = uri.parse().expect("a host and a path make a URI");
    *request.version_mut() = Version::HTTP_2;
    request
}

/// Connection that is opened again after it breaks.
pub(super) struct Connection {
    endpoint: Endpoint,
    sender: Option<Sender>,
}

impl Connection {
    /// Makes a connection that is opened with its first request.
    pub(super) fn new(endpoint: &Endpoint) -> Self {
        Self { endpoint: endpoint.clone(), sender: None }
    }

    /// Opens the connection, so that the first request need not.
    pub(super) async fn open(&mut self) -> Result<(), String> {
        self.sender = Some(self.endpoint.connect().await?);
        Ok(())
    }

    /// Sends a request and reads its reply to the end.
    pub(super) async fn send(&mut self, request: Request<Full<Bytes>>) -> RequestOutcome {
        match self.exchange(request).await {
            Ok(reply) => reply,
            Err(error) => {
                self.sender = None;
                RequestOutcome::Broken(error)
            }
        }
    }

    async fn exchange(&mut self, request: Request<Full<Bytes>>) -> Result<RequestOutcome, String> {
        let usable = match &mut self.sender {
            Some(sender) => sender.is_usable().await,
            None => false,
        };
        if !usable {
            self.open().await?;
        }
        let sender = self.sender.as_mut().expect("the connection was opened above");
        let response = sender.send(request).await.map_err(|error| error.to_string())?;
        if response.status().is_success() {
            return count(response.into_body()).await.map(RequestOutcome::Answered);
        }
        refusal(response).await.map(RequestOutcome::Refused)
    }
}

/// Reads a body and counts its bytes.
async fn count(mut body: Incoming) -> Result<u64, String> {
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| error.to_string())?;
        bytes += frame.data_ref().map_or(0, Bytes::len) as u64;
    }
    Ok(bytes)
}

async fn refusal(response: Response<Incoming>) -> Result<String, String> {
    let status = response.status();
    let mut body = response.into_body();
    let mut text = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| error.to_string())?;
        if let Some(data) = frame.data_ref().filter(|_| text.len() < ERROR_BYTES_MAX) {
            text.extend_from_slice(data);
        }
    }
    Ok(code(status, &String::from_utf8_lossy(&text)))
}

/// Returns S3's code in an error's body, or the HTTP status.
fn code(status: StatusCode, body: &str) -> String {
    let named = body.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>"));
    named.map_or_else(|| status.as_u16().to_string(), |(code, _)| code.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints() {
        let endpoint = Endpoint::resolve("http://127.0.0.1:9000", false).unwrap();
        assert_eq!(endpoint.host, "127.0.0.1:9000");
        assert_eq!(endpoint.address, "127.0.0.1:9000".parse().unwrap());
        let endpoint = Endpoint::resolve("http://[::1]:81/", false).unwrap();
        assert_eq!(endpoint.address, "[::1]:81".parse().unwrap());
        for url in ["127.0.0.1:9000", "ftp://127.0.0.1", "http://127.0.0.1/base", "", "http://"] {
            assert!(Endpoint::resolve(url, false).is_err(), "{url}");
        }
        assert!(Endpoint::resolve("http://127.0.0.1:9000", true).is_err());
    }

    #[test]
    fn http2_takes_the_host_from_the_uri() {
        let request = Request::get("/bucket/key?x=1").header(header::HOST, "127.0.0.1:9000");
        let request = as_http2(request.body(Full::default()).unwrap());
        assert_eq!(*request.uri(), "https://127.0.0.1:9000/bucket/key?x=1");
        assert!(request.headers().is_empty());
    }

    #[test]
    fn an_error_is_named_by_its_code() {
        let body = "<Error><Code>SlowDown</Code><Message>Wait.</Message></Error>";
        assert_eq!(code(StatusCode::SERVICE_UNAVAILABLE, body), "SlowDown");
        assert_eq!(code(StatusCode::NOT_FOUND, ""), "404");
        assert_eq!(code(StatusCode::NOT_FOUND, "<Code>never ends"), "404");
    }
}

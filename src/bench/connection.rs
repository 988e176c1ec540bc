//! Keep-alive connection to the server.

use std::net::{SocketAddr, ToSocketAddrs};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::{BenchError, BenchResult};

/// Maximum bytes of one read. Large reads save system calls for large bodies.
const READ_BYTES_MAX: usize = 1 << 20;
/// Bytes of an error's body that are searched for its code.
const ERROR_BYTES_MAX: usize = 16 << 10;

/// Host and address of the server.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    pub(super) host: String,
    address: SocketAddr,
}

impl Endpoint {
    /// Resolves `http://host[:port]`.
    pub(super) fn resolve(url: &str) -> BenchResult<Self> {
        let uri: Uri =
            url.parse().map_err(|_| BenchError::new(format_args!("not a URL: {url}")))?;
        if uri.scheme_str() != Some("http") || !matches!(uri.path(), "" | "/") {
            return Err(BenchError::new("the endpoint must have the form http://host:port"));
        }
        let authority = uri.authority().expect("a URL with a scheme has a host");
        let port = authority.port_u16().unwrap_or(80);
        let address = (authority.host().trim_matches(['[', ']']), port)
            .to_socket_addrs()
            .map_err(|error| BenchError::new(format_args!("{url}: {error}")))?
            .next()
            .ok_or_else(|| BenchError::new(format_args!("{url} has no address")))?;
        Ok(Self { host: authority.to_string(), address })
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

/// Connection that is opened again after it breaks.
pub(super) struct Connection {
    endpoint: Endpoint,
    sender: Option<SendRequest<Full<Bytes>>>,
}

impl Connection {
    /// Makes a connection that is opened with its first request.
    pub(super) fn new(endpoint: &Endpoint) -> Self {
        Self { endpoint: endpoint.clone(), sender: None }
    }

    /// Opens the connection, so that the first request need not.
    pub(super) async fn open(&mut self) -> Result<(), String> {
        let stream =
            TcpStream::connect(self.endpoint.address).await.map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(READ_BYTES_MAX)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| error.to_string())?;
        // The task ends when the sender is dropped or the server closes. The request in flight gets
        // the error.
        tokio::spawn(async move { drop(connection.await) });
        self.sender = Some(sender);
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
            Some(sender) => sender.ready().await.is_ok(),
            None => false,
        };
        if !usable {
            self.open().await?;
        }
        let sender = self.sender.as_mut().expect("the connection was opened above");
        let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
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
        let endpoint = Endpoint::resolve("http://127.0.0.1:9000").unwrap();
        assert_eq!(endpoint.host, "127.0.0.1:9000");
        assert_eq!(endpoint.address, "127.0.0.1:9000".parse().unwrap());
        let endpoint = Endpoint::resolve("http://[::1]:81/").unwrap();
        assert_eq!(endpoint.address, "[::1]:81".parse().unwrap());
        for url in ["127.0.0.1:9000", "https://127.0.0.1", "http://127.0.0.1/base", "", "http://"] {
            assert!(Endpoint::resolve(url).is_err(), "{url}");
        }
    }

    #[test]
    fn an_error_is_named_by_its_code() {
        let body = "<Error><Code>SlowDown</Code><Message>Wait.</Message></Error>";
        assert_eq!(code(StatusCode::SERVICE_UNAVAILABLE, body), "SlowDown");
        assert_eq!(code(StatusCode::NOT_FOUND, ""), "404");
        assert_eq!(code(StatusCode::NOT_FOUND, "<Code>never ends"), "404");
    }
}

//! Client of the admin API: one request and its reply.

use std::fmt::{Display, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use martlet_admin_api::ErrorReply;
use martlet_protocol::{Clock, SystemClock};
use martlet_serving::access::{SigningKey, UnsignedRequest};
use martlet_serving::{AdminToken, Failure, client_config};
use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;

use super::address::AdminAddress;
use super::requester::Requester;

const PATIENCE: Duration = Duration::from_mins(1);
/// Longest reply of a process.
const REPLY_BYTES_MAX: usize = 256 << 20;
/// Age up to which the authorities of this system are not read again.
const AUTHORITIES_AGE_MAX: Duration = Duration::from_mins(1);
/// TLS settings with the authorities of this system, and the time at which these were read.
static SYSTEM_TLS: Mutex<Option<(Instant, Arc<ClientConfig>)>> = Mutex::new(None);

/// Admin API of a process.
#[derive(Clone)]
pub(crate) struct AdminEndpoint {
    address: AdminAddress,
    /// TLS, and the name that the certificate must have. `None` for requests in clear.
    tls: Option<AdminTls>,
    credential: AdminCredential,
    /// Means by which the requester can trust another authority.
    requester: Requester,
    patience: Duration,
    /// Time for the connection and its TLS handshake.
    connect_patience: Duration,
    reply_bytes_max: usize,
}

/// Failure of a request that a caller repeats.
pub(crate) enum PollFailure {
    /// The process refuses the credential, or the credential can't be sent: no repetition helps.
    Credential(Failure),
    /// Another request may succeed.
    Passing(Failure),
}

/// Means by which a client authenticates.
#[derive(Clone)]
pub(crate) enum AdminCredential {
    /// Token of the root secret or of a cluster's key.
    Token(AdminToken),
    /// Token of a session.
    Session(String),
    /// Admin key, which signs each request.
    Key(SigningKey),
}

#[derive(Clone)]
struct AdminTls {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl AdminEndpoint {
    /// Makes a client of the process at `address`. `authority` is a file with the authorities that
    /// may have signed its certificate; `None` means those that this system trusts.
    pub(crate) fn new(
        address: AdminAddress,
        authority: Option<&Path>,
        credential: AdminCredential,
    ) -> Result<Self, Failure> {
        Self::by(Requester::Command, address, authority, credential)
    }

    /// Makes a client for a process that reads another one, by the authorities that this system trusts.
    pub(crate) fn of_process(
        address: AdminAddress,
        credential: AdminCredential,
    ) -> Result<Self, Failure> {
        Self::by(Requester::Process, address, None, credential)
    }

    fn by(
        requester: Requester,
        address: AdminAddress,
        authority: Option<&Path>,
        credential: AdminCredential,
    ) -> Result<Self, Failure> {
        let is_secure = address.is_secure(authority.is_some());
        let tls = || AdminTls::new(address.host(), authority, requester);
        let tls = is_secure.then(tls).transpose()?;
        Ok(Self {
            address,
            tls,
            credential,
            requester,
            patience: PATIENCE,
            connect_patience: PATIENCE,
            reply_bytes_max: REPLY_BYTES_MAX,
        })
    }

    /// Returns this client with another timeout.
    pub(crate) fn patient(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Returns this client with another timeout of the connection and its TLS handshake.
    pub(crate) fn connecting_within(self, connect_patience: Duration) -> Self {
        Self { connect_patience, ..self }
    }

    /// Returns this client with another bound on the bytes of a reply.
    pub(crate) fn bounded(self, reply_bytes_max: usize) -> Self {
        Self { reply_bytes_max, ..self }
    }

    /// Returns the address.
    pub(crate) fn address(&self) -> &AdminAddress {
        &self.address
    }

    /// Sends a GET request and returns the bytes of the reply.
    pub(crate) fn request_bytes(&self, path: &str) -> Result<Bytes, Failure> {
        let (status, body) = self.reply_to(Method::GET, path, &[], Bytes::new())?;
        if status == StatusCode::OK { Ok(body) } else { self.decode(status, &body) }
    }

    /// Sends a GET request and decodes the reply.
    pub(crate) fn request_json<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<T, Failure> {
        self.send(Method::GET, path, query, Bytes::new())
    }

    /// Sends a PUT request with a query and decodes the reply.
    pub(crate) fn set<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<T, Failure> {
        self.send(Method::PUT, path, query, Bytes::new())
    }

    /// Sends a POST request with a JSON body and decodes the reply.
    pub(crate) fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Failure> {
        self.send(Method::POST, path, &[], json(body))
    }

    /// Sends a POST request with a JSON body. Returns none if the principal may not send it.
    pub(crate) fn post_if_permitted<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<Option<T>, Failure> {
        let (status, body) = self.reply_to(Method::POST, path, &[], json(body))?;
        if status == StatusCode::FORBIDDEN {
            return Ok(None);
        }
        self.decode(status, &body).map(Some)
    }

    /// Sends a POST request with a query and returns the bytes of the reply.
    pub(crate) fn post_for_bytes(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<Bytes, Failure> {
        let (status, body) = self.reply_to(Method::POST, path, query, Bytes::new())?;
        if status == StatusCode::OK { Ok(body) } else { self.decode(status, &body) }
    }

    /// Sends a PUT request with a JSON body and decodes the reply.
    pub(crate) fn put<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Failure> {
        self.send(Method::PUT, path, &[], json(body))
    }

    /// Sends a DELETE request and decodes the reply.
    pub(crate) fn delete<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<T, Failure> {
        self.send(Method::DELETE, path, query, Bytes::new())
    }

    fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: Bytes,
    ) -> Result<T, Failure> {
        let (status, body) = self.reply_to(method, path, query, body)?;
        self.decode(status, &body)
    }

    /// Sends a GET request that the caller repeats, and decodes the reply.
    pub(crate) fn poll<T: DeserializeOwned>(&self, path: &str) -> Result<T, PollFailure> {
        let (status, body) = self.poll_reply(path)?;
        self.decode(status, &body).map_err(|failure| PollFailure::of(status, failure))
    }

    /// Sends a GET request that the caller repeats, and returns the reply as text.
    pub(crate) fn poll_text(&self, path: &str) -> Result<String, PollFailure> {
        let (status, body) = self.poll_reply(path)?;
        if status == StatusCode::OK {
            return Ok(String::from_utf8_lossy(&body).into_owned());
        }
        let answered = Failure::refused(format!("{} answered {status}", self.address));
        Err(PollFailure::of(status, answered))
    }

    fn poll_reply(&self, path: &str) -> Result<(StatusCode, Bytes), PollFailure> {
        self.reply_to(Method::GET, path, &[], Bytes::new()).map_err(|failure| match failure {
            Failure::Usage(_) => PollFailure::Credential(failure),
            Failure::Refused(_) => PollFailure::Passing(failure),
        })
    }

    /// Decodes a reply, or returns the sentence of a refusal.
    fn decode<T: DeserializeOwned>(&self, status: StatusCode, body: &Bytes) -> Result<T, Failure> {
        if status == StatusCode::OK {
            return serde_json::from_slice(body).map_err(|error| {
                Failure::refused(format!(
                    "{} does not answer as a Martlet of this version: {error}",
                    self.address
                ))
            });
        }
        let is_token = matches!(self.credential, AdminCredential::Token(_));
        let sentence = match serde_json::from_slice(body) {
            Ok(ErrorReply { error }) if status != StatusCode::UNAUTHORIZED || !is_token => error,
            _ if status == StatusCode::UNAUTHORIZED => {
                "the secret is wrong, or the process refuses tokens of secrets: name the server's \
                 data folder with --data-dir, set MARTLET_ROOT_SECRET_KEY, name the key of its \
                 cluster with --cluster-key-file, or an admin key with --admin-key-file"
                    .to_owned()
            }
            _ => format!("{} answered {status}", self.address),
        };
        Err(Failure::refused(sentence))
    }

    /// Sends a request and returns status and body of the reply.
    fn reply_to(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(
            |error| Failure::refused(format!("the async runtime could not be started: {error}")),
        )?;
        runtime.block_on(async {
            let target = target(path, query);
            self.exchange_in_time(method, &target, body).await
        })
    }

    /// Sends a GET request, and returns status and body of the reply. `target` is a path with its query.
    /// A drop of the future closes the connection.
    ///
    /// # Errors
    /// No complete reply comes in time, or it exceeds the bound.
    pub(crate) async fn get(&self, target: &str) -> Result<(StatusCode, Bytes), Failure> {
        self.exchange_in_time(Method::GET, target, Bytes::new()).await
    }

    async fn exchange_in_time(
        &self,
        method: Method,
        target: &str,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), Failure> {
        let late = || Failure::refused(format!("{} does not answer in time", self.address));
        let exchange = self.exchange(method, target, body);
        timeout(self.patience, exchange).await.unwrap_or_else(|_| Err(late()))
    }

    async fn exchange(
        &self,
        method: Method,
        target: &str,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), Failure> {
        let host = self.address.to_string();
        let unsigned = UnsignedRequest { method: &method, target, host: &host, body: &body };
        let mut request = Request::builder().method(&method).uri(target);
        for (name, value) in self.credential.headers(unsigned) {
            request = request.header(name, value);
        }
        let request = request.header(header::HOST, &host).body(Full::new(body.clone()));
        let request = request.map_err(|_| {
            Failure::usage("the token of the session or the key can't be sent: check its text")
        })?;
        let deadline = Instant::now() + self.connect_patience;
        let late = |_| {
            let seconds = self.connect_patience.as_secs();
            Failure::refused(format!("{} opens no connection in {seconds} s", self.address))
        };
        let stream = TcpStream::connect((self.address.host(), self.address.port()));
        let stream = timeout_at(deadline, stream).await.map_err(late)?;
        let stream = stream.map_err(|error| self.broken(&error))?;
        stream.set_nodelay(true).map_err(|error| self.broken(&error))?;
        match self.tls.clone() {
            None => self.converse(stream, request).await,
            Some(AdminTls { connector, name }) => {
                let stream = connector.connect(name, stream);
                let stream = timeout_at(deadline, stream).await.map_err(late)?;
                self.converse(stream.map_err(|error| self.distrusted(&error))?, request).await
            }
        }
    }

    /// Sends a request on a connection, and receives the reply.
    async fn converse(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin,
        request: Request<Full<Bytes>>,
    ) -> Result<(StatusCode, Bytes), Failure> {
        let shaken = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = shaken.map_err(|error| self.broken(&error))?;
        let exchange = async {
            let response = sender.send_request(request).await;
            let response = response.map_err(|error| self.broken(&error))?;
            let status = response.status();
            let body = Limited::new(response.into_body(), self.reply_bytes_max).collect().await;
            let body = body.map_err(|error| match error.downcast_ref::<LengthLimitError>() {
                Some(_) => self.oversized(),
                None => self.broken(&error),
            })?;
            Ok((status, body.to_bytes()))
        };
        tokio::select! {
            answer = exchange => answer,
            Err(error) = connection => Err(self.broken(&error)),
        }
    }

    fn oversized(&self) -> Failure {
        let Self { address, reply_bytes_max, .. } = self;
        Failure::refused(format!(
            "the reply of {address} exceeds {reply_bytes_max} bytes: request less of it, or at its own \
             admin address"
        ))
    }

    fn broken(&self, error: &dyn Display) -> Failure {
        Failure::refused(format!(
            "no server answers at {}: {error}; check that it is running and that this is its admin \
             address",
            self.address
        ))
    }

    /// Failure of a TLS handshake, with its remedy.
    fn distrusted(&self, error: &std::io::Error) -> Failure {
        match self.requester.distrust(&self.address, error) {
            Some(sentence) => Failure::refused(sentence),
            None => self.broken(&format!("TLS failed: {error}")),
        }
    }
}

impl PollFailure {
    fn of(status: StatusCode, failure: Failure) -> Self {
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Self::Credential(failure),
            _ => Self::Passing(failure),
        }
    }
}

impl AdminCredential {
    /// Returns the headers that authenticate a request.
    fn headers(&self, request: UnsignedRequest<'_>) -> Vec<(String, String)> {
        let bearer = |token: &str| vec![("authorization".to_owned(), format!("Bearer {token}"))];
        match self {
            Self::Token(token) => bearer(&token.to_text()),
            Self::Session(token) => bearer(token),
            Self::Key(key) => key.sign(request, SystemClock.now_ms()),
        }
    }
}

impl AdminTls {
    fn new(host: &str, authority: Option<&Path>, requester: Requester) -> Result<Self, Failure> {
        let name = ServerName::try_from(host.to_owned()).map_err(|_| {
            Failure::usage(format!("\"{host}\" is not a host name that certificates can name"))
        })?;
        let config = match authority {
            Some(_) => client_config(authority, requester.authorities())?,
            None => system_config(requester)?,
        };
        Ok(Self { connector: TlsConnector::from(config), name })
    }
}

/// Returns TLS settings with the authorities of this system, which are read once a minute.
fn system_config(requester: Requester) -> Result<Arc<ClientConfig>, Failure> {
    let mut known = SYSTEM_TLS.lock();
    if let Some((_, config)) = known.as_ref().filter(|(at, _)| at.elapsed() < AUTHORITIES_AGE_MAX) {
        return Ok(config.clone());
    }
    let config = client_config(None, requester.authorities())?;
    *known = Some((Instant::now(), config.clone()));
    Ok(config)
}

fn json(body: &impl Serialize) -> Bytes {
    serde_json::to_vec(body).expect("plain data can be encoded").into()
}

fn target(path: &str, query: &[(&str, &str)]) -> String {
    let mut target = path.to_owned();
    for (at, (name, value)) in query.iter().enumerate() {
        target.push(if at == 0 { '?' } else { '&' });
        target.push_str(name);
        target.push('=');
        for byte in value.bytes() {
            if byte.is_ascii_alphanumeric() {
                target.push(char::from(byte));
            } else {
                let _ = write!(target, "%{byte:02X}");
            }
        }
    }
    target
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// Address that sends `reply` to the first request, and then neither closes nor sends anything.
    async fn answering(reply: String) -> AdminAddress {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string().parse().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            // A reply before its request is an error of its own.
            assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
            stream.write_all(reply.as_bytes()).await.unwrap();
            std::future::pending::<()>().await;
        });
        address
    }

    async fn error_of(endpoint: AdminEndpoint) -> String {
        let error = endpoint.get("/admin/v1/status").await.unwrap_err();
        error.to_string()
    }

    #[tokio::test]
    async fn a_reply_beyond_the_bound_is_named_as_such() {
        let body = "x".repeat(100);
        let address =
            answering(format!("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{body}")).await;
        let session = || AdminCredential::Session("mar1.x".to_owned());
        let endpoint = AdminEndpoint::new(address.clone(), None, session()).unwrap();
        let error = error_of(endpoint.bounded(99)).await;
        assert!(error.contains(&format!("the reply of {address} exceeds 99 bytes")), "{error}");
    }

    #[tokio::test]
    async fn a_handshake_without_an_end_is_given_up_before_the_reply_is() {
        let address = answering(String::new()).await;
        let secure = format!("https://{address}").parse().unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let roots = rustls::RootCertStore::empty();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let endpoint = AdminEndpoint {
            address: secure,
            tls: Some(AdminTls { connector: Arc::new(config).into(), name }),
            credential: AdminCredential::Session("mar1.x".to_owned()),
            requester: Requester::Command,
            patience: Duration::from_mins(1),
            connect_patience: Duration::from_secs(1),
            reply_bytes_max: 1,
        };
        let error = error_of(endpoint).await;
        assert_eq!(error, format!("{address} opens no connection in 1 s"));
    }

    #[tokio::test]
    async fn the_authorities_of_the_system_are_read_once() {
        // A machine without authorities has nothing to share.
        let config = || system_config(Requester::Command);
        let (Ok(one), Ok(other)) = (config(), config()) else {
            eprintln!("skipped: this machine has no authorities");
            return;
        };
        assert!(Arc::ptr_eq(&one, &other));
    }

    #[test]
    fn odd_keys_survive_the_query() {
        let target = target("/p", &[("bucket", "b"), ("key", "a b+c/ü&d")]);
        assert_eq!(target, "/p?bucket=b&key=a%20b%2Bc%2F%C3%BC%26d");
    }
}

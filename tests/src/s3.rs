//! A small S3 client, which signs requests and sends exactly what a test specifies.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, UNIX_EPOCH};

use ::bytes::Bytes;
use aws_sigv4::sign::v4::{calculate_signature, generate_signing_key};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::http::request::Builder;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::TokioIo;
use martlet_protocol::{Clock, SystemClock};
use sha2::{Digest, Sha256};
use time::OffsetDateTime;
use time::macros::format_description;
use tokio::net::{TcpSocket, TcpStream};

/// Root access key of servers that tests start.
pub const ACCESS_KEY: &str = "MARTLETTESTACCESSKEY";
/// Root secret key of these servers.
pub const SECRET_KEY: &str = "martlet-test-secret-key-with/slash+plus";

const REGION: &str = "us-east-1";
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";
const PAYLOAD: &str = "x-amz-content-sha256";

/// Reason for a missing reply: the server closed the connection, or accepts none.
pub type LostReply = String;

/// A reply with its whole body.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

impl Reply {
    /// A header as text; empty if absent.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns the texts between `<name>` and `</name>`, all occurrences.
    pub fn all(&self, name: &str) -> Vec<String> {
        let text = self.text();
        let (open, close) = (format!("<{name}>"), format!("</{name}>"));
        let inner = text.split(&open).skip(1).filter_map(|rest| rest.split(&close).next());
        inner.map(str::to_owned).collect()
    }
}

/// A client with one connection, which is opened again after a failure.
pub struct S3 {
    address: SocketAddr,
    access_key: String,
    secret_key: String,
    connection: Option<SendRequest<Full<Bytes>>>,
}

impl S3 {
    /// Makes a client with the root keys of servers that tests start.
    pub fn new(address: SocketAddr) -> Self {
        Self::with_keys(address, ACCESS_KEY, SECRET_KEY)
    }

    /// Makes a client with these keys.
    pub fn with_keys(address: SocketAddr, access_key: &str, secret_key: &str) -> Self {
        let (access_key, secret_key) = (access_key.to_owned(), secret_key.to_owned());
        Self { address, access_key, secret_key, connection: None }
    }

    /// Makes a bucket; panics if the server refuses it.
    pub async fn make_bucket(&mut self, bucket: &str) {
        let reply = self.send("PUT", &format!("/{bucket}"), Bytes::new()).await.unwrap();
        assert_eq!(reply.status, 200, "{}", reply.text());
    }

    /// Stores an object.
    pub async fn put(&mut self, target: &str, body: Bytes) -> Result<Reply, LostReply> {
        self.send("PUT", target, body).await
    }

    /// Reads an object.
    pub async fn get(&mut self, target: &str) -> Result<Reply, LostReply> {
        self.send("GET", target, Bytes::new()).await
    }

    /// Reads an object on the open connection; an error if no connection is open.
    pub async fn request_once(&mut self, target: &str) -> Result<Reply, LostReply> {
        let request = self.request("GET", target, Bytes::new());
        let connection = self.connection.as_mut().ok_or("there is no connection")?;
        connection.ready().await.map_err(lost)?;
        collect(connection.send_request(request).await.map_err(lost)?).await
    }

    /// Deletes an object.
    pub async fn delete(&mut self, target: &str) -> Result<Reply, LostReply> {
        self.send("DELETE", target, Bytes::new()).await
    }

    /// Lists the keys of a bucket, page by page.
    pub async fn keys(&mut self, bucket: &str) -> Vec<String> {
        let mut keys: Vec<String> = Vec::new();
        loop {
            let after = keys.last().map(|key| format!("&start-after={}", encoded(key)));
            let query = format!("list-type=2{}", after.unwrap_or_default());
            let reply = self.get(&format!("/{bucket}?{query}")).await.unwrap();
            assert_eq!(reply.status, 200, "{}", reply.text());
            keys.extend(reply.all("Key"));
            if reply.all("IsTruncated") != ["true"] {
                return keys;
            }
        }
    }

    /// Sends a signed request. Path and query of `target` must be in canonical form.
    pub async fn send(
        &mut self,
        method: &str,
        target: &str,
        body: Bytes,
    ) -> Result<Reply, LostReply> {
        self.send_with(method, target, &[], body).await
    }

    /// Sends a signed request with more headers, which are signed too. Header names must be lower
    /// case.
    pub async fn send_with(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<Reply, LostReply> {
        let request = self.request_with(method, target, headers, body);
        let outcome = self.exchange(request).await;
        if outcome.is_err() {
            self.connection = None;
        }
        outcome
    }

    /// Makes a request, signed by its headers.
    pub fn request(&self, method: &str, target: &str, body: Bytes) -> Request<Full<Bytes>> {
        self.request_with(method, target, &[], body)
    }

    /// Makes a request with more headers, signed by all of them. The payload is unsigned unless
    /// `x-amz-content-sha256` is among them.
    pub fn request_with(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Request<Full<Bytes>> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let (date, authorization) = self.sign(method, path, query, headers);
        let request = Request::builder()
            .method(method)
            .uri(target)
            .header("host", self.address.to_string())
            .header("content-length", body.len())
            .header("x-amz-date", date)
            .header("authorization", authorization);
        let request =
            if names_payload(headers) { request } else { request.header(PAYLOAD, UNSIGNED) };
        let add = |request: Builder, (name, value): &(&str, &str)| request.header(*name, *value);
        headers.iter().fold(request, add).body(Full::new(body)).unwrap()
    }

    /// Head of a request as sent on the wire, for tests that send it by hand.
    pub fn head(&self, method: &str, target: &str, length: usize) -> String {
        let request = self.request(method, target, Bytes::new());
        let mut head = format!("{method} {target} HTTP/1.1\r\ncontent-length: {length}\r\n");
        for (name, value) in request.headers().iter().filter(|(name, _)| *name != "content-length")
        {
            let _ = write!(head, "{name}: {}\r\n", value.to_str().unwrap());
        }
        head + "\r\n"
    }

    fn sign(
        &self,
        method: &str,
        path: &str,
        query: &str,
        headers: &[(&str, &str)],
    ) -> (String, String) {
        let now = UNIX_EPOCH + Duration::from_millis(SystemClock.now_ms());
        let date = OffsetDateTime::from(now)
            .format(format_description!("[year][month][day]T[hour][minute][second]Z"))
            .unwrap();
        let host = self.address.to_string();
        let own = [("host", &*host), ("x-amz-date", &date)];
        let mut signed = [&own[..], headers].concat();
        if !names_payload(headers) {
            signed.push((PAYLOAD, UNSIGNED));
        }
        let payload = signed.iter().find(|(name, _)| *name == PAYLOAD).map_or("", |it| it.1);
        signed.sort_unstable();
        let names = signed.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
        let lines = signed.iter().map(|(name, value)| [name, ":", value, "\n"].concat());
        let lines = lines.collect::<Vec<_>>().concat();
        let canonical = format!("{method}\n{path}\n{query}\n{lines}\n{names}\n{payload}");
        let scope = format!("{}/{REGION}/s3/aws4_request", &date[..8]);
        let hash = hex::encode(Sha256::digest(canonical));
        let key = generate_signing_key(&self.secret_key, now, REGION, "s3");
        let text = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{hash}");
        let signature = calculate_signature(key, text.as_bytes());
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential={}/{scope},SignedHeaders={names},Signature={signature}",
            self.access_key
        );
        (date, authorization)
    }

    async fn exchange(&mut self, request: Request<Full<Bytes>>) -> Result<Reply, LostReply> {
        let usable = match &mut self.connection {
            Some(connection) => connection.ready().await.is_ok(),
            None => false,
        };
        if !usable {
            self.connection = Some(connect(self.address).await?);
        }
        let connection = self.connection.as_mut().expect("it was opened");
        collect(connection.send_request(request).await.map_err(lost)?).await
    }
}

/// Sends an unsigned GET on a new connection.
pub async fn plain(address: SocketAddr, path: &str) -> Result<Reply, LostReply> {
    let request = Request::get(path).header("host", address.to_string());
    exchange(address, request.body(Full::default()).unwrap()).await
}

/// Sends a request unchanged on a new connection.
pub async fn exchange(
    address: SocketAddr,
    request: Request<Full<Bytes>>,
) -> Result<Reply, LostReply> {
    let mut connection = connect(address).await?;
    collect(connection.send_request(request).await.map_err(lost)?).await
}

/// Sends a request unchanged on a new connection from the IPv4 address `local`.
pub async fn exchange_from(
    local: Ipv4Addr,
    address: SocketAddr,
    request: Request<Full<Bytes>>,
) -> Result<Reply, LostReply> {
    let socket = TcpSocket::new_v4().map_err(lost)?;
    socket.bind((local, 0).into()).map_err(lost)?;
    let mut connection = handshake(socket.connect(address).await.map_err(lost)?).await?;
    collect(connection.send_request(request).await.map_err(lost)?).await
}

/// Percent-encodes a text as in a canonical query.
pub fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                encoded.push(char::from(byte));
            }
            _ => write!(encoded, "%{byte:02X}").unwrap(),
        }
    }
    encoded
}

fn names_payload(headers: &[(&str, &str)]) -> bool {
    headers.iter().any(|(name, _)| *name == PAYLOAD)
}

async fn connect(address: SocketAddr) -> Result<SendRequest<Full<Bytes>>, LostReply> {
    handshake(TcpStream::connect(address).await.map_err(lost)?).await
}

async fn handshake(stream: TcpStream) -> Result<SendRequest<Full<Bytes>>, LostReply> {
    stream.set_nodelay(true).map_err(lost)?;
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(lost)?;
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}

async fn collect(response: Response<Incoming>) -> Result<Reply, LostReply> {
    let (head, body) = response.into_parts();
    let body = body.collect().await.map_err(lost)?.to_bytes();
    Ok(Reply { status: head.status.as_u16(), headers: head.headers, body })
}

fn lost(error: impl std::fmt::Display) -> LostReply {
    error.to_string()
}

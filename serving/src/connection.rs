//! One client connection until its end: HTTP/1.1 in clear, or HTTP/1.1 or HTTP/2 over TLS.
//!
//! Services get uniform requests: an HTTP/2 request is given a `Host` header and a relative URI.

use std::convert::Infallible;
use std::error::Error as StdError;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::header::{HOST, HeaderValue};
use hyper::server::conn::{http1, http2};
use hyper::service::{Service, service_fn};
use hyper::{Request, Response, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use martlet_protocol::http::{AuthenticatedFlag, Peer, TlsParameters, TlsVersion, WriteTimeout};
use rustls::{CipherSuite, ProtocolVersion, ServerConnection};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::certificate::HTTP_2;
use super::connection_limiter::{ConnectionPermit, RequestGuard};
use super::limits::Limits;
use super::small_reads::SmallReads;
use super::stop::wait_for_stop;
use super::streams::{CloseReason, Streams, TrackedBody};

/// Minimum limit of the read buffer, which bounds the chunks of request bodies. A limit on heads
/// that exceeds it raises it.
const READ_BUFFER_BYTES_MIN: usize = 128 * 1024;
const HEADERS_MAX: usize = 128;
/// First byte of a TLS handshake.
const TLS_HANDSHAKE: u8 = 22;
/// Reply to a client in clear at a port with TLS.
const NEEDS_TLS: &[u8] = b"HTTP/1.1 400 Bad Request\r\n\
    content-type: application/json\r\ncontent-length: 76\r\nconnection: close\r\n\r\n\
    {\"error\":\"this port has TLS: write https:// instead of http:// in its URL\"}\n";
/// Timeout for that reply, and the bytes that are read from the client after it.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);
const UNREAD_BYTES_MAX: u64 = 64 * 1024;
/// Heads up to this multiple of the limit are read, so that an error reply can refuse them.
const HEADS: usize = 4;
/// Maximum number of concurrent streams on an HTTP/2 connection.
const STREAMS_MAX: u32 = 64;
/// Flow-control window of one HTTP/2 stream, and of a whole connection.
const WINDOW_BYTES: u32 = 1024 * 1024;
/// Maximum bytes of one reply that wait to be sent.
const SEND_BUFFER_BYTES: usize = 256 * 1024;

/// Service of a connection, with its limits and its stop signal.
pub(super) struct ConnectionService<S> {
    pub(super) service: S,
    pub(super) limits: Limits,
    pub(super) stop: watch::Receiver<bool>,
    pub(super) place: Arc<ConnectionPermit>,
}

/// Response body that keeps its request counted as under way until the body is sent or dropped.
struct InFlightBody<B> {
    body: B,
    _request: RequestGuard,
}

impl<B: Body<Data = Bytes> + Unpin> Body for InFlightBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Facts about a connection that are attached to each request.
#[derive(Clone)]
struct ConnectionFacts {
    peer: Option<IpAddr>,
    tls: Option<TlsParameters>,
    proven: AuthenticatedFlag,
}

impl ConnectionFacts {
    fn attach(&self, request: &mut Request<Incoming>) {
        // Bucket policies may test a request's address and TLS.
        if let Some(peer) = self.peer {
            request.extensions_mut().insert(Peer(peer));
        }
        if let Some(tls) = self.tls {
            request.extensions_mut().insert(tls);
        }
        request.extensions_mut().insert(self.proven.clone());
    }
}

/// Returns true if the first byte of a client at a port with TLS begins no TLS record.
async fn speaks_in_clear(stream: &TcpStream, patience: Duration) -> bool {
    let mut first = [0];
    match timeout(patience, stream.peek(&mut first)).await {
        Ok(Ok(1)) => first[0] != TLS_HANDSHAKE,
        // A silent or broken connection fails in the handshake.
        _ => false,
    }
}

/// Answers a client in clear with the scheme that the port needs, and closes the connection.
async fn refuse_clear(mut stream: TcpStream) {
    let farewell = async {
        stream.write_all(NEEDS_TLS).await?;
        stream.shutdown().await?;
        // A close with unread bytes would reset the connection before the client reads the reply.
        tokio::io::copy(&mut stream.take(UNREAD_BYTES_MAX), &mut tokio::io::sink()).await
    };
    let _ = timeout(REFUSAL_TIMEOUT, farewell).await;
}

/// Serves a connection until it ends.
pub(super) async fn serve_connection<S, B>(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    served: ConnectionService<S>,
) where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    S: Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection failed before its first byte");
        return;
    }
    let peer = stream.peer_addr().map(|address| address.ip()).ok();
    if tls.is_some() && speaks_in_clear(&stream, served.limits.header_timeout).await {
        tracing::debug!("refusing a connection in clear at a port with TLS");
        return refuse_clear(stream).await;
    }
    let patient = WriteTimeout::new(stream, served.limits.write_idle);
    let origin = ConnectionFacts { peer, tls: None, proven: served.place.proven().clone() };
    let outcome = match tls {
        None => serve_http1(patient, origin, served).await,
        Some(tls) => {
            let handshake = tls.accept(patient);
            let stream = match timeout(served.limits.header_timeout, handshake).await {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => return tracing::debug!(%error, "TLS handshake failed"),
                Err(_) => return tracing::debug!("TLS handshake timed out"),
            };
            let (_, session) = stream.get_ref();
            let origin = ConnectionFacts { tls: Some(agreed(session)), ..origin };
            if session.alpn_protocol() == Some(HTTP_2) {
                serve_http2(stream, origin, served).await
            } else {
                serve_http1(stream, origin, served).await
            }
        }
    };
    if let Err(error) = outcome {
        tracing::debug!(%error, "a connection ended early");
    }
}

/// Returns the TLS version and cipher suite of a session.
fn agreed(session: &ServerConnection) -> TlsParameters {
    let is_1_3 = session.protocol_version() == Some(ProtocolVersion::TLSv1_3);
    TlsParameters {
        version: if is_1_3 { TlsVersion::V1_3 } else { TlsVersion::V1_2 },
        cipher: session.negotiated_cipher_suite().and_then(|suite| name_of(suite.suite())),
    }
}

/// Returns OpenSSL's name of a cipher suite, which S3 uses too.
fn name_of(suite: CipherSuite) -> Option<&'static str> {
    use CipherSuite as Suite;
    Some(match suite {
        Suite::TLS13_AES_256_GCM_SHA384 => "TLS_AES_256_GCM_SHA384",
        Suite::TLS13_AES_128_GCM_SHA256 => "TLS_AES_128_GCM_SHA256",
        Suite::TLS13_CHACHA20_POLY1305_SHA256 => "TLS_CHACHA20_POLY1305_SHA256",
        Suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384 => "ECDHE-ECDSA-AES256-GCM-SHA384",
        Suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 => "ECDHE-ECDSA-AES128-GCM-SHA256",
        Suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256 => "ECDHE-ECDSA-CHACHA20-POLY1305",
        Suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 => "ECDHE-RSA-AES256-GCM-SHA384",
        Suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => "ECDHE-RSA-AES128-GCM-SHA256",
        Suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => "ECDHE-RSA-CHACHA20-POLY1305",
        _ => return None,
    })
}

async fn serve_http1<S, B>(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    origin: ConnectionFacts,
    served: ConnectionService<S>,
) -> hyper::Result<()>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    B: Body<Data = Bytes> + Unpin + 'static,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    let ConnectionService { service, limits, mut stop, place } = served;
    let proven = origin.proven.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        let under_way = place.begin();
        origin.attach(&mut request);
        let answer = service.call(request);
        async move {
            Ok::<_, Infallible>(
                answer.await?.map(|body| InFlightBody { body, _request: under_way }),
            )
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .max_headers(HEADERS_MAX)
        .max_header_size(HEADS * limits.head_bytes)
        .max_buf_size((HEADS * limits.head_bytes).max(READ_BUFFER_BYTES_MIN))
        // A client may close its sending side after its request, and still read the reply.
        .half_close(true)
        .serve_connection(TokioIo::new(SmallReads::new(stream, proven)), service);
    let mut connection = pin!(connection);
    tokio::select! {
        outcome = connection.as_mut() => outcome,
        () = wait_for_stop(&mut stop) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    }
}

async fn serve_http2<S, B>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    origin: ConnectionFacts,
    served: ConnectionService<S>,
) -> hyper::Result<()>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    S: Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    let ConnectionService { service, limits, mut stop, place } = served;
    let proven = origin.proven.clone();
    let streams = Streams::new();
    let begun = streams.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        let (stream, under_way) = (begun.begin(), place.begin());
        origin.attach(&mut request);
        as_http1(&mut request);
        let answer = service.call(request);
        async move {
            let reply = answer.await?;
            let reply = reply.map(|body| TrackedBody { body, stream });
            Ok::<_, Infallible>(reply.map(|body| InFlightBody { body, _request: under_way }))
        }
    });
    let head_bytes = u32::try_from(limits.head_bytes).unwrap_or(u32::MAX);
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(limits.header_timeout)
        .max_concurrent_streams(STREAMS_MAX)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .max_header_list_size(head_bytes)
        .serve_connection(TokioIo::new(SmallReads::new(stream, proven)), service);
    let mut connection = pin!(connection);
    tokio::select! {
        outcome = connection.as_mut() => return outcome,
        spent = streams.wait_until_idle_or_stalled(limits.header_timeout, limits.write_idle) => {
            tracing::debug!(?spent, "closing a connection");
            if spent == CloseReason::Stalled {
                return Ok(());
            }
        }
        () = wait_for_stop(&mut stop) => {}
    }
    // Requests already received are answered, as long as the client reads.
    connection.as_mut().graceful_shutdown();
    tokio::select! {
        outcome = connection.as_mut() => outcome,
        _ = streams.wait_until_idle_or_stalled(limits.header_timeout, limits.write_idle) => Ok(()),
    }
}

/// Gives an HTTP/2 request the form of HTTP/1.1: a `Host` header, and a URI of path and query.
fn as_http1<B>(request: &mut Request<B>) {
    let uri = request.uri().clone();
    if let Some(authority) = uri.authority()
        && !request.headers().contains_key(HOST)
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        request.headers_mut().insert(HOST, host);
    }
    if let Some(path) = uri.path_and_query() {
        *request.uri_mut() = Uri::from(path.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_http2_look_like_those_of_http1() {
        let request = Request::get("https://bucket.localhost:9000/a%20b?versions=&x=%2F");
        let mut request = request.body(()).unwrap();
        as_http1(&mut request);
        assert_eq!(request.uri(), "/a%20b?versions=&x=%2F");
        assert_eq!(request.headers()[HOST], "bucket.localhost:9000");
        let mut with_host = Request::get("/b").header(HOST, "said").body(()).unwrap();
        as_http1(&mut with_host);
        assert_eq!(
            (with_host.uri().path(), &with_host.headers()[HOST]),
            ("/b", &HeaderValue::from_static("said"))
        );
    }
}

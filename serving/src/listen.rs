//! Connections of a port: accepting, refusing beyond the limits, and draining.
//!
//! ```text
//! accept ─┬─ a place is free, or made free ─▶ one task: requests until client or server closes
//!         └─ all are busy ────────────────▶ 503 and closed
//! stop ───▶ no new connections; each one ends after its current request, or at the deadline
//! ```

use std::convert::Infallible;
use std::error::Error as StdError;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body::Body;
use hyper::body::Incoming;
use hyper::service::Service;
use hyper::{Request, Response};
use rustls::ServerConfig;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_rustls::TlsAcceptor;

use super::certificate::Certificate;
use super::connection::{ConnectionService, serve_connection};
use super::connection_limiter::ConnectionLimiter;
pub use super::connection_limiter::{ConnectionLimits, ConnectionPermit, RequestGuard};
pub use super::limits::{HEAD_BYTES_MAX, Limits};
use super::stop::wait_for_stop;
use crate::failure::Failure;

/// Timeout for sending a refusal.
const FAREWELL: Duration = Duration::from_secs(1);
const TOO_MANY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\n\
    retry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
/// Pause after an error of `accept`, which is most likely a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Binds an address. The error names the flag for another address.
pub async fn bind(address: SocketAddr, flag: &str) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).await.map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => Failure::refused(format!(
            "the address {address} is in use: stop the process that listens there, or choose \
             another with {flag}"
        )),
        _ => Failure::refused(format!("can't listen on {address}: {error}")),
    })
}

/// Returns the address that a socket listens on.
pub fn address_of(listener: &TcpListener) -> Result<SocketAddr, Failure> {
    listener.local_addr().map_err(|error| {
        Failure::refused(format!("the address of a socket can't be read: {error}"))
    })
}

/// Listening socket, and its TLS certificate. Without one connections are in clear.
pub struct Port {
    /// Bound socket.
    pub listener: TcpListener,
    /// Certificate for TLS. `None` serves plain HTTP.
    pub certificate: Option<Certificate>,
}

impl From<TcpListener> for Port {
    fn from(listener: TcpListener) -> Self {
        Self { listener, certificate: None }
    }
}

impl Port {
    /// Offers HTTP/1.1 alone to TLS clients.
    #[must_use]
    pub fn for_http1(self) -> Self {
        Self { certificate: self.certificate.map(Certificate::for_http1), ..self }
    }
}

/// Connection that holds a place at a port.
pub struct AcceptedConnection {
    /// Socket of the client.
    pub stream: TcpStream,
    /// Address of the client.
    pub client: SocketAddr,
    /// Takes the client's TLS handshake; none on ports in clear.
    pub tls: Option<TlsAcceptor>,
    /// Limits of the port.
    pub limits: Limits,
    /// Signal to end after the current request.
    pub stop: watch::Receiver<bool>,
    /// Place of the connection.
    pub place: Arc<ConnectionPermit>,
}

/// Serves HTTP connections until `stop`, then drains them for at most `drain`. Returns true if all
/// connections finished in time.
pub async fn serve<S, B>(
    port: impl Into<Port>,
    service: S,
    limits: Limits,
    stop: watch::Receiver<bool>,
    drain: Duration,
) -> bool
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    S: Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    let converse = move |accepted: AcceptedConnection| {
        let AcceptedConnection { stream, tls, limits, stop, place, client: _ } = accepted;
        let served = ConnectionService { service: service.clone(), limits, stop, place };
        serve_connection(stream, tls, served)
    };
    serve_connections(port, limits, stop, drain, converse).await
}

/// Runs `converse` for each connection until `stop`, then waits for at most `drain`. Returns true if
/// all of them ended in time. `converse` must end soon after the stop signal.
pub async fn serve_connections<C, F>(
    port: impl Into<Port>,
    limits: Limits,
    mut stop: watch::Receiver<bool>,
    drain: Duration,
    converse: C,
) -> bool
where
    C: Fn(AcceptedConnection) -> F,
    F: Future<Output = ()> + Send + 'static,
{
    let Port { listener, certificate } = port.into();
    let tls: Option<Arc<ServerConfig>> = certificate.as_ref().map(Certificate::server_config);
    let places = ConnectionLimiter::new(limits.places);
    let mut connections = JoinSet::new();
    if let Some(certificate) = certificate {
        connections.spawn(certificate.keep_up(stop.clone()));
    }
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            () = wait_for_stop(&mut stop) => break,
        };
        let (stream, client) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "could not accept a connection");
                // File descriptors may run out before places do.
                places.make_room();
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        match places.take(client.ip()).map(Arc::new) {
            Some(place) => {
                let conversation = converse(AcceptedConnection {
                    stream,
                    client,
                    tls: tls.clone().map(TlsAcceptor::from),
                    limits,
                    stop: stop.clone(),
                    place: place.clone(),
                });
                connections.spawn(async move {
                    tokio::select! {
                        () = conversation => {}
                        () = place.dismissed() => tracing::debug!("closing an idle connection to \
                            make room"),
                    }
                });
            }
            // A TLS client could not read a refusal in clear.
            None if tls.is_some() => drop(stream),
            None => drop(connections.spawn(turn_away(stream))),
        }
    }
    drop(listener);
    finish(connections, drain).await
}

/// Waits for the draining connections. Closes connections that are still open at the deadline.
async fn finish(mut connections: JoinSet<()>, drain: Duration) -> bool {
    let deadline = Instant::now() + drain;
    while !connections.is_empty() {
        if timeout_at(deadline, connections.join_next()).await.is_err() {
            tracing::warn!(
                cut_off = connections.len(),
                "cut off requests that did not finish in time"
            );
            connections.shutdown().await;
            return false;
        }
    }
    true
}

async fn turn_away(mut stream: TcpStream) {
    let farewell = async {
        stream.write_all(TOO_MANY).await?;
        stream.shutdown().await
    };
    // A client that does not even read the refusal is dropped.
    let _ = tokio::time::timeout(FAREWELL, farewell).await;
}

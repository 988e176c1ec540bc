//! Connections: accepting them, turning away what is too many, and letting them finish.
//!
//! ```text
//! accept ─┬─ a place is free, or made free ─▶ one task: HTTP until the client or the server has enough
//!         └─ all are busy ────────────────▶ 503 and closed
//! stop ───▶ nobody new; each connection ends after the request it is serving, or at the deadline
//! ```

use std::convert::Infallible;
use std::error::Error as StdError;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body::Body;
use hyper::body::Incoming;
use hyper::service::Service;
use hyper::{Request, Response};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use super::certificate::Certificate;
use super::converse::{Served, converse};
pub(crate) use super::places::Bounds;
use super::places::Places;
use crate::failure::Failure;

/// What a connection may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Connections at a time.
    pub(crate) places: Bounds,
    /// Until a request's head is there, and between requests.
    pub(crate) header_timeout: Duration,
    /// Until the client takes more of a reply.
    pub(crate) write_idle: Duration,
    /// Bytes of a request's head, and so of the read buffer.
    pub(crate) head_bytes: usize,
}

/// Bytes of all headers of a request, and of its first line.
pub(crate) const HEAD_BYTES_MAX: usize = 16 * 1024;
/// How long someone who is turned away is spoken to.
const FAREWELL: Duration = Duration::from_secs(1);
const TOO_MANY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\n\
    retry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
/// After an error of `accept` (out of file descriptors, most likely).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Binds an address, or says in a sentence why not.
pub(crate) async fn bind(address: SocketAddr, flag: &str) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).await.map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => Failure::refused(format!(
            "the address {address} is in use: stop what listens there, or choose another with {flag}"
        )),
        _ => Failure::refused(format!("nothing can listen on {address}: {error}")),
    })
}

/// Where a socket listens.
pub(crate) fn address_of(listener: &TcpListener) -> Result<SocketAddr, Failure> {
    listener
        .local_addr()
        .map_err(|error| Failure::refused(format!("a socket does not know its address: {error}")))
}

/// A socket, and what those who connect to it are shown; without that they speak in clear.
pub(crate) struct Port {
    pub(crate) listener: TcpListener,
    pub(crate) certificate: Option<Certificate>,
}

impl From<TcpListener> for Port {
    fn from(listener: TcpListener) -> Self {
        Self { listener, certificate: None }
    }
}

/// Serves connections until `stop`, then lets those under way finish for at most `drain`. Whether
/// all of them did.
pub(crate) async fn serve<S, B>(
    port: impl Into<Port>,
    service: S,
    limits: Limits,
    mut stop: watch::Receiver<bool>,
    drain: Duration,
) -> bool
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    S: Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    let Port { listener, certificate } = port.into();
    let tls = certificate.as_ref().map(Certificate::server_config);
    let places = Places::new(limits.places);
    let mut connections = JoinSet::new();
    if let Some(certificate) = certificate {
        connections.spawn(certificate.keep_up(stop.clone()));
    }
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            () = told(&mut stop) => break,
        };
        let (stream, client) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                // Descriptors may have run out before places.
                places.make_room();
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        match places.take(client.ip()).map(Arc::new) {
            Some(place) => {
                let (service, stop) = (service.clone(), stop.clone());
                let served = Served { service, limits, stop, place: place.clone() };
                let conversation = converse(stream, tls.clone(), served);
                connections.spawn(async move {
                    tokio::select! {
                        () = conversation => {}
                        () = place.dismissed() => tracing::debug!("a connection makes place"),
                    }
                });
            }
            // Whoever expects TLS is not spoken to in clear.
            None if tls.is_some() => drop(stream),
            None => drop(connections.spawn(turn_away(stream))),
        }
    }
    drop(listener);
    finish(connections, drain).await
}

/// Waits for connections that were told to end; cuts off what takes too long.
async fn finish(mut connections: JoinSet<()>, drain: Duration) -> bool {
    let deadline = Instant::now() + drain;
    while !connections.is_empty() {
        if timeout_at(deadline, connections.join_next()).await.is_err() {
            tracing::warn!(cut_off = connections.len(), "requests took too long to finish");
            connections.shutdown().await;
            return false;
        }
    }
    true
}

/// Waits for the word to stop. Whoever could give it and is gone has given it.
pub(crate) async fn told(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

async fn turn_away(mut stream: TcpStream) {
    let farewell = async {
        stream.write_all(TOO_MANY).await?;
        stream.shutdown().await
    };
    // Whoever does not even take a refusal is left.
    let _ = tokio::time::timeout(FAREWELL, farewell).await;
}

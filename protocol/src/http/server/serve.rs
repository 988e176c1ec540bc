//! Connections of the internal port.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use http::Request;
use http::header::UPGRADE;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::upgrade::UpgradeSlot;
use crate::http::{Peer, Tls, WriteTimeout};

/// Bytes read or queued at a time, in streams.
const BUFFER_BYTES_MAX: usize = 1024 * 1024;
const HEADERS_MAX: usize = 64;
/// Pause after an error of `accept`, most likely a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Longest time in which a client may accept nothing of a reply; detects dead clients. Slow S3
/// clients have separate limits at the S3 port.
const STALL: Duration = Duration::from_mins(2);
/// Timeout of the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// Options of the internal port.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Most concurrent connections; further ones wait to be accepted.
    pub connections_max: usize,
    /// Timeout of a request's head, and of an idle connection. It exceeds the clients' pool
    /// timeout, so that no client sends on a connection that is being closed.
    pub head: Duration,
    /// Time that requests in flight may take after the server stops.
    pub drain: Duration,
    /// Certificates, if clients must use TLS.
    pub tls: Option<Tls>,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            connections_max: 4096,
            head: Duration::from_mins(1),
            drain: Duration::from_secs(10),
            tls: None,
        }
    }
}

/// Serves `app` on `listener` until `stop` is ready, then waits up to `options.drain` for requests
/// in flight.
pub async fn serve(
    listener: TcpListener,
    app: Router,
    options: ServeOptions,
    stop: impl Future<Output = ()> + Send,
) {
    let places = Arc::new(Semaphore::new(options.connections_max.min(Semaphore::MAX_PERMITS)));
    let (stop_sender, stopping) = watch::channel(false);
    let mut connections = JoinSet::new();
    let mut stop = pin!(stop);
    loop {
        let accepted = tokio::select! {
            () = stop.as_mut() => break,
            Some(_) = connections.join_next() => continue,
            accepted = accept(&listener, &places) => accepted,
        };
        match accepted {
            Ok((stream, peer, place)) => {
                let (app, options, stopping) = (app.clone(), options.clone(), stopping.clone());
                connections.spawn(async move {
                    welcome(stream, peer, app, options, stopping).await;
                    drop(place);
                });
            }
            Err(_) => sleep(ACCEPT_PAUSE).await,
        }
    }
    drop(listener);
    stop_sender.send_replace(true);
    let deadline = Instant::now() + options.drain;
    while timeout_at(deadline, connections.join_next()).await.is_ok_and(|one| one.is_some()) {}
    connections.shutdown().await;
}

async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> std::io::Result<(TcpStream, Peer, tokio::sync::OwnedSemaphorePermit)> {
    let place = places.clone().acquire_owned().await.expect("the semaphore is never closed");
    let (stream, peer) = listener.accept().await?;
    // Fails only for a connection that has ended, which its task will detect.
    let _ = stream.set_nodelay(true);
    Ok((stream, Peer(peer.ip().to_canonical()), place))
}

/// Serves one connection, after its TLS handshake if TLS is on.
async fn welcome(
    stream: TcpStream,
    peer: Peer,
    app: Router,
    options: ServeOptions,
    stopping: watch::Receiver<bool>,
) {
    let Some(tls) = options.tls else {
        return serve_connection(stream, peer, app, options.head, stopping).await;
    };
    // Drops clients without a valid certificate, or with a slow handshake.
    if let Ok(Ok(stream)) = timeout(HANDSHAKE, tls.accept(stream)).await {
        serve_connection(stream, peer, app, options.head, stopping).await;
    }
}

/// Serves one connection to its end, as HTTP and then as a channel if it was upgraded. When the client disconnects, its request is dropped.
async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    peer: Peer,
    app: Router,
    head: Duration,
    mut stopping: watch::Receiver<bool>,
) {
    let slot = UpgradeSlot::default();
    let (routed, kept) = (TowerToHyperService::new(app), slot.clone());
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        if request.headers().contains_key(UPGRADE) {
            request.extensions_mut().insert(kept.clone());
        }
        routed.call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head)
        .max_headers(HEADERS_MAX)
        .max_buf_size(BUFFER_BYTES_MAX)
        .serve_connection(TokioIo::new(WriteTimeout::new(stream, STALL)), service)
        .with_upgrades();
    let mut connection = pin!(connection);
    let is_stopped = tokio::select! {
        _ = connection.as_mut() => false,
        () = stopped(&mut stopping) => true,
    };
    if is_stopped {
        connection.as_mut().graceful_shutdown();
        let _ = connection.await;
    }
    if let Some(channel) = slot.take() {
        channel.serve(stopped(&mut stopping)).await;
    }
}

async fn stopped(stopping: &mut watch::Receiver<bool>) {
    let _ = stopping.wait_for(|stop| *stop).await;
}

//! Connections to one node, and the pool of idle ones.
//!
//! A connection carries one exchange at a time. It returns to the pool after its reply was read to
//! the end. Dropped before that, it is cut, so that the node drops its work for the call.
//!
//! A connection has no task of its own: the caller that waits for a reply polls it, so no other
//! task must be woken.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::task::Context;
use std::time::Duration;

use bytes::Bytes;
use futures::future::{BoxFuture, Fuse};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use http::{Request, Response};
use http_body::Body;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::options::ClientOptions;
use super::upload::RequestBody;
use crate::error::{Error, Result};

/// Bytes read or queued at a time, in streams.
const BUFFER_BYTES_MAX: usize = 1024 * 1024;
/// Time after which a second connection attempt runs beside the first.
const CONNECT_AGAIN_AFTER: Duration = Duration::from_millis(250);
/// Most idle time of a pooled connection, well below the node's own limit.
const IDLE_MAX: Duration = Duration::from_secs(20);

/// Idle connections, the last used one first.
pub(super) struct Pool {
    idle: Mutex<Vec<(Connection, Instant)>>,
    max: usize,
}

/// A connection in use by one caller.
pub(super) struct Connection {
    sender: SendRequest<RequestBody>,
    /// Future that reads and writes the connection while polled; done when the connection has
    /// ended.
    driver: Fuse<BoxFuture<'static, ()>>,
}

/// Outcome of sending a request.
pub(super) enum SendOutcome {
    /// The head of a reply.
    Replied(Box<Response<Incoming>>),
    /// The connection had ended before anything was sent.
    Unsent(Box<Request<RequestBody>>, hyper::Error),
    /// The outcome is unknown.
    Lost(hyper::Error),
}

impl Pool {
    pub(super) fn new(max: usize) -> Self {
        Self { idle: Mutex::default(), max }
    }

    /// Takes an idle connection that was used before and isn't known to be closed.
    pub(super) fn take(&self) -> Option<Connection> {
        let mut idle = self.idle.lock();
        while let Some((connection, since)) = idle.pop() {
            if since.elapsed() < IDLE_MAX && !connection.sender.is_closed() {
                return Some(connection);
            }
        }
        None
    }

    /// Drops all idle connections.
    pub(super) fn clear(&self) {
        // The connections are dropped outside the lock.
        let gone = std::mem::take(&mut *self.idle.lock());
        drop(gone);
    }

    /// Returns a connection to the pool after its exchange.
    pub(super) fn put(&self, connection: Connection) {
        let mut idle = self.idle.lock();
        if idle.len() < self.max && !connection.sender.is_closed() {
            let now = Instant::now();
            idle.retain(|(_, since)| now.duration_since(*since) < IDLE_MAX);
            idle.push((connection, now));
        }
    }
}

impl Connection {
    /// Connects to `address` within the timeout.
    pub(super) async fn open(address: &str, options: &ClientOptions) -> Result<Self> {
        let unreached = |cause: &dyn std::fmt::Display| {
            Error::unreached(format!("no connection to the node at {address}"), cause)
        };
        let connected = timeout(options.connect, async {
            let stream = connect(address).await?;
            stream.set_nodelay(true)?;
            match &options.tls {
                Some(tls) => Self::over(tls.connect(address, stream).await?).await,
                None => Self::over(stream).await,
            }
        });
        let connected = connected.await.map_err(|_| unreached(&"timed out"))?;
        connected.map_err(|error| unreached(&error))
    }

    async fn over(io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> io::Result<Self> {
        let handshake = http1::Builder::new()
            .max_buf_size(BUFFER_BYTES_MAX)
            .handshake::<_, RequestBody>(TokioIo::new(io))
            .await;
        let (sender, connection) = handshake.map_err(io::Error::other)?;
        // The caller that waits for a reply receives the connection's error.
        let driver = connection.with_upgrades().map(drop).boxed().fuse();
        Ok(Self { sender, driver })
    }

    /// Polls the connection for reads and writes.
    pub(super) fn drive(&mut self, context: &mut Context<'_>) {
        let _ = self.driver.poll_unpin(context);
    }

    /// Polls `future` and the connection together.
    pub(super) async fn driving<T>(&mut self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        poll_fn(|context| {
            self.drive(context);
            future.as_mut().poll(context)
        })
        .await
    }

    /// Sends a request and waits for the head of the reply.
    pub(super) async fn send(&mut self, request: Request<RequestBody>) -> SendOutcome {
        let ready = poll_fn(|context| {
            self.drive(context);
            self.sender.poll_ready(context)
        });
        if let Err(error) = ready.await {
            return SendOutcome::Unsent(Box::new(request), error);
        }
        let reply = self.sender.try_send_request(request);
        match self.driving(reply).await {
            Ok(response) => SendOutcome::Replied(Box::new(response)),
            Err(mut error) => match error.take_message() {
                Some(request) => SendOutcome::Unsent(Box::new(request), error.into_error()),
                None => SendOutcome::Lost(error.into_error()),
            },
        }
    }
}

/// Connects to `address`. A lost packet would cost a second, TCP's first retransmission timeout.
/// After 250 ms without a connection a further attempt starts beside, and the first connection made
/// is taken.
async fn connect(address: &str) -> io::Result<TcpStream> {
    let mut attempts = FuturesUnordered::new();
    loop {
        attempts.push(TcpStream::connect(address));
        if let Ok(Some(connected)) = timeout(CONNECT_AGAIN_AFTER, attempts.next()).await {
            return connected;
        }
    }
}

/// Reads a reply's body of at most `max` bytes. A body with a longer announced length isn't read.
pub(super) async fn gather(body: Incoming, max: usize) -> Result<Bytes> {
    let too_long = || Error::internal(format!("the node's reply is longer than {max} bytes"));
    if body.size_hint().lower() > max as u64 {
        return Err(too_long());
    }
    match Limited::new(body, max).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_long()),
        Err(error) => Err(Error::unavailable("the node's reply was cut short").with_source(error)),
    }
}

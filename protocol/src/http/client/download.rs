//! Download of an extent: a stream that ends only after the whole requested range, and yields no
//! bytes that changed in transit.

use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use http_body::Body;
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep, sleep};

use super::connection::Connection;
use super::remote_node::RemoteNode;
use crate::error::{Error, Result};
use crate::http::frames::{UnframedStream, framed_length};

/// Bytes of an extent read from a node.
pub(super) struct Download {
    body: Incoming,
    frames: UnframedStream,
    idle: Duration,
    /// Runs while the caller waits and the node sends nothing.
    deadline: Pin<Box<Sleep>>,
    waiting: bool,
    /// The connection until the stream has ended or failed.
    connection: Option<Connection>,
    node: Arc<RemoteNode>,
}

impl Download {
    /// Creates a download; `body` must have the exact length of the frames of `range`.
    pub(super) fn new(
        node: Arc<RemoteNode>,
        connection: Connection,
        body: Incoming,
        range: &Range<u64>,
    ) -> Result<Self> {
        let length = framed_length(range);
        let sent = body.size_hint().exact();
        if sent != Some(length) {
            let message = format!("the node announced {sent:?} bytes instead of {length}");
            return Err(Error::internal(message));
        }
        let idle = node.options.idle;
        Ok(Self {
            body,
            frames: UnframedStream::new(range),
            idle,
            deadline: Box::pin(sleep(idle)),
            waiting: false,
            connection: Some(connection),
            node,
        })
    }

    fn fail(&mut self, error: Error) -> Poll<Option<Result<Bytes>>> {
        self.connection = None;
        self.frames.clear();
        Poll::Ready(Some(Err(error)))
    }

    /// Adds a chunk; returns the connection to the pool after the last one.
    fn take(&mut self, piece: Bytes) -> Result<()> {
        self.frames.push(piece).map_err(|error| {
            let address = &self.node.address;
            let message = format!("an extent's bytes were corrupted in transit from {address}");
            Error::unavailable(message).with_source(error)
        })?;
        if self.frames.is_over()
            && let Some(connection) = self.connection.take()
        {
            self.node.pool.put(connection);
        }
        Ok(())
    }

    /// Fails the stream after the node has sent nothing for the idle timeout.
    fn wait(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        if !self.waiting {
            self.waiting = true;
            let deadline = Instant::now() + self.idle;
            self.deadline.as_mut().reset(deadline);
        }
        if self.deadline.as_mut().poll(context).is_pending() {
            return Poll::Pending;
        }
        if self.node.breaker.open(Instant::now() - self.idle) {
            self.node.pool.clear();
        }
        let message = format!("the node at {} stopped sending an extent", self.node.address);
        self.fail(Error::unavailable(message))
    }
}

impl Stream for Download {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(piece) = self.frames.pop() {
                return Poll::Ready(Some(Ok(piece)));
            }
            let Some(connection) = &mut self.connection else { return Poll::Ready(None) };
            connection.drive(context);
            match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Pending => return self.wait(context),
                Poll::Ready(Some(Ok(frame))) => {
                    self.waiting = false;
                    if let Ok(piece) = frame.into_data()
                        && let Err(error) = self.take(piece)
                    {
                        return self.fail(error);
                    }
                }
                Poll::Ready(Some(Err(error))) => {
                    let cut = Error::unavailable("the extent was cut short in transit");
                    return self.fail(cut.with_source(error));
                }
                Poll::Ready(None) => {
                    return self.fail(Error::unavailable("the extent was cut short in transit"));
                }
            }
        }
    }
}

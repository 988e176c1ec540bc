//! Request bodies: whole ones with a length limit, and streams with an idle timeout.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use bytes::Bytes;
use futures::{Stream, StreamExt};
use http_body::Body as _;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::time::{Instant, Sleep, sleep, timeout};

use super::guard::Mismatch;
use crate::error::{Error, Result};
use crate::limits;

/// Time in which the rest of a refused stream is read. Closing a connection with unread bytes would
/// lose the reply.
const DRAIN: Duration = Duration::from_secs(10);

/// Collects a body of at most `max` bytes. A longer announced length is refused unread.
pub(super) async fn gather(body: Body, max: usize) -> Result<Bytes> {
    let too_long = || Error::invalid(format!("the request's body is longer than {max} bytes"));
    if body.size_hint().lower() > max as u64 {
        drain(body.into_data_stream());
        return Err(too_long());
    }
    match Limited::new(body, max).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_long()),
        Err(error) => Err(of_body(&*error)),
    }
}

/// Converts a body's error: a digest mismatch, or a broken connection.
fn of_body(error: &(dyn std::error::Error + 'static)) -> Error {
    let mut causes = std::iter::successors(Some(error), |cause| cause.source());
    match causes.find_map(|cause| cause.downcast_ref::<Mismatch>()) {
        Some(mismatch) => Error::invalid("the request was refused").with_source(*mismatch),
        None => {
            Error::unavailable("the request's body was cut short").with_source(error.to_string())
        }
    }
}

fn stopped() -> Error {
    Error::unavailable("the request's body stopped arriving")
}

/// Body of an extent's upload. It ends in an error after an idle timeout or too many bytes. When
/// dropped, the rest of the body is drained.
pub(super) struct ReceivedBody {
    body: Option<BodyDataStream>,
    taken: u64,
    bytes_max: u64,
    idle: Duration,
    deadline: Pin<Box<Sleep>>,
    waiting: bool,
}

impl ReceivedBody {
    pub(super) fn new(body: Body, idle: Duration) -> Self {
        let deadline = Box::pin(sleep(idle));
        let body = Some(body.into_data_stream());
        let bytes_max = limits::EXTENT_BYTES_MAX;
        Self { body, taken: 0, bytes_max, idle, deadline, waiting: false }
    }

    /// This body with a bound that admits `bytes` behind the extent.
    pub(super) fn with_trailer(mut self, bytes: u64) -> Self {
        self.bytes_max += bytes;
        self
    }

    fn fail(&mut self, error: Error) -> Poll<Option<Result<Bytes>>> {
        self.body = None;
        Poll::Ready(Some(Err(error)))
    }

    fn wait(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        if !self.waiting {
            self.waiting = true;
            let deadline = Instant::now() + self.idle;
            self.deadline.as_mut().reset(deadline);
        }
        match self.deadline.as_mut().poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => self.fail(stopped()),
        }
    }
}

impl Stream for ReceivedBody {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        match body.poll_next_unpin(context) {
            Poll::Pending => self.wait(context),
            Poll::Ready(None) => {
                self.body = None;
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(error))) => self.fail(of_body(&error)),
            Poll::Ready(Some(Ok(piece))) => {
                self.waiting = false;
                self.taken += piece.len() as u64;
                if self.taken > self.bytes_max {
                    return Poll::Ready(Some(Err(Error::invalid("the extent is too long"))));
                }
                Poll::Ready(Some(Ok(piece)))
            }
        }
    }
}

impl Drop for ReceivedBody {
    fn drop(&mut self) {
        if let Some(body) = self.body.take() {
            drain(body);
        }
    }
}

/// Reads and discards the rest of a body, for at most 10 s and 64 MiB.
fn drain(mut body: BodyDataStream) {
    let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
    runtime.spawn(timeout(DRAIN, async move {
        let mut left = limits::EXTENT_BYTES_MAX;
        while let Some(Ok(piece)) = body.next().await {
            match left.checked_sub(piece.len() as u64) {
                Some(rest) => left = rest,
                None => break,
            }
        }
    }));
}

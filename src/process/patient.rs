//! A socket whose writes give up when the client takes nothing for too long.
//!
//! Slow senders are the door's business; a client that asks and then doesn't read would otherwise
//! hold buffers, an extent and a connection for ever.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// A stream with a limit on how long a write may wait. A limit of zero means for ever.
pub(crate) struct Patient<S> {
    stream: S,
    limit: Duration,
    /// Made by the first write that waits, then used again.
    deadline: Option<Pin<Box<Sleep>>>,
    waiting: bool,
}

impl<S> Patient<S> {
    pub(crate) fn new(stream: S, limit: Duration) -> Self {
        Self { stream, limit, deadline: None, waiting: false }
    }

    /// Passes the outcome of a write on, unless it has been pending for too long.
    fn judge<T>(
        &mut self,
        context: &mut Context<'_>,
        outcome: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if outcome.is_ready() || self.limit.is_zero() {
            self.waiting = false;
            return outcome;
        }
        let limit = Instant::now() + self.limit;
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(sleep_until(limit)));
        if !self.waiting {
            deadline.as_mut().reset(limit);
            self.waiting = true;
        }
        match deadline.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(context, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.judge(context, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_flush(context);
        self.judge(context, outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_shutdown(context);
        self.judge(context, outcome)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn a_reader_that_stops_ends_the_write() {
        let (near, _far) = duplex(16);
        let mut patient = Patient::new(near, Duration::from_millis(20));
        let error = patient.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn a_slow_reader_that_goes_on_gets_everything() {
        let (near, mut far) = duplex(16);
        let mut patient = Patient::new(near, Duration::from_millis(100));
        let reader = tokio::spawn(async move {
            let mut bytes = [0; 16];
            for _ in 0..8 {
                tokio::time::sleep(Duration::from_millis(30)).await;
                far.read_exact(&mut bytes).await.unwrap();
            }
        });
        patient.write_all(&[7; 128]).await.unwrap();
        reader.await.unwrap();
    }
}

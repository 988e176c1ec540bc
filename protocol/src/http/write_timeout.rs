//! A stream whose writes time out.
//!
//! A peer that loses power sends nothing, and without a limit would hold an extent and a request
//! slot for 15 minutes. A client that never reads its reply would hold them forever. Reads have no
//! limit here.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// A stream with a write timeout. Zero means no timeout.
#[derive(Debug)]
pub struct WriteTimeout<S> {
    stream: S,
    limit: Duration,
    /// Runs while a write waits; created by the first write that waits.
    deadline: Option<Pin<Box<Sleep>>>,
    is_waiting: bool,
}

impl<S> WriteTimeout<S> {
    /// Wraps `stream` with a write timeout of `limit`.
    pub fn new(stream: S, limit: Duration) -> Self {
        Self { stream, limit, deadline: None, is_waiting: false }
    }
}

impl<S: Unpin> WriteTimeout<S> {
    /// Tries to write; fails with `TimedOut` after `limit` without progress.
    fn push<T>(
        &mut self,
        context: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let outcome = write(Pin::new(&mut self.stream), context);
        if outcome.is_ready() || self.limit.is_zero() {
            self.is_waiting = false;
            return outcome;
        }
        let limit = self.limit;
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(sleep(limit)));
        if !std::mem::replace(&mut self.is_waiting, true) {
            deadline.as_mut().reset(Instant::now() + limit);
        }
        deadline.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.push(context, |stream, context| stream.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.push(context, |stream, context| stream.poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.push(context, AsyncWrite::poll_flush)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.push(context, AsyncWrite::poll_shutdown)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_an_end_that_takes_nothing_is_given_up() {
        let (near, mut far) = duplex(16);
        let mut patient = WriteTimeout::new(near, Duration::from_secs(10));
        let reader = tokio::spawn(async move {
            for _ in 0..8 {
                sleep(Duration::from_secs(9)).await;
                far.read_exact(&mut [0; 16]).await.unwrap();
            }
            far
        });
        patient.write_all(&[7; 128]).await.expect("slow is not gone");
        let _far = reader.await.unwrap();
        let began = Instant::now();
        let error = patient.write_all(&[7; 64]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(began.elapsed().as_secs(), 10);
    }
    #[tokio::test(start_paused = true)]
    async fn without_a_limit_a_write_waits() {
        let (near, _far) = duplex(16);
        let mut patient = WriteTimeout::new(near, Duration::ZERO);
        let write = patient.write_all(&[7; 64]);
        let day = Duration::from_hours(24);
        assert!(tokio::time::timeout(day, write).await.is_err());
    }
}

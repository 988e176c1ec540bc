//! Stream that is read in small pieces until its client has shown a key.
//!
//! hyper's read buffer grows with the size of a read. Keyless clients could make every connection
//! hold a full buffer by sending much at once. Reads of [`SIP_BYTES`] never make the buffer grow.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use martlet_protocol::http::AuthenticatedFlag;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes of a small read, below the size that makes hyper's buffer grow.
const SIP_BYTES: usize = 4096;

/// Stream with the mark that lifts its read limit.
pub(super) struct SmallReads<S> {
    stream: S,
    proven: AuthenticatedFlag,
}

impl<S> SmallReads<S> {
    pub(super) fn new(stream: S, proven: AuthenticatedFlag) -> Self {
        Self { stream, proven }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for SmallReads<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.proven.is_set() || buffer.remaining() < SIP_BYTES {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        let mut memory = [0; SIP_BYTES];
        let mut sip = ReadBuf::new(&mut memory);
        ready!(Pin::new(&mut self.stream).poll_read(context, &mut sip))?;
        buffer.put_slice(sip.filled());
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for SmallReads<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn only_streams_of_clients_with_a_key_are_read_in_long_draughts() {
        let sent = [7; 3 * SIP_BYTES];
        let proven = AuthenticatedFlag::default();
        let mut sips = SmallReads::new(&sent[..], proven.clone());
        let mut buffer = [0; 3 * SIP_BYTES];
        assert_eq!(sips.read(&mut buffer).await.unwrap(), SIP_BYTES);
        proven.set();
        assert_eq!(sips.read(&mut buffer).await.unwrap(), 2 * SIP_BYTES);
    }
}

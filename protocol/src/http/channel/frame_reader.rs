//! Frames of a connection, in the order in which they come.

use std::io;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::frame::{Frame, FrameError, Opener};

/// Room for one read: some replies of 4 KiB at once.
const READ_BYTES: usize = 32 * 1024;

/// Bytes of a connection that were read and not opened yet.
pub(in crate::http) struct FrameReader {
    opener: Opener,
    buffer: BytesMut,
}

impl FrameReader {
    pub(in crate::http) fn new(opener: Opener) -> Self {
        Self { opener, buffer: BytesMut::new() }
    }

    /// Reads some bytes. Returns false at the end of the connection. Bytes aren't lost if the
    /// future is dropped.
    pub(in crate::http) async fn read(
        &mut self,
        io: &mut (impl AsyncRead + Unpin),
    ) -> io::Result<bool> {
        // A frame beyond the buffer makes it grow in steps, as its bytes come.
        self.buffer.reserve(READ_BYTES);
        Ok(io.read_buf(&mut self.buffer).await? != 0)
    }

    /// Opens the next frame and passes it to `take`. None if more bytes are needed.
    pub(in crate::http) fn next<T>(
        &mut self,
        take: impl FnOnce(Frame<'_>) -> T,
    ) -> Result<Option<T>, FrameError> {
        let Some(length) = self.opener.length(&self.buffer)? else { return Ok(None) };
        let Some(bytes) = self.buffer.get(..length) else { return Ok(None) };
        let taken = take(self.opener.open(bytes)?);
        self.buffer.advance(length);
        Ok(Some(taken))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::channel::frame::{FrameKind, Sealer};

    #[tokio::test]
    async fn frames_are_found_wherever_the_bytes_are_divided() {
        let mut sent = Vec::new();
        let mut sealer = Sealer::new([1; 32]);
        let bodies: Vec<Vec<u8>> = (0..5u8).map(|n| vec![n; usize::from(n) * 11]).collect();
        for body in &bodies {
            sealer.seal(&mut sent, FrameKind::Reply, 3, [body, b""]);
        }
        for step in 1..sent.len() {
            let mut reader = FrameReader::new(Opener::new([1; 32], 1000));
            let mut found = Vec::new();
            for mut piece in sent.chunks(step) {
                while !piece.is_empty() {
                    assert!(reader.read(&mut piece).await.unwrap());
                }
                while let Some(body) = reader.next(|frame| frame.body.to_vec()).unwrap() {
                    found.push(body);
                }
            }
            assert_eq!(found, bodies, "in pieces of {step} bytes");
            assert!(!reader.read(&mut &b""[..]).await.unwrap(), "the connection has ended");
        }
    }

    #[tokio::test]
    async fn a_frame_cut_short_is_never_opened() {
        let mut sent = Vec::new();
        Sealer::new([1; 32]).seal(&mut sent, FrameKind::Reply, 3, [b"body", b""]);
        for length in 0..sent.len() {
            let mut reader = FrameReader::new(Opener::new([1; 32], 1000));
            reader.read(&mut &sent[..length]).await.unwrap();
            assert!(reader.next(|_| ()).unwrap().is_none(), "{length} bytes");
        }
    }

    #[tokio::test]
    async fn a_long_claim_holds_no_memory() {
        let mut reader = FrameReader::new(Opener::new([1; 32], 1 << 30));
        reader.read(&mut &(1u32 << 30).to_le_bytes()[..]).await.unwrap();
        assert!(reader.next(|_| ()).unwrap().is_none());
        assert!(reader.buffer.capacity() <= 2 * READ_BYTES, "{}", reader.buffer.capacity());
    }
}

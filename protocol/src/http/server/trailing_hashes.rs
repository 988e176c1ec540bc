//! The body of an extent whose hashes follow its bytes.
//!
//! ```text
//! │ the extent's bytes │ CRC32C of each block, 4 bytes each │ BLAKE3, 32 bytes │
//! ```
//!
//! The hashes are set before the stream of the bytes ends.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::{Stream, StreamExt};

use super::body::ReceivedBody;
use crate::backend::{ExtentHashes, SentHashes};
use crate::error::{Error, Result};

/// The bytes of an extent, from a body that also has their hashes.
pub(super) struct BodyWithHashes {
    body: ReceivedBody,
    /// Bytes of the extent that have not come yet.
    left: u64,
    trailer: Vec<u8>,
    trailer_bytes: u64,
    hashes: SentHashes,
}

impl BodyWithHashes {
    /// An extent of `length` bytes, whose hashes are set in `hashes`.
    pub(super) fn new(body: ReceivedBody, length: u64, hashes: SentHashes) -> Self {
        let trailer_bytes = ExtentHashes::encoded_bytes(length);
        Self { body, left: length, trailer: Vec::new(), trailer_bytes, hashes }
    }

    /// Splits the bytes of the extent off a chunk, and keeps the rest.
    fn bytes_of(&mut self, mut piece: Bytes) -> Result<Option<Bytes>> {
        let length = usize::try_from(self.left).unwrap_or(usize::MAX).min(piece.len());
        let bytes = piece.split_to(length);
        self.left -= length as u64;
        if (self.trailer.len() + piece.len()) as u64 > self.trailer_bytes {
            return Err(Error::invalid("the extent's body is longer than announced"));
        }
        self.trailer.extend_from_slice(&piece);
        Ok((!bytes.is_empty()).then_some(bytes))
    }

    fn end(&mut self) -> Result<()> {
        let is_whole = self.left == 0 && self.trailer.len() as u64 == self.trailer_bytes;
        let hashes = ExtentHashes::decode(&self.trailer).filter(|_| is_whole);
        let cut = || Error::unavailable("the extent's body ended before its hashes");
        self.hashes.set(hashes.ok_or_else(cut)?);
        Ok(())
    }
}

impl Stream for BodyWithHashes {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match ready!(self.body.poll_next_unpin(context)) {
                Some(Ok(piece)) => match self.bytes_of(piece) {
                    Ok(None) => {}
                    Ok(Some(bytes)) => return Poll::Ready(Some(Ok(bytes))),
                    Err(error) => return Poll::Ready(Some(Err(error))),
                },
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(self.end().err().map(Err)),
            }
        }
    }
}

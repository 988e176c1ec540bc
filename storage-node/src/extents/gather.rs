//! Gathers a body's chunks, of any length, into buffers.

use bytes::Bytes;
use futures::StreamExt;
use martlet_protocol::limits::EXTENT_BYTES_MAX;
use martlet_protocol::{ByteStream, Error, Result};

use super::buffer::AlignedBuffer;

/// A body, and its bytes that are not in a buffer yet.
pub(super) struct Gather {
    body: ByteStream,
    left: Bytes,
    taken: u64,
    declared: Option<u64>,
}

impl Gather {
    /// Wraps a body of `declared` bytes, if its length is known. `Invalid` if that is 0 or too
    /// long.
    pub(super) fn new(body: ByteStream, declared: Option<u64>) -> Result<Self> {
        match declared {
            Some(0) => Err(Error::invalid("an extent must not be empty")),
            Some(length) if length > EXTENT_BYTES_MAX => Err(too_long()),
            _ => Ok(Self { body, left: Bytes::new(), taken: 0, declared }),
        }
    }

    /// Length of the body, if known.
    pub(super) fn declared(&self) -> Option<u64> {
        self.declared
    }

    /// Fills `buffer` up to `limit`; returns true when the body has ended.
    pub(super) async fn fill(&mut self, buffer: &mut AlignedBuffer, limit: usize) -> Result<bool> {
        loop {
            let taken = buffer.append(&self.left, limit);
            self.left = self.left.split_off(taken);
            if !self.left.is_empty() {
                return Ok(false);
            }
            match self.body.next().await {
                None => return self.end().map(|()| true),
                Some(piece) => {
                    self.left = piece?;
                    self.taken += self.left.len() as u64;
                    if self.taken > self.declared.unwrap_or(EXTENT_BYTES_MAX) {
                        return Err(too_long());
                    }
                }
            }
        }
    }

    fn end(&self) -> Result<()> {
        match self.declared {
            Some(declared) if declared != self.taken => Err(Error::invalid(format!(
                "the extent's body has {} bytes instead of {declared}",
                self.taken
            ))),
            _ if self.taken == 0 => Err(Error::invalid("an extent must not be empty")),
            _ => Ok(()),
        }
    }
}

fn too_long() -> Error {
    Error::invalid("the extent's body exceeds its declared length or the maximum")
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use martlet_protocol::ErrorKind;

    use super::*;

    async fn run(pieces: &[&'static [u8]], declared: Option<u64>) -> Result<Vec<Vec<u8>>> {
        let pieces: Vec<_> = pieces.iter().map(|piece| Ok(Bytes::from_static(piece))).collect();
        let mut gather = Gather::new(Box::pin(stream::iter(pieces)), declared)?;
        let mut chunks = Vec::new();
        loop {
            let mut buffer = AlignedBuffer::new(4096);
            let ended = gather.fill(&mut buffer, 4).await?;
            chunks.push(buffer.all()[..buffer.filled].to_vec());
            if ended {
                return Ok(chunks);
            }
        }
    }

    #[tokio::test]
    async fn pieces_are_cut_and_joined() {
        let chunks = run(&[b"abc", b"", b"defghij"], None).await.unwrap();
        assert_eq!(chunks, [&b"abcd"[..], b"efgh", b"ij"]);
        assert_eq!(run(&[b"abcd"], Some(4)).await.unwrap(), [b"abcd"]);
    }

    #[tokio::test]
    async fn a_wrong_length_is_refused() {
        for (pieces, declared) in [
            (&[&b"abc"[..]][..], Some(4)),
            (&[b"abc"], Some(2)),
            (&[b""], None),
            (&[], Some(0)),
            (&[], Some(EXTENT_BYTES_MAX + 1)),
        ] {
            assert_eq!(run(pieces, declared).await.unwrap_err().kind(), ErrorKind::Invalid);
        }
    }
}

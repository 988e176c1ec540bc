//! Bytes received from a broker, of a bounded number, and the fields of its frames.
//!
//! Invariants:
//! * A length that a broker sends is compared with the bound before bytes are read for it.
//! * Memory grows with the bytes that have arrived, never with a length that a broker sends.

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::super::retry::DeliveryFailure;

/// Bytes of one read.
const READ_BYTES: usize = 8 << 10;

/// Received bytes that no frame has taken yet.
#[derive(Debug)]
pub(super) struct ReceiveBuffer {
    bytes: BytesMut,
    bytes_max: usize,
}

impl ReceiveBuffer {
    /// Makes a buffer for frames and lines of at most `bytes_max` bytes.
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { bytes: BytesMut::new(), bytes_max }
    }

    /// Returns true if all received bytes were taken.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Takes `count` bytes.
    pub(super) async fn take<S: AsyncRead + Unpin + ?Sized>(
        &mut self,
        stream: &mut S,
        count: usize,
    ) -> Result<Bytes, DeliveryFailure> {
        if count > self.bytes_max {
            return Err(DeliveryFailure::away(format!(
                "the broker sent a frame of {count} bytes, {} at most",
                self.bytes_max
            )));
        }
        while self.bytes.len() < count {
            self.fill(stream).await?;
        }
        Ok(self.bytes.split_to(count).freeze())
    }

    /// Takes a line, without its `\r\n`.
    pub(super) async fn take_line<S: AsyncRead + Unpin + ?Sized>(
        &mut self,
        stream: &mut S,
    ) -> Result<String, DeliveryFailure> {
        let mut searched = 0;
        let length = loop {
            if let Some(at) = self.bytes[searched..].iter().position(|byte| *byte == b'\n') {
                break searched + at;
            }
            searched = self.bytes.len();
            if searched >= self.bytes_max {
                return Err(DeliveryFailure::away(format!(
                    "the broker sent a line of more than {} bytes",
                    self.bytes_max
                )));
            }
            self.fill(stream).await?;
        };
        let line = self.bytes.split_to(length);
        self.bytes.advance(1);
        let text = String::from_utf8(line.to_vec());
        let text = text.map_err(|_| DeliveryFailure::away("the broker sent a line of no text"))?;
        Ok(text.trim_end_matches('\r').to_owned())
    }

    async fn fill<S: AsyncRead + Unpin + ?Sized>(
        &mut self,
        stream: &mut S,
    ) -> Result<(), DeliveryFailure> {
        self.bytes.reserve(READ_BYTES);
        if stream.read_buf(&mut self.bytes).await? == 0 {
            return Err(DeliveryFailure::away("the broker closed the connection"));
        }
        Ok(())
    }
}

/// Fields of a frame, in network byte order.
#[derive(Clone, Copy, Debug)]
pub(super) struct FieldReader<'a> {
    rest: &'a [u8],
}

impl<'a> FieldReader<'a> {
    pub(super) fn new(frame: &'a [u8]) -> Self {
        Self { rest: frame }
    }

    /// Takes `count` bytes.
    pub(super) fn bytes(&mut self, count: usize) -> Result<&'a [u8], DeliveryFailure> {
        let (taken, rest) = self
            .rest
            .split_at_checked(count)
            .ok_or_else(|| DeliveryFailure::away("the broker sent a frame that ends too early"))?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DeliveryFailure> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(N)?);
        Ok(array)
    }

    pub(super) fn u8(&mut self) -> Result<u8, DeliveryFailure> {
        self.array().map(u8::from_be_bytes)
    }

    pub(super) fn u16(&mut self) -> Result<u16, DeliveryFailure> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, DeliveryFailure> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, DeliveryFailure> {
        self.array().map(u64::from_be_bytes)
    }

    pub(super) fn i16(&mut self) -> Result<i16, DeliveryFailure> {
        self.array().map(i16::from_be_bytes)
    }

    pub(super) fn i32(&mut self) -> Result<i32, DeliveryFailure> {
        self.array().map(i32::from_be_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lengths_are_bounded_before_bytes_are_read() {
        let mut sent: &[u8] = b"a line\r\nabcdef";
        let mut received = ReceiveBuffer::new(10);
        assert_eq!(received.take_line(&mut sent).await.unwrap(), "a line");
        assert_eq!(received.take(&mut sent, 4).await.unwrap(), "abcd");
        assert!(!received.is_empty());
        let failure = received.take(&mut sent, 1 << 40).await.unwrap_err();
        assert!(failure.reason().contains("frame of 1099511627776 bytes, 10 at most"));
        let failure = received.take(&mut sent, 10).await.unwrap_err();
        assert!(failure.reason().contains("closed the connection"), "{failure:?}");
        let mut endless = tokio::io::repeat(b'x');
        let mut received = ReceiveBuffer::new(1 << 16);
        let failure = received.take_line(&mut endless).await.unwrap_err();
        assert!(failure.reason().contains("line of more than 65536 bytes"), "{failure:?}");
        assert!(received.bytes.capacity() <= 1 << 18, "{}", received.bytes.capacity());
    }

    #[test]
    fn fields_end_with_their_frame() {
        let mut fields = FieldReader::new(&[1, 0, 2, 0xff, 0xff, 0xff, 0xfd, 9]);
        assert_eq!((fields.u8().unwrap(), fields.u16().unwrap()), (1, 2));
        assert_eq!(fields.i32().unwrap(), -3);
        assert!(fields.u64().unwrap_err().reason().contains("ends too early"));
        assert_eq!(fields.bytes(1).unwrap(), [9]);
        assert!(fields.bytes(usize::MAX).is_err());
    }
}

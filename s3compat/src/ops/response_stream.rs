//! Bodies of replies, in the form that s3s accepts.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::Stream;
use martlet_protocol::ByteStream;
use parking_lot::Mutex;
use s3s::StdError;
use s3s::dto::StreamingBlob;
use s3s::stream::RemainingLength;

/// Body of known length. s3s requires streams that are `Sync`: the mutex provides that, and is
/// never locked.
struct ResponseStream {
    bytes: Mutex<ByteStream>,
    remaining: u64,
}

/// Body of `length` bytes in s3s's type.
pub(super) fn response_stream(bytes: ByteStream, length: u64) -> StreamingBlob {
    StreamingBlob::new(ResponseStream { bytes: Mutex::new(bytes), remaining: length })
}

impl Stream for ResponseStream {
    type Item = Result<Bytes, StdError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        match ready!(this.bytes.get_mut().as_mut().poll_next(context)) {
            Some(Ok(bytes)) => {
                this.remaining = this.remaining.saturating_sub(bytes.len() as u64);
                Poll::Ready(Some(Ok(bytes)))
            }
            Some(Err(error)) => {
                // The status is sent already. An error breaks the connection, so that the client
                // receives fewer bytes than announced.
                tracing::error!(%error, "a read failed after its reply had begun");
                Poll::Ready(Some(Err(error.into())))
            }
            None => Poll::Ready(None),
        }
    }
}

impl s3s::stream::ByteStream for ResponseStream {
    fn remaining_length(&self) -> RemainingLength {
        usize::try_from(self.remaining)
            .map_or_else(|_| RemainingLength::unknown(), RemainingLength::new_exact)
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use s3s::stream::ByteStream as _;

    use super::*;

    #[tokio::test]
    async fn the_length_shrinks_as_bytes_leave() {
        let chunks = [Ok(Bytes::from_static(b"abc")), Ok(Bytes::from_static(b"de"))];
        let mut blob = response_stream(Box::pin(futures::stream::iter(chunks)), 5);
        assert_eq!(blob.remaining_length().exact(), Some(5));
        assert_eq!(blob.next().await.unwrap().unwrap(), "abc");
        assert_eq!(blob.remaining_length().exact(), Some(2));
        assert_eq!(blob.next().await.unwrap().unwrap(), "de");
        assert_eq!(blob.remaining_length().exact(), Some(0));
        assert!(blob.next().await.is_none());
    }

    #[tokio::test]
    async fn an_error_ends_the_stream_as_an_error() {
        let chunks = [Err(martlet_protocol::Error::corrupt("flipped"))];
        let mut blob = response_stream(Box::pin(futures::stream::iter(chunks)), 5);
        assert!(blob.next().await.unwrap().is_err());
    }
}

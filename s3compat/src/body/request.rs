//! Body of a request, on its way to an operation.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::Stream;
use http_body::Body;
use martlet_protocol::{ByteStream, Error};

use crate::decode::BodyError;
use crate::limits::meter::Meters;

type CheckedBytes = Pin<Box<dyn Body<Data = Bytes, Error = BodyError> + Send>>;

/// Body that an operation stores, as a stream of checked bytes. Documents are read by the HTTP
/// pipeline, and are no bodies of this type.
#[derive(Default)]
pub(crate) struct RequestBody {
    /// None without a body.
    bytes: Option<CheckedBytes>,
    /// Meters of the sender, if a rate limits it.
    meters: Option<Meters>,
}

impl RequestBody {
    /// Body of these checked bytes.
    pub(crate) fn new<B>(bytes: B) -> Self
    where
        B: Body<Data = Bytes, Error = BodyError> + Send + 'static,
    {
        Self { bytes: Some(Box::pin(bytes)), meters: None }
    }

    /// Charges the bytes to the sender, if a rate limits it.
    pub(crate) fn charge_to(&mut self, meters: &Meters) {
        self.meters = meters.is_limited().then(|| meters.clone());
    }

    /// Stream for the object layer. All its errors count as the client's.
    pub(crate) fn into_stream(self) -> ByteStream {
        match self.bytes {
            Some(_) => Box::pin(self),
            None => Box::pin(futures::stream::empty()),
        }
    }

    #[cfg(test)]
    pub(crate) async fn collect(self) -> Result<Bytes, BodyError> {
        use futures::TryStreamExt;
        let chunks = self.into_stream().try_collect::<Vec<_>>().await;
        let chunks = chunks.map_err(|error| BodyError::find(&error).expect("a body error").clone());
        Ok(chunks?.concat().into())
    }
}

impl fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestBody")
            .field("is_empty", &self.bytes.is_none())
            .finish_non_exhaustive()
    }
}

impl Stream for RequestBody {
    type Item = Result<Bytes, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Self { bytes: Some(bytes), meters } = &mut *self else { return Poll::Ready(None) };
        loop {
            match ready!(bytes.as_mut().poll_frame(context)) {
                None => return Poll::Ready(None),
                Some(Err(error)) => {
                    let error = Error::invalid("the body ended in an error").with_source(error);
                    return Poll::Ready(Some(Err(error)));
                }
                Some(Ok(frame)) => {
                    let Ok(bytes) = frame.into_data() else { continue };
                    if let Some(meters) = meters {
                        meters.charge(bytes.len() as u64);
                    }
                    return Poll::Ready(Some(Ok(bytes)));
                }
            }
        }
    }
}

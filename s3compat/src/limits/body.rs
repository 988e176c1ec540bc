//! Metering of request bodies.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use s3s::{Body, StdError};

use super::meter::Meters;

/// A body whose bytes are metered.
#[derive(Debug)]
struct MeteredBody {
    body: Body,
    meters: Meters,
}

/// Wraps a body so that its bytes are metered. Returns the body unchanged if no rate limits its
/// sender.
pub(crate) fn metered(body: Body, meters: &Meters) -> Body {
    if !meters.is_limited() {
        return body;
    }
    match body.bytes() {
        Some(whole) => {
            meters.charge(whole.len() as u64);
            body
        }
        None => Body::http_body_unsync(MeteredBody { body, meters: meters.clone() }),
    }
}

impl HttpBody for MeteredBody {
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            self.meters.charge(frame.data_ref().map_or(0, |data| data.len() as u64));
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        HttpBody::size_hint(&self.body)
    }
}

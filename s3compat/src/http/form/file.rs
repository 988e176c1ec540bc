//! File of a form, as a stream. Only a few chunks of it are in memory at a time.

use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::Stream;
use http_body::{Body, Frame};
use multer::{Field, Multipart};

use crate::decode::BodyError;

/// Bytes that the form's parser receives at a time while it reads the fields.
const SIP_BYTES: usize = 4096;

/// Bytes that the parser of a form may still receive. It reads ahead as far as it can, so it must
/// not receive more than it may hold.
#[derive(Clone, Debug)]
pub(super) struct ByteAllowance(Arc<AtomicU64>);

impl ByteAllowance {
    pub(super) fn of(bytes: u64) -> Self {
        Self(Arc::new(AtomicU64::new(bytes)))
    }

    pub(super) fn set(&self, bytes: u64) {
        self.0.store(bytes, Ordering::Relaxed);
    }

    fn left(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Passes a body on in chunks with a pause after each, so that the parser uses up a chunk before it
/// requests the next one.
pub(super) struct PacedBody<S> {
    inner: S,
    allowance: ByteAllowance,
    rest: Bytes,
    is_pausing: bool,
}

impl<S> PacedBody<S> {
    pub(super) fn new(inner: S, allowance: ByteAllowance) -> Self {
        Self { inner, allowance, rest: Bytes::new(), is_pausing: false }
    }

    fn sip(&mut self) -> Result<Bytes, BodyError> {
        let left = self.allowance.left();
        if left == u64::MAX {
            return Ok(std::mem::take(&mut self.rest));
        }
        let piece = self.rest.split_to(self.rest.len().min(SIP_BYTES));
        let left = left.checked_sub(piece.len() as u64).ok_or(BodyError::FormFields)?;
        self.allowance.set(left);
        Ok(piece)
    }
}

impl<S: Stream<Item = Result<Bytes, BodyError>> + Unpin> Stream for PacedBody<S> {
    type Item = Result<Bytes, BodyError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if std::mem::take(&mut self.is_pausing) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        while self.rest.is_empty() {
            match ready!(Pin::new(&mut self.inner).poll_next(context)) {
                Some(Ok(bytes)) => self.rest = bytes,
                other => return Poll::Ready(other),
            }
        }
        self.is_pausing = true;
        Poll::Ready(Some(self.sip()))
    }
}

/// Bytes of a form's file, within the length that its policy allows.
pub(super) struct FileBody {
    form: Multipart<'static>,
    /// None after its end.
    file: Option<Field<'static>>,
    allowance: ByteAllowance,
    /// Maximum bytes of the form after its file.
    rest_bytes_max: u64,
    allowed: RangeInclusive<u64>,
    passed: u64,
    is_ended: bool,
}

impl FileBody {
    pub(super) fn new(
        form: Multipart<'static>,
        file: Field<'static>,
        allowance: ByteAllowance,
        rest_bytes_max: u64,
    ) -> Self {
        allowance.set(u64::MAX);
        let (file, allowed) = (Some(file), 0..=u64::MAX);
        Self { form, file, allowance, rest_bytes_max, allowed, passed: 0, is_ended: false }
    }

    /// Sets the allowed length of the file, in bytes.
    pub(super) fn allow(&mut self, allowed: RangeInclusive<u64>) {
        self.allowed = allowed;
    }

    fn poll_bytes(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, BodyError>> {
        while let Some(file) = &mut self.file {
            let piece = ready!(Pin::new(file).poll_next(context)).transpose();
            let (minimum, maximum) = (*self.allowed.start(), *self.allowed.end());
            if let Some(bytes) = piece.map_err(|error| found(&error))? {
                self.passed += bytes.len() as u64;
                if self.passed > maximum {
                    return Poll::Ready(Err(BodyError::TooLarge { maximum }));
                }
                if !bytes.is_empty() {
                    return Poll::Ready(Ok(Some(bytes)));
                }
            } else if self.passed < minimum {
                return Poll::Ready(Err(BodyError::TooSmall { size: self.passed, minimum }));
            } else {
                self.file = None;
                self.allowance.set(self.rest_bytes_max);
            }
        }
        // Fields after the file are ignored, but the form must have an end.
        loop {
            let field = ready!(self.form.poll_next_field(context));
            if field.map_err(|error| found(&error))?.is_none() {
                return Poll::Ready(Ok(None));
            }
        }
    }
}

impl Body for FileBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.is_ended {
            return Poll::Ready(None);
        }
        let next = ready!(self.poll_bytes(context)).transpose();
        self.is_ended = !matches!(next, Some(Ok(_)));
        Poll::Ready(next.map(|result| result.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.is_ended
    }
}

/// Error of the body behind a parser's error, or an error of the form in it.
pub(super) fn found(error: &multer::Error) -> BodyError {
    use multer::Error::{IncompleteFieldData, IncompleteHeaders, IncompleteStream};
    if let Some(error) = BodyError::find(error) {
        return error.clone();
    }
    match error {
        IncompleteFieldData { .. } | IncompleteHeaders | IncompleteStream => {
            BodyError::MalformedForm("the closing boundary is missing")
        }
        _ => BodyError::MalformedForm("its parts are malformed"),
    }
}

#[cfg(test)]
mod tests {
    use futures::{StreamExt, stream};

    use super::*;

    #[tokio::test]
    async fn a_form_is_taken_in_sips_up_to_what_is_allowed() {
        let chunks = [vec![1_u8; 10_000], vec![2; 10_000]];
        let chunks = stream::iter(chunks.map(|chunk| Ok(Bytes::from(chunk))));
        let allowance = ByteAllowance::of(9000);
        let mut sips = PacedBody::new(chunks, allowance.clone());
        let mut next = async || sips.next().await.unwrap().map(|bytes| bytes.len());
        assert_eq!((next().await, next().await), (Ok(SIP_BYTES), Ok(SIP_BYTES)));
        assert_eq!(next().await, Err(BodyError::FormFields), "10,000 bytes are more than 9,000");
        allowance.set(u64::MAX);
        assert_eq!(next().await, Ok(10_000), "a file comes as it came");
    }

    #[tokio::test]
    async fn behind_each_sip_there_is_a_pause() {
        let chunks = stream::iter([1, 2].map(|byte| Ok(Bytes::from(vec![byte; 3]))));
        let mut sips = PacedBody::new(chunks, ByteAllowance::of(u64::MAX));
        let mut polls = Vec::new();
        for _ in 0..4 {
            polls.push(futures::poll!(sips.next()).is_ready());
        }
        assert_eq!(polls, [true, false, true, false]);
    }
}

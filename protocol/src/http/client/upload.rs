//! Request bodies: whole ones, and streams with progress.
//!
//! A stream that fails, or whose length differs from the announced one, cuts the request, so that
//! the node stores nothing. The stream's own error is kept for the caller. Progress distinguishes a
//! slow node from a slow source: only a slow node is timed out.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use crate::backend::{ByteStream, ExtentHashes, NewExtent, SentHashes};
use crate::error::{Error, Result};

/// The body of a request.
pub(super) enum RequestBody {
    /// One chunk, or nothing.
    Whole(Bytes),
    /// A stream of chunks.
    Stream(ExtentUpload),
}

/// A stream of an extent to a node.
pub(super) struct ExtentUpload {
    source: ByteStream,
    /// Bytes still to come, if the length was announced.
    owed: Option<u64>,
    last: Option<Bytes>,
    /// Hashes that follow the bytes.
    hashes: Option<SentHashes>,
    /// Length of the body with its hashes, if known.
    length: Option<u64>,
    progress: Arc<UploadProgress>,
}

/// Progress of a stream, for the caller that waits for the reply.
#[derive(Debug)]
pub(super) struct UploadProgress(Mutex<ProgressState>);

#[derive(Debug)]
struct ProgressState {
    phase: Phase,
    since: Instant,
    failure: Option<Error>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The source has no bytes yet.
    Waiting,
    /// The node accepts the bytes sent.
    Sending,
    /// All bytes were sent.
    Ended,
}

/// Cuts the connection; [`UploadProgress`] holds the cause.
#[derive(Debug, thiserror::Error)]
#[error("the body ended early")]
pub(super) struct BodyCut;

impl ExtentUpload {
    /// The bytes of `source`, followed by their hashes if `extent` has any.
    pub(super) fn new(source: ByteStream, extent: &NewExtent) -> (Self, Arc<UploadProgress>) {
        let state = ProgressState { phase: Phase::Sending, since: Instant::now(), failure: None };
        let progress = Arc::new(UploadProgress(Mutex::new(state)));
        let (owed, hashes) = (extent.length, extent.hashes.clone());
        let hash_bytes =
            |length| if hashes.is_some() { ExtentHashes::encoded_bytes(length) } else { 0 };
        let length = owed.map(|length| length + hash_bytes(length));
        let upload = Self { source, owed, last: None, hashes, length, progress: progress.clone() };
        (upload, progress)
    }

    /// Polls the next chunk. The last chunk of an announced length is held back until the source
    /// has ended, so that a late error still prevents the node from storing.
    fn poll_source(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        loop {
            match ready!(self.source.as_mut().poll_next(context)) {
                Some(Ok(piece)) if piece.is_empty() => {}
                Some(Ok(piece)) => match self.owed.map(|owed| owed.checked_sub(piece.len() as u64))
                {
                    None => return Poll::Ready(Some(Ok(piece))),
                    Some(None) => return Poll::Ready(Some(Err(other_length()))),
                    Some(Some(0)) => {
                        self.owed = Some(0);
                        self.last = Some(piece);
                    }
                    Some(owed) => {
                        self.owed = owed;
                        return Poll::Ready(Some(Ok(piece)));
                    }
                },
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None if self.owed.is_some_and(|owed| owed > 0) => {
                    return Poll::Ready(Some(Err(other_length())));
                }
                None => return Poll::Ready(self.ending()),
            }
        }
    }

    /// The next chunk after the source has ended: the last bytes, then their hashes.
    fn ending(&mut self) -> Option<Result<Bytes>> {
        if let Some(last) = self.last.take() {
            return Some(Ok(last));
        }
        let hashes = self.hashes.take()?;
        Some(hashes.get().map(|hashes| hashes.encode().into()))
    }
}

fn other_length() -> Error {
    Error::invalid("the extent's length differs from the announced length")
}

impl UploadProgress {
    fn enter(&self, phase: Phase) {
        let mut state = self.0.lock();
        state.phase = phase;
        state.since = Instant::now();
    }

    fn fail(&self, error: Error) {
        self.0.lock().failure = Some(error);
    }

    /// Takes the stream's own error, if it ended the stream.
    pub(super) fn failure(&self) -> Option<Error> {
        self.0.lock().failure.take()
    }

    /// True if the connection received all bytes.
    pub(super) fn is_ended(&self) -> bool {
        self.0.lock().phase == Phase::Ended
    }

    /// Returns after the node has accepted nothing for `idle`, or has not replied within `finish`
    /// of the last byte.
    pub(super) async fn stalled(&self, idle: Duration, finish: Duration) {
        loop {
            let deadline = {
                let state = self.0.lock();
                match state.phase {
                    Phase::Waiting => Instant::now() + idle,
                    Phase::Sending => state.since + idle,
                    Phase::Ended => state.since + finish,
                }
            };
            if deadline <= Instant::now() {
                return;
            }
            sleep_until(deadline).await;
        }
    }
}

impl Stream for ExtentUpload {
    type Item = Result<Bytes, BodyCut>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Poll::Ready(next) = self.poll_source(context) else {
            self.progress.enter(Phase::Waiting);
            return Poll::Pending;
        };
        let has_more = self.last.is_some() || self.hashes.is_some();
        let is_last = next.is_none() || self.owed == Some(0) && !has_more;
        self.progress.enter(if is_last { Phase::Ended } else { Phase::Sending });
        Poll::Ready(next.map(|piece| {
            piece.map_err(|error| {
                self.progress.fail(error);
                BodyCut
            })
        }))
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyCut;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyCut>>> {
        match self.get_mut() {
            Self::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::Stream(upload) => {
                Pin::new(upload).poll_next(context).map(|next| next.map(|p| p.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Stream(upload) => {
                upload.length.map_or_else(SizeHint::default, SizeHint::with_exact)
            }
        }
    }
}

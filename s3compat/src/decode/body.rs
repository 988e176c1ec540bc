//! Decoded bodies of requests: any HTTP body in, checked object bytes out.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use sha2::{Digest, Sha256};
use tokio::time::{Instant, Sleep, sleep, timeout};

use super::chunked::ChunkDecoder;
use super::error::BodyError;
use super::facts::BodyFacts;
use super::poll_flag::PollFlag;
use crate::limits::documents::DocumentMemory;

/// Chunks shorter than this are copied: a short one may be all that is used of a long buffer.
const PIECE_BYTES_MIN: usize = 8 * 1024;

/// Framing of a body, and its integrity check.
#[derive(Debug)]
pub(crate) enum Framing {
    /// No framing.
    Plain,
    /// No framing, with this SHA-256.
    Hashed([u8; 32]),
    /// The aws-chunked encoding.
    Chunked(Box<ChunkDecoder>),
}

/// Handling of a body.
#[derive(Debug)]
pub(crate) struct BodyPlan {
    pub(crate) framing: Framing,
    pub(crate) facts: Arc<BodyFacts>,
    pub(crate) patience: BodyTimeouts,
    /// Set when the body is requested from the client.
    pub(crate) polled: PollFlag,
}

/// Timeouts for a client within a body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyTimeouts {
    /// Maximum silence. Zero means no limit, whatever the rate.
    pub(crate) idle: Duration,
    /// Minimum bytes for each second of waiting, over a time of `idle`. Zero means that any byte
    /// suffices.
    pub(crate) bytes_per_second_min: u64,
    /// Maximum time for a whole document. Zero means no limit.
    pub(crate) whole: Duration,
}

/// A body without its framing, checked against its announcement.
#[derive(Debug)]
pub struct DecodedBody<B> {
    inner: B,
    check: BodyCheck,
    facts: Arc<BodyFacts>,
    polled: PollFlag,
    passed: u64,
    /// Bytes that complete the announced length, held until everything else is checked.
    last: Option<Bytes>,
    is_ended: bool,
    wait: WaitBudget,
}

#[derive(Debug)]
enum BodyCheck {
    None,
    Hash(Sha256, [u8; 32]),
    Chunks(Box<ChunkDecoder>),
}

/// Timeout for a client that sends too little for too long.
///
/// The client has a budget of waiting time. Waiting uses the budget up. Received bytes refill it at
/// the minimum rate, up to its initial value. Without a minimum rate any byte refills it.
#[derive(Debug)]
struct WaitBudget {
    patience: BodyTimeouts,
    /// Remaining waiting time.
    left: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    /// Start of the current wait.
    since: Option<Instant>,
}

impl<B> DecodedBody<B> {
    pub(crate) fn new(inner: B, plan: BodyPlan) -> Self {
        let check = match plan.framing {
            Framing::Plain => BodyCheck::None,
            Framing::Hashed(expected) => BodyCheck::Hash(Sha256::new(), expected),
            Framing::Chunked(decoder) => BodyCheck::Chunks(decoder),
        };
        Self {
            inner,
            check,
            facts: plan.facts,
            polled: plan.polled,
            passed: 0,
            last: None,
            is_ended: false,
            wait: WaitBudget::new(plan.patience),
        }
    }

    /// Accepts a chunk as received. Returns a chunk to pass on, if any.
    fn push(&mut self, bytes: Bytes) -> Result<Option<Bytes>, BodyError> {
        match &mut self.check {
            BodyCheck::None => self.admit(bytes),
            BodyCheck::Hash(hash, _) => {
                hash.update(&bytes);
                self.admit(bytes)
            }
            BodyCheck::Chunks(decoder) => {
                decoder.push(bytes)?;
                self.pop()
            }
        }
    }

    /// Returns the decoder's next chunk, if any.
    fn pop(&mut self) -> Result<Option<Bytes>, BodyError> {
        let BodyCheck::Chunks(decoder) = &mut self.check else { return Ok(None) };
        match decoder.pop() {
            Some(bytes) => self.admit(bytes),
            None => Ok(None),
        }
    }

    /// Counts object bytes, and holds back the last ones.
    fn admit(&mut self, bytes: Bytes) -> Result<Option<Bytes>, BodyError> {
        if bytes.is_empty() {
            return Ok(None);
        }
        self.passed += bytes.len() as u64;
        match self.facts.length() {
            Some(length) if self.passed > length => Err(BodyError::Incomplete),
            Some(length) if self.passed == length => {
                self.last = Some(bytes);
                Ok(None)
            }
            _ => Ok(Some(bytes)),
        }
    }

    /// Makes all checks that need the whole body.
    fn end(&mut self) -> Result<(), BodyError> {
        let trailers = match &mut self.check {
            BodyCheck::None => HeaderMap::new(),
            BodyCheck::Hash(hash, expected) => {
                let digest: [u8; 32] = hash.finalize_reset().into();
                // A truncated body also has another hash: report the truncation.
                if digest != *expected && self.facts.length().is_none_or(|at| at == self.passed) {
                    return Err(BodyError::ContentSha256 { given: *expected, computed: digest });
                }
                HeaderMap::new()
            }
            BodyCheck::Chunks(decoder) => decoder.finish()?,
        };
        if self.facts.length().is_some_and(|length| length != self.passed) {
            return Err(BodyError::Incomplete);
        }
        self.is_ended = true;
        self.facts.end(trailers);
        Ok(())
    }
}

impl WaitBudget {
    fn new(patience: BodyTimeouts) -> Self {
        Self { patience, left: patience.idle, timer: None, since: None }
    }

    /// Records received bytes.
    fn came(&mut self, bytes: usize) {
        let BodyTimeouts { idle, bytes_per_second_min: rate, .. } = self.patience;
        let waited = self.since.take().map_or(Duration::ZERO, |since| since.elapsed());
        let earned = (bytes as u64 * 1_000_000).checked_div(rate).map(Duration::from_micros);
        self.left = earned.map_or(idle, |earned| {
            self.left.saturating_sub(waited).saturating_add(earned).min(idle)
        });
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<BodyError> {
        if self.patience.idle.is_zero() {
            return Poll::Pending;
        }
        let left = self.left;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(left)));
        if self.since.is_none() {
            let now = Instant::now();
            self.since = Some(now);
            timer.as_mut().reset(now + left);
        }
        timer.as_mut().poll(cx).map(|()| BodyError::Stalled)
    }
}

impl<B> DecodedBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        loop {
            if self.is_ended {
                return Poll::Ready(self.last.take().map(Ok));
            }
            if let Some(bytes) = self.pop()? {
                return Poll::Ready(Some(Ok(bytes)));
            }
            match self.poll_inner(cx) {
                Poll::Pending => {
                    return self.wait.poll(cx).map(|silence| Some(Err(silence)));
                }
                Poll::Ready(None) => self.end()?,
                Poll::Ready(Some(bytes)) => {
                    let bytes = bytes?;
                    self.wait.came(bytes.len());
                    if let Some(bytes) = self.push(bytes)? {
                        return Poll::Ready(Some(Ok(bytes)));
                    }
                }
            }
        }
    }

    /// Returns the next data as received. HTTP's own trailers are ignored.
    fn poll_inner(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        self.polled.set();
        loop {
            match ready!(Pin::new(&mut self.inner).poll_frame(cx)) {
                None => return Poll::Ready(None),
                Some(Err(error)) => {
                    return Poll::Ready(Some(Err(BodyError::Transport(error.to_string()))));
                }
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Poll::Ready(Some(Ok(owned(bytes))));
                    }
                }
            }
        }
    }
}

/// Copies short chunks, because they would keep a long buffer alive.
fn owned(bytes: Bytes) -> Bytes {
    if bytes.len() < PIECE_BYTES_MIN { Bytes::copy_from_slice(&bytes) } else { bytes }
}

impl<B> Body for DecodedBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        let next = ready!(this.poll_data(cx));
        if matches!(next, Some(Err(_))) {
            // Nothing may follow an error, least of all the bytes held back.
            this.is_ended = true;
            this.last = None;
        }
        Poll::Ready(next.map(|result| result.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.is_ended && self.last.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let held = self.last.as_ref().map_or(0, |bytes| bytes.len() as u64);
        match self.facts.length() {
            Some(length) => SizeHint::with_exact(length.saturating_sub(self.passed) + held),
            None => SizeHint::default(),
        }
    }
}

/// Reads a whole body of up to `limit` bytes, whose memory is taken from `share` as they arrive.
pub(crate) async fn collect<B>(
    body: DecodedBody<B>,
    limit: u64,
    share: &mut DocumentMemory,
) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    if body.facts.length().is_some_and(|length| length > limit) {
        return Err(BodyError::TooLong { limit });
    }
    let time = body.wait.patience.whole;
    let whole = gather(body, limit, share);
    if time.is_zero() {
        return whole.await;
    }
    timeout(time, whole).await.unwrap_or(Err(BodyError::Stalled))
}

async fn gather<B>(
    mut body: DecodedBody<B>,
    limit: u64,
    share: &mut DocumentMemory,
) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let mut whole = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(bytes) = frame?.into_data() else { continue };
        let length = whole.len() + bytes.len();
        if length as u64 > limit {
            return Err(BodyError::TooLong { limit });
        }
        if length > whole.capacity() {
            let most = usize::try_from(limit).unwrap_or(usize::MAX);
            let capacity = length.next_power_of_two().clamp(length, most);
            if !share.grow(capacity - whole.capacity()) {
                return Err(BodyError::NoMemory);
            }
            whole.reserve_exact(capacity - whole.len());
        }
        whole.extend_from_slice(&bytes);
    }
    Ok(whole.into())
}

#[cfg(test)]
mod tests;

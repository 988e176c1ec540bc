//! A channel at a node: reads calls, and sends each reply once it is ready.
//!
//! ```text
//! read ─ open frames ─ begin calls ─┬─ ready at once ─────────▶ seal replies ─ one write
//!                                   └─ waits ─▶ calls ─ ready ─▶
//! ```
//!
//! One task serves a channel: the task of its connection. Replies that are ready together are
//! written by one system call. While a client doesn't take its replies, the node reads no more
//! calls from it: of replies, at most [`OUT_BYTES_MAX`] and one more wait in memory.

use std::collections::HashMap;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures::future::{AbortHandle, Abortable, BoxFuture};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt, poll};
use http::{HeaderValue, StatusCode};
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::StrDeserializer;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep};

use super::guard::Guard;
use super::handler::{HandlerState, ServedCall};
use crate::backend::{Call, CallKind};
use crate::error::{Error, Result};
use crate::http::Announcement;
use crate::http::call_codec::decode_call;
use crate::http::channel::frame::{Frame, FrameError, FrameKind, Opener, Sealer};
use crate::http::channel::frame_reader::FrameReader;
use crate::http::channel::message::{BodyLayout, ReplyHead, TracedCallHead};
use crate::http::channel::session::SessionKeys;
use crate::http::channel::{CALL_FRAME_BYTES_MAX, NODE_AGE_MAX, RESULT_BYTES_MAX};
use crate::http::fault::{self, Fault};
use crate::http::request::with_request;
use crate::http::trace_tag;
use crate::id::DeviceId;
use crate::trace::SpanScope;

/// Bytes of replies from which they are written before further calls are read.
const OUT_BYTES_MAX: usize = 64 * 1024;
/// Longest time without a call in a channel without calls under way. It exceeds the clients' own
/// limit, so that no client sends on a channel that is being closed.
const IDLE_MAX: Duration = Duration::from_mins(1);
/// Time between two comparisons with the limits.
const CHECK_EVERY: Duration = Duration::from_secs(10);
/// Time in which a client closes a channel without calls after [`FrameKind::Goodbye`].
const GOODBYE_MAX: Duration = Duration::from_secs(1);

/// A call that waits.
type WaitingCall = Abortable<BoxFuture<'static, FinishedCall>>;

/// A call with its outcome.
struct FinishedCall {
    call: u32,
    is_background: bool,
    outcome: Result<Bytes>,
}

/// A frame that a client may send.
enum Received {
    Call(u32, BoxFuture<'static, FinishedCall>),
    Cancel(u32),
}

/// A channel that a node serves.
pub(super) struct ServedChannel {
    guard: Guard,
    served: Arc<HandlerState>,
    layout: BodyLayout,
    frames: FrameReader,
    sealer: Sealer,
    /// Sealed replies that aren't written yet.
    out: Vec<u8>,
    calls: FuturesUnordered<WaitingCall>,
    cancels: HashMap<u32, AbortHandle>,
    /// Announcement that the client received last.
    announced: Option<Announcement>,
    /// Millisecond in which the present announcement was last compared with it.
    compared_ms: Option<u64>,
    heard: Instant,
    cut_at: Instant,
    is_stopping: bool,
}

impl ServedChannel {
    pub(super) fn new(
        keys: &SessionKeys,
        layout: BodyLayout,
        guard: Guard,
        served: HandlerState,
    ) -> Self {
        let now = Instant::now();
        Self {
            guard,
            served: Arc::new(served),
            layout,
            frames: FrameReader::new(Opener::new(keys.calls, CALL_FRAME_BYTES_MAX)),
            sealer: Sealer::new(keys.replies),
            out: Vec::new(),
            calls: FuturesUnordered::new(),
            cancels: HashMap::new(),
            announced: None,
            compared_ms: None,
            heard: now,
            cut_at: now + NODE_AGE_MAX,
            is_stopping: false,
        }
    }

    /// Serves the channel until its client closes it, breaks a rule, or is silent for too long.
    /// Calls that are under way then are dropped.
    pub(super) async fn run(
        mut self,
        mut reader: impl AsyncRead + Unpin,
        mut writer: impl AsyncWrite + Unpin,
        stop: impl Future<Output = ()>,
    ) {
        let mut stop = pin!(stop.fuse());
        let mut check = pin!(sleep(CHECK_EVERY));
        let mut is_flushed = true;
        while self.begin_calls().await.is_ok() {
            let has_room = self.out.len() < OUT_BYTES_MAX;
            let (calls_wait, replies_wait) = (!self.calls.is_empty(), !self.out.is_empty());
            // Ready replies come first, then further calls, so that one write sends many replies.
            tokio::select! {
                biased;
                Some(finished) = self.calls.next(), if has_room && calls_wait => {
                    if let Ok(finished) = finished {
                        self.reply(finished);
                    }
                }
                read = self.frames.read(&mut reader), if has_room => match read {
                    Ok(true) => self.heard = Instant::now(),
                    _ => return,
                },
                written = write(&mut writer, &self.out, calls_wait), if replies_wait || !is_flushed => {
                    match written {
                        Ok(0) if !replies_wait => is_flushed = true,
                        Ok(bytes @ 1..) => {
                            self.out.drain(..bytes);
                            is_flushed = false;
                        }
                        _ => return,
                    }
                }
                () = stop.as_mut() => {
                    self.sealer.seal(&mut self.out, FrameKind::Goodbye, 0, [b"", b""]);
                    self.is_stopping = true;
                    check.as_mut().reset(Instant::now() + GOODBYE_MAX);
                }
                () = check.as_mut() => {
                    if self.is_over() {
                        return;
                    }
                    let pause = if self.is_stopping { GOODBYE_MAX } else { CHECK_EVERY };
                    check.as_mut().reset(Instant::now() + pause);
                }
            }
        }
    }

    /// Returns true if the channel is too old, or has been without calls for too long.
    fn is_over(&self) -> bool {
        let now = Instant::now();
        let is_idle = self.calls.is_empty() && self.out.is_empty();
        now >= self.cut_at || is_idle && (self.is_stopping || now - self.heard >= IDLE_MAX)
    }

    /// Begins the calls that were read, while there is room for replies.
    async fn begin_calls(&mut self) -> Result<(), FrameError> {
        while self.out.len() < OUT_BYTES_MAX {
            let next = self.frames.next(|frame| receive(&self.served, self.layout, &frame))?;
            match next {
                None => break,
                Some(None) => return Err(FrameError::Kind),
                Some(Some(Received::Call(call, mut work))) => match poll!(work.as_mut()) {
                    // Most reads are answered from memory, and never wait.
                    Poll::Ready(finished) => self.reply(finished),
                    Poll::Pending => {
                        let (cancel, registration) = AbortHandle::new_pair();
                        self.cancels.insert(call, cancel);
                        self.calls.push(Abortable::new(work, registration));
                    }
                },
                Some(Some(Received::Cancel(call))) => {
                    if let Some(cancel) = self.cancels.remove(&call) {
                        cancel.abort();
                        self.take_finished().await;
                        // Each call is answered once: so a client notices a connection that is dead.
                        let outcome = Err(Error::unavailable("the call was cancelled"));
                        self.reply(FinishedCall { call, is_background: false, outcome });
                    }
                }
            }
        }
        Ok(())
    }

    /// Drops calls that were cancelled, and seals replies that are ready.
    async fn take_finished(&mut self) {
        while self.out.len() < OUT_BYTES_MAX
            && let Poll::Ready(Some(finished)) = poll!(self.calls.next())
        {
            if let Ok(finished) = finished {
                self.reply(finished);
            }
        }
    }

    /// Seals the reply of a call.
    fn reply(&mut self, finished: FinishedCall) {
        let FinishedCall { call, is_background, outcome } = finished;
        self.cancels.remove(&call);
        let outcome = outcome.and_then(|result| {
            let is_short = result.len() <= RESULT_BYTES_MAX;
            is_short.then_some(result).ok_or_else(|| Error::internal("the reply is too long"))
        });
        let now_ms = self.guard.clock.now_ms();
        let news = self.news(now_ms);
        let clients_wait = is_background.then(|| self.served.pressure.get().as_micros());
        let fault = outcome.as_ref().err().map(Fault::of);
        let head = ReplyHead {
            now_ms,
            announced: news.as_ref().map(Announcement::fields),
            clients_wait_us: clients_wait.map(|us| u64::try_from(us).unwrap_or(u64::MAX)),
            fault,
        };
        self.sealer.seal_with(&mut self.out, FrameKind::Reply, call, |out| {
            self.layout.append_head(out, &head);
            match &outcome {
                Ok(result) => out.extend_from_slice(result),
                Err(error) => out.extend_from_slice(fault::sentence(error).as_bytes()),
            }
        });
        if news.is_some() {
            self.announced = news;
        }
    }

    /// Returns the present announcement, if the client hasn't received it. Looks once in each
    /// millisecond: a change is announced by the first reply of the next one.
    fn news(&mut self, now_ms: u64) -> Option<Announcement> {
        if self.compared_ms.replace(now_ms) == Some(now_ms) {
            return None;
        }
        // Frames leave cluster time out: it would be news in each of them.
        let announcement = (self.guard.announce)().with_cluster_time(None);
        (self.announced.as_ref() != Some(&announcement)).then_some(announcement)
    }
}

/// Writes some bytes; without bytes, flushes those written before. If calls wait, their replies may
/// be ready with the next turn of the task, and are then written together.
async fn write(
    writer: &mut (impl AsyncWrite + Unpin),
    bytes: &[u8],
    calls_wait: bool,
) -> io::Result<usize> {
    if bytes.is_empty() {
        return writer.flush().await.map(|()| 0);
    }
    if calls_wait {
        tokio::task::yield_now().await;
    }
    writer.write(bytes).await
}

/// Reads a frame of a client. None if clients don't send such frames.
fn receive(served: &Arc<HandlerState>, layout: BodyLayout, frame: &Frame<'_>) -> Option<Received> {
    match frame.kind {
        FrameKind::Call => Some(Received::Call(frame.call, begin(served, layout, frame))),
        FrameKind::Cancel => Some(Received::Cancel(frame.call)),
        FrameKind::Reply | FrameKind::Goodbye => None,
    }
}

/// Decodes a call and returns its work. Malformed calls are answered with an error.
fn begin(
    served: &Arc<HandlerState>,
    layout: BodyLayout,
    frame: &Frame<'_>,
) -> BoxFuture<'static, FinishedCall> {
    let call = frame.call;
    match CallWork::new(served.clone(), layout, frame.body) {
        Ok((work, CallOrigin { request, scope })) => {
            let work = match request {
                Some(request) => with_request(request, work.perform_observed(call)).boxed(),
                None => work.perform(call).boxed(),
            };
            match scope {
                Some(scope) => scope.run(work).boxed(),
                None => work,
            }
        }
        Err(error) => {
            let finished = FinishedCall { call, is_background: false, outcome: Err(error) };
            std::future::ready(finished).boxed()
        }
    }
}

/// The client's request that a call is made for.
struct CallOrigin {
    /// Id of the request.
    request: Option<HeaderValue>,
    /// Span of the caller, if the request is sampled and this node records spans.
    scope: Option<SpanScope>,
}

/// A decoded call, with the permit to perform it.
struct CallWork {
    served: Arc<HandlerState>,
    device: DeviceId,
    call: Call<'static>,
    deadline: Duration,
    is_background: bool,
    began: Instant,
    _permit: OwnedSemaphorePermit,
}

impl CallWork {
    /// Decodes a call; returns the client's request that it is made for too.
    fn new(
        served: Arc<HandlerState>,
        layout: BodyLayout,
        body: &[u8],
    ) -> Result<(Self, CallOrigin)> {
        let permit = served.index_calls.permit()?;
        let (TracedCallHead { head, trace }, arguments) = layout.decode_call(body)?;
        let call = decode_call(kind(head.kind)?, arguments)?;
        let request = head.request.and_then(|id| HeaderValue::from_bytes(id).ok());
        let spans = served.options.spans.as_ref();
        let scope = trace.zip(spans).and_then(|(trace, sink)| trace_tag::scope_of(trace, sink));
        let work = Self {
            served,
            device: DeviceId(head.device),
            call,
            deadline: Duration::from_millis(head.deadline_ms),
            is_background: head.is_background,
            began: Instant::now(),
            _permit: permit,
        };
        Ok((work, CallOrigin { request, scope }))
    }

    /// Performs the call within its timeout, and measures its duration for background work.
    async fn perform(self, id: u32) -> FinishedCall {
        let Self { served, device, call, deadline, is_background, began, _permit } = self;
        let outcome = served.in_time(deadline, served.answer(device, call)).await;
        if outcome.is_ok() && !is_background {
            served.pressure.observe(began.elapsed());
        }
        FinishedCall { call: id, is_background, outcome }
    }

    /// Performs the call for a client's request, and reports it to the observer.
    async fn perform_observed(self, id: u32) -> FinishedCall {
        let (served, device, kind) = (self.served.clone(), self.device, self.call.kind());
        let began = self.began;
        let finished = self.perform(id).await;
        if let Some(observe) = &served.options.call_observer {
            let status = finished.outcome.as_ref().map_or_else(fault::status, |_| StatusCode::OK);
            observe(ServedCall { device, kind, status, took: began.elapsed() });
        }
        finished
    }
}

fn kind(name: &str) -> Result<CallKind> {
    let name: StrDeserializer<'_, serde::de::value::Error> = name.into_deserializer();
    CallKind::deserialize(name)
        .map_err(|_| Error::unavailable("the node doesn't know the call").without_effect("unknown"))
}

#[cfg(test)]
mod tests;

//! A channel at a client: calls that wait for replies on one connection, and the task that moves
//! their frames.
//!
//! ```text
//! call ─ seal frame ─▶ out ─┬─ task: one write for all frames that are ready
//! call ─ seal frame ─▶      │        frames of replies ─ open ─▶ the call that waits
//! ```
//!
//! A dropped call sends a cancel frame, and the node drops its work for the call. When the
//! connection ends, all calls that wait end without a reply. Their outcome is unknown.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep};

use super::waiting_calls::{WAITING_MAX, WaitingCalls};
use crate::error::Result;
use crate::http::announce::ReportObserver;
use crate::http::channel::frame::{Frame, FrameKind, Opener, Sealer};
use crate::http::channel::frame_reader::FrameReader;
use crate::http::channel::message::{BodyLayout, CallHead, ReplyHead};
use crate::http::channel::session::SessionKeys;
use crate::http::channel::{CLIENT_AGE_MAX, REPLY_FRAME_BYTES_MAX};
use crate::http::{Announcement, NodeReport, trace_tag};

/// Bytes of frames that wait for the node. A call beyond goes by HTTP.
const OUT_BYTES_MAX: usize = 1024 * 1024;
/// Time without a frame of the node, while calls have no reply, from which further calls go by HTTP: the node
/// is slow, or the connection has lost packets.
const SILENCE_MAX: Duration = Duration::from_millis(250);
/// Most idle time of a channel, well below the node's own limit.
const IDLE_MAX: Duration = Duration::from_secs(20);
/// Time between two comparisons with the limits.
const CHECK_EVERY: Duration = Duration::from_secs(5);
/// Time in which further replies of a node whose state is the same are reported as repetitions.
const REPEATED_FOR: Duration = Duration::from_millis(50);

/// An open channel.
pub(super) struct Channel {
    state: Mutex<ChannelState>,
    /// Calls without a reply, cancelled ones included: the node answers each call once. Changed
    /// while the state is locked.
    unanswered: AtomicUsize,
    layout: BodyLayout,
    /// Wakes the task of the channel to write, or to end.
    work: Notify,
}

struct ChannelState {
    sealer: Sealer,
    /// Sealed frames that the task has not taken yet.
    out: Vec<u8>,
    waiting: WaitingCalls<WaitingCall>,
    /// Time of the last frame from the node, or of the first call since all were answered.
    heard: Instant,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// No new calls; the channel is closed after its last reply.
    Retired,
    Closed,
}

struct WaitingCall {
    reply: oneshot::Sender<Result<Bytes>>,
    began: Instant,
}

/// Outcome of a call in a channel.
pub(super) enum Outcome {
    /// The node's reply: the bytes of a result, or an error.
    Replied(Result<Bytes>),
    /// Nothing was sent: the channel takes no calls now.
    Unsent,
    /// The channel ended before the reply. The outcome is unknown.
    Lost,
}

impl Channel {
    fn new(keys: &SessionKeys, layout: BodyLayout) -> Self {
        let state = ChannelState {
            sealer: Sealer::new(keys.calls),
            out: Vec::new(),
            waiting: WaitingCalls::new(),
            heard: Instant::now(),
            phase: Phase::Open,
        };
        let (state, unanswered) = (Mutex::new(state), AtomicUsize::new(0));
        Self { state, unanswered, layout, work: Notify::new() }
    }

    /// Starts a channel on a connection whose node has proved its key.
    pub(super) fn start(
        keys: &SessionKeys,
        layout: BodyLayout,
        connection: impl AsyncRead + AsyncWrite + Send + 'static,
        report_observer: ReportObserver,
    ) -> Arc<Self> {
        let channel = Arc::new(Self::new(keys, layout));
        let (reader, writer) = tokio::io::split(connection);
        let replies = ReplyReader {
            frames: FrameReader::new(Opener::new(keys.replies, REPLY_FRAME_BYTES_MAX)),
            receiver: ReplyReceiver {
                channel: channel.clone(),
                announced: None,
                reported: None,
                report_observer,
            },
        };
        tokio::spawn(drive(CloseOnDrop(channel.clone()), replies, reader, writer));
        channel
    }

    /// Returns true if the channel will take calls again, now or after a pause.
    pub(super) fn is_open(&self) -> bool {
        self.state.lock().phase == Phase::Open
    }

    /// Takes no new calls, and closes the channel after its last reply.
    pub(super) fn retire(&self) {
        let mut state = self.state.lock();
        if state.phase == Phase::Open {
            state.phase = Phase::Retired;
        }
        drop(state);
        self.work.notify_one();
    }

    /// Sends a call and waits for its reply. The caller bounds the wait.
    pub(super) async fn call(&self, head: &CallHead<'_>, arguments: &[u8]) -> Outcome {
        if self.unanswered.load(Ordering::Relaxed) == 0 {
            // The task sees first if the node has closed the idle connection meanwhile.
            tokio::task::yield_now().await;
        }
        let Some(mut call) = self.send(head, arguments) else { return Outcome::Unsent };
        let reply = (&mut call.reply).await;
        call.is_over = true;
        reply.map_or(Outcome::Lost, Outcome::Replied)
    }

    fn send(&self, head: &CallHead<'_>, arguments: &[u8]) -> Option<SentCall<'_>> {
        let trace = trace_tag::current_parent();
        let (reply, receiver) = oneshot::channel();
        let mut state = self.state.lock();
        let (began, unanswered) = (Instant::now(), self.unanswered.load(Ordering::Relaxed));
        if unanswered == 0 {
            state.heard = began;
        }
        if !state.takes_calls(unanswered, began) {
            return None;
        }
        self.unanswered.store(unanswered + 1, Ordering::Relaxed);
        let ChannelState { sealer, out, waiting, .. } = &mut *state;
        let id = waiting.insert(WaitingCall { reply, began });
        sealer.seal_with(out, FrameKind::Call, id, |out| {
            self.layout.append_call(out, head, trace.as_deref());
            out.extend_from_slice(arguments);
        });
        drop(state);
        self.work.notify_one();
        Some(SentCall { channel: self, id, reply: receiver, is_over: false })
    }

    fn cancel(&self, id: u32) {
        let mut state = self.state.lock();
        if state.waiting.remove(id).is_none() {
            return;
        }
        let ChannelState { sealer, out, .. } = &mut *state;
        sealer.seal(out, FrameKind::Cancel, id, [b"", b""]);
        drop(state);
        self.work.notify_one();
    }

    /// Writes frames until a retired channel is over. Frames that are sealed meanwhile are written
    /// together.
    async fn write_frames(&self, mut writer: impl AsyncWrite + Unpin) -> io::Result<()> {
        let mut taken = Vec::new();
        loop {
            self.work.notified().await;
            if self.unanswered.load(Ordering::Relaxed) > 1 {
                // Other callers that are ready seal their frames first.
                tokio::task::yield_now().await;
            }
            let is_over = {
                let mut state = self.state.lock();
                std::mem::swap(&mut taken, &mut state.out);
                state.close_if_retired()
            };
            if !taken.is_empty() {
                writer.write_all(&taken).await?;
                writer.flush().await?;
                taken.clear();
            }
            if is_over {
                return Ok(());
            }
        }
    }

    /// Ends all calls without a reply.
    fn close(&self) {
        let mut state = self.state.lock();
        state.phase = Phase::Closed;
        let lost = std::mem::replace(&mut state.waiting, WaitingCalls::new());
        drop(state);
        drop(lost);
    }

    /// Closes the channel if no call waits, and none comes or has come for long. Returns true if
    /// the channel is closed.
    fn end_if_over(&self) -> bool {
        let mut state = self.state.lock();
        let is_idle = state.waiting.is_empty() && state.heard.elapsed() >= IDLE_MAX;
        if is_idle && state.phase == Phase::Open {
            state.phase = Phase::Retired;
        }
        state.close_if_retired()
    }
}

impl ChannelState {
    fn takes_calls(&self, unanswered: usize, now: Instant) -> bool {
        self.phase == Phase::Open
            && unanswered < WAITING_MAX
            && self.out.len() < OUT_BYTES_MAX
            && (unanswered == 0 || now - self.heard < SILENCE_MAX)
    }

    /// Closes a retired channel in which no call waits. Returns true if the channel is closed.
    fn close_if_retired(&mut self) -> bool {
        if self.phase == Phase::Retired && self.waiting.is_empty() {
            self.phase = Phase::Closed;
        }
        self.phase == Phase::Closed
    }
}

/// A call that was sent. Dropped before its reply, the call is cancelled.
struct SentCall<'a> {
    channel: &'a Channel,
    id: u32,
    reply: oneshot::Receiver<Result<Bytes>>,
    is_over: bool,
}

impl Drop for SentCall<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.channel.cancel(self.id);
        }
    }
}

/// Closes the channel when its task ends, even if its runtime ends.
struct CloseOnDrop(Arc<Channel>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Reader of the node's frames.
struct ReplyReader {
    frames: FrameReader,
    receiver: ReplyReceiver,
}

/// Receiver of the node's replies.
struct ReplyReceiver {
    channel: Arc<Channel>,
    /// State that the node announced last.
    announced: Option<Announcement>,
    /// Time of the last report of that state which was no repetition.
    reported: Option<Instant>,
    report_observer: ReportObserver,
}

/// Moves frames until the connection or the use of the channel ends.
async fn drive(
    channel: CloseOnDrop,
    mut replies: ReplyReader,
    mut reader: impl AsyncRead + Unpin,
    writer: impl AsyncWrite + Unpin,
) {
    let channel = &*channel.0;
    let read = async {
        while matches!(replies.frames.read(&mut reader).await, Ok(true)) {
            if replies.take_frames().is_none() {
                break;
            }
        }
    };
    let watch = async {
        let opened = Instant::now();
        while !channel.end_if_over() {
            sleep(CHECK_EVERY).await;
            if opened.elapsed() >= CLIENT_AGE_MAX {
                channel.retire();
            }
        }
    };
    tokio::select! {
        () = read => {}
        _ = channel.write_frames(writer) => {}
        () = watch => {}
    }
}

impl ReplyReader {
    /// Passes the replies that were read to their calls. None if the node broke a rule.
    fn take_frames(&mut self) -> Option<()> {
        let Self { frames, receiver } = self;
        receiver.channel.state.lock().heard = Instant::now();
        loop {
            let taken = frames.next(|frame| match frame.kind {
                FrameKind::Reply => receiver.take(&frame),
                FrameKind::Goodbye => {
                    receiver.channel.retire();
                    Some(())
                }
                FrameKind::Call | FrameKind::Cancel => None,
            });
            match taken {
                Ok(Some(taken)) => taken?,
                Ok(None) => return Some(()),
                Err(_) => return None,
            }
        }
    }
}

impl ReplyReceiver {
    /// Passes a reply to its call, and the state of the node to the observer. None if the reply
    /// can't be read.
    fn take(&mut self, frame: &Frame<'_>) -> Option<()> {
        let Self { channel, announced, reported, report_observer } = self;
        let (head, content) = channel.layout.decode_head::<ReplyHead<'_>>(frame.body).ok()?;
        if let Some(fields) = &head.announced {
            (*announced, *reported) = (Some(Announcement::of_fields(fields)?), None);
        }
        let mut state = channel.state.lock();
        let unanswered = channel.unanswered.load(Ordering::Relaxed);
        channel.unanswered.store(unanswered.saturating_sub(1), Ordering::Relaxed);
        let call = state.waiting.remove(frame.call);
        let is_last = state.phase == Phase::Retired && state.waiting.is_empty();
        drop(state);
        if is_last {
            channel.work.notify_one();
        }
        // The reply of a cancelled call has no receiver.
        let Some(call) = call else { return Some(()) };
        let now = Instant::now();
        let is_known = reported.is_some_and(|at| now - at < REPEATED_FOR);
        let is_repeated = is_known && head.clients_wait_us.is_none();
        if !is_repeated {
            *reported = Some(now);
        }
        let report = head.report(announced.as_ref()?, now - call.began);
        report_observer(NodeReport { is_repeated, ..report });
        let reply = match head.fault {
            Some(fault) => Err(fault.into_error(content)),
            None => Ok(Bytes::copy_from_slice(content)),
        };
        // The caller may have gone.
        let _ = call.reply.send(reply);
        Some(())
    }
}

#[cfg(test)]
mod tests;

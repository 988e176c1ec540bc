//! Channels at a node, driven frame by frame over a pipe.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;

use async_trait::async_trait;
use futures::FutureExt;
use tokio::io::{DuplexStream, duplex};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::super::flight::Flight;
use super::super::handler::ServerOptions;
use super::super::pressure::Pressure;
use super::*;
use crate::backend::{Backend, ByteStream, DeviceStatus, NewExtent, RegisterView, Reply, Want};
use crate::clock::{Clock, ManualClock, SystemClock};
use crate::error::ErrorKind;
use crate::extent::ExtentRef;
use crate::http::call_codec::{decode_reply, encode_call};
use crate::http::channel::REPLY_FRAME_BYTES_MAX;
use crate::http::channel::frame::FRAME_BYTES_MIN;
use crate::http::channel::message::CallHead;
use crate::http::channel::session::Nonce;
use crate::http::request::current_request;
use crate::id::{BucketId, ExtentId};
use crate::key::RegisterKey;
use crate::stamp::Stamp;
use crate::term::Term;

const INLINE_BYTES: usize = 8 * 1024;
const LAYOUT: BodyLayout = BodyLayout::Framed;

/// A device that reads a register at once, hangs in promises, and is busy for `n` ms in a call with
/// the floor `n`.
#[derive(Default)]
struct SlowDevice {
    begun: AtomicUsize,
    dropped: Arc<AtomicUsize>,
}

struct CountDrop(Arc<AtomicUsize>);

impl Drop for CountDrop {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl Backend for SlowDevice {
    async fn call(&self, _: DeviceId, call: Call<'_>) -> Result<Reply> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        match call {
            Call::Read { .. } => {
                let inline = Some(Bytes::from(vec![7; INLINE_BYTES]));
                Ok(Reply::View(RegisterView { inline, ..RegisterView::default() }))
            }
            Call::Promise { .. } => {
                let _count = CountDrop(self.dropped.clone());
                std::future::pending().await
            }
            Call::SetJoined(number) => {
                sleep(Duration::from_millis(number)).await;
                Ok(Reply::Done(()))
            }
            _ => Err(Error::full("no room").without_effect("the device is full")),
        }
    }

    async fn write_extent(&self, _: DeviceId, _: NewExtent, _: ByteStream) -> Result<ExtentRef> {
        Err(Error::internal("a channel has no streams"))
    }

    async fn read_extent(&self, _: DeviceId, _: ExtentId, _: Range<u64>) -> Result<ByteStream> {
        Err(Error::internal("a channel has no streams"))
    }

    async fn devices(&self) -> Result<Vec<DeviceStatus>> {
        Ok(Vec::new())
    }
}

/// The client's end of a channel.
struct Client {
    pipe: DuplexStream,
    sealer: Sealer,
    frames: FrameReader,
    device: Arc<SlowDevice>,
    stop: Option<oneshot::Sender<()>>,
    server: JoinHandle<()>,
}

fn read() -> Call<'static> {
    let key = RegisterKey::object(BucketId([1; 16]), 4, "key");
    Call::Read { key: std::borrow::Cow::Owned(key), want: Want::EntryAndInline, term: Term::ANY }
}

fn promise() -> Call<'static> {
    let key = RegisterKey::object(BucketId([1; 16]), 4, "key");
    Call::Promise { key: std::borrow::Cow::Owned(key), ballot: Stamp::ZERO, term: Term::ANY }
}

impl Client {
    fn open(options: ServerOptions, pipe_bytes: usize) -> Self {
        let announce = || Announcement::new(&[]).at(Term(14));
        Self::open_at(Arc::new(SystemClock), announce, options, pipe_bytes)
    }

    /// Opens a channel of a node with this clock and announcement.
    fn open_at(
        clock: Arc<dyn Clock>,
        announce: impl Fn() -> Announcement + Send + Sync + 'static,
        options: ServerOptions,
        pipe_bytes: usize,
    ) -> Self {
        let key = "5a".repeat(32).parse().unwrap();
        let keys = SessionKeys::new(&key, Nonce::random(), Nonce::random());
        let guard = Guard { key, clock, announce: Arc::new(announce) };
        let device = Arc::new(SlowDevice::default());
        let served = HandlerState {
            backend: device.clone(),
            index_calls: Flight::new(options.in_flight_max),
            pressure: Pressure::default(),
            options: Arc::new(options),
        };
        let (pipe, end) = duplex(pipe_bytes);
        let (reader, writer) = tokio::io::split(end);
        let (stop, stopped) = oneshot::channel();
        let channel = ServedChannel::new(&keys, LAYOUT, guard, served);
        let server = tokio::spawn(async move {
            channel.run(reader, writer, stopped.map(|_: Result<(), _>| ())).await;
        });
        let frames = FrameReader::new(Opener::new(keys.replies, REPLY_FRAME_BYTES_MAX));
        let sealer = Sealer::new(keys.calls);
        Self { pipe, sealer, frames, device, stop: Some(stop), server }
    }

    fn seal(&mut self, id: u32, call: &Call<'_>, request: Option<&[u8]>) -> Vec<u8> {
        let head = CallHead {
            device: 3,
            kind: call.kind().name(),
            deadline_ms: 1000,
            is_background: false,
            request,
        };
        let arguments = encode_call(call).unwrap();
        let mut out = Vec::new();
        self.sealer.seal(&mut out, FrameKind::Call, id, [&LAYOUT.encode_head(&head), &arguments]);
        out
    }

    async fn send(&mut self, id: u32, call: &Call<'_>) {
        let frame = self.seal(id, call, None);
        self.pipe.write_all(&frame).await.unwrap();
    }

    async fn cancel(&mut self, id: u32) {
        let mut out = Vec::new();
        self.sealer.seal(&mut out, FrameKind::Cancel, id, [b"", b""]);
        self.pipe.write_all(&out).await.unwrap();
    }

    /// Returns the next frame's kind, id and body; none at the end of the connection.
    async fn receive(&mut self) -> Option<(FrameKind, u32, Vec<u8>)> {
        loop {
            let take = |frame: Frame<'_>| (frame.kind, frame.call, frame.body.to_vec());
            if let Some(frame) = self.frames.next(take).unwrap() {
                return Some(frame);
            }
            if !matches!(self.frames.read(&mut self.pipe).await, Ok(true)) {
                return None;
            }
        }
    }

    /// Receives a reply; returns its id, its error, and true if it has an announcement.
    async fn reply(&mut self) -> (u32, Option<Error>, bool) {
        let (kind, id, body) = self.receive().await.expect("the channel is open");
        assert_eq!(kind, FrameKind::Reply);
        let (head, content) = LAYOUT.decode_head::<ReplyHead<'_>>(&body).unwrap();
        (id, head.fault.map(|fault| fault.into_error(content)), head.announced.is_some())
    }
}

#[tokio::test(start_paused = true)]
async fn replies_come_in_the_order_in_which_they_are_ready() {
    let mut client = Client::open(ServerOptions::default(), 1 << 20);
    for (id, ms) in [(1, 300), (2, 100), (3, 200)] {
        client.send(id, &Call::SetJoined(ms)).await;
    }
    client.send(4, &read()).await;
    let mut order = Vec::new();
    for is_first in [true, false, false, false] {
        let (id, error, is_announced) = client.reply().await;
        assert!(error.is_none());
        assert_eq!(is_announced, is_first, "an announcement is sent when it is news");
        order.push(id);
    }
    assert_eq!(order, [4, 2, 3, 1]);
}

#[tokio::test]
async fn a_change_is_announced_once_by_the_first_reply_of_the_next_millisecond() {
    let (clock, term) = (Arc::new(ManualClock::at(1)), Arc::new(AtomicU64::new(0)));
    let shown = term.clone();
    let announce = move || Announcement::new(&[]).at(Term(shown.load(Ordering::SeqCst)));
    let mut client = Client::open_at(clock.clone(), announce, ServerOptions::default(), 1 << 20);
    for (passed_ms, now, expected) in [
        (0, 14, Some(14)),
        (0, 15, None),
        (1, 15, Some(15)),
        (1, 15, None),
        (0, 16, None),
        (9, 16, Some(16)),
    ] {
        clock.advance_ms(passed_ms);
        term.store(now, Ordering::SeqCst);
        client.send(1, &read()).await;
        let (_, _, body) = client.receive().await.unwrap();
        let (head, _) = LAYOUT.decode_head::<ReplyHead<'_>>(&body).unwrap();
        assert_eq!(head.announced.map(|announced| announced.term), expected, "{now}");
    }
}

#[tokio::test]
async fn results_and_errors_are_those_of_http() {
    let mut client = Client::open(ServerOptions::default(), 1 << 20);
    client.send(1, &read()).await;
    let (_, _, body) = client.receive().await.unwrap();
    let (head, content) = LAYOUT.decode_head::<ReplyHead<'_>>(&body).unwrap();
    assert!(head.fault.is_none() && head.announced.unwrap().term == 14);
    let content = Bytes::copy_from_slice(content);
    let Reply::View(view) = decode_reply(CallKind::Read, &content).unwrap() else { panic!() };
    assert_eq!(view.inline.unwrap(), vec![7; INLINE_BYTES]);
    client.send(2, &Call::RaiseTerm(Term(1))).await;
    let error = client.reply().await.1.unwrap();
    assert!(error.kind() == ErrorKind::Full && error.had_no_effect(), "{error}");
    let mut out = Vec::new();
    client.sealer.seal(&mut out, FrameKind::Call, 3, [b"\xff", b""]);
    client.pipe.write_all(&out).await.unwrap();
    assert_eq!(client.reply().await.1.unwrap().kind(), ErrorKind::Invalid);
    let later = CallHead {
        device: 3,
        kind: "of-a-later-version",
        deadline_ms: 1,
        is_background: false,
        request: None,
    };
    let mut out = Vec::new();
    client.sealer.seal(&mut out, FrameKind::Call, 4, [&LAYOUT.encode_head(&later), b""]);
    client.pipe.write_all(&out).await.unwrap();
    let error = client.reply().await.1.unwrap();
    assert!(error.kind() == ErrorKind::Unavailable && error.had_no_effect(), "{error}");
}

#[tokio::test(start_paused = true)]
async fn cancelled_and_late_calls_are_dropped_and_leave_their_permits() {
    let options = ServerOptions { in_flight_max: 2, ..ServerOptions::default() };
    let mut client = Client::open(options, 1 << 20);
    client.send(1, &promise()).await;
    client.send(2, &promise()).await;
    client.send(3, &read()).await;
    let (id, error, _) = client.reply().await;
    let error = error.unwrap();
    assert_eq!((id, error.kind()), (3, ErrorKind::Unavailable));
    assert!(error.had_no_effect() && error.to_string().contains("too many"), "{error}");
    client.cancel(1).await;
    client.cancel(9).await;
    let (id, error, _) = client.reply().await;
    assert!(id == 1 && error.is_some(), "each call is answered once");
    client.send(4, &read()).await;
    assert!(client.reply().await.1.is_none(), "a cancelled call leaves its permit");
    assert_eq!(client.device.dropped.load(Ordering::SeqCst), 1);
    let (id, error, _) = client.reply().await;
    assert_eq!(id, 2, "the call ended with its deadline");
    assert_eq!(error.unwrap().kind(), ErrorKind::Unavailable);
    assert_eq!(client.device.dropped.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_closed_channel_drops_its_calls() {
    let mut client = Client::open(ServerOptions::default(), 1 << 20);
    client.send(1, &promise()).await;
    client.send(2, &read()).await;
    client.reply().await;
    let Client { pipe, server, device, .. } = client;
    drop(pipe);
    server.await.unwrap();
    assert_eq!(device.dropped.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_frame_that_was_changed_repeated_or_left_out_ends_the_channel() {
    let change = |change: fn(&mut Vec<u8>, Vec<u8>)| async move {
        let mut client = Client::open(ServerOptions::default(), 1 << 20);
        client.send(1, &read()).await;
        client.reply().await;
        let [mut frame, next] = [2, 3].map(|id| client.seal(id, &read(), None));
        change(&mut frame, next);
        let _ = client.pipe.write_all(&frame).await;
        client.server.await.unwrap();
        client.device.begun.load(Ordering::SeqCst)
    };
    assert_eq!(change(|frame, _| *frame.last_mut().unwrap() ^= 1).await, 1, "MAC");
    assert_eq!(change(|frame, _| frame[FRAME_BYTES_MIN] ^= 1).await, 1, "body");
    assert_eq!(change(|frame, next| *frame = next).await, 1, "a frame is missing");
    assert_eq!(change(|frame, _| frame.extend(frame.clone())).await, 2, "the frame came twice");
    assert_eq!(change(|frame, _| frame[..4].fill(0xff)).await, 1, "length");
    assert_eq!(change(|frame, _| frame[..4].fill(0)).await, 1, "no length");
}

#[tokio::test]
async fn a_client_that_takes_no_replies_is_not_read() {
    const CALLS: u32 = 2000;
    let mut client = Client::open(ServerOptions::default(), 16 * 1024);
    let calls: Vec<u8> = (0..CALLS).flat_map(|id| client.seal(id, &read(), None)).collect();
    let (mut sent, mut stuck) = (0, 0);
    // The pipe fills, since the node stops reading.
    while stuck < 100 && sent < calls.len() {
        match poll!(std::pin::pin!(client.pipe.write(&calls[sent..]))) {
            Poll::Ready(written) => (sent, stuck) = (sent + written.unwrap(), 0),
            Poll::Pending => stuck += 1,
        }
        tokio::task::yield_now().await;
    }
    assert!(sent < calls.len());
    let begun = client.device.begun.load(Ordering::SeqCst);
    let held = OUT_BYTES_MAX + 16 * 1024 + INLINE_BYTES;
    assert!(begun <= held / INLINE_BYTES + 1, "{begun} replies are held");
    let Client { pipe, mut frames, device, .. } = client;
    let (mut reader, mut writer) = tokio::io::split(pipe);
    let rest = async {
        writer.write_all(&calls[sent..]).await.unwrap();
        std::future::pending::<()>().await;
    };
    let replies = async {
        let mut found = 0;
        while found < CALLS {
            assert!(frames.read(&mut reader).await.unwrap());
            while let Some(id) = frames.next(|frame| frame.call).unwrap() {
                assert_eq!(id, found);
                found += 1;
            }
        }
    };
    tokio::select! {
        () = rest => {}
        () = replies => {}
    }
    assert_eq!(device.begun.load(Ordering::SeqCst), CALLS as usize);
}

#[tokio::test(start_paused = true)]
async fn a_stopping_node_finishes_calls_and_sends_goaway() {
    let mut client = Client::open(ServerOptions::default(), 1 << 20);
    client.send(1, &Call::SetJoined(900)).await;
    tokio::task::yield_now().await;
    drop(client.stop.take());
    assert_eq!(client.receive().await.unwrap().0, FrameKind::Goodbye);
    client.send(2, &read()).await;
    assert_eq!(client.reply().await.0, 2, "the call was sent before the goodbye came");
    assert_eq!(client.reply().await.0, 1);
    assert!(client.receive().await.is_none(), "a client that stays is left");
    client.server.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn idle_and_old_channels_are_cut() {
    let mut client = Client::open(ServerOptions::default(), 1 << 20);
    let began = Instant::now();
    client.send(1, &read()).await;
    client.reply().await;
    assert!(client.receive().await.is_none());
    let lasted = began.elapsed();
    assert!(lasted >= IDLE_MAX && lasted <= IDLE_MAX + 2 * CHECK_EVERY, "{lasted:?}");

    let mut client = Client::open(ServerOptions::default(), 1 << 20);
    let began = Instant::now();
    for id in 0.. {
        if client.server.is_finished() {
            break;
        }
        let frame = client.seal(id, &read(), None);
        if client.pipe.write_all(&frame).await.is_err() || client.receive().await.is_none() {
            break;
        }
        sleep(Duration::from_secs(30)).await;
    }
    let lasted = began.elapsed();
    assert!(lasted >= NODE_AGE_MAX, "{lasted:?}");
    assert!(lasted <= NODE_AGE_MAX + Duration::from_mins(1), "{lasted:?}");
}

#[tokio::test]
async fn calls_for_clients_requests_are_observed_under_their_ids() {
    let seen = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let keep = seen.clone();
    let observer =
        move |call: ServedCall| keep.lock().push((call.kind, call.status, current_request()));
    let options =
        ServerOptions { call_observer: Some(Arc::new(observer)), ..ServerOptions::default() };
    let mut client = Client::open(options, 1 << 20);
    let frames = [
        client.seal(1, &read(), None),
        client.seal(2, &read(), Some(b"00AB")),
        client.seal(3, &Call::RaiseTerm(Term(1)), Some(b"00CD")),
    ];
    client.pipe.write_all(&frames.concat()).await.unwrap();
    for _ in 0..3 {
        client.reply().await;
    }
    let id = |text| Some(HeaderValue::from_static(text));
    let expected = [
        (CallKind::Read, StatusCode::OK, id("00AB")),
        (CallKind::RaiseTerm, StatusCode::INSUFFICIENT_STORAGE, id("00CD")),
    ];
    assert_eq!(*seen.lock(), expected);
}

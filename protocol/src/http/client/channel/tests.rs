//! Channels at a client, against a node that is played frame by frame over a pipe.

use futures::future::join_all;
use tokio::io::{DuplexStream, duplex};

use super::*;
use crate::error::{Error, ErrorKind};
use crate::http::channel::CALL_FRAME_BYTES_MAX;
use crate::http::channel::message::Announced;
use crate::http::channel::session::Nonce;
use crate::http::fault::Fault;

const LAYOUT: BodyLayout = BodyLayout::Framed;

const HEAD: CallHead<'_> =
    CallHead { device: 3, kind: "read", deadline_ms: 1, is_background: false, request: None };

/// The node's end of a channel, and the client's channel.
struct Node {
    pipe: DuplexStream,
    sealer: Sealer,
    frames: FrameReader,
    channel: Arc<Channel>,
    reports: Arc<Mutex<Vec<NodeReport>>>,
}

impl Node {
    fn open() -> Self {
        let key = "5a".repeat(32).parse().unwrap();
        let keys = SessionKeys::new(&key, Nonce::random(), Nonce::random());
        let (pipe, end) = duplex(1 << 20);
        let reports = Arc::new(Mutex::new(Vec::new()));
        let keep = reports.clone();
        let channel =
            Channel::start(&keys, LAYOUT, end, Arc::new(move |one| keep.lock().push(one)));
        let frames = FrameReader::new(Opener::new(keys.calls, CALL_FRAME_BYTES_MAX));
        let sealer = Sealer::new(keys.replies);
        Self { pipe, sealer, frames, channel, reports }
    }

    /// Starts a call with these arguments.
    fn call(&self, arguments: &'static str) -> tokio::task::JoinHandle<Outcome> {
        let channel = self.channel.clone();
        tokio::spawn(async move { channel.call(&HEAD, arguments.as_bytes()).await })
    }

    /// Receives a frame: kind, id, and the arguments of a call. None at the connection's end.
    async fn receive(&mut self) -> Option<(FrameKind, u32, Vec<u8>)> {
        let take = |frame: Frame<'_>| {
            let arguments = match frame.kind {
                FrameKind::Call => {
                    let (head, arguments) = LAYOUT.decode_head::<CallHead<'_>>(frame.body).unwrap();
                    assert_eq!(head, HEAD);
                    arguments.to_vec()
                }
                _ => frame.body.to_vec(),
            };
            (frame.kind, frame.call, arguments)
        };
        loop {
            if let Some(frame) = self.frames.next(take).unwrap() {
                return Some(frame);
            }
            if !matches!(self.frames.read(&mut self.pipe).await, Ok(true)) {
                return None;
            }
        }
    }

    async fn reply(&mut self, id: u32, content: &[u8], error: Option<&Error>, is_news: bool) {
        let announced = Announced { rings: b"index=7-0a1b2c3d4e5f6071", term: 14, data_port: None };
        let head = ReplyHead {
            now_ms: 1234,
            announced: is_news.then_some(announced),
            clients_wait_us: None,
            fault: error.map(Fault::of),
        };
        let mut out = Vec::new();
        self.sealer.seal(&mut out, FrameKind::Reply, id, [&LAYOUT.encode_head(&head), content]);
        self.pipe.write_all(&out).await.unwrap();
    }
}

fn replied(outcome: Outcome) -> Result<Bytes> {
    match outcome {
        Outcome::Replied(reply) => reply,
        Outcome::Unsent => panic!("nothing was sent"),
        Outcome::Lost => panic!("the channel ended"),
    }
}

#[tokio::test]
async fn replies_in_any_order_reach_their_calls() {
    let mut node = Node::open();
    let calls = ["a", "b", "c"].map(|arguments| node.call(arguments));
    let mut received = Vec::new();
    for _ in 0..3 {
        received.push(node.receive().await.unwrap());
    }
    received.reverse();
    for (at, (kind, id, arguments)) in received.into_iter().enumerate() {
        assert_eq!(kind, FrameKind::Call);
        node.reply(id, &[&b"reply to "[..], &arguments].concat(), None, at == 0).await;
    }
    for (outcome, expected) in join_all(calls).await.into_iter().zip(["a", "b", "c"]) {
        assert_eq!(replied(outcome.unwrap()).unwrap(), format!("reply to {expected}"));
    }
    let reports = node.reports.lock();
    assert_eq!(reports.len(), 3, "each reply reports its node");
    for report in reports.iter() {
        assert_eq!((report.now_ms, report.term.0), (1234, 14));
        assert_eq!(report.rings.iter().next().unwrap().epoch, 7);
    }
}

#[tokio::test(start_paused = true)]
async fn a_state_is_reported_anew_when_it_is_news_and_now_and_then() {
    let mut node = Node::open();
    let is_repeated = |node: &Node| node.reports.lock().last().unwrap().is_repeated;
    for (pause_ms, is_news, expected) in [
        (0, true, false),
        (10, false, true),
        (10, true, false),
        (49, false, true),
        (1, false, false),
    ] {
        sleep(Duration::from_millis(pause_ms)).await;
        let call = node.call("a");
        let (_, id, _) = node.receive().await.unwrap();
        node.reply(id, b"", None, is_news).await;
        replied(call.await.unwrap()).unwrap();
        assert_eq!(is_repeated(&node), expected, "after {pause_ms} ms");
    }
    let dropped = node.call("a");
    let (_, id, _) = node.receive().await.unwrap();
    dropped.abort();
    node.receive().await.unwrap();
    node.reply(id, b"", None, true).await;
    for expected in [false, true] {
        let call = node.call("b");
        let (_, id, _) = node.receive().await.unwrap();
        node.reply(id, b"", None, false).await;
        replied(call.await.unwrap()).unwrap();
        assert_eq!(is_repeated(&node), expected, "news came with the reply of no call");
    }
    assert_eq!(node.reports.lock().len(), 7, "each reply of a call reports its node");
}

#[tokio::test]
async fn errors_keep_their_kind() {
    let mut node = Node::open();
    let call = node.call("a");
    let id = node.receive().await.unwrap().1;
    let full = Error::full("no room").without_effect("the device is full");
    node.reply(id, b"no room", Some(&full), true).await;
    let error = replied(call.await.unwrap()).unwrap_err();
    assert!(error.kind() == ErrorKind::Full && error.had_no_effect(), "{error}");
    assert!(error.to_string().contains("no room"));
}

#[tokio::test]
async fn a_dropped_call_is_cancelled_and_its_late_reply_is_ignored() {
    let mut node = Node::open();
    let dropped = node.call("a");
    let (_, id, _) = node.receive().await.unwrap();
    dropped.abort();
    assert_eq!(node.receive().await.unwrap(), (FrameKind::Cancel, id, Vec::new()));
    let call = node.call("b");
    let (_, next, _) = node.receive().await.unwrap();
    node.reply(id, b"late", None, true).await;
    node.reply(next, b"in time", None, false).await;
    assert_eq!(replied(call.await.unwrap()).unwrap(), "in time");
    assert_eq!(node.reports.lock().len(), 1);
}

#[tokio::test]
async fn calls_end_with_the_connection_or_with_a_wrong_frame() {
    for is_forged in [false, true] {
        let mut node = Node::open();
        let call = node.call("a");
        let (_, id, _) = node.receive().await.unwrap();
        if is_forged {
            node.sealer = Sealer::new([0; 32]);
            node.reply(id, b"forged", None, true).await;
            assert!(matches!(call.await.unwrap(), Outcome::Lost));
            assert!(node.receive().await.is_none(), "the channel is closed");
        } else {
            drop(node.pipe);
            assert!(matches!(call.await.unwrap(), Outcome::Lost));
        }
        assert!(!node.channel.is_open());
        assert!(matches!(node.channel.call(&HEAD, b"").await, Outcome::Unsent));
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_channel_takes_no_calls_until_a_reply_comes() {
    let mut node = Node::open();
    let waiting = node.call("a");
    let (_, id, _) = node.receive().await.unwrap();
    let second = node.call("b");
    let (_, second_id, _) = node.receive().await.unwrap();
    sleep(SILENCE_MAX).await;
    assert!(matches!(node.channel.call(&HEAD, b"").await, Outcome::Unsent));
    assert!(node.channel.is_open(), "the calls go on");
    node.reply(id, b"slow", None, true).await;
    assert_eq!(replied(waiting.await.unwrap()).unwrap(), "slow");
    let third = node.call("c");
    let (_, third_id, _) = node.receive().await.unwrap();
    for id in [second_id, third_id] {
        node.reply(id, b"", None, false).await;
    }
    for call in [second, third] {
        assert_eq!(replied(call.await.unwrap()).unwrap(), "");
    }
}

#[tokio::test(start_paused = true)]
async fn calls_and_bytes_under_way_are_bounded() {
    let mut node = Node::open();
    let calls: Vec<_> = (0..WAITING_MAX).map(|_| node.call("a")).collect();
    for _ in 0..WAITING_MAX {
        node.receive().await.unwrap();
    }
    assert!(matches!(node.channel.call(&HEAD, b"").await, Outcome::Unsent));
    for call in &calls {
        call.abort();
    }
    let (kind, id, _) = node.receive().await.unwrap();
    assert_eq!(kind, FrameKind::Cancel);
    assert!(matches!(node.channel.call(&HEAD, b"").await, Outcome::Unsent));
    node.reply(id, b"", None, true).await;
    while node.channel.unanswered.load(Ordering::Relaxed) == WAITING_MAX {
        tokio::task::yield_now().await;
    }
    let _call = node.call("a");
    while node.receive().await.unwrap().0 == FrameKind::Cancel {}

    // A node that reads nothing: the pipe and the memory of the channel fill up.
    let node = Node::open();
    let long = "x".repeat(100 * 1024).leak();
    let calls: Vec<_> = (0..100).map(|_| node.call(long)).collect();
    let mut unsent = 0;
    for call in calls {
        if let Ok(Ok(Outcome::Unsent)) = tokio::time::timeout(SILENCE_MAX, call).await {
            unsent += 1;
        }
    }
    let out = node.channel.state.lock().out.len();
    assert!(unsent >= 60, "{unsent} calls found no room");
    assert!(out <= OUT_BYTES_MAX + 101 * 1024, "{out} bytes");
}

#[tokio::test(start_paused = true)]
async fn idle_and_old_channels_are_closed_and_busy_ones_end_their_calls() {
    let mut node = Node::open();
    let began = Instant::now();
    assert!(node.receive().await.is_none());
    let lasted = began.elapsed();
    assert!(lasted >= IDLE_MAX && lasted <= IDLE_MAX + 2 * CHECK_EVERY, "{lasted:?}");

    let mut node = Node::open();
    let began = Instant::now();
    let first = node.call("a");
    let (_, first_id, _) = node.receive().await.unwrap();
    while node.channel.is_open() {
        assert!(!node.channel.state.lock().waiting.is_empty());
        sleep(CHECK_EVERY).await;
    }
    assert!(began.elapsed() >= CLIENT_AGE_MAX);
    node.reply(first_id, b"at last", None, true).await;
    assert_eq!(replied(first.await.unwrap()).unwrap(), "at last");
    assert!(node.receive().await.is_none(), "the last reply closes a retired channel");
}

#[tokio::test]
async fn after_a_goodbye_no_call_is_sent() {
    let mut node = Node::open();
    let call = node.call("a");
    let (_, id, _) = node.receive().await.unwrap();
    let mut out = Vec::new();
    node.sealer.seal(&mut out, FrameKind::Goodbye, 0, [b"", b""]);
    node.pipe.write_all(&out).await.unwrap();
    while node.channel.is_open() {
        tokio::task::yield_now().await;
    }
    assert!(matches!(node.channel.call(&HEAD, b"").await, Outcome::Unsent));
    node.reply(id, b"done", None, true).await;
    assert_eq!(replied(call.await.unwrap()).unwrap(), "done");
    assert!(node.receive().await.is_none(), "the client closes the channel");
}

//! AMQP against a broker in this process that follows a script.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::super::lane::BrokerLane;
use super::super::settings::BrokerSettings;
use super::super::testing::{
    AMPLE, FakeBroker, SHORT, away, closed_port, event, lane, refused, spooled,
};
use super::*;

/// Answer of the broker to one message.
#[derive(Clone)]
enum Answer {
    Ack,
    Nack,
    /// Return of the message, and its confirmation.
    Return,
    CloseChannel(u16, &'static str),
    HangUp,
    Silence,
    Raw(&'static [u8]),
}

/// Message that the broker received.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Received {
    exchange: String,
    routing_key: String,
    is_mandatory: bool,
    header: Vec<u8>,
    body: String,
}

/// Script of a broker, and its record. After the script messages are confirmed.
struct Script {
    answers: Mutex<VecDeque<Answer>>,
    logins: Mutex<Vec<Vec<u8>>>,
    tuned: Mutex<Vec<u32>>,
    messages: Mutex<Vec<Received>>,
    /// Bytes in place of the first frame.
    start: Option<&'static [u8]>,
    /// Reply to the login: code and text of a close.
    refusal: Option<(u16, &'static str)>,
    frame_max: u32,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            answers: Mutex::default(),
            logins: Mutex::default(),
            tuned: Mutex::default(),
            messages: Mutex::default(),
            start: None,
            refusal: None,
            frame_max: 4096,
        }
    }
}

fn method(channel: u16, id: MethodId, arguments: Arguments) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_method(&mut bytes, channel, id, arguments);
    bytes
}

async fn frame(stream: &mut TcpStream) -> Option<(u8, Vec<u8>)> {
    let mut head = [0; 7];
    stream.read_exact(&mut head).await.ok()?;
    let length = u32::from_be_bytes(head[3..].try_into().unwrap()) as usize;
    let mut payload = vec![0; length + 1];
    stream.read_exact(&mut payload).await.ok()?;
    assert_eq!(payload.pop(), Some(0xCE));
    Some((head[0], payload))
}

/// Returns the short text at this place, and the place behind it.
fn short_text(bytes: &[u8], at: usize) -> (String, usize) {
    let end = at + 1 + usize::from(bytes[at]);
    (String::from_utf8(bytes[at + 1..end].to_vec()).unwrap(), end)
}

impl Script {
    fn of(answers: &[Answer]) -> Self {
        Self { answers: Mutex::new(answers.iter().cloned().collect()), ..Self::default() }
    }

    async fn start(self) -> (Arc<Self>, FakeBroker) {
        let script = Arc::new(self);
        let served = script.clone();
        let broker = FakeBroker::start(move |stream| {
            let script = served.clone();
            async move {
                script.serve(stream).await;
            }
        })
        .await;
        (script, broker)
    }

    async fn serve(&self, mut stream: TcpStream) -> Option<()> {
        self.greet(&mut stream).await?;
        let mut tag = 0;
        loop {
            let (_, publish) = frame(&mut stream).await?;
            if publish[..4] == [0, 10, 0, 50] {
                return None;
            }
            assert_eq!(publish[..4], [0, 60, 0, 40]);
            let (exchange, at) = short_text(&publish, 6);
            let (routing_key, at) = short_text(&publish, at);
            let (kind, header) = frame(&mut stream).await?;
            assert_eq!(kind, 2);
            let length = u64::from_be_bytes(header[4..12].try_into().unwrap());
            let length = usize::try_from(length).unwrap();
            let mut body = Vec::new();
            while body.len() < length {
                let (kind, chunk) = frame(&mut stream).await?;
                assert!(kind == 3 && chunk.len() + 8 <= 4096, "{kind} {}", chunk.len());
                body.extend(chunk);
            }
            let body = String::from_utf8(body).unwrap();
            let is_mandatory = publish[at] == 1;
            let received = Received { exchange, routing_key, is_mandatory, header, body };
            self.messages.lock().push(received);
            tag += 1;
            let answer = self.answers.lock().pop_front().unwrap_or(Answer::Ack);
            stream.write_all(&reply(&answer, tag)?).await.ok()?;
        }
    }

    async fn greet(&self, stream: &mut TcpStream) -> Option<()> {
        let mut header = [0; 8];
        stream.read_exact(&mut header).await.ok()?;
        assert_eq!(header, PROTOCOL_HEADER);
        if let Some(bytes) = self.start {
            stream.write_all(bytes).await.ok()?;
            // The client ends the connection.
            stream.read_u8().await.ok()?;
            return None;
        }
        let nested = Arguments::default().short_text("t").u8(b'F').long_bytes(&[]).into_bytes();
        let start = Arguments::default().u8(0).u8(9).long_bytes(&nested);
        let start = start.long_bytes(b"PLAIN AMQPLAIN").long_bytes(b"en_US");
        stream.write_all(&method(0, START, start)).await.ok()?;
        let (_, login) = frame(stream).await?;
        self.logins.lock().push(login);
        if let Some((code, text)) = self.refusal {
            let close = Arguments::default().u16(code).short_text(text).u16(0).u16(0);
            stream.write_all(&method(0, CLOSE, close)).await.ok()?;
            return None;
        }
        let tune = Arguments::default().u16(2047).u32(self.frame_max).u16(60);
        stream.write_all(&method(0, TUNE, tune)).await.ok()?;
        let (_, tuned) = frame(stream).await?;
        self.tuned.lock().push(u32::from_be_bytes(tuned[6..10].try_into().unwrap()));
        for (channel, id) in [(0, OPEN_OK), (1, CHANNEL_OPEN_OK), (1, CONFIRM_SELECT_OK)] {
            frame(stream).await?;
            stream.write_all(&method(channel, id, Arguments::default())).await.ok()?;
        }
        Some(())
    }

    fn bodies(&self) -> Vec<String> {
        self.messages.lock().drain(..).map(|it| it.body).collect()
    }
}

/// Returns the bytes of an answer; `None` ends the connection.
fn reply(answer: &Answer, tag: u64) -> Option<Vec<u8>> {
    let tagged = |id| {
        let (high, low) = ((tag >> 32) as u32, (tag & 0xffff_ffff) as u32);
        method(1, id, Arguments::default().u32(high).u32(low).u8(0))
    };
    Some(match *answer {
        Answer::Ack => tagged(ACK),
        Answer::Nack => tagged(NACK),
        Answer::Return => {
            let why = Arguments::default().u16(312).short_text("NO_ROUTE");
            let why = why.short_text("").short_text("q");
            let mut bytes = method(1, RETURN, why);
            put_message(&mut bytes, 1, 4096, b"returned", None);
            bytes.extend(tagged(ACK));
            bytes
        }
        Answer::CloseChannel(code, text) => {
            let why = Arguments::default().u16(code).short_text(text).u16(60).u16(40);
            method(1, CHANNEL_CLOSE, why)
        }
        Answer::HangUp => return None,
        Answer::Silence => Vec::new(),
        Answer::Raw(bytes) => bytes.to_vec(),
    })
}

/// Password file, and lanes that use it.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("password"), "s3cret\n").unwrap();
        Self { folder }
    }

    fn lane(&self, port: u16, patience: Duration) -> BrokerLane {
        let address = format!("amqp://127.0.0.1:{port}/q");
        let file: PathBuf = self.folder.path().join("password");
        let settings = BrokerSettings { address: &address, ..BrokerSettings::default() };
        lane(BrokerSettings { user: Some("me"), password_file: Some(&file), ..settings }, patience)
    }
}

#[tokio::test]
async fn messages_are_confirmed_one_by_one() {
    let (script, broker) = Script::of(&[Answer::Ack, Answer::Nack]).start().await;
    let place = Place::new();
    let lane = place.lane(broker.port, AMPLE);
    let long = event(&"x".repeat(10_000));
    let messages = spooled(&[event("a+b").as_str(), "2", &long]);
    assert_eq!(lane.deliver(&messages).await, Ok(1));
    let first = script.messages.lock()[0].clone();
    assert_eq!((first.exchange.as_str(), first.routing_key.as_str()), ("", "q"));
    assert!(first.is_mandatory);
    let header = String::from_utf8_lossy(&first.header).into_owned();
    assert!(header.contains("application/json") && header.contains("b/a b"), "{header:?}");
    assert_eq!(first.header.last(), Some(&2), "persistent");
    assert_eq!(script.bodies().len(), 2, "the third waits for the second");
    assert_eq!(lane.deliver(&messages[1..]).await, Ok(2));
    assert_eq!(script.bodies(), ["2", &long]);
    assert_eq!(script.tuned.lock().clone(), [4096, 4096]);
}

#[tokio::test]
async fn a_message_that_no_queue_takes_stays() {
    let (script, broker) = Script::of(&[Answer::Return]).start().await;
    let place = Place::new();
    let lane = place.lane(broker.port, AMPLE);
    let messages = spooled(&["1", "2"]);
    let reason = away(lane.deliver(&messages).await);
    assert!(reason.contains("no queue takes a message: NO_ROUTE"), "{reason}");
    assert_eq!(lane.deliver(&messages).await, Ok(2));
    assert_eq!(script.bodies(), ["1", "1", "2"]);
}

#[tokio::test]
async fn faults_of_the_broker_are_no_fault_of_a_message() {
    let place = Place::new();
    let messages = spooled(&["1"]);
    for (answer, expected) in [
        (Answer::Nack, "no room or no queue"),
        (Answer::CloseChannel(404, "NOT_FOUND - no exchange 'x'"), "404: NOT_FOUND"),
        (Answer::CloseChannel(403, "ACCESS_REFUSED"), "403: ACCESS_REFUSED"),
        (Answer::CloseChannel(406, "PRECONDITION_FAILED - other"), "406: PRECONDITION"),
        (Answer::HangUp, "closed the connection"),
    ] {
        let (_, broker) = Script::of(&[answer]).start().await;
        let reason = away(place.lane(broker.port, AMPLE).deliver(&messages).await);
        assert!(reason.contains(expected), "{reason}");
    }
    let reason = away(place.lane(closed_port().await, AMPLE).deliver(&messages).await);
    assert!(reason.contains("no connection to"), "{reason}");
    let refusal = Some((403, "ACCESS_REFUSED - Login was refused"));
    let (script, broker) = Script { refusal, ..Script::default() }.start().await;
    let reason = away(place.lane(broker.port, AMPLE).deliver(&messages).await);
    assert!(reason.contains("Login was refused") && !reason.contains("s3cret"), "{reason}");
    let login = String::from_utf8_lossy(&script.logins.lock()[0]).into_owned();
    assert!(login.contains("PLAIN") && login.contains("\0me\0s3cret"), "{login:?}");
}

#[tokio::test]
async fn a_message_that_is_too_large_is_refused() {
    let text = "PRECONDITION_FAILED - message size 9 is larger than configured max size 8";
    let (_, broker) = Script::of(&[Answer::CloseChannel(406, text)]).start().await;
    let reason = refused(Place::new().lane(broker.port, AMPLE).deliver(&spooled(&["1"])).await);
    assert!(reason.contains("message size 9"), "{reason}");
}

#[tokio::test]
async fn confirmations_before_the_limit_in_time_are_kept() {
    let (_, broker) = Script::of(&[Answer::Ack, Answer::Silence]).start().await;
    let place = Place::new();
    let lane = place.lane(broker.port, SHORT);
    assert_eq!(lane.deliver(&spooled(&["1", "2"])).await, Ok(1));
}

#[tokio::test]
async fn malformed_handshakes_end_the_attempt_alone() {
    let place = Place::new();
    let messages = spooled(&["1"]);
    let starts: [(&[u8], &str); 6] = [
        (b"\x01\x00\x00\xff\xff\xff\xff", "a frame of 4294967296 bytes"),
        (b"AMQP\x00\x01\x00\x00", "does not speak AMQP 0-9-1"),
        (b"\x01\x00\x00\x00\x00\x00\x04\x00\x0a\x00\x1e\xce", "(10, 30) where (10, 10)"),
        (b"\x01\x00\x00\x00\x00\x00\x04\x00\x0a\x00\x1e\x00", "a frame without an end"),
        (b"\x01\x00\x00\x00\x00\x00\x02\x00\x0a\xce", "ends too early"),
        (b"\x01\x00\x00\x00\x00\x00\x06\x00\x0a\x00\x32\x01\x90\xce", "ends too early"),
    ];
    for (start, expected) in starts {
        let (_, broker) = Script { start: Some(start), ..Script::default() }.start().await;
        let reason = away(place.lane(broker.port, AMPLE).deliver(&messages).await);
        assert!(reason.contains(expected), "{reason}");
    }
    for frame_max in [0, u32::MAX, 1] {
        let (script, broker) = Script { frame_max, ..Script::default() }.start().await;
        assert_eq!(place.lane(broker.port, AMPLE).deliver(&messages).await, Ok(1));
        let tuned = script.tuned.lock()[0];
        assert!((FRAME_BYTES_MIN..=FRAME_BYTES_MAX).contains(&tuned), "{tuned}");
    }
    let answer = Answer::Raw(b"\x01\x00\x01\x00\x00\x00\x06\x00\x3c\x00\x50\x00\x00\xce");
    let (_, broker) = Script::of(&[answer]).start().await;
    let reason = away(place.lane(broker.port, AMPLE).deliver(&messages).await);
    assert!(reason.contains("ends too early"), "{reason}");
}

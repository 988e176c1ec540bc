//! NATS against a server in this process that follows a script.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::TcpStream;

use super::super::lane::BrokerLane;
use super::super::settings::BrokerSettings;
use super::super::testing::{
    AMPLE, FakeBroker, SHORT, away, closed_port, lane, refused, spooled, tls_acceptor,
};
use super::*;

const INFO: &str = r#"INFO {"max_payload":1048576,"headers":true}"#;

/// Answer of the server to one message.
#[derive(Clone)]
enum Answer {
    Stored,
    Error(u32),
    NoResponders,
    Silence,
    HangUp,
    Raw(&'static str),
}

/// Script of a server, and its record. After the script messages are stored.
struct Script {
    info: &'static str,
    /// Answer to the first `PING`.
    greeting: &'static str,
    answers: Mutex<VecDeque<Answer>>,
    connects: Mutex<Vec<String>>,
    messages: Mutex<Vec<String>>,
}

impl Script {
    fn new(answers: &[Answer]) -> Arc<Self> {
        Self::of(INFO, "PONG", answers)
    }

    fn of(info: &'static str, greeting: &'static str, answers: &[Answer]) -> Arc<Self> {
        let answers = Mutex::new(answers.iter().cloned().collect());
        let (connects, messages) = (Mutex::default(), Mutex::default());
        Arc::new(Self { info, greeting, answers, connects, messages })
    }

    async fn start(self: &Arc<Self>) -> FakeBroker {
        let script = self.clone();
        FakeBroker::start(move |stream| {
            let script = script.clone();
            async move {
                script.serve(stream).await;
            }
        })
        .await
    }

    /// Serves a connection until its end.
    async fn serve(&self, stream: TcpStream) -> Option<()> {
        let mut stream = BufReader::new(stream);
        stream.write_all(format!("{}\r\n", self.info).as_bytes()).await.ok()?;
        let mut greeting = Some(self.greeting);
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).await.ok()? == 0 {
                return None;
            }
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            match words[0] {
                "CONNECT" => self.connects.lock().push(line.clone()),
                "PING" => {
                    let pong = greeting.take().unwrap_or("PONG");
                    stream.write_all(format!("{pong}\r\n").as_bytes()).await.ok()?;
                }
                "PUB" => {
                    let count: usize = words[words.len() - 1].parse().unwrap();
                    let mut payload = vec![0; count + 2];
                    stream.read_exact(&mut payload).await.ok()?;
                    payload.truncate(count);
                    self.messages.lock().push(String::from_utf8(payload).unwrap());
                    let reply = (words.len() == 4).then(|| words[2].to_owned());
                    stream.write_all(self.answer(reply)?.as_bytes()).await.ok()?;
                }
                _ => {}
            }
        }
    }

    /// Returns the bytes of the next answer; `None` ends the connection.
    fn answer(&self, reply: Option<String>) -> Option<String> {
        let answer = self.answers.lock().pop_front().unwrap_or(Answer::Stored);
        let subject = reply.unwrap_or_default();
        let json = match answer {
            Answer::Stored if subject.is_empty() => return Some(String::new()),
            Answer::Stored => r#"{"stream":"s","seq":7}"#.to_owned(),
            Answer::Error(code) => {
                format!(r#"{{"error":{{"code":400,"err_code":{code},"description":"why"}}}}"#)
            }
            Answer::NoResponders => {
                let head = "NATS/1.0 503\r\n\r\n";
                return Some(format!("HMSG {subject} 1 16 16\r\n{head}\r\n"));
            }
            Answer::Silence => return Some(String::new()),
            Answer::HangUp => return None,
            Answer::Raw(text) => return Some(text.to_owned()),
        };
        Some(format!("MSG {subject} 1 {}\r\n{json}\r\n", json.len()))
    }

    fn messages(&self) -> Vec<String> {
        std::mem::take(&mut self.messages.lock())
    }
}

fn stream_lane(port: u16, patience: Duration) -> BrokerLane {
    let address = format!("nats://127.0.0.1:{port}/a.b");
    let settings = BrokerSettings { address: &address, ..BrokerSettings::default() };
    lane(BrokerSettings { nats_jetstream: Some(true), ..settings }, patience)
}

fn core_lane(port: u16, patience: Duration) -> BrokerLane {
    let address = format!("nats://127.0.0.1:{port}/a.b");
    lane(BrokerSettings { address: &address, ..BrokerSettings::default() }, patience)
}

#[tokio::test]
async fn core_nats_acknowledges_a_batch_by_its_pong() {
    let script = Script::new(&[Answer::Stored, Answer::HangUp]);
    let server = script.start().await;
    let lane = core_lane(server.port, AMPLE);
    let messages = spooled(&["1", "2", "3"]);
    let reason = away(lane.deliver(&messages).await);
    assert!(!reason.is_empty());
    assert_eq!(script.messages(), ["1", "2"]);
    assert_eq!(lane.deliver(&messages).await, Ok(3), "all come again, in their order");
    assert_eq!(script.messages(), ["1", "2", "3"]);
}

#[tokio::test]
async fn a_stream_gets_no_message_before_its_predecessor_is_stored() {
    let script = Script::new(&[Answer::Stored, Answer::Error(10_077)]);
    let server = script.start().await;
    let lane = stream_lane(server.port, AMPLE);
    let messages = spooled(&["1", "2", "3"]);
    assert_eq!(lane.deliver(&messages).await, Ok(1));
    assert_eq!(script.messages(), ["1", "2"], "the third waits for the second");
    assert_eq!(lane.deliver(&messages[1..]).await, Ok(2));
    assert_eq!(script.messages(), ["2", "3"]);
}

#[tokio::test]
async fn equal_messages_are_all_stored() {
    let script = Script::new(&[]);
    let server = script.start().await;
    let lane = stream_lane(server.port, AMPLE);
    assert_eq!(lane.deliver(&spooled(&["same", "same", "same"])).await, Ok(3));
    assert_eq!(script.messages(), ["same", "same", "same"]);
}

#[tokio::test]
async fn acknowledgements_before_the_limit_in_time_are_kept() {
    let script = Script::new(&[Answer::Stored, Answer::Silence, Answer::Silence]);
    let server = script.start().await;
    let lane = stream_lane(server.port, SHORT);
    let messages = spooled(&["1", "2"]);
    assert_eq!(lane.deliver(&messages).await, Ok(1));
    let reason = away(lane.deliver(&messages[1..]).await);
    assert!(reason.contains("no acknowledgement within"), "{reason}");
    assert_eq!(script.messages(), ["1", "2", "2"]);
}

#[tokio::test]
async fn faults_of_the_server_are_no_fault_of_a_message() {
    let messages = spooled(&["1"]);
    for (answer, expected) in [
        (Answer::NoResponders, "no stream of JetStream takes this subject"),
        (Answer::Error(10_077), "the stream answered 10077: why"),
        (Answer::HangUp, "closed the connection"),
        (Answer::Raw("-ERR 'Permissions Violation'\r\n"), "Permissions Violation"),
        (Answer::Raw("HELLO\r\n"), "unknown message"),
    ] {
        let server = Script::new(&[answer]).start().await;
        let reason = away(stream_lane(server.port, AMPLE).deliver(&messages).await);
        assert!(reason.contains(expected), "{reason}");
    }
    let reason = away(core_lane(closed_port().await, AMPLE).deliver(&messages).await);
    assert!(reason.contains("no connection to 127.0.0.1"), "{reason}");
    let server = Script::of("SSH-2.0", "PONG", &[]).start().await;
    let reason = away(core_lane(server.port, AMPLE).deliver(&messages).await);
    assert!(reason.contains("does not answer as a NATS server"), "{reason}");
    let info = r#"INFO {"tls_required":true,"max_payload":9}"#;
    let server = Script::of(info, "PONG", &[]).start().await;
    let reason = away(core_lane(server.port, AMPLE).deliver(&messages).await);
    assert!(reason.contains("needs TLS"), "{reason}");
}

#[tokio::test]
async fn only_a_message_that_is_too_large_is_refused() {
    let server = Script::new(&[Answer::Error(MESSAGE_TOO_LARGE)]).start().await;
    let reason = refused(stream_lane(server.port, AMPLE).deliver(&spooled(&["1"])).await);
    assert!(reason.contains("10054"), "{reason}");
    let info = r#"INFO {"max_payload":4096,"headers":true}"#;
    let long = "x".repeat(5000);
    for is_core in [true, false] {
        let script = Script::of(info, "PONG", &[]);
        let server = script.start().await;
        let make = if is_core { core_lane } else { stream_lane };
        let lane = make(server.port, AMPLE);
        let messages = spooled(&["1", &long, "2"]);
        assert_eq!(lane.deliver(&messages).await, Ok(1), "the message before it is delivered");
        let reason = refused(lane.deliver(&messages[1..]).await);
        assert!(reason.contains("5000 bytes") && reason.contains("takes 4096"), "{reason}");
        assert_eq!(lane.deliver(&messages[2..]).await, Ok(1));
        assert_eq!(script.messages(), ["1", "2"]);
    }
}

#[tokio::test]
async fn limits_on_payloads_follow_the_server() {
    let long = "x".repeat(5000);
    let messages = spooled(&[&long]);
    for info in ["INFO {}", r#"INFO {"max_payload":0}"#, r#"INFO {"max_payload":5000}"#] {
        let server = Script::of(info, "PONG", &[]).start().await;
        assert_eq!(core_lane(server.port, AMPLE).deliver(&messages).await, Ok(1), "{info}");
    }
    let low = r#"INFO {"max_payload":4095}"#;
    let server = Script::of(low, "PONG", &[]).start().await;
    let reason = away(core_lane(server.port, AMPLE).deliver(&messages).await);
    assert!(reason.contains("takes 4095 bytes"), "{reason}");
    let later = "INFO {\"max_payload\":4096}\r\nPONG";
    let server = Script::of(INFO, later, &[]).start().await;
    let reason = refused(core_lane(server.port, AMPLE).deliver(&messages).await);
    assert!(reason.contains("takes 4096 at most"), "{reason}");
}

#[tokio::test]
async fn a_batch_that_is_refused_for_one_message_is_sent_message_by_message() {
    let violation = Answer::Raw("-ERR 'Maximum Payload Violation'\r\n");
    let server = Script::new(std::slice::from_ref(&violation)).start().await;
    let lane = core_lane(server.port, AMPLE);
    let messages = spooled(&["1", "2", "3"]);
    let reason = away(lane.deliver(&messages).await);
    assert!(reason.contains("Maximum Payload Violation"), "{reason}");
    assert_eq!(lane.deliver(&messages).await, Ok(1), "the first goes alone");
    assert_eq!(lane.deliver(&messages[1..]).await, Ok(2), "batches grow again");
    let server = Script::new(std::slice::from_ref(&violation)).start().await;
    refused(core_lane(server.port, AMPLE).deliver(&messages[..1]).await);
    let server = Script::new(&[violation]).start().await;
    refused(stream_lane(server.port, AMPLE).deliver(&messages).await);
}

#[tokio::test]
async fn hostile_lengths_reserve_nothing() {
    let messages = spooled(&["1"]);
    for (text, expected) in [
        ("MSG x 1 18446744073709551615\r\n", "a frame of 18446744073709551615 bytes"),
        ("MSG x 1 4000000000\r\n", "a frame of 4000000002 bytes"),
        ("HMSG x 1 9 3\r\n", "malformed"),
        ("HMSG 3\r\n", "malformed"),
        ("MSG\r\n", "malformed"),
    ] {
        let server = Script::new(&[Answer::Raw(text)]).start().await;
        let reason = away(stream_lane(server.port, AMPLE).deliver(&messages).await);
        assert!(reason.contains(expected), "{text:?}: {reason}");
    }
    let endless = FakeBroker::start(
        async |mut stream| {
            while stream.write_all(&[b'x'; 8192]).await.is_ok() {}
        },
    )
    .await;
    let reason = away(core_lane(endless.port, AMPLE).deliver(&messages).await);
    assert!(reason.contains("a line of more than 65536 bytes"), "{reason}");
}

#[tokio::test]
async fn credentials_are_sent_and_not_shown() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("secret");
    std::fs::write(&file, "s3cret\n").unwrap();
    let greeting = "-ERR 'Authorization Violation by s3cret'";
    let script = Script::of(INFO, greeting, &[]);
    let server = script.start().await;
    let address = format!("nats://127.0.0.1:{}/a", server.port);
    let of = |user, password_file, token_file| {
        let settings = BrokerSettings { address: &address, user, ..BrokerSettings::default() };
        lane(BrokerSettings { password_file, token_file, ..settings }, AMPLE)
    };
    let path: Option<&Path> = Some(&file);
    for lane in [of(Some("me"), path, None), of(None, None, path)] {
        let reason = away(lane.deliver(&spooled(&["1"])).await);
        assert!(reason.contains("Authorization Violation") && !reason.contains("s3"), "{reason}");
    }
    let connects = script.connects.lock().clone();
    assert!(connects[0].contains(r#""user":"me","pass":"s3cret""#), "{connects:?}");
    assert!(connects[1].contains(r#""auth_token":"s3cret""#) && !connects[1].contains("pass"));
}

#[tokio::test]
async fn an_idle_lane_has_no_connection() {
    let script = Script::new(&[]);
    let server = script.start().await;
    let lane = core_lane(server.port, AMPLE);
    assert!(!lane.is_connected().await, "nothing is opened before a message");
    let messages = spooled(&["1", "2"]);
    lane.deliver(&messages[..1]).await.unwrap();
    lane.deliver(&messages[1..]).await.unwrap();
    assert_eq!(script.connects.lock().len(), 1, "one connection serves all messages");
    lane.rest().await;
    assert!(!lane.is_connected().await);
    let began = Instant::now();
    lane.deliver(&messages[..1]).await.unwrap();
    assert!(began.elapsed() < AMPLE);
    assert_eq!(script.connects.lock().len(), 2);
}

#[tokio::test]
async fn old_connections_are_replaced_with_the_secret_as_it_is_now() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("token");
    let script = Script::new(&[]);
    let server = script.start().await;
    let address = format!("nats://127.0.0.1:{}/a", server.port);
    std::fs::write(&file, "first").unwrap();
    let settings = BrokerSettings { address: &address, ..BrokerSettings::default() };
    let lane = lane(BrokerSettings { token_file: Some(&file), ..settings }, AMPLE);
    let lane = lane.with_age_max(Duration::ZERO);
    let messages = spooled(&["1", "2"]);
    assert_eq!(lane.deliver(&messages[..1]).await, Ok(1));
    std::fs::write(&file, "second").unwrap();
    assert_eq!(lane.deliver(&messages[1..]).await, Ok(1));
    let connects = script.connects.lock().clone();
    assert_eq!(connects.len(), 2);
    assert!(connects[0].contains("first") && connects[1].contains("second"), "{connects:?}");
    assert_eq!(script.messages(), ["1", "2"]);
}

#[tokio::test]
async fn limits_before_the_tls_handshake_count_for_nothing() {
    let place = tempfile::tempdir().unwrap();
    let ca_file = place.path().join("ca.pem");
    let (authority, acceptor) = tls_acceptor("localhost");
    std::fs::write(&ca_file, authority).unwrap();
    let server = FakeBroker::start(move |mut stream| {
        let acceptor = acceptor.clone();
        async move {
            let info = b"INFO {\"max_payload\":1,\"tls_required\":true}\r\n";
            stream.write_all(info).await.unwrap();
            let mut stream = BufReader::new(acceptor.accept(stream).await.unwrap());
            let mut line = String::new();
            while stream.read_line(&mut line).await.is_ok_and(|count| count > 0) {
                if line.starts_with("PING") {
                    stream.write_all(b"PONG\r\n").await.unwrap();
                    stream.flush().await.unwrap();
                }
                line.clear();
            }
        }
    })
    .await;
    let address = format!("natss://localhost:{}/a", server.port);
    let settings = BrokerSettings { address: &address, ..BrokerSettings::default() };
    let lane = lane(BrokerSettings { ca_file: Some(&ca_file), ..settings }, AMPLE);
    assert_eq!(lane.deliver(&spooled(&["a message"])).await, Ok(1));
}

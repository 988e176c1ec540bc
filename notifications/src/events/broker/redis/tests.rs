//! Redis against a server in this process that answers commands in turn.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::super::lane::BrokerLane;
use super::super::settings::BrokerSettings;
use super::super::testing::{AMPLE, FakeBroker, SHORT, away, closed_port, event, lane, spooled};
use super::*;

/// Replies of a server, and the commands that it received.
#[derive(Default)]
struct Script {
    replies: Mutex<VecDeque<String>>,
    commands: Mutex<Vec<Vec<String>>>,
}

impl Script {
    async fn start(replies: &[&str]) -> (Arc<Self>, FakeBroker) {
        let replies = Mutex::new(replies.iter().map(|it| (*it).to_owned()).collect());
        let script = Arc::new(Self { replies, commands: Mutex::default() });
        let served = script.clone();
        let server = FakeBroker::start(move |stream| {
            let script = served.clone();
            async move {
                script.serve(stream).await;
            }
        })
        .await;
        (script, server)
    }

    async fn serve(&self, stream: TcpStream) -> Option<()> {
        let mut stream = BufReader::new(stream);
        loop {
            let count = number(&mut stream, '*').await?;
            let mut command = Vec::new();
            for _ in 0..count {
                let length = number(&mut stream, '$').await?;
                let mut word = vec![0; length + 2];
                stream.read_exact(&mut word).await.ok()?;
                word.truncate(length);
                command.push(String::from_utf8(word).unwrap());
            }
            self.commands.lock().push(command);
            let reply = self.replies.lock().pop_front()?;
            stream.write_all(reply.as_bytes()).await.ok()?;
        }
    }

    fn commands(&self) -> Vec<Vec<String>> {
        std::mem::take(&mut self.commands.lock())
    }
}

async fn number(stream: &mut BufReader<TcpStream>, mark: char) -> Option<usize> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    line.strip_prefix(mark)?.trim().parse().ok()
}

fn list(port: u16, patience: Duration) -> BrokerLane {
    let address = format!("redis://127.0.0.1:{port}/events");
    lane(BrokerSettings { address: &address, ..BrokerSettings::default() }, patience)
}

#[tokio::test]
async fn a_batch_is_one_command_for_a_list() {
    let (script, server) = Script::start(&[":9\r\n", ":11\r\n"]).await;
    let lane = list(server.port, AMPLE);
    let messages = spooled(&["1", "2", "3"]);
    assert_eq!(lane.deliver(&messages[..1]).await, Ok(1));
    assert_eq!(lane.deliver(&messages[1..]).await, Ok(2));
    let expected: [&[&str]; 2] = [&["RPUSH", "events", "1"], &["RPUSH", "events", "2", "3"]];
    assert_eq!(script.commands(), expected);
}

#[tokio::test]
async fn a_batch_is_one_transaction_for_a_stream() {
    let replies = ["+OK\r\n", "+QUEUED\r\n", "+QUEUED\r\n", "*2\r\n$3\r\n1-0\r\n$3\r\n2-0\r\n"];
    let (script, server) = Script::start(&replies).await;
    let address = format!("redis://127.0.0.1:{}/events", server.port);
    let settings = BrokerSettings { address: &address, ..BrokerSettings::default() };
    let settings =
        BrokerSettings { redis_stream: Some(true), redis_max_entries: Some(50), ..settings };
    let event = event("a+b");
    let messages = spooled(&[event.as_str(), "2"]);
    assert_eq!(lane(settings, AMPLE).deliver(&messages).await, Ok(2));
    let commands = script.commands();
    assert_eq!((&commands[0][..], &commands[3][..]), (&["MULTI".into()][..], &["EXEC".into()][..]));
    let fields = ["XADD", "events", "MAXLEN", "~", "50", "*", "key", "b/a b", "event", &event];
    assert_eq!(commands[1], fields);
    assert_eq!(commands[2][6..], ["key", "", "event", "2"]);
}

#[tokio::test]
async fn batches_shrink_while_the_server_is_slow() {
    let (script, server) = Script::start(&["", ":2\r\n", ":4\r\n"]).await;
    let lane = list(server.port, SHORT);
    let messages = spooled(&["1", "2", "3", "4"]);
    let reason = away(lane.deliver(&messages).await);
    assert!(reason.contains("no acknowledgement within"), "{reason}");
    assert_eq!(lane.deliver(&messages).await, Ok(2));
    assert_eq!(lane.deliver(&messages[2..]).await, Ok(2));
    let commands = script.commands();
    let counts: Vec<usize> = commands.iter().map(|command| command.len() - 2).collect();
    assert_eq!(counts, [4, 2, 2]);
}

#[tokio::test]
async fn a_transaction_that_fails_in_part_acknowledges_nothing() {
    let errors = "*2\r\n-WRONGTYPE of the key\r\n-ERR the second\r\n";
    let replies = ["+OK\r\n", "+QUEUED\r\n", "+QUEUED\r\n", errors];
    let (_, server) = Script::start(&replies).await;
    let address = format!("redis://127.0.0.1:{}/events", server.port);
    let settings = BrokerSettings { address: &address, ..BrokerSettings::default() };
    let all = lane(BrokerSettings { redis_stream: Some(true), ..settings }, AMPLE);
    let reason = away(all.deliver(&spooled(&["1", "2"])).await);
    assert!(reason.contains("WRONGTYPE") && !reason.contains("second"), "{reason}");
    let replies =
        ["+OK\r\n", "+QUEUED\r\n", "+QUEUED\r\n", "*2\r\n$3\r\n1-0\r\n-WRONGTYPE of the key\r\n"];
    let (_, server) = Script::start(&replies).await;
    let address = format!("redis://127.0.0.1:{}/events", server.port);
    let settings = BrokerSettings { address: &address, ..BrokerSettings::default() };
    let lane = lane(BrokerSettings { redis_stream: Some(true), ..settings }, AMPLE);
    let reason = away(lane.deliver(&spooled(&["1", "2"])).await);
    assert!(reason.contains("WRONGTYPE"), "{reason}");
}

#[tokio::test]
async fn faults_of_the_server_are_no_fault_of_a_message() {
    let messages = spooled(&["1"]);
    for (reply, expected) in [
        ("-OOM command not allowed\r\n", "OOM"),
        ("-READONLY You can't write\r\n", "READONLY"),
        ("-LOADING Redis is loading\r\n", "LOADING"),
        ("-WRONGTYPE Operation\r\n", "WRONGTYPE"),
        ("-NOAUTH Authentication required.\r\n", "NOAUTH"),
        ("+OK\r\n", "Redis server"),
    ] {
        let (_, server) = Script::start(&[reply]).await;
        let reason = away(list(server.port, AMPLE).deliver(&messages).await);
        let reason = reason.to_uppercase();
        assert!(reason.contains(&expected.to_uppercase()), "{reply}: {reason}");
    }
    let reason = away(list(closed_port().await, AMPLE).deliver(&messages).await);
    assert!(reason.contains("no connection to"), "{reason}");
    let silent = FakeBroker::start(async |stream| {
        tokio::time::sleep(AMPLE).await;
        drop(stream);
    })
    .await;
    let reason = away(list(silent.port, SHORT).deliver(&messages).await);
    assert!(reason.contains("no acknowledgement within"), "{reason}");
}

#[tokio::test]
async fn credentials_are_sent_and_not_shown() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("password");
    std::fs::write(&file, "s3cret\n").unwrap();
    let (script, server) = Script::start(&["-WRONGPASS invalid\r\n"; 3]).await;
    let address = format!("redis://127.0.0.1:{}/events", server.port);
    let settings = BrokerSettings { address: &address, user: Some("me"), ..Default::default() };
    let settings =
        BrokerSettings { password_file: Some(&file), redis_database: Some(3), ..settings };
    let reason = away(lane(settings, AMPLE).deliver(&spooled(&["1"])).await);
    assert!(!reason.contains("s3cret"), "{reason}");
    assert_eq!(script.commands()[0], ["AUTH", "me", "s3cret"]);
}

#[tokio::test]
async fn hostile_replies_reserve_nothing() {
    let messages = spooled(&["1"]);
    for reply in ["$9000000000000000000\r\n", "*4000000000\r\n", "*9000000000000000000\r\n"] {
        let (_, server) = Script::start(&[reply]).await;
        let reason = away(list(server.port, SHORT).deliver(&messages).await);
        // The rest of the reply never comes.
        assert!(reason.contains("no acknowledgement within"), "{reply}: {reason}");
    }
    let endless = FakeBroker::start(async |mut stream| {
        let chunk = vec![b'x'; 1 << 16];
        let _ = stream.write_all(b"$4000000000\r\n").await;
        while stream.write_all(&chunk).await.is_ok() {}
    })
    .await;
    let reason = away(list(endless.port, AMPLE).deliver(&messages).await);
    assert!(reason.contains("Redis server"), "{reason}");
}

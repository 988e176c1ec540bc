//! A process that is killed while it writes loses nothing that it acknowledged.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod support;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use martlet_protocol::backend::Backend;
use martlet_protocol::entry::Value;
use support::*;

const FOLDER: &str = "MARTLET_CRASH_FOLDER";
const ROUNDS: u64 = 4;
const LINES: usize = 150;

/// What the killed process does: it says what was acknowledged, and only that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "runs as the child of the test below"]
async fn writer() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let node = open(folder.as_ref(), 0).unwrap();
    let node = &node;
    let writers = (0..8).map(|writer| async move {
        for round in 0..100_000u64 {
            let name = format!("{}-{writer}-{round}", std::process::id());
            let kind = match round % 8 {
                7 => "file",
                3 => "extent",
                _ => "inline",
            };
            match kind {
                "file" => put_object(node, &name, 1_500_000).await.unwrap(),
                "extent" => put_object(node, &name, 70_000).await.unwrap(),
                _ => node.write(DEVICE, inline(&name, 2000)).await.unwrap(),
            };
            say(&name, kind);
            if round % 3 == 0 {
                // From here on it may be gone or not, until that is acknowledged too.
                say(&name, "deleting");
                let mut delete = write(&name, Value::Tombstone);
                delete.entry.order.time += 100 << 16;
                node.write(DEVICE, delete).await.unwrap();
                say(&name, "deleted");
            }
        }
    });
    futures::future::join_all(writers).await;
}

fn say(name: &str, what: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\nACK {name} {what}").unwrap();
    out.flush().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_sigkill() {
    let folder = tempfile::tempdir().unwrap();
    let mut acknowledged: HashMap<String, String> = HashMap::new();
    for round in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "writer", "--ignored", "--nocapture"])
            .env(FOLDER, folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let acks = lines.filter(|line| line.starts_with("ACK "));
        let wanted = LINES + 37 * usize::try_from(round).unwrap();
        let mut count = 0;
        for line in acks {
            let mut words = line.split(' ').skip(1).map(str::to_owned);
            acknowledged.insert(words.next().unwrap(), words.next().unwrap());
            count += 1;
            if count == wanted {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        assert!(count >= wanted, "the child ended by itself after {count} writes");
    }
    let node = open(folder.path(), 0).unwrap();
    for (name, what) in &acknowledged {
        let bytes = get(&node, name).await.unwrap();
        match what.as_str() {
            "inline" => assert_eq!(bytes.unwrap(), pattern(name, 2000), "{name}"),
            "file" => assert!(bytes.unwrap() == pattern(name, 1_500_000), "{name}"),
            "extent" => assert_eq!(bytes.unwrap(), pattern(name, 70_000), "{name}"),
            "deleting" => {}
            _ => assert_eq!(bytes, None, "{name} came back"),
        }
    }
}

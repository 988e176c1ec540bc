//! A process that is killed while it writes loses no acknowledged write.

#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::*;
use martlet_protocol::backend::{Backend, Want, WriteReply};
use martlet_protocol::entry::Value;
use martlet_protocol::register::WriteMode;
use martlet_protocol::{BackendExt, Stamp, WriteId};
use martlet_storage_node::StorageNode;

const FOLDER: &str = "MARTLET_CRASH_FOLDER";
const ROUNDS: u64 = 4;
const LINES: usize = 150;

/// Body of the child process: writes, and prints exactly the acknowledged writes.
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
            print_step(&name, kind);
            if round % 3 == 0 {
                // The object may now exist or not, until its delete is acknowledged too.
                print_step(&name, "deleting");
                let mut delete = write(&name, Value::Tombstone);
                delete.entry.order.time += 100 << 16;
                node.write(DEVICE, delete).await.unwrap();
                print_step(&name, "deleted");
            }
        }
    });
    futures::future::join_all(writers).await;
}

fn print_step(name: &str, what: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\nACK {name} {what}").unwrap();
    out.flush().unwrap();
}

/// Returns the output of a child that is killed after a number of lines.
fn killed_after(child: &str, folder: &Path, wanted: usize) -> Vec<(String, String)> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("crash::{child}"), "--ignored", "--nocapture"])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut said = Vec::new();
    for line in lines.filter(|line| line.starts_with("ACK ")) {
        let mut words = line.split(' ').skip(1).map(str::to_owned);
        said.push((words.next().unwrap(), words.next().unwrap()));
        if said.len() == wanted {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    assert!(said.len() >= wanted, "the child ended by itself after {} writes", said.len());
    said
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_sigkill() {
    let folder = tempfile::tempdir().unwrap();
    let mut acknowledged: HashMap<String, String> = HashMap::new();
    for round in 0..ROUNDS {
        let wanted = LINES + 37 * usize::try_from(round).unwrap();
        for (name, what) in killed_after("writer", folder.path(), wanted) {
            acknowledged.insert(name, what);
        }
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

/// Body of the second child process: stores hints, forgets some, and changes votes and floor.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "runs as the child of the test below"]
async fn keeper() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let node = open(folder.as_ref(), 0).unwrap();
    let from = node.devices().await.unwrap()[0].hints * 1000;
    change_votes(&node, true).await;
    for round in from..from + 100_000 {
        let name = format!("h{round}");
        let hint = inline(&name, 2000);
        let order = hint.entry.order;
        assert_eq!(node.keep_hint(DEVICE, hint).await.unwrap(), WriteReply::Stored);
        print_step(&name, "kept");
        if round % 3 == 0 {
            print_step(&name, "forgetting");
            node.forget_hint(DEVICE, &key(&name), order).await.unwrap();
            print_step(&name, "forgotten");
        }
        print_step("floor-at-most", &(round + 1).to_string());
        node.raise_floor(DEVICE, Stamp::at_ms(round + 1)).await.unwrap();
        print_step("floor", &(round + 1).to_string());
        change_votes(&node, false).await;
        // A device without votes keeps no hints.
        change_votes(&node, true).await;
    }
}

async fn change_votes(node: &StorageNode, votes: bool) {
    print_step("votes", "changing");
    node.set_voting(DEVICE, votes).await.unwrap();
    print_step("votes", &votes.to_string());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hints_votes_and_floor_survive_sigkill() {
    let folder = tempfile::tempdir().unwrap();
    let mut said: HashMap<String, String> = HashMap::new();
    for round in 0..ROUNDS {
        let wanted = LINES + 31 * usize::try_from(round).unwrap();
        said.extend(killed_after("keeper", folder.path(), wanted));
        let node = open(folder.path(), 0).unwrap();
        check_standing(&node, &said).await;
        // Without votes it gives no hints away.
        node.set_voting(DEVICE, true).await.unwrap();
        let mut kept = 0;
        for (name, what) in said.iter().filter(|(name, _)| name.starts_with('h')) {
            let view = node.read_hint(DEVICE, &key(name), Want::EntryAndInline).await.unwrap();
            kept += u64::from(view.entry.is_some());
            match what.as_str() {
                "kept" => assert_eq!(view.inline.unwrap(), pattern(name, 2000), "{name}"),
                "forgotten" => assert_eq!(view.entry, None, "{name} came back"),
                _ => {}
            }
        }
        let counted = node.devices().await.unwrap()[0].hints;
        assert!(counted == kept || counted == kept + 1, "{counted} hints of {kept}");
    }
}

/// Votes and floor are the last printed values, or the next ones.
async fn check_standing(node: &StorageNode, said: &HashMap<String, String>) {
    let voting = node.devices().await.unwrap()[0].voting;
    if said["votes"] != "changing" {
        assert_eq!(voting.to_string(), said["votes"]);
    }
    let mut low = write("low", Value::Tombstone);
    (low.mode, low.entry.order, low.entry.write_id) =
        (WriteMode::Repair, Stamp::at_ms(0), WriteId([1; 16]));
    let floor = match node.write(DEVICE, low).await.unwrap() {
        WriteReply::Behind(floor) => floor,
        other => panic!("a write below the floor was taken: {other:?}"),
    };
    let (least, most): (u64, u64) =
        (said["floor"].parse().unwrap(), said["floor-at-most"].parse().unwrap());
    assert!((Stamp::at_ms(least)..=Stamp::at_ms(most)).contains(&floor), "{floor}");
}

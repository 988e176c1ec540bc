//! Malformed bytes on either side: neither node nor client panics, hangs or accepts them.

use martlet_protocol::Term;
use std::time::Duration;

use martlet_protocol::backend::Want;
use martlet_protocol::{Backend, BackendExt, ErrorKind};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::io::AsyncWriteExt;

use crate::world::{DEVICE, TestNode, client, head, impostor, memory, patience, raw, register};

const ROUNDS: usize = 150;

fn chance() -> SmallRng {
    let seed = rand::random();
    println!("seed {seed}");
    SmallRng::seed_from_u64(seed)
}

fn noise(chance: &mut SmallRng, length_max: usize) -> Vec<u8> {
    let length = chance.random_range(0..length_max);
    (0..length).map(|_| chance.random()).collect()
}

/// A request or reply with a few bytes changed, cut or repeated.
fn mangled(chance: &mut SmallRng, good: &[u8]) -> Vec<u8> {
    let mut bytes = good.to_vec();
    for _ in 0..chance.random_range(1..4) {
        let at = chance.random_range(0..bytes.len());
        match chance.random_range(0..4) {
            0 => bytes[at] = chance.random(),
            1 => bytes.truncate(at.max(1)),
            2 => drop(bytes.splice(at..at, noise(chance, 40))),
            _ => bytes.extend_from_within(at..),
        }
    }
    bytes
}

#[tokio::test]
async fn a_node_outlives_garbage_on_its_port() {
    let node = TestNode::start(memory()).await;
    let mut chance = chance();
    let good = b"POST /v1/d/3/read HTTP/1.1\r\nhost: n\r\nx-martlet-date: 1795262400000\r\n\
        x-martlet-signature: 00\r\ncontent-length: 4\r\n\r\nabcd";
    for _ in 0..ROUNDS {
        let mut bytes =
            if chance.random() { noise(&mut chance, 3000) } else { mangled(&mut chance, good) };
        bytes.extend_from_slice(b"\r\n\r\n");
        let status = tokio::time::timeout(Duration::from_millis(40), raw(node.address, &bytes));
        if let Ok(Some(status)) = status.await {
            assert!((400..500).contains(&status), "{status} to {:?}", bytes.escape_ascii());
        }
    }
    node.client().devices().await.expect("the node is well");
}

#[tokio::test]
async fn signed_nonsense_is_invalid() {
    let node = TestNode::start(memory()).await;
    let client = node.client();
    let mut chance = chance();
    for call in [
        "read",
        "write",
        "promise",
        "list",
        "fence",
        "purge-bucket",
        "stat-extent",
        "delete-extents",
        "delete-unneeded",
        "list-extents",
        "garbage",
        "forget-garbage",
        "keep-hint",
        "read-hint",
        "list-hints",
        "hints",
        "forget-hint",
        "registers",
        "raise-floor",
        "set-voting",
    ] {
        let path = format!("/v1/d/3/{call}");
        // Counts of 2⁶⁴−1 items without items, and random bytes.
        let vast = [[0xff; 9].as_slice(), &[1]].concat();
        for body in [vec![], vast.repeat(30), noise(&mut chance, 2000), noise(&mut chance, 50_000)]
        {
            if let Err(error) = client.post(&path, body.into()).await {
                let known = [ErrorKind::Invalid, ErrorKind::NotFound, ErrorKind::Conflict];
                // Few random bytes are a call whose time is over.
                let is_late = call == "delete-unneeded" && error.kind() == ErrorKind::Unavailable;
                assert!(is_late || known.contains(&error.kind()), "{call}: {error}");
            }
        }
        let long = client.post(&path, vec![0; 1024 * 1024 + 1].into()).await.unwrap_err();
        assert_eq!(long.kind(), ErrorKind::Invalid, "{call}");
    }
    client.devices().await.expect("the node is well");
}

#[tokio::test]
async fn a_client_outlives_garbage_in_replies() {
    let mut chance = chance();
    let good = b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\nx-martlet-now: 1\r\n\
        x-martlet-rings: index=1-00\r\n\r\n\x7f\xff\xff\xff\xff\xff\xff\xff";
    for _ in 0..ROUNDS {
        let bytes =
            if chance.random() { noise(&mut chance, 500) } else { mangled(&mut chance, good) };
        let shown = bytes.escape_ascii().to_string();
        let address = impostor(move |mut stream| {
            let bytes = bytes.clone();
            async move {
                head(&mut stream).await;
                let _ = stream.write_all(&bytes).await;
            }
        })
        .await;
        let client = client(address, patience(Duration::from_millis(300)));
        let answer = client.read(DEVICE, &register(), Want::Entry, Term::ANY).await;
        assert!(answer.is_err(), "{answer:?} from {shown}");
    }
}

//! A proxy dies in the middle of a request. Through another proxy the object is wholly written or
//! unchanged, and a retry succeeds.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use ::bytes::Bytes;
use martlet_tests::Upload;
use martlet_tests::bytes::{body, chance};
use martlet_tests::cluster::{ClusterPlan, TestCluster};
use martlet_tests::s3::{Reply, S3};
use rand::Rng;
use rand::rngs::SmallRng;

use super::{BUCKET, make_bucket, until};

/// Larger than any buffer on the way.
const LENGTH: usize = 3_000_000;
const PART: usize = 5 << 20;
const ROUNDS: usize = 6;

struct Probe {
    cluster: TestCluster,
    /// A client of the proxy that survives.
    other: S3,
    chance: SmallRng,
}

impl Probe {
    async fn new() -> Self {
        let chance = chance();
        let cluster = ClusterPlan { nodes: 3, proxies: 2, ..ClusterPlan::default() }.start().await;
        make_bucket(&cluster, BUCKET).await;
        let other = cluster.client(1);
        Self { cluster, other, chance }
    }

    fn victim(&self) -> SocketAddr {
        self.cluster.proxies[0].address
    }

    /// Sends a request, and kills its proxy within 12 ms.
    async fn killed_while(&mut self, method: &str, target: &str, headers: &[(&str, &str)]) {
        let moment = Duration::from_micros(self.chance.random_range(0..12_000));
        let mut client = S3::new(self.victim());
        // Opens the connection before the request.
        drop(client.get(&format!("/{BUCKET}")).await);
        let asked = client.send_with(method, target, headers, Bytes::new());
        let killed = async {
            tokio::time::sleep(moment).await;
            self.cluster.proxies[0].kill();
        };
        let (answer, ()) = tokio::join!(asked, killed);
        let answer = answer.map(|reply| reply.status);
        println!("{method} {target}: killed after {moment:?}, answered {answer:?}");
    }

    async fn read(&mut self, key: &str) -> Reply {
        let target = format!("/{BUCKET}/{key}");
        let mut found = None;
        until("an answer through the other proxy", Duration::from_secs(15), async || {
            let reply = self.other.get(&target).await.unwrap();
            let answered = matches!(reply.status, 200 | 404);
            found = Some(reply);
            answered
        })
        .await;
        found.unwrap()
    }

    async fn put(&mut self, key: &str, name: &str, length: usize) {
        let target = format!("/{BUCKET}/{key}");
        let reply = self.other.put(&target, body(name, length)).await.unwrap();
        assert_eq!(reply.status, 200, "{}", reply.text());
    }

    /// Returns the index of the body that a key holds; `None` if the key is absent. Panics on part
    /// of a body. A call that was under way when the proxy died may still arrive; after at most one
    /// change the state must stay, and the listing must agree.
    async fn whole(&mut self, key: &str, bodies: &[&Bytes]) -> Option<usize> {
        let mut seen = Vec::new();
        for _ in 0..5 {
            let reply = self.read(key).await;
            let is = || bodies.iter().position(|body| **body == reply.body);
            let found = (reply.status == 200).then(|| is().expect("half of a body is visible"));
            let listed = self.other.keys(BUCKET).await.contains(&key.to_owned());
            seen.push(found);
            if listed == found.is_some() && seen.len() > 1 && seen[seen.len() - 2] == found {
                let changes = seen.windows(2).filter(|pair| pair[0] != pair[1]).count();
                assert!(changes <= 1, "{key} comes and goes: {seen:?}");
                return found;
            }
        }
        panic!("{key}: reads and listings do not agree: {seen:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m1_a_proxy_dies_in_the_middle_of_a_put() {
    let mut probe = Probe::new().await;
    let (old, new) = (body("old", LENGTH), body("new", LENGTH));
    probe.put("over", "old", LENGTH).await;
    for round in 0..ROUNDS {
        let sent = LENGTH * round / (ROUNDS - 1);
        for key in ["fresh", "over"] {
            let head = S3::new(probe.victim()).head("PUT", &format!("/{BUCKET}/{key}"), LENGTH);
            let mut stream = TcpStream::connect(probe.victim()).unwrap();
            stream.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
            stream.write_all(head.as_bytes()).unwrap();
            drop(stream.write_all(&new[..sent.min(LENGTH - 1)]));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        probe.cluster.proxies[0].kill();
        // Part of the body was not sent, so the write must have no effect.
        assert_eq!(probe.whole("fresh", &[&new]).await, None);
        assert_eq!(probe.whole("over", &[&old]).await, Some(0));
        probe.cluster.proxies[0].start().await;
    }
    probe.cluster.assert_no_panic();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m1_a_proxy_dies_in_the_middle_of_a_complete() {
    let mut probe = Probe::new().await;
    let (one, two) = (body("one", PART), body("two", 1_000));
    let whole: Bytes = [&one[..], &two[..]].concat().into();
    for round in 0..ROUNDS {
        let key = format!("parts-{round}");
        let object = format!("/{BUCKET}/{key}");
        let mut upload = Upload::begin(&mut probe.other, &object).await;
        for (number, part) in [(1, &one), (2, &two)] {
            let reply = probe.other.put(&upload.target(number), part.clone()).await.unwrap();
            assert_eq!(reply.status, 200, "{}", reply.text());
            upload.part(number, reply.header("etag"));
        }
        let (target, document) = upload.completion();
        let moment = Duration::from_micros(probe.chance.random_range(0..15_000));
        let mut client = S3::new(probe.victim());
        drop(client.get(&format!("/{BUCKET}")).await);
        let asked = client.send("POST", &target, document.into());
        let killed = async {
            tokio::time::sleep(moment).await;
            probe.cluster.proxies[0].kill();
        };
        let (answer, ()) = tokio::join!(asked, killed);
        let found = probe.whole(&key, &[&whole]).await;
        let answered =
            answer.is_ok_and(|reply| reply.status == 200 && reply.all("Code").is_empty());
        println!("Complete killed after {moment:?}: answered {answered}, visible {found:?}");
        assert!(found.is_some() || !answered, "a Complete that was acknowledged is not there");
        // A retry through another proxy completes the same write (rule M1).
        upload.complete(&mut probe.other).await;
        assert_eq!(probe.whole(&key, &[&whole]).await, Some(0));
        probe.cluster.proxies[0].start().await;
    }
    probe.cluster.assert_no_panic();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x1_a_proxy_dies_in_the_middle_of_a_copy_and_of_a_delete() {
    let mut probe = Probe::new().await;
    let source = body("source", LENGTH);
    probe.put("source", "source", LENGTH).await;
    let header = format!("/{BUCKET}/source");
    for round in 0..ROUNDS {
        let key = format!("copy-{round}");
        let target = format!("/{BUCKET}/{key}");
        probe.killed_while("PUT", &target, &[("x-amz-copy-source", header.as_str())]).await;
        let found = probe.whole(&key, &[&source]).await;
        probe.cluster.proxies[0].start().await;
        if found.is_none() {
            probe.put(&key, "source", LENGTH).await;
        }
        probe.killed_while("DELETE", &target, &[]).await;
        probe.whole(&key, &[&source]).await;
        assert_eq!(probe.whole("source", &[&source]).await, Some(0), "the source was touched");
        probe.cluster.proxies[0].start().await;
    }
    probe.cluster.assert_no_panic();
}

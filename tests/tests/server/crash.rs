//! kill -9 in the middle of a load: acknowledged writes exist and are whole, any other write is
//! wholly visible or wholly absent, and no space leaks.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

use std::time::Duration;

use martlet_tests::bytes::chance;
use martlet_tests::history::BucketHistory;
use martlet_tests::server::disk_bytes;
use martlet_tests::{Server, Setup};
use rand::Rng;

const ROUNDS: usize = 4;
const WRITERS: usize = 8;

/// Garbage expires after 100 ms, so that a test need not wait for it.
fn setup() -> Setup {
    Setup::new().set("MARTLET_TEST_RECLAIM_GRACE_MS", "100")
}

async fn nothing_is_left(server: &Server) {
    server.wait_for_metric("martlet_device_extents", |value| value == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_writes_survive_kill_9_and_no_space_leaks() {
    let mut chance = chance();
    let setup = setup();
    let mut server = setup.start().await;
    server.client().make_bucket("box").await;
    let mut history = BucketHistory::new("box", WRITERS);
    for round in 0..ROUNDS {
        let (address, time) = (server.s3_address, chance.random_range(300..1200));
        let (outcome, mut killed) =
            tokio::join!(history.load(address, &mut chance, Duration::from_mins(1)), async {
                tokio::time::sleep(Duration::from_millis(time)).await;
                server.kill();
                server
            });
        assert!(outcome.acknowledged > 0, "round {round}: {outcome:?}\n{}", killed.logged());
        assert_eq!(outcome.refused, 0, "{}", killed.logged());
        killed = setup.start().await;
        history.check(&mut killed.client()).await;
        server = killed;
    }
    assert_eq!(server.metric("martlet_device_quarantined").await, 0, "{}", server.logged());
    history.delete_all(&mut server.client()).await;
    nothing_is_left(&server).await;
    assert!(server.stop().await.success());
    // Files of extents are deleted, and space in volumes is free for new extents.
    let extents = setup.data_dir().join("device0/extents");
    assert!(disk_bytes(&extents) < 4 << 20, "{} bytes", disk_bytes(&extents));
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_of_a_put_that_was_cut_off_are_given_back() {
    use tokio::io::AsyncWriteExt;
    let setup = setup();
    let mut server = setup.start().await;
    let client = server.client();
    server.client().make_bucket("box").await;
    let mut streams = Vec::new();
    for at in 0..4 {
        let mut stream = tokio::net::TcpStream::connect(server.s3_address).await.unwrap();
        let head = client.head("PUT", &format!("/box/{at}"), 100_000_000);
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&vec![7; 70_000_000]).await.unwrap();
        streams.push(stream);
    }
    server.kill();
    let server = setup.start().await;
    assert_eq!(server.client().keys("box").await, Vec::<String>::new());
    nothing_is_left(&server).await;
    let extents = setup.data_dir().join("device0/extents");
    assert!(disk_bytes(&extents) < 4 << 20, "{} bytes", disk_bytes(&extents));
}

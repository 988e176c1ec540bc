//! Load, kill, restart and check, repeated for a configured time: `make soak`.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

use std::time::{Duration, Instant};

use martlet_tests::bytes::chance;
use martlet_tests::history::BucketHistory;
use martlet_tests::{Setup, process};
use rand::Rng;

const WRITERS: usize = 16;
/// Without huge pages: an allocator that rounds to 2 MiB hides growth of the server's own.
const RESIDENT_MAX: u64 = 200 << 20;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes MARTLET_SOAK_SECONDS (60); `make soak` runs it"]
async fn hours_of_load_and_crashes() {
    let seconds = std::env::var("MARTLET_SOAK_SECONDS").map_or(60, |text| text.parse().unwrap());
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut chance = chance();
    let setup =
        Setup::new().set("MARTLET_TEST_RECLAIM_GRACE_MS", "1000").set("MIMALLOC_ALLOW_THP", "0");
    let mut history = BucketHistory::new("box", WRITERS);
    let mut server = setup.start().await;
    server.client().make_bucket("box").await;
    for round in 1.. {
        let time = Duration::from_millis(chance.random_range(1000..10_000));
        let outcome = history.load(server.s3_address, &mut chance, time).await;
        let resident = process::resident_bytes(server.pid());
        assert!(outcome.refused == 0 && outcome.acknowledged > 0, "{outcome:?}");
        assert!(resident < RESIDENT_MAX, "{resident} bytes resident\n{}", server.logged());
        let end = chance.random_range(0..3);
        if end == 0 {
            assert!(server.stop().await.success());
        } else {
            server.kill();
        }
        server = setup.start().await;
        history.check(&mut server.client()).await;
        assert_eq!(server.metric("martlet_device_quarantined").await, 0);
        println!("round {round}: {} acknowledged, {} MiB", outcome.acknowledged, resident >> 20);
        if Instant::now() > until {
            break;
        }
    }
    history.delete_all(&mut server.client()).await;
    server.wait_for_metric("martlet_device_extents", |value| value == 0).await;
}

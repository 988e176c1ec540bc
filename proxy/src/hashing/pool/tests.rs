//! Jobs of many bodies: their digests, their order, dropped bodies and lost workers.

use std::time::Duration;

use futures::future::join_all;
use martlet_protocol::entry::ChecksumAlgorithm;
use tokio::time::timeout;

use super::*;
use crate::md5::tests::Random;

const ALGORITHMS: [&[ChecksumAlgorithm]; 3] =
    [&[], &[ChecksumAlgorithm::Crc32c], &[ChecksumAlgorithm::Sha256, ChecksumAlgorithm::Crc32]];

fn pool(threads: usize) -> Arc<HashPool> {
    Arc::new(HashPool::new(Arc::new(Semaphore::new(threads))))
}

/// Waits until all permits are back and the pool counts nothing.
async fn check_idle(pool: &HashPool, threads: u32) {
    let is_idle = async || {
        let _permits = pool.threads.acquire_many(threads).await.unwrap();
        let state = pool.state.lock();
        (state.queue.len(), state.workers, state.running) == (0, 0, 0)
    };
    let becomes_idle = async {
        while !is_idle().await {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_mins(1), becomes_idle).await.expect("all workers end");
}

/// Sends random chunks in random batches. Returns false if the body was dropped before its end.
async fn hash_body(pool: Arc<HashPool>, mut random: Random) -> bool {
    let algorithms = ALGORITHMS[random.below(ALGORITHMS.len())];
    let (mut digests, mut expected) = (Digests::new(algorithms), Digests::new(algorithms));
    for _ in 0..=random.below(5) {
        let count = random.below(4);
        let chunks: Vec<Bytes> = (0..count).map(|_| random.bytes(40_000).into()).collect();
        expected.update_all(&chunks);
        let result = pool.submit(digests, chunks);
        if random.below(10) == 0 {
            return false;
        }
        digests = result.await.expect("the worker sends the digests");
    }
    let (sums, expected) = (digests.finish(), expected.finish());
    assert_eq!((sums.md5, sums.bytes), (expected.md5, expected.bytes));
    assert_eq!(sums.checksums, expected.checksums);
    true
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn bodies_that_share_lanes_get_the_digests_of_their_own_bytes() {
    for seed in 0..10 {
        println!("seed {seed}");
        let threads = 1 + seed % 3;
        let pool = pool(usize::try_from(threads).unwrap());
        let bodies = (0..40).map(|body| {
            let random = Random::new(1000 * u64::from(seed) + body);
            tokio::spawn(hash_body(pool.clone(), random))
        });
        let ended = join_all(bodies).await.into_iter().filter(|ended| *ended.as_ref().unwrap());
        assert!(ended.count() > 10, "seed {seed}");
        check_idle(&pool, threads).await;
    }
}

#[tokio::test]
async fn queued_bodies_share_one_worker() {
    let pool = pool(2);
    let permits = pool.threads.clone().acquire_many_owned(2).await.unwrap();
    let chunk = Bytes::from(Random::new(1).bytes(100_000));
    let submit = |_| pool.submit(Digests::new(&[]), vec![chunk.clone()]);
    let results: Vec<_> = (0..pool.lanes).map(submit).collect();
    assert_eq!(pool.state.lock().workers, 1);
    assert!(!pool.has_free_lane());
    let one_more = pool.submit(Digests::new(&[]), vec![chunk.clone()]);
    assert_eq!(pool.state.lock().workers, 2);
    drop(permits);
    for digests in join_all(results).await.into_iter().chain([one_more.await]) {
        let mut expected = Digests::new(&[]);
        expected.update(&chunk);
        assert_eq!(digests.unwrap().finish().md5, expected.finish().md5);
    }
    check_idle(&pool, 2).await;
}

#[tokio::test]
async fn a_dropped_body_leaves_no_bytes_in_the_queue() {
    let pool = pool(1);
    let permit = pool.threads.clone().acquire_owned().await.unwrap();
    let chunk = Bytes::from(vec![7; 100_000]);
    drop(pool.submit(Digests::new(&[]), vec![chunk.clone()]));
    assert!(!chunk.is_unique());
    drop(permit);
    check_idle(&pool, 1).await;
    assert!(chunk.is_unique());
}

#[tokio::test]
async fn a_long_turn_ends_while_others_wait_for_the_permit() {
    let pool = pool(1);
    let chunk = Bytes::from(vec![7; 3 * TURN_BLOCKS * BLOCK]);
    let result = pool.submit(Digests::new(&[]), vec![chunk.clone()]);
    let permit = pool.threads.acquire().await.unwrap();
    drop(permit);
    let mut expected = Digests::new(&[]);
    expected.update(&chunk);
    assert_eq!(result.await.unwrap().finish().md5, expected.finish().md5);
    check_idle(&pool, 1).await;
}

#[tokio::test]
async fn a_lost_worker_fails_its_bodies_and_no_later_one() {
    let pool = pool(1);
    for algorithms in ALGORITHMS {
        let (done, result) = oneshot::channel();
        let digests = Digests::new(algorithms);
        let worker = pool.admit(HashJob::new(digests, vec![Bytes::from_static(b"a")], done));
        drop(worker.expect("an idle pool starts a worker"));
        result.await.map(|_| ()).unwrap_err();
        let later = pool.submit(Digests::new(algorithms), vec![Bytes::from_static(b"abc")]);
        assert_eq!(
            hex::encode(later.await.unwrap().finish().md5.unwrap()),
            "900150983cd24fb0d6963f7d28e17f72"
        );
        // The worker sends the digests before it ends.
        check_idle(&pool, 1).await;
    }
}

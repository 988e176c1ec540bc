//! Digests of a body, computed as it arrives, without blocking an async worker.
//!
//! Chunks wait here by reference until they are worth a thread. Then one batch at a time goes to
//! the [`pool`], where concurrent bodies share the lanes of a worker; all bodies together use at
//! most one thread for each core. A short rest at the end, and small bodies, are hashed inline.

mod job;
mod pool;

use std::sync::Arc;

use bytes::Bytes;
use martlet_protocol::Error;
use tokio::sync::oneshot;

pub(crate) use self::pool::HashPool;
use crate::channel::cost;
use crate::digest::{Digests, Sums};
use crate::error::Result;

/// Smallest batch for a thread: MD5 of these bytes takes a third of a millisecond.
const BATCH_COST_MIN: usize = 256 * 1024;
/// Bytes that may wait while a batch runs; beyond that the body waits.
const WAITING_COST_MAX: usize = 2 * BATCH_COST_MIN;
/// Smallest rest of a body for the lane of a worker that runs already.
const REST_COST_MIN: usize = 32 * 1024;

/// Digests of a body that may lag behind its bytes.
pub(crate) struct Hashing {
    state: DigestState,
    waiting: Vec<Bytes>,
    waiting_cost: usize,
    pool: Arc<HashPool>,
}

enum DigestState {
    Idle(Digests),
    Running(oneshot::Receiver<Digests>),
    /// A worker lost the batch.
    Lost,
}

impl Hashing {
    /// Digests whose batches run in the lanes of `pool`.
    pub(crate) fn new(digests: Digests, pool: Arc<HashPool>) -> Self {
        Self { state: DigestState::Idle(digests), waiting: Vec::new(), waiting_cost: 0, pool }
    }

    /// Adds a chunk. Cheap digests are updated at once.
    pub(crate) fn push(&mut self, bytes: Bytes) {
        if let DigestState::Idle(digests) = &mut self.state
            && digests.is_cheap()
        {
            digests.update(&bytes);
            return;
        }
        self.waiting_cost += cost(&bytes);
        self.waiting.push(bytes);
    }

    /// Returns true if chunks wait to be hashed.
    pub(crate) fn is_behind(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Starts a batch if enough bytes wait; waits for the running one if too many do.
    pub(crate) async fn keep_up(&mut self) -> Result<()> {
        if self.waiting_cost < BATCH_COST_MIN {
            return Ok(());
        }
        let is_busy = matches!(&self.state, DigestState::Running(work) if work.is_empty());
        if is_busy && self.waiting_cost < WAITING_COST_MAX {
            return Ok(());
        }
        let digests = self.idle().await?;
        self.start_batch(digests);
        Ok(())
    }

    /// Hashes all waiting chunks. A short rest is hashed inline unless a worker has a free lane.
    pub(crate) async fn catch_up(&mut self) -> Result<()> {
        let mut digests = self.idle().await?;
        let fills_lane = self.waiting_cost >= REST_COST_MIN && self.pool.has_free_lane();
        if fills_lane || self.waiting_cost >= BATCH_COST_MIN {
            self.start_batch(digests);
            digests = self.idle().await?;
        }
        digests.update_all(&self.batch());
        self.state = DigestState::Idle(digests);
        Ok(())
    }

    fn start_batch(&mut self, digests: Digests) {
        let batch = self.batch();
        self.state = DigestState::Running(self.pool.submit(digests, batch));
    }

    /// Final digests of all bytes.
    pub(crate) async fn finish(mut self) -> Result<Sums> {
        self.catch_up().await?;
        Ok(self.idle().await?.finish())
    }

    fn batch(&mut self) -> Vec<Bytes> {
        self.waiting_cost = 0;
        std::mem::take(&mut self.waiting)
    }

    /// The digests, after the running batch.
    async fn idle(&mut self) -> Result<Digests> {
        if let DigestState::Running(work) = &mut self.state {
            let done = work.await;
            self.state = done.map_or(DigestState::Lost, DigestState::Idle);
        }
        match std::mem::replace(&mut self.state, DigestState::Lost) {
            DigestState::Idle(digests) => Ok(digests),
            _ => Err(Error::internal("hashing a body ended unexpectedly").into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use martlet_protocol::entry::ChecksumAlgorithm;
    use tokio::sync::Semaphore;

    use super::*;

    const ALGORITHMS: [ChecksumAlgorithm; 2] =
        [ChecksumAlgorithm::Crc32c, ChecksumAlgorithm::Sha256];

    fn hashing() -> Hashing {
        Hashing::new(Digests::new(&ALGORITHMS), pool(Arc::new(Semaphore::new(1))))
    }

    fn pool(threads: Arc<Semaphore>) -> Arc<HashPool> {
        Arc::new(HashPool::new(threads))
    }

    fn bytes(length: usize) -> Bytes {
        (0..length).map(|at| u8::try_from(at * 31 % 251).expect("below 251")).collect()
    }

    #[tokio::test]
    async fn digests_of_chunks_equal_those_of_the_whole_body() {
        let whole = bytes(3 * WAITING_COST_MAX + 4321);
        let mut at_once = Digests::new(&ALGORITHMS);
        at_once.update(&whole);
        let expected = at_once.finish();
        for size in [1000, BATCH_COST_MIN, WAITING_COST_MAX + 1, whole.len()] {
            let mut hashing = hashing();
            let mut rest = whole.clone();
            while !rest.is_empty() {
                hashing.push(rest.split_to(size.min(rest.len())));
                hashing.keep_up().await.unwrap();
                assert!(hashing.waiting_cost < WAITING_COST_MAX);
            }
            let sums = hashing.finish().await.unwrap();
            assert_eq!((sums.md5, sums.bytes), (expected.md5, expected.bytes));
            assert_eq!(sums.checksums, expected.checksums);
        }
    }

    #[tokio::test]
    async fn bodies_share_the_threads_and_all_come_to_their_end() {
        let threads = Arc::new(Semaphore::new(2));
        let pool = pool(threads.clone());
        let whole = bytes(5 * BATCH_COST_MIN);
        let bodies = (0..20).map(|_| async {
            let mut hashing = Hashing::new(Digests::new(&ALGORITHMS), pool.clone());
            let mut rest = whole.clone();
            while !rest.is_empty() {
                hashing.push(rest.split_to(rest.len().min(100_000)));
                hashing.keep_up().await.unwrap();
            }
            hashing.finish().await.unwrap().md5
        });
        let md5s = futures::future::join_all(bodies).await;
        let mut at_once = Digests::new(&[]);
        at_once.update(&whole);
        let md5 = at_once.finish().md5;
        assert!(md5s.iter().all(|other| *other == md5));
        // A worker sends its last digests before it ends.
        let permits = tokio::time::timeout(Duration::from_mins(1), threads.acquire_many(2));
        drop(permits.await.expect("all workers end").unwrap());
        assert_eq!(threads.available_permits(), 2);
    }

    #[tokio::test]
    async fn cheap_digests_keep_no_chunk() {
        let digests = Digests::without_md5(&[ChecksumAlgorithm::Crc64Nvme]);
        let mut hashing = Hashing::new(digests, pool(Arc::new(Semaphore::new(1))));
        let whole = bytes(3 * BATCH_COST_MIN);
        hashing.push(whole.clone());
        assert!(!hashing.is_behind() && whole.is_unique());
        hashing.keep_up().await.unwrap();
        let mut at_once = Digests::new(&[ChecksumAlgorithm::Crc64Nvme]);
        at_once.update(&whole);
        assert_eq!(hashing.finish().await.unwrap().checksums, at_once.finish().checksums);
    }

    #[tokio::test]
    async fn a_small_body_stays_where_it_is() {
        let mut hashing = hashing();
        hashing.push(bytes(BATCH_COST_MIN / 2));
        hashing.keep_up().await.unwrap();
        assert!(matches!(hashing.state, DigestState::Idle(_)));
        hashing.push(bytes(BATCH_COST_MIN / 2));
        hashing.keep_up().await.unwrap();
        assert!(matches!(hashing.state, DigestState::Running(_)));
    }
}

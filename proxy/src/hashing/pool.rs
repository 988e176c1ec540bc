//! Workers that hash batches of concurrent bodies in lanes.
//!
//! Jobs wait in one queue for all workers. A worker is a blocking thread with a permit of the
//! hashing threads. It takes a queued job into each free lane, hashes all its lanes up to the
//! shortest chunk, at most [`SLICE_BLOCKS`] at once, and looks into the queue again. A worker
//! without jobs ends.
//!
//! A body never waits for company: its job starts the first worker, or joins a running worker with
//! a free lane at the end of that worker's slice. Another worker starts once all lanes are taken,
//! up to one worker for each core. So eight bodies cost the CPU time of one worker, and more bodies
//! than lanes use more cores. On a CPU without suitable vectors a worker has one lane.
//!
//! SHA-1 and SHA-2 have no lanes. A job that needs one starts on a thread of its own, and joins
//! the lanes of another worker when these checksums are done.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::job::HashJob;
use crate::digest::Digests;
use crate::md5::BLOCK;
use crate::md5::lanes::{self, Lane, lanes_max};

#[cfg(test)]
mod tests;

/// Blocks of each lane between two looks into the queue: some 30 µs.
const SLICE_BLOCKS: usize = 256;
/// Blocks of each lane after which a worker gives its permit to others that wait: about 1 ms.
const TURN_BLOCKS: usize = 8192;

/// Queue and workers of all bodies of a store.
pub(crate) struct HashPool {
    /// Permits for hashing threads, shared with the encryption.
    threads: Arc<Semaphore>,
    workers_max: usize,
    /// Number of lanes of a worker.
    lanes: usize,
    state: Mutex<PoolState>,
}

#[derive(Default)]
struct PoolState {
    queue: VecDeque<HashJob>,
    /// Workers that look into the queue before they end.
    workers: usize,
    /// Jobs in the lanes of workers.
    running: usize,
}

impl PoolState {
    fn has_free_lane(&self, lanes: usize) -> bool {
        self.queue.len() + self.running < self.workers * lanes
    }
}

impl HashPool {
    /// A pool with up to one worker for each permit of `threads`.
    pub(crate) fn new(threads: Arc<Semaphore>) -> Self {
        let workers_max = threads.available_permits().max(1);
        Self { threads, workers_max, lanes: lanes_max(), state: Mutex::default() }
    }

    /// Permits for hashing threads.
    pub(crate) fn threads(&self) -> &Arc<Semaphore> {
        &self.threads
    }

    /// Returns true if a worker runs and has a free lane.
    pub(super) fn has_free_lane(&self) -> bool {
        self.state.lock().has_free_lane(self.lanes)
    }

    /// Adds chunks to the digests on a worker, which sends the digests back. Without a receiver the
    /// job is dropped.
    pub(super) fn submit(
        self: &Arc<Self>,
        digests: Digests,
        chunks: Vec<Bytes>,
    ) -> oneshot::Receiver<Digests> {
        let (done, result) = oneshot::channel();
        if let Some(worker) = self.admit(HashJob::new(digests, chunks, done)) {
            worker.start();
        }
        result
    }

    /// Gives a slow job to a new worker, and queues any other. Returns a worker to start if the
    /// job needs one.
    fn admit(self: &Arc<Self>, job: HashJob) -> Option<Worker> {
        if job.is_slow() {
            return Some(Worker { pool: self.clone(), jobs: vec![job], is_counted: false });
        }
        let mut state = self.state.lock();
        let has_lane = state.has_free_lane(self.lanes);
        state.queue.push_back(job);
        if has_lane || state.workers >= self.workers_max {
            return None;
        }
        state.workers += 1;
        Some(Worker { pool: self.clone(), jobs: Vec::new(), is_counted: true })
    }
}

/// A thread's share of the work. Dropping it early fails its jobs, and those that no other worker
/// would take.
struct Worker {
    pool: Arc<HashPool>,
    /// One job for each lane in use.
    jobs: Vec<HashJob>,
    /// True while `PoolState` counts this worker and its jobs.
    is_counted: bool,
}

impl Worker {
    /// Runs on a blocking thread, at once if there is a permit.
    fn start(self) {
        let threads = self.pool.threads.clone();
        match threads.clone().try_acquire_owned() {
            Ok(permit) => self.run_on_thread(permit),
            Err(_) => drop(tokio::spawn(async move {
                let permit = threads.acquire_owned().await.expect("nothing closes the semaphore");
                self.run_on_thread(permit);
            })),
        }
    }

    fn run_on_thread(self, permit: OwnedSemaphorePermit) {
        tokio::task::spawn_blocking(move || {
            let rest = self.run();
            drop(permit);
            if let Some(worker) = rest {
                worker.start();
            }
        });
    }

    /// Hashes until no job is left. Returns itself if others wait for its permit.
    fn run(mut self) -> Option<Self> {
        let mut blocks = 0;
        self.hash_slow_checksums();
        while self.refill() {
            blocks += self.hash_slice();
            if blocks >= TURN_BLOCKS && self.pool.threads.available_permits() == 0 {
                return Some(self);
            }
        }
        None
    }

    /// Adds the chunks of a slow job to its checksums. Then the job goes to another worker with a
    /// free lane. Without one, this worker joins the counted ones.
    fn hash_slow_checksums(&mut self) {
        if self.is_counted {
            return;
        }
        self.jobs.iter_mut().for_each(HashJob::update_checksums);
        let mut state = self.pool.state.lock();
        if state.has_free_lane(self.pool.lanes) {
            state.queue.extend(self.jobs.drain(..));
        } else {
            state.workers += 1;
            state.running += self.jobs.len();
            self.is_counted = true;
        }
    }

    /// Takes jobs into free lanes. Returns false when this worker has to end.
    fn refill(&mut self) -> bool {
        if !self.is_counted {
            return false;
        }
        let free = self.pool.lanes.saturating_sub(self.jobs.len());
        let mut state = self.pool.state.lock();
        let count = free.min(state.queue.len());
        self.jobs.extend(state.queue.drain(..count));
        state.running += count;
        if self.jobs.is_empty() {
            state.workers -= 1;
            self.is_counted = false;
        }
        self.is_counted
    }

    /// Hashes the next slice of all lanes. Returns the number of its blocks, and of those that were
    /// hashed outside lanes. Jobs that end leave their lanes.
    fn hash_slice(&mut self) -> usize {
        let (mut slice, mut single_bytes) = (SLICE_BLOCKS, 0);
        let (mut ended, mut going) = (Vec::new(), Vec::with_capacity(self.jobs.len()));
        for mut job in self.jobs.drain(..) {
            let blocks = if job.is_cancelled() { None } else { Self::prepare(&mut job) };
            single_bytes += job.take_single_bytes();
            match blocks {
                Some(blocks) => {
                    slice = slice.min(blocks);
                    going.push(job);
                }
                None => ended.push(job),
            }
        }
        self.jobs = going;
        self.release(ended);
        let single_blocks = single_bytes / BLOCK;
        if self.jobs.is_empty() {
            return single_blocks;
        }
        let chunks: Vec<Bytes> = self.jobs.iter_mut().map(|job| job.take_blocks(slice)).collect();
        let lanes = self.jobs.iter_mut().zip(&chunks);
        let mut lanes: Vec<Lane<'_>> = lanes.filter_map(|(job, chunk)| job.lane(chunk)).collect();
        lanes::update(&mut lanes);
        slice + single_blocks
    }

    /// Checksums of a new job, then the number of blocks that are ready for its lane.
    fn prepare(job: &mut HashJob) -> Option<usize> {
        job.update_checksums();
        job.ready_blocks()
    }

    fn release(&self, ended: Vec<HashJob>) {
        if !ended.is_empty() {
            self.pool.state.lock().running -= ended.len();
        }
        ended.into_iter().for_each(HashJob::finish);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if !self.is_counted {
            return;
        }
        // A panic, or the end of the runtime.
        let mut state = self.pool.state.lock();
        state.workers -= 1;
        state.running -= self.jobs.len();
        let lost =
            if state.workers == 0 { std::mem::take(&mut state.queue) } else { VecDeque::new() };
        drop(state);
        drop(lost);
    }
}

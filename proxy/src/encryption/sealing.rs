//! Encryption of request bodies. Plain bytes are gathered, and encrypted in batches on the hashing
//! threads while the next batch is gathered. Short bodies are encrypted inline.
//!
//! A batch is held back until more bytes arrive or the body ends, since the last chunk is marked as
//! the last. Memory per body is bounded by two batches and one chunk.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use martlet_protocol::Error;
use martlet_protocol::id::random_bytes;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::cipher::SegmentKey;
use super::keys::Secret;
use super::layout::{CHUNK, SALT, Segment};
use crate::chunk_queue::ChunkQueue;
use crate::error::Result;

/// Smallest batch that is sent to another thread.
const BATCH_BYTES: usize = 4 * CHUNK;

/// One body under encryption.
pub(crate) struct Sealing {
    key: Arc<SegmentKey>,
    salted: bool,
    /// Bytes before the first chunk: the salt.
    head: BytesMut,
    threads: Arc<Semaphore>,
    waiting: ChunkQueue,
    next_chunk: u64,
    ended: bool,
    work: Option<JoinHandle<Bytes>>,
    ready: Option<Bytes>,
}

/// Bytes to encrypt at once.
struct Batch {
    key: Arc<SegmentKey>,
    head: BytesMut,
    first: u64,
    chunk_queue: Vec<Bytes>,
    ends: bool,
}

impl Batch {
    fn seal(self) -> Bytes {
        self.key.seal(self.first, &self.chunk_queue, self.ends, self.head)
    }
}

impl Sealing {
    /// Encrypts one body under the object's key, or under a salted key of its own.
    pub(crate) fn new(secret: &Secret, threads: Arc<Semaphore>) -> Self {
        let salt: [u8; SALT] = random_bytes();
        let head = if secret.salted { &salt[..] } else { &[] };
        Self {
            key: Arc::new(secret.segment(head)),
            salted: secret.salted,
            head: BytesMut::from(head),
            threads,
            waiting: ChunkQueue::default(),
            next_chunk: 0,
            ended: false,
            work: None,
            ready: None,
        }
    }

    /// Stored size of a body of `bytes` bytes.
    pub(crate) fn stored(&self, bytes: u64) -> u64 {
        Segment { bytes, salted: self.salted }.stored()
    }

    /// Returns true if it accepts more bytes before [`Self::next`] is called.
    pub(crate) fn wants_more(&self) -> bool {
        !self.ended && self.ready.is_none() && self.waiting.bytes() <= BATCH_BYTES
    }

    /// Adds plain bytes; none marks the end of the body.
    pub(crate) fn push(&mut self, plain: Option<Bytes>) {
        match plain {
            None => self.ended = true,
            Some(bytes) => self.waiting.push(bytes),
        }
    }

    /// Next encrypted bytes. None if no batch is ready yet, or at the end ([`Self::is_done`]).
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>> {
        if let Some(ready) = self.ready.take() {
            return Ok(Some(ready));
        }
        let before = match &mut self.work {
            None => None,
            Some(work) => {
                let done = work.await;
                self.work = None;
                let lost = || Error::internal("the encryption of a body ended unexpectedly");
                Some(done.map_err(|error| lost().with_source(error))?)
            }
        };
        match self.batch() {
            Some(batch)
                if batch.chunk_queue.iter().map(Bytes::len).sum::<usize>() >= BATCH_BYTES =>
            {
                let turn = self.threads.clone().acquire_owned().await;
                self.work = Some(tokio::task::spawn_blocking(move || {
                    let _turn = turn;
                    batch.seal()
                }));
            }
            Some(batch) => self.ready = Some(batch.seal()),
            None => {}
        }
        Ok(before.or_else(|| self.ready.take()))
    }

    /// Returns true if all bytes were encrypted and returned.
    pub(crate) fn is_done(&self) -> bool {
        self.ended && self.waiting.bytes() == 0 && self.work.is_none() && self.ready.is_none()
    }

    /// Bytes to encrypt now: all after the body's end, else full chunks, never including the last
    /// one.
    fn batch(&mut self) -> Option<Batch> {
        let length = match self.waiting.bytes() {
            0 => return None,
            waiting if self.ended => waiting,
            waiting => (waiting - 1) / CHUNK * CHUNK,
        };
        if length == 0 {
            return None;
        }
        let batch = Batch {
            key: self.key.clone(),
            head: std::mem::take(&mut self.head),
            first: self.next_chunk,
            chunk_queue: self.waiting.take(length),
            ends: self.ended,
        };
        self.next_chunk += (length / CHUNK) as u64;
        Some(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(length: usize) -> Bytes {
        (0..length).map(|at| u8::try_from(at * 31 % 251).expect("below 251")).collect()
    }

    async fn sealed(secret: &Secret, plain: &Bytes, size: usize) -> BytesMut {
        let mut sealing = Sealing::new(secret, Arc::new(Semaphore::new(1)));
        let stored = sealing.stored(plain.len() as u64);
        let mut rest = plain.clone();
        let mut all = BytesMut::new();
        while !sealing.is_done() {
            while sealing.wants_more() {
                let chunk = rest.split_to(size.min(rest.len()));
                sealing.push(Some(chunk).filter(|chunk| !chunk.is_empty()));
            }
            assert!(sealing.waiting.bytes() <= BATCH_BYTES + size);
            all.extend_from_slice(&sealing.next().await.unwrap().unwrap_or_default());
        }
        assert_eq!(all.len() as u64, stored);
        all
    }

    #[tokio::test]
    async fn bodies_of_any_length_in_chunks_of_any_size_are_decrypted() {
        for salted in [false, true] {
            let secret = Secret::random(salted);
            for length in [1, CHUNK, CHUNK + 1, BATCH_BYTES, BATCH_BYTES + 1, 9 * CHUNK + 5] {
                let plain = bytes(length);
                for size in [999, CHUNK, length] {
                    let mut stored = sealed(&secret, &plain, size).await;
                    let salt = stored.split_to(if salted { 16 } else { 0 });
                    let segment = Segment { bytes: length as u64, salted };
                    let key = secret.segment(&salt);
                    let opened = key.open(segment, 0..segment.chunks(), stored).unwrap();
                    assert_eq!(opened.concat(), plain, "{length} in {size}");
                }
            }
        }
    }

    #[tokio::test]
    async fn nothing_is_stored_of_nothing_and_no_two_parts_are_alike() {
        let secret = Secret::random(true);
        assert!(sealed(&secret, &Bytes::new(), 10).await.is_empty());
        let plain = bytes(100);
        assert_ne!(sealed(&secret, &plain, 10).await, sealed(&secret, &plain, 10).await);
    }
}

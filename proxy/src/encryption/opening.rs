//! Decryption of response bodies. The chunks under a range are read contiguously and decrypted in
//! batches on the hashing threads, ahead of the reader.

use std::ops::Range;
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use futures::{StreamExt, TryStreamExt, stream};
use martlet_protocol::{ByteStream, Error};
use tokio::sync::Semaphore;

use super::cipher::SegmentKey;
use super::keys::Secret;
use super::layout::{Plan, Run, SALT, SALT_BYTES, Segment, TAG_BYTES};
use crate::bodies::{BodyReader, Found};
use crate::error::Result;

/// Chunks in one batch.
const BATCH_CHUNKS: u64 = 4;
/// Batches that are being decrypted or wait to be sent.
const BATCHES: usize = 2;

/// Stored chunks of one segment.
struct Batch {
    key: Arc<SegmentKey>,
    segment: Segment,
    chunks: Range<u64>,
    stored: BytesMut,
}

/// Stored bytes and the plan that cuts them into batches.
struct Chunks {
    bytes: ByteStream,
    buffer: BytesMut,
    secret: Secret,
    plan: Plan,
    /// Key of the current run.
    key: Option<Arc<SegmentKey>>,
}

impl BodyReader {
    /// Plain bytes of an encrypted object. The first of them have arrived when this returns.
    pub(crate) async fn open_sealed(
        &self,
        found: &Found,
        range: Range<u64>,
        secret: Secret,
    ) -> Result<ByteStream> {
        let manifest = if secret.salted { self.manifest(&found.object.body).await? } else { None };
        let whole = [found.object.size];
        let lengths = manifest.as_ref().map_or(&whole[..], |manifest| &manifest.parts);
        let salted = secret.salted;
        let segments = lengths.iter().map(|&bytes| Segment { bytes, salted });
        let plan = Plan::new(segments, &range);
        let Some(place) = plan.runs.front().map(|run| run.at) else {
            return Err(Error::corrupt("the parts of an object are shorter than it is").into());
        };
        let key = match plan.salt.clone() {
            None if salted => None,
            None => Some(Arc::new(secret.segment(&[]))),
            Some(apart) => {
                let mut bytes = self.open_stored(found, apart).await?;
                let mut salt = BytesMut::new();
                fill(&mut bytes, &mut salt, SALT_BYTES).await?;
                Some(Arc::new(secret.of_part_at(place)?.segment(&salt)))
            }
        };
        let bytes = self.open_stored(found, plan.stored.clone()).await?;
        let (skip, length, threads) = (plan.skip, plan.length, self.hashers.clone());
        let chunks = Chunks { bytes, buffer: BytesMut::new(), secret, plan, key };
        let mut plain = trimmed(opened(chunks, threads), skip, length);
        let first = plain.next().await.transpose()?;
        Ok(stream::iter(first.map(Ok)).chain(plain).boxed())
    }
}

/// Decrypts batches in order. Full batches run on the hashing threads.
fn opened(chunks: Chunks, threads: Arc<Semaphore>) -> ByteStream {
    let batches = stream::try_unfold(chunks, |mut chunks| async move {
        Ok::<_, Error>(chunks.next().await?.map(|batch| (batch, chunks)))
    });
    batches
        .map_ok(move |batch| open(batch, threads.clone()))
        .try_buffered(BATCHES)
        .map_ok(|chunk_queue| stream::iter(chunk_queue.into_iter().map(Ok)))
        .try_flatten()
        .boxed()
}

async fn open(batch: Batch, threads: Arc<Semaphore>) -> Result<Vec<Bytes>, Error> {
    let Batch { key, segment, chunks, stored } = batch;
    if chunks.end - chunks.start < BATCH_CHUNKS {
        return key.open(segment, chunks, stored);
    }
    let turn = threads.acquire_owned().await;
    let work = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        key.open(segment, chunks, stored)
    });
    work.await.map_err(|error| {
        Error::internal("the decryption of a body ended unexpectedly").with_source(error)
    })?
}

/// Returns `left` bytes after the first `skip`.
fn trimmed(plain: ByteStream, mut skip: u64, mut left: u64) -> ByteStream {
    let trim = move |mut bytes: Bytes| {
        let before = usize::try_from(skip).unwrap_or(usize::MAX).min(bytes.len());
        bytes.advance(before);
        skip -= before as u64;
        bytes.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        left -= bytes.len() as u64;
        bytes
    };
    plain.map_ok(trim).boxed()
}

impl Chunks {
    /// Reads the next batch of stored chunks.
    async fn next(&mut self) -> Result<Option<Batch>, Error> {
        let Some(run) = self.plan.runs.front() else { return Ok(None) };
        let Run { segment, at, chunks, has_salt } = run.clone();
        let key = match &self.key {
            Some(key) => key.clone(),
            None if has_salt => {
                fill(&mut self.bytes, &mut self.buffer, SALT_BYTES).await?;
                let salt = self.buffer.split_to(SALT);
                Arc::new(self.secret.of_part_at(at)?.segment(&salt))
            }
            None => return Err(Error::internal("a part was read without its salt")),
        };
        let end = chunks.end.min(chunks.start + BATCH_CHUNKS);
        let batch = chunks.start..end;
        let stored: u64 = batch.clone().map(|index| segment.chunk_bytes(index) + TAG_BYTES).sum();
        fill(&mut self.bytes, &mut self.buffer, stored).await?;
        let length = usize::try_from(stored).expect("a few chunks");
        let stored = self.buffer.split_to(length);
        if end == chunks.end {
            self.plan.runs.pop_front();
            self.key = None;
        } else {
            self.plan.runs[0].chunks.start = end;
            self.key = Some(key.clone());
        }
        Ok(Some(Batch { key, segment, chunks: batch, stored }))
    }
}

/// Reads until the buffer holds `length` bytes.
async fn fill(bytes: &mut ByteStream, buffer: &mut BytesMut, length: u64) -> Result<(), Error> {
    while (buffer.len() as u64) < length {
        let chunk = bytes
            .next()
            .await
            .ok_or_else(|| Error::corrupt("too few encrypted bytes are stored"))?;
        buffer.extend_from_slice(&chunk?);
    }
    Ok(())
}

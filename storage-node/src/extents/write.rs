//! Writes: a body becomes a record in a volume or a file of its own.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::future::{Either, select};
use martlet_protocol::backend::NewExtent;
use martlet_protocol::extent::{ExtentRecord, ExtentRef};
use martlet_protocol::limits::{CHUNK_BYTES, PACKED_BYTES_MAX};
use martlet_protocol::trace::{self, SpanKind};
use martlet_protocol::{ByteStream, Result};

use super::blocks::BlockHasher;
use super::buffer::{ALIGN, PooledBuffer};
use super::committer::{PackedWrite, refuse_taken, refused};
use super::file_write::FileWriter;
use super::gather::Gather;
use super::record;
use super::row::{Row, RowLocation};
use super::seal::Description;
use super::store::{IdReservation, StoreState};

/// Stores an extent, durably. Ends early if the device fails meanwhile, however slow the body is.
pub(super) async fn write(
    store: &Arc<StoreState>,
    new: NewExtent,
    birth_ms: u64,
    body: ByteStream,
) -> Result<ExtentRef> {
    store.suspect.check()?;
    let written = pin!(take(store, new, birth_ms, body));
    let failed = pin!(store.suspect.failed());
    match select(written, failed).await {
        Either::Left((outcome, _)) => outcome,
        Either::Right((error, _)) => Err(error),
    }
}

async fn take(
    store: &Arc<StoreState>,
    new: NewExtent,
    birth_ms: u64,
    body: ByteStream,
) -> Result<ExtentRef> {
    let mut gather = Gather::new(body, new.length)?;
    let claim = store.claim(new.id)?;
    let extent = ExtentRef { id: new.id, length: 0, blake3: [0; 32] };
    let facts = ExtentRecord { extent, owner: new.owner, birth_ms, layout: new.layout };
    let hasher = BlockHasher::new(new.hashes);
    let extent = if new.length.is_some_and(|length| length > PACKED_BYTES_MAX) {
        let first = store.pool.take_chunk();
        file(store, gather, first, facts, hasher, claim).await?
    } else {
        let room = new.length.map_or(CHUNK_BYTES, bytes_in_memory);
        let whole = ALIGN + room.next_multiple_of(ALIGN);
        let mut buffer = store.pool.take_start(whole);
        // Space for the header.
        buffer.all_mut()[..ALIGN].fill(0);
        buffer.filled = ALIGN;
        let receives = trace::child(SpanKind::Internal, "body of an extent");
        let is_whole = loop {
            let limit = buffer.capacity().min(ALIGN + room);
            if gather.fill(&mut buffer, limit).await? {
                break true;
            }
            if limit == ALIGN + room {
                break false;
            }
            buffer = store.pool.exchange(&buffer, whole);
        };
        drop(receives);
        if is_whole {
            packed(store, buffer, facts, hasher).await?
        } else {
            // The undeclared length exceeds the packed limit: move the chunk to the start of a file
            // extent.
            let filled = buffer.filled;
            buffer.all_mut().copy_within(ALIGN..filled, 0);
            buffer.filled -= ALIGN;
            file(store, gather, buffer, facts, hasher, claim).await?
        }
    };
    store.counters.writes.fetch_add(1, Ordering::Relaxed);
    Ok(extent)
}

/// Writes a whole body of at most one chunk, which lies behind the space for its header.
async fn packed(
    store: &Arc<StoreState>,
    mut buffer: PooledBuffer,
    facts: ExtentRecord,
    mut hasher: BlockHasher,
) -> Result<ExtentRef> {
    hasher.update(&buffer.all()[ALIGN..buffer.filled]);
    let length = buffer.filled - ALIGN;
    buffer.pad();
    let description = Description::complete(facts, length as u64, &mut hasher)?;
    let header = record::prepare(&description)?;
    let record = description.record;
    let extent = record.extent;
    if !store.table.is_cached(extent.id)? {
        // The committer looks ids up one after another. Those whose filters are on disk are read
        // here, beside each other.
        store.counters.blocking_reads.fetch_add(1, Ordering::Relaxed);
        let inner = store.clone();
        store.threads.run(move || refuse_taken(&inner.table, extent.id)).await?;
    }
    store.committer.write(PackedWrite { buffer, header, record }).await?;
    Ok(extent)
}

async fn file(
    store: &Arc<StoreState>,
    gather: Gather,
    first: PooledBuffer,
    facts: ExtentRecord,
    hasher: BlockHasher,
    claim: IdReservation,
) -> Result<ExtentRef> {
    let (inner, id, declared) = (store.clone(), facts.extent.id, gather.declared());
    let create = move || {
        refuse_taken(&inner.table, id)?;
        // Checks that the extent fits; space is allocated as bytes arrive.
        inner.headroom.check(declared.unwrap_or_default())?;
        FileWriter::create(&inner, id, declared, hasher)
    };
    let writer = store.threads.run(create).await?;
    let (writer, record) = writer.take(store, gather, first, facts).await?;
    let inner = store.clone();
    let publish = move || {
        let _claim = claim;
        publish(&inner, writer, record)
    };
    store.threads.run(publish).await
}

/// Writes the row of a durable file.
fn publish(store: &StoreState, writer: FileWriter, record: ExtentRecord) -> Result<ExtentRef> {
    let (extent, layout) = (record.extent, record.layout);
    let _gate = store.gate.read();
    if store.table.is_marked(extent.id)? {
        return Err(refused(extent.id));
    }
    store.table.put(&[Row { place: RowLocation::File, record }])?;
    store.counters.added(extent, layout);
    writer.keep();
    Ok(extent)
}

fn bytes_in_memory(length: u64) -> usize {
    usize::try_from(length).expect("a packed extent fits in memory")
}

//! Tests: the jobs of a group that share a volume fail alone.

use martlet_protocol::extent::ExtentRef;

use super::super::blocks::BlockHasher;
use super::super::seal::Description;
use super::super::store::Removal;
use super::super::table::MemoryTable;
use super::super::tests::{get, new, open, put};
use super::super::{ExtentStore, record};
use super::*;
use crate::disk::{DiskFault, FaultyDisk};

const LENGTH: usize = 20_000;

fn id(byte: u8) -> ExtentId {
    ExtentId([byte; 16])
}

/// Returns a committer without a thread, for the volumes of a store.
fn committer_of(store: &ExtentStore) -> CommitterState {
    let state = &store.0;
    CommitterState {
        volumes: state.volumes.clone(),
        open_volumes: state.open_volumes.clone(),
        table: state.table.clone(),
        gate: state.gate.clone(),
        counters: state.counters.clone(),
        suspect: state.suspect.clone(),
        headroom: state.headroom.clone(),
        pulse: state.threads.pulse().clone(),
    }
}

/// Returns the record of a new extent of zeros.
fn zeros(store: &ExtentStore, id: ExtentId) -> PackedWrite {
    let mut buffer = store.0.pool.take_start(ALIGN + LENGTH.next_multiple_of(ALIGN));
    buffer.all_mut().fill(0);
    buffer.filled = ALIGN + LENGTH;
    let mut hasher = BlockHasher::new(None);
    hasher.update(&buffer.all()[ALIGN..buffer.filled]);
    buffer.pad();
    let facts = new(id, None);
    let extent = ExtentRef { id, length: 0, blake3: [0; 32] };
    let facts = ExtentRecord { extent, owner: facts.owner, birth_ms: 1, layout: facts.layout };
    let description = Description::complete(facts, LENGTH as u64, &mut hasher).unwrap();
    let header = record::prepare(&description).unwrap();
    PackedWrite { buffer, header, record: description.record }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_without_space_keeps_no_space_of_deleted_ones() {
    let (disk, table) = (FaultyDisk::new(1), MemoryTable::default());
    let (store, _) = open(&disk, &table).unwrap();
    put(&store, id(1), LENGTH).await.unwrap();
    put(&store, id(2), LENGTH).await.unwrap();
    let before = store.usage().volume_free_bytes;
    let committer = committer_of(&store);
    let headers = store.0.remove(&[id(1)], Removal::Marked(None)).unwrap();
    let run = headers[0].1;
    let ((destroy, destroyed), (write, written)) = (oneshot::channel(), oneshot::channel());
    let write = CommitJob::Write(zeros(&store, id(3)), write);
    // The header of the deleted record is written, then the record meets the lack of space.
    disk.fail_after(1, DiskFault::NoSpace);
    committer.commit(vec![write, CommitJob::Destroy(headers, destroy)]);
    assert!(!disk.heal(), "no call failed");
    assert_eq!(written.await.unwrap().unwrap_err().kind(), ErrorKind::Full);
    destroyed.await.unwrap().unwrap();
    assert_eq!(store.usage().volume_free_bytes, before + run.bytes);
    assert_eq!(store.suspect(), None);
    put(&store, id(3), LENGTH).await.unwrap();
    assert!(get(&store, id(2)).await.is_ok() && get(&store, id(3)).await.is_ok());
    assert!(store.close(), "nothing is left for the next opening");
}

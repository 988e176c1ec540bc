//! Flushes and compactions of an index beside databases that hang.

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rocksdb::{CompactionDecision, DB, FlushOptions, MergeOperands, Options, WriteBatch};

use super::super::background::BackgroundThreads;
use super::*;
use crate::disk::FolderGate;

/// Opens a database whose flushes and compactions wait at a gate; the receiver reports each wait.
fn gated(folder: &Path, gate: &Arc<FolderGate>) -> (DB, Receiver<()>) {
    let (note, notes) = channel();
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_max_background_jobs(2);
    let (at, noted) = (gate.clone(), note.clone());
    let merge = move |_: &[u8], _: Option<&[u8]>, _: &MergeOperands| {
        let _ = noted.send(());
        at.pass();
        Some(Vec::<u8>::new())
    };
    options.set_merge_operator_associative("gated", merge);
    let at = gate.clone();
    options.set_compaction_filter("gated", move |_, _, _| {
        let _ = note.send(());
        at.pass();
        CompactionDecision::Keep
    });
    (DB::open(&options, folder).unwrap(), notes)
}

/// Begins a flush that hangs.
fn begin_flush(db: &DB) {
    db.put("key", "base").unwrap();
    db.merge("key", "one").unwrap();
    db.merge("key", "two").unwrap();
    let mut options = FlushOptions::default();
    options.set_wait(false);
    db.flush_opt(&options).unwrap();
}

#[test]
fn work_that_hangs_on_one_disk_takes_no_thread_of_another_index() {
    let soon = Duration::from_secs(20);
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let gate = Arc::new(FolderGate::default());
    let _room = [BackgroundThreads::take().unwrap(), BackgroundThreads::take().unwrap()];
    let (flushing, flushes) = gated(folders[0].path(), &gate);
    let (compacting, compactions) = gated(folders[1].path(), &gate);
    compacting.put("key", "value").unwrap();
    compacting.flush().unwrap();
    gate.shut();
    begin_flush(&flushing);
    flushes.recv_timeout(soon).expect("the flush has begun");
    let compaction = std::thread::spawn(move || {
        compacting.compact_range(None::<&[u8]>, None::<&[u8]>);
    });
    compactions.recv_timeout(soon).expect("the compaction has begun");

    let (done, ended) = channel();
    let path = folders[2].path().to_path_buf();
    let work = std::thread::spawn(move || {
        let database = Database::open(&path, &Caches::default()).unwrap();
        for _ in 0..2 {
            let mut batch = WriteBatch::default();
            batch.put_cf(database.family(Family::Entries), "key", "value");
            database.write_synced(batch).unwrap();
            database.flush().unwrap();
        }
        database.compact(Family::Entries);
        let _ = done.send(());
    });
    let outcome = ended.recv_timeout(soon);
    gate.open();
    work.join().unwrap();
    compaction.join().unwrap();
    outcome.expect("it waits for the threads of others");
}

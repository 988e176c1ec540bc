//! Baseline for small PUTs: one committer on RocksDB alone. Writers wait until their object is
//! durable; the committer puts all waiting objects into one synced batch.

use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::Instant;

use rocksdb::{DB, WriteBatch, WriteOptions};

use super::super::args::BenchArgs;
use super::super::tally::BenchTally;
use super::{BaselineResult, joined, on_threads};

/// Object that waits for the committer.
struct WaitingWrite {
    key: String,
    /// Receives a message when the object is durable.
    done: SyncSender<()>,
}

pub(super) fn run(args: &BenchArgs, dir: &Path, body: &[u8]) -> io::Result<BaselineResult> {
    let database = DB::open_default(dir.join("rocksdb")).map_err(io::Error::other)?;
    let (submit, waiting) = channel();
    thread::scope(|scope| {
        let database = &database;
        let committer = scope.spawn(move || commit(database, &waiting, body));
        let written = on_threads(args, |worker| write(args, worker, &submit).map(Into::into));
        // The committer ends when no writer can reach it.
        drop(submit);
        joined(committer)?;
        written
    })
}

/// Commits all waiting writes together, again and again.
fn commit(database: &DB, waiting: &Receiver<WaitingWrite>, body: &[u8]) -> io::Result<()> {
    let mut options = WriteOptions::default();
    options.set_sync(true);
    let mut writes = Vec::new();
    while let Ok(first) = waiting.recv() {
        writes.push(first);
        writes.extend(waiting.try_iter());
        let mut batch = WriteBatch::default();
        for write in &writes {
            batch.put(&write.key, body);
        }
        database.write_opt(batch, &options).map_err(io::Error::other)?;
        for write in writes.drain(..) {
            // A writer that failed meanwhile does not wait.
            let _ = write.done.send(());
        }
    }
    Ok(())
}

fn write(args: &BenchArgs, worker: usize, submit: &Sender<WaitingWrite>) -> io::Result<BenchTally> {
    let mut tally = BenchTally::default();
    let deadline = Instant::now() + args.duration;
    for index in 0_u64.. {
        let begun = Instant::now();
        if begun >= deadline {
            break;
        }
        let (done, is_durable) = sync_channel(1);
        let key = format!("{}/w{worker:03}-{index:08}", args.prefix);
        let sent = submit.send(WaitingWrite { key, done });
        sent.map_err(|_| io::Error::other("the committer ended"))?;
        is_durable.recv().map_err(|_| io::Error::other("the committer ended"))?;
        tally.answered(begun.elapsed(), args.size.0);
    }
    Ok(tally)
}

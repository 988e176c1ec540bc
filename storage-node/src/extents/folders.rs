//! Thread that makes names durable. Requests for one folder share one sync, and folders are synced
//! in parallel. The thread also removes the files of abandoned writes, so that no connection's
//! thread waits for the removal.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use martlet_protocol::{Error, Result};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::device::pulse::{DevicePart, Pulse};
use crate::disk::Disk;

use super::committer::CommitterState;
use super::state::{Counters, FaultOfPanic, Suspect};

/// Maximum number of folders synced at a time.
const SIDE_BY_SIDE_MAX: usize = 16;

/// Reply channels of waiting callers, by folder.
type SyncWaiters = BTreeMap<PathBuf, Vec<oneshot::Sender<Result<()>>>>;

enum FolderJob {
    Sync(PathBuf, oneshot::Sender<Result<()>>),
    Discard(PathBuf),
}

/// Sends jobs to the thread.
pub(super) struct Folders {
    jobs: Mutex<Option<Sender<FolderJob>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    counters: Arc<Counters>,
}

impl Folders {
    /// Starts the thread, with the counters, failure state and pulse of the ledger.
    pub(super) fn start(disk: Arc<dyn Disk>, ledger: &CommitterState) -> Result<Self> {
        let (jobs, queue) = channel();
        let counters = ledger.counters.clone();
        let worker = FolderSyncer {
            disk,
            counters: counters.clone(),
            suspect: ledger.suspect.clone(),
            pulse: ledger.pulse.clone(),
        };
        let thread = std::thread::Builder::new()
            .name("extent-folders".into())
            .spawn(move || {
                let _fault = FaultOfPanic(worker.suspect.clone());
                worker.run(&queue);
            })
            .map_err(|error| Error::unavailable("a thread can't be started").with_source(error))?;
        let thread = Mutex::new(Some(thread));
        Ok(Self { jobs: Mutex::new(Some(jobs)), thread, counters })
    }

    /// Requests a sync of a folder's names; the reply comes when they are durable.
    pub(super) fn sync(&self, folder: &Path) -> oneshot::Receiver<Result<()>> {
        let (reply, answer) = oneshot::channel();
        // A closed store drops the reply channel, which its receiver treats as a failure.
        let _ = self.send(FolderJob::Sync(folder.to_path_buf(), reply));
        answer
    }

    /// Removes a file whose write was never acknowledged.
    pub(super) fn discard(&self, file: &Path) {
        if self.send(FolderJob::Discard(file.to_path_buf())).is_none() {
            // The store was closed: the next opening removes the file.
            self.counters.leave_behind();
        }
    }

    fn send(&self, job: FolderJob) -> Option<()> {
        self.jobs.lock().as_ref()?.send(job).ok()
    }

    /// Ends the thread after its queued jobs.
    pub(super) fn close(&self) {
        self.jobs.lock().take();
        if let Some(thread) = self.thread.lock().take() {
            // A panic of the thread has made the device suspect already.
            let _ = thread.join();
        }
    }
}

impl Drop for Folders {
    fn drop(&mut self) {
        // The thread must release its references before the device can be opened again.
        self.close();
    }
}

/// Waits for the reply to [`Folders::sync`].
pub(super) async fn synced(answer: oneshot::Receiver<Result<()>>) -> Result<()> {
    answer.await.unwrap_or_else(|_| Err(Error::unavailable("the extent store was closed")))
}

struct FolderSyncer {
    disk: Arc<dyn Disk>,
    counters: Arc<Counters>,
    suspect: Arc<Suspect>,
    pulse: Arc<Pulse>,
}

impl FolderSyncer {
    fn run(&self, queue: &Receiver<FolderJob>) {
        while let Ok(first) = queue.recv() {
            let _beat = self.pulse.begin(DevicePart::Names);
            let mut waiting = SyncWaiters::new();
            for job in std::iter::once(first).chain(queue.try_iter()) {
                match job {
                    FolderJob::Sync(folder, reply) => {
                        waiting.entry(folder).or_default().push(reply);
                    }
                    FolderJob::Discard(file) => self.discard(&file),
                }
            }
            match waiting.len() {
                1 => waiting.into_iter().for_each(|(folder, replies)| self.sync(&folder, replies)),
                _ => self.sync_all(waiting),
            }
        }
    }

    /// Syncs folders in parallel: a journal combines them into one commit.
    fn sync_all(&self, waiting: SyncWaiters) {
        let mut waiting = waiting.into_iter().peekable();
        while waiting.peek().is_some() {
            std::thread::scope(|threads| {
                for (folder, replies) in waiting.by_ref().take(SIDE_BY_SIDE_MAX) {
                    let thread = std::thread::Builder::new().name("extent-folder".into());
                    let sync = move || self.sync(&folder, replies);
                    // Without a thread, the waiting callers receive an error.
                    if let Err(error) = thread.spawn_scoped(threads, sync) {
                        tracing::warn!(%error, "could not start a thread for folder syncs");
                    }
                }
            });
        }
    }

    fn sync(&self, folder: &Path, replies: Vec<oneshot::Sender<Result<()>>>) {
        self.counters.folder_syncs.fetch_add(1, Ordering::Relaxed);
        let outcome = self.disk.sync_dir(folder);
        if let Err(error) = &outcome {
            self.suspect.set(error);
        }
        for reply in replies {
            let answer = match &outcome {
                Ok(()) => Ok(()),
                Err(error) => Err(Error::new(error.kind(), error.to_string())),
            };
            // The caller may have gone.
            let _ = reply.send(answer);
        }
    }

    fn discard(&self, file: &Path) {
        if let Err(error) = self.disk.unlink(file) {
            self.counters.leave_behind();
            tracing::warn!(%error, "could not remove an unfinished extent: it stays until the \
                                    device is opened again");
        }
    }
}

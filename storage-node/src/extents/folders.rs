//! One thread that makes names durable: whoever waits for the same folder shares one sync, and
//! folders are synced side by side. It also removes the files of writes that were given up, so that
//! no connection's thread waits for that.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use martlet_protocol::{Error, Result};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::device::pulse::{Part, Pulse};
use crate::disk::Disk;

use super::committer::Ledger;
use super::state::{Counters, FaultOfPanic, Suspect};

/// Most folders that are synced at a time.
const SIDE_BY_SIDE_MAX: usize = 16;

/// Who waits for which folder.
type Waiting = BTreeMap<PathBuf, Vec<oneshot::Sender<Result<()>>>>;

enum Job {
    Sync(PathBuf, oneshot::Sender<Result<()>>),
    Discard(PathBuf),
}

/// Hands names to the thread.
pub(super) struct Folders {
    jobs: Mutex<Option<Sender<Job>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    counters: Arc<Counters>,
}

impl Folders {
    /// Starts the thread; it counts and fails with what is in the ledger.
    pub(super) fn start(disk: Arc<dyn Disk>, ledger: &Ledger) -> Result<Self> {
        let (jobs, queue) = channel();
        let counters = ledger.counters.clone();
        let worker = Worker {
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
            .map_err(|error| Error::unavailable("can't start a thread").with_source(error))?;
        let thread = Mutex::new(Some(thread));
        Ok(Self { jobs: Mutex::new(Some(jobs)), thread, counters })
    }

    /// Asks for a folder's names to be made durable; the answer comes when they are.
    pub(super) fn sync(&self, folder: &Path) -> oneshot::Receiver<Result<()>> {
        let (reply, answer) = oneshot::channel();
        // A closed store drops the reply, which its reader takes for a failure.
        let _ = self.send(Job::Sync(folder.to_path_buf(), reply));
        answer
    }

    /// Removes a file that nobody was told of.
    pub(super) fn discard(&self, file: &Path) {
        if self.send(Job::Discard(file.to_path_buf())).is_none() {
            // The store was closed: the next opening removes it.
            self.counters.leave_behind();
        }
    }

    fn send(&self, job: Job) -> Option<()> {
        self.jobs.lock().as_ref()?.send(job).ok()
    }

    /// Ends the thread once it has done what it was given.
    pub(super) fn close(&self) {
        self.jobs.lock().take();
        if let Some(thread) = self.thread.lock().take() {
            // One that panicked has made the device suspect.
            let _ = thread.join();
        }
    }
}

impl Drop for Folders {
    fn drop(&mut self) {
        // What the thread holds must be let go of by the time that whoever held this opens it again.
        self.close();
    }
}

/// The answer to [`Folders::sync`].
pub(super) async fn synced(answer: oneshot::Receiver<Result<()>>) -> Result<()> {
    answer.await.unwrap_or_else(|_| Err(Error::unavailable("the extent store was closed")))
}

struct Worker {
    disk: Arc<dyn Disk>,
    counters: Arc<Counters>,
    suspect: Arc<Suspect>,
    pulse: Arc<Pulse>,
}

impl Worker {
    fn run(&self, queue: &Receiver<Job>) {
        while let Ok(first) = queue.recv() {
            let _beat = self.pulse.begin(Part::Names);
            let mut waiting = Waiting::new();
            for job in std::iter::once(first).chain(queue.try_iter()) {
                match job {
                    Job::Sync(folder, reply) => waiting.entry(folder).or_default().push(reply),
                    Job::Discard(file) => self.discard(&file),
                }
            }
            match waiting.len() {
                1 => waiting.into_iter().for_each(|(folder, replies)| self.sync(&folder, replies)),
                _ => self.sync_all(waiting),
            }
        }
    }

    /// Syncs folders side by side: a journal makes of that one commit.
    fn sync_all(&self, waiting: Waiting) {
        let mut waiting = waiting.into_iter().peekable();
        while waiting.peek().is_some() {
            std::thread::scope(|threads| {
                for (folder, replies) in waiting.by_ref().take(SIDE_BY_SIDE_MAX) {
                    let thread = std::thread::Builder::new().name("extent-folder".into());
                    let sync = move || self.sync(&folder, replies);
                    // Without a thread those who wait hear that it failed.
                    if let Err(error) = thread.spawn_scoped(threads, sync) {
                        tracing::warn!(%error, "no thread for a folder's sync");
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
            // Whoever gave up needs no answer.
            let _ = reply.send(answer);
        }
    }

    fn discard(&self, file: &Path) {
        if let Err(error) = self.disk.unlink(file) {
            self.counters.leave_behind();
            tracing::warn!(%error, "an unfinished extent stays until the device is opened again");
        }
    }
}

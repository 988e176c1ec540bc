//! Audit log of a process: who changed what, from where, and with which outcome.
//!
//! ```text
//! <folder>/audit-1.jsonl … audit-12.jsonl     at most ten files of 16 MiB, the oldest is deleted
//!    {"id": 7, …}                             synced before the change begins
//!    {"id": 7, …, "outcome": "done"}          synced before the reply
//! ```
//!
//! Invariants:
//! * A change whose first line can't be stored is refused, and not made.
//! * A change whose second line can't be stored is answered with an error.
//! * Each first line gets one second line: after a crash the next start adds the outcome `unknown`.
//! * Lines hold names and numbers of a fixed set of fields, and no secret.
//! * Only changes of authenticated requests are recorded. So strangers can't push records out.

mod files;
mod metrics;
mod page;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use martlet_admin_api::audit::{AUDIT_VERSION, AuditPage, AuditRecord};
use martlet_protocol::Clock;
use martlet_protocol::id::random_bytes;
use parking_lot::Mutex;
use tokio::time::timeout;

use self::files::AuditFiles;
pub use self::metrics::AuditCollector;
pub(crate) use self::page::{AuditCursor, AuditQuery};

/// Maximum bytes of a value in a target. Requests name items, and must not fill the files.
const TARGET_BYTES_MAX: usize = 1024;
/// Timeout for a line. A disk may hang.
const PATIENCE: Duration = Duration::from_secs(10);

/// Log of the changes of a process.
#[derive(Debug)]
pub struct AuditLog {
    process: String,
    folder: PathBuf,
    clock: Arc<dyn Clock>,
    files: Arc<Mutex<AuditFiles>>,
    /// Reason why the last line could not be stored.
    problem: Mutex<Option<String>>,
    records: AtomicU64,
    failures: AtomicU64,
}

/// Change whose first line is stored.
#[derive(Debug)]
pub struct BegunChange(AuditRecord);

impl BegunChange {
    /// Returns the id of the request.
    pub(crate) fn id(&self) -> &str {
        &self.0.id
    }
}

/// Returns the outcome that a status means.
fn outcome_of(status: u16) -> &'static str {
    match status {
        400..500 => "refused",
        500.. => "failed",
        _ => "done",
    }
}

/// Cuts a value of a target to its bound, at a character.
fn cut(value: &mut String) {
    value.truncate(value.floor_char_boundary(TARGET_BYTES_MAX));
}

impl AuditLog {
    /// Makes the log of a process, by its role and name. The files are opened now; if they can't be
    /// opened, each change tries again.
    pub async fn open(folder: PathBuf, process: &str, clock: Arc<dyn Clock>) -> Self {
        let log = Self {
            process: process.to_owned(),
            folder: folder.clone(),
            clock,
            files: Arc::new(Mutex::new(AuditFiles::new(folder))),
            problem: Mutex::default(),
            records: AtomicU64::default(),
            failures: AtomicU64::default(),
        };
        // The outcome is kept as the log's problem.
        let _ = log.run(AuditFiles::open).await;
        log
    }

    /// Stores that a change begins.
    ///
    /// # Errors
    /// A sentence, if the line can't be stored: the change must not be made.
    pub async fn begin(&self, record: AuditRecord) -> Result<BegunChange, String> {
        let id: [u8; 8] = random_bytes();
        let mut target = record.target;
        target.values_mut().for_each(cut);
        let record = AuditRecord {
            target,
            v: AUDIT_VERSION,
            id: hex::encode(id),
            time_ms: self.clock.now_ms(),
            process: self.process.clone(),
            ..record
        };
        let line = record.clone();
        let stored = self.run(move |files| files.append(&line)).await;
        stored.map(|()| BegunChange(record)).map_err(|error| {
            format!("nothing was changed, because the audit log can't be written: {error}")
        })
    }

    /// Stores the outcome of a change.
    ///
    /// # Errors
    /// A sentence, if the line can't be stored: the reply must be an error.
    pub async fn end(&self, begun: BegunChange, status: u16) -> Result<(), String> {
        let BegunChange(mut record) = begun;
        record.outcome = Some(outcome_of(status).to_owned());
        record.status = Some(status);
        let stored = self.run(move |files| files.append(&record)).await;
        if stored.is_ok() {
            self.records.fetch_add(1, Ordering::Relaxed);
        }
        stored.map_err(|error| {
            format!("the outcome could not be recorded, because the audit log failed: {error}")
        })
    }

    /// Returns a page of records.
    ///
    /// # Errors
    /// A sentence, if the files can't be read.
    pub(crate) async fn page(&self, query: AuditQuery) -> Result<AuditPage, String> {
        let folder = self.folder.clone();
        let read = tokio::task::spawn_blocking(move || query.read(&folder)).await;
        match read {
            Ok(Ok(page)) => Ok(page),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("the reader failed: see the log of the process".to_owned()),
        }
    }

    /// Returns the reason why changes are refused, if they are.
    pub fn problem(&self) -> Option<String> {
        let problem = self.problem.lock();
        let name = self.folder.display();
        problem
            .as_ref()
            .map(|error| format!("changes are refused: the audit log {name} failed: {error}"))
    }

    /// Runs `work` on a blocking thread. Keeps its error as the log's problem.
    async fn run(
        &self,
        work: impl FnOnce(&mut AuditFiles) -> std::io::Result<()> + Send + 'static,
    ) -> Result<(), String> {
        let files = self.files.clone();
        let work = tokio::task::spawn_blocking(move || work(&mut files.lock()));
        let error = match timeout(PATIENCE, work).await {
            Ok(Ok(Ok(()))) => None,
            Ok(Ok(Err(error))) => Some(error.to_string()),
            Ok(Err(_)) => Some("the writer failed: see the log of the process".to_owned()),
            Err(_) => Some(format!("the disk did not answer within {} s", PATIENCE.as_secs())),
        };
        let mut problem = self.problem.lock();
        if let Some(error) = &error {
            self.failures.fetch_add(1, Ordering::Relaxed);
            if problem.is_none() {
                tracing::error!(error, "the audit log failed: changes are refused");
            }
        } else if problem.is_some() {
            tracing::info!("the audit log can be written again");
        }
        problem.clone_from(&error);
        error.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests;

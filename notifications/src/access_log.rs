//! Access log of a process: a file with one line for each request.
//!
//! Invariants:
//! * No request waits for the file. Lines beyond the queue's limits are dropped and counted.
//! * The file is opened for each batch. An operator may rename it at any time; the next batch makes
//!   a new file.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use martlet_s3compat::AccessLog;
use tokio::sync::{mpsc, watch};

/// Maximum number of queued lines.
const QUEUED_MAX: usize = 16 * 1024;
/// Maximum bytes of queued lines. A line may be longer than the head of its request.
const QUEUED_BYTES_MAX: usize = 32 << 20;
/// Maximum number of lines in one write.
const BATCH_MAX: usize = 4096;
/// Pause between writes, in which lines collect.
const GATHER: Duration = Duration::from_millis(200);

/// Queue of lines for the file.
#[derive(Debug)]
pub struct LogFile {
    queue: mpsc::Sender<String>,
    queued_bytes: Arc<AtomicUsize>,
    lost: AtomicU64,
}

/// Writer of the queued lines.
#[derive(Debug)]
pub struct LogWriter {
    path: PathBuf,
    queue: mpsc::Receiver<String>,
    queued_bytes: Arc<AtomicUsize>,
}

impl LogFile {
    /// Opens the log in a file. Returns its queue and its writer.
    ///
    /// # Errors
    /// When the file can't be opened for writing.
    pub fn open(path: &Path) -> io::Result<(Self, LogWriter)> {
        append(path, "")?;
        let (sender, queue) = mpsc::channel(QUEUED_MAX);
        let queued_bytes = Arc::new(AtomicUsize::new(0));
        let lost = AtomicU64::new(0);
        let log = Self { queue: sender, queued_bytes: queued_bytes.clone(), lost };
        Ok((log, LogWriter { path: path.to_owned(), queue, queued_bytes }))
    }

    /// Number of lines that were dropped because the queue was full.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

impl AccessLog for LogFile {
    fn offer(&self, line: String) {
        let (bytes, lines) = (line.len(), line.lines().count() as u64);
        let queued = self.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        if queued + bytes > QUEUED_BYTES_MAX || self.queue.try_send(line).is_err() {
            self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.lost.fetch_add(lines, Ordering::Relaxed);
        }
    }
}

impl LogWriter {
    /// Writes until `stopped`, then writes the lines still queued.
    pub async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        let mut is_stopping = false;
        while !is_stopping {
            let mut batch = Vec::new();
            tokio::select! {
                taken = self.queue.recv_many(&mut batch, BATCH_MAX) => if taken == 0 { return },
                () = stop_requested(&mut stopped) => is_stopping = true,
            }
            if is_stopping {
                self.queue.close();
            }
            self.write(batch).await;
            if !is_stopping {
                let _ = tokio::time::timeout(GATHER, stop_requested(&mut stopped)).await;
            }
        }
        let mut batch = Vec::new();
        while self.queue.recv_many(&mut batch, BATCH_MAX).await > 0 {
            self.write(std::mem::take(&mut batch)).await;
        }
    }

    async fn write(&self, batch: Vec<String>) {
        if batch.is_empty() {
            return;
        }
        // Bytes of a batch count against the queue's limit until the batch is written.
        let bytes = batch.iter().map(String::len).sum();
        let path = self.path.clone();
        let written = tokio::task::spawn_blocking(move || {
            let mut text = batch.join("\n");
            text.push('\n');
            append(&path, &text)
        });
        let written = written.await;
        self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
        match written {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                let path = self.path.display();
                tracing::error!(%error, %path, "lost lines of the access log");
            }
            Err(error) => tracing::error!(%error, "lost lines of the access log"),
        }
    }
}

/// Waits for the stop signal. A dropped sender counts as one.
async fn stop_requested(stopped: &mut watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

fn append(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_written_also_after_the_file_was_renamed_and_at_the_end() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("access.log");
        let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        let (log, scribe) = LogFile::open(&path).unwrap();
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(scribe.run(stopped));
        log.offer("one".to_owned());
        let written = async {
            while read(&path) != "one\n" {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(40), written).await.unwrap();
        let aside = place.path().join("access.log.1");
        std::fs::rename(&path, &aside).unwrap();
        log.offer("two".to_owned());
        log.offer("three".to_owned());
        stop.send_replace(true);
        tokio::time::timeout(Duration::from_secs(40), task).await.unwrap().unwrap();
        assert_eq!((&*read(&aside), &*read(&path)), ("one\n", "two\nthree\n"));
        assert_eq!(log.lost(), 0);
        log.offer("four".to_owned());
        assert_eq!(log.lost(), 1, "nobody writes any more");
    }

    #[test]
    fn no_more_waits_than_may_however_long_lines_are() {
        let place = tempfile::tempdir().unwrap();
        let (log, _scribe) = LogFile::open(&place.path().join("log")).unwrap();
        let long = "x".repeat(1 << 20);
        for _ in 0..QUEUED_BYTES_MAX / long.len() + 3 {
            log.offer(long.clone());
        }
        assert_eq!(log.lost(), 3);
    }

    #[test]
    fn an_unwritable_file_is_reported_at_once() {
        let place = tempfile::tempdir().unwrap();
        assert!(LogFile::open(&place.path().join("none").join("log")).is_err());
    }
}

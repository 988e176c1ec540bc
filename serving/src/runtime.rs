//! Asynchronous runtime of a serving process.

use std::time::Duration;

use crate::failure::Failure;

/// Maximum number of blocking threads, for hashing, encryption and the process's own files. Each
/// device of a storage node has its own threads besides these. None of these calls waits for
/// another, but the one that makes an archive for support: a process makes one at a time.
const BLOCKING_THREADS_MAX: usize = 64;
/// Grace time for blocking calls at the end of the process. A hanging call does not delay the end
/// further.
const LAST_CALLS_MAX: Duration = Duration::from_secs(10);

/// Runs a process to its end on a new runtime with this many worker threads.
pub fn run(
    threads: usize,
    process: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    raise_file_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .worker_threads(threads)
        .thread_name("martlet")
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .build()
        .map_err(|error| {
            Failure::refused(format!("the async runtime could not be started: {error}"))
        })?;
    let outcome = runtime.block_on(process);
    runtime.shutdown_timeout(LAST_CALLS_MAX);
    outcome
}

/// Raises the limit on open files to its maximum, since connections and extents are files.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!(%error, "could not raise the limit of open files");
    }
}

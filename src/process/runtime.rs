//! The runtime of a process that serves.

use std::time::Duration;

use crate::failure::Failure;

/// Threads for hashing, encryption and files of the process's own. Each device of a storage node has
/// threads of its own beside them. None of these calls waits for another.
const BLOCKING_THREADS_MAX: usize = 64;
/// Time for calls that still run when the process is over. A call that hangs does not keep it longer.
const LAST_CALLS_MAX: Duration = Duration::from_secs(10);

/// Runs a process to its end on a runtime of its own, with this many threads for what doesn't wait for
/// a disk.
pub(crate) fn run(
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
        .map_err(|error| Failure::refused(format!("no runtime could be started: {error}")))?;
    let outcome = runtime.block_on(process);
    runtime.shutdown_timeout(LAST_CALLS_MAX);
    outcome
}

/// Connections and extents are files: take as many as are allowed.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!(%error, "the limit of open files stays as it is");
    }
}

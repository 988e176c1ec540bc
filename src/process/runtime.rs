//! The runtime of a process that serves.

use crate::failure::Failure;

/// Calls of the disk and the index under way at a time: enough to keep any disk's queue full, few
/// enough that what each of them holds stays small together. None of them waits for another.
const BLOCKING_THREADS_MAX: usize = 64;

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
    runtime.block_on(process)
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

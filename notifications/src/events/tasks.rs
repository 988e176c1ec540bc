//! Tasks of the process, and disk work that they leave to blocking threads.

use std::io;

use tokio::sync::watch;
use tokio::task::JoinSet;

/// Task set of the process, and its stop signal.
pub struct TaskSet<'a> {
    /// Running tasks.
    pub tasks: &'a mut JoinSet<()>,
    /// Stop signal of the tasks.
    pub stopped: &'a watch::Receiver<bool>,
}

/// Runs disk work on a blocking thread. Returns `with` and the result.
pub(super) async fn off_thread<T: Send + 'static, R: Send + 'static>(
    mut with: T,
    work: impl FnOnce(&mut T) -> io::Result<R> + Send + 'static,
) -> (T, io::Result<R>) {
    let done = tokio::task::spawn_blocking(move || {
        let outcome = work(&mut with);
        (with, outcome)
    });
    done.await.expect("the blocking task does not panic")
}

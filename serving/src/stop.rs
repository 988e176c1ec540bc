//! Stop signal of tasks and connections.

use tokio::sync::watch;

/// Waits for the stop signal. A dropped sender counts as one.
pub async fn wait_for_stop(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

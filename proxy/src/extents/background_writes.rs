//! Copies that are still being written when their write is done.
//!
//! They go on for at most [`TIME_MAX`], so that a busy device gets its copy too. The body bytes
//! that they hold are bounded over all writes. A copy without a share of that bound is given up,
//! and replication restores it later. If the extent becomes unwanted, its background writes are
//! aborted first, then deleted.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use martlet_protocol::extent::ExtentRef;
use tokio::time::{Instant, timeout};

use super::delivery::{ExtentWrite, ReplicaWrites};
use crate::channel::Gauge;

/// Longest time that a copy may go on after its write.
const TIME_MAX: Duration = Duration::from_mins(1);
/// Longest wait for an aborted copy to end.
pub(crate) const END_TIME: Duration = Duration::from_secs(5);

/// Lets the remaining copies go on in background. `enough_at` is the time at which enough were
/// durable.
pub(super) fn leave(
    write: Arc<ExtentWrite>,
    mut copies: ReplicaWrites,
    chosen: ExtentRef,
    enough_at: Instant,
) {
    let mut unwanted = write.uncommitted.unwanted();
    let held: usize = write.gauges.iter().map(|gauge| gauge.status().waiting_cost).sum();
    write.gauges.iter().for_each(Gauge::settle);
    let share = u32::try_from(held).ok();
    let share =
        share.and_then(|held| write.client.background.clone().try_acquire_many_owned(held).ok());
    if share.is_none() {
        write.gauges.iter().for_each(Gauge::break_off);
    }
    tokio::spawn(async move {
        let _share = share;
        let is_unwanted = tokio::select! {
            biased;
            unwanted = unwanted.wait_for(|unwanted| *unwanted) => unwanted.is_ok(),
            _ = timeout(TIME_MAX, finish(&write, &mut copies, chosen, enough_at)) => false,
        };
        if is_unwanted {
            write.gauges.iter().for_each(Gauge::break_off);
            let ended = async { while copies.next().await.is_some() {} };
            let _ = timeout(END_TIME, ended).await;
        }
    });
}

/// Waits for all copies, and deletes those that differ from the acknowledged ones.
async fn finish(
    write: &ExtentWrite,
    copies: &mut ReplicaWrites,
    chosen: ExtentRef,
    enough_at: Instant,
) {
    while let Some(written) = copies.next().await {
        write.note_lag(&written, enough_at);
        match written {
            Ok((device, extent)) if extent != chosen => write.discard([(device, extent)]),
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "an extent has one copy less"),
        }
    }
}

//! Copies that are still under way when their write is done.
//!
//! They go on for a while, so that a device which is merely busy holds its copy too. What they may
//! hold of bodies is bounded over all writes; one that finds no share is given up, which leaves the
//! extent with a copy less and replication to make up for it. When the extent is unwanted after all,
//! they are broken off first and deleted then.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use martlet_protocol::extent::ExtentRef;
use tokio::time::{Instant, timeout};

use super::delivery::{ExtentWrite, Pieces};
use crate::pipe::Gauge;

/// How long a copy may go on behind a write that is done.
const TIME_MAX: Duration = Duration::from_mins(1);
/// How long a copy that has all its bytes may take to be done when nobody wants it any more.
pub(crate) const END_TIME: Duration = Duration::from_secs(5);

/// Lets copies go on by themselves, of an extent that had enough of them at a time.
pub(super) fn leave(
    write: Arc<ExtentWrite>,
    mut copies: Pieces,
    (chosen, enough_at): (ExtentRef, Instant),
) {
    let mut unwanted = write.placed.unwanted();
    let held: usize = write.gauges.iter().map(|gauge| gauge.standing().waiting_cost).sum();
    write.gauges.iter().for_each(Gauge::settle);
    let share = u32::try_from(held).ok();
    let share = share
        .and_then(|held| write.inner.extents.laggards.clone().try_acquire_many_owned(held).ok());
    if share.is_none() {
        write.gauges.iter().for_each(Gauge::break_off);
    }
    tokio::spawn(async move {
        let _share = share;
        let is_unwanted = tokio::select! {
            biased;
            unwanted = unwanted.wait_for(|unwanted| *unwanted) => unwanted.is_ok(),
            _ = timeout(TIME_MAX, finish(&write, &mut copies, (chosen, enough_at))) => false,
        };
        if is_unwanted {
            write.gauges.iter().for_each(Gauge::break_off);
            let ended = async { while copies.next().await.is_some() {} };
            let _ = timeout(END_TIME, ended).await;
        }
    });
}

/// Waits for all copies, and deletes those that are not what was acknowledged.
async fn finish(
    write: &ExtentWrite,
    copies: &mut Pieces,
    (chosen, enough_at): (ExtentRef, Instant),
) {
    while let Some(written) = copies.next().await {
        write.note_lag(&written, enough_at);
        match written {
            Ok((device, extent)) if extent != chosen => write.discard(&[device]),
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "an extent has a copy less"),
        }
    }
}

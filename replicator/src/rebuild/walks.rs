//! Walks over the extents of all data devices, page by page and side by side.
//!
//! ```text
//! waiting ──a round of 128──▶ page ──more──▶ waiting
//!                               └─no answer──▶ silent ──once none waits──▶ waiting
//! ```
//!
//! A device that doesn't answer delays no other: its walk continues after theirs. The walks end with an
//! error if such a device doesn't answer for [`SILENCE_MAX`] after that. A device that leaves the data
//! rings meanwhile is not waited for.

use std::collections::VecDeque;
use std::time::Duration;

use futures::future::join_all;
use martlet_protocol::extent::ExtentRecord;
use martlet_protocol::{BackendExt, DeviceId, Error, ExtentId, Result};
use martlet_topology::Topology;
use tokio::time::Instant;

use crate::cluster::{DeviceScope, StepTopology, in_time};

/// Extents requested at a time: the most that a node returns.
const PAGE: usize = 1024;
/// Devices listed concurrently: a round has some tens of MiB.
const DEVICES_AT_ONCE: usize = 128;
/// Time for which a device may fail to be listed once all others are: a node restarts within this time.
const SILENCE_MAX: Duration = Duration::from_mins(10);
/// Pause before silent devices are listed again.
const PAUSE: Duration = Duration::from_secs(1);

/// Walk over the extents of one device.
#[derive(Clone, Copy, Debug)]
struct DeviceWalk {
    device: DeviceId,
    after: Option<ExtentId>,
}

impl DeviceWalk {
    async fn list(self, cluster: &StepTopology) -> Result<Vec<ExtentRecord>> {
        let Self { device, after } = self;
        in_time(cluster.node(device)?.list_extents(device, after, PAGE)).await
    }
}

/// Walks over all data devices of a cluster.
pub(super) struct DeviceWalks {
    waiting: VecDeque<DeviceWalk>,
    /// Walks whose device did not answer.
    silent: Vec<DeviceWalk>,
    /// Time since which no device but the silent ones is left.
    silent_since: Option<Instant>,
}

impl DeviceWalks {
    /// Begins at the first extent of each device.
    pub(super) fn new(cluster: &StepTopology) -> Self {
        let devices = cluster.data_devices_of(&DeviceScope::All).into_iter();
        let waiting = devices.map(|device| DeviceWalk { device, after: None }).collect();
        Self { waiting, silent: Vec::new(), silent_since: None }
    }

    /// Lists the next extents of some devices; none once all devices are at their ends.
    ///
    /// # Errors
    /// A device doesn't answer for [`SILENCE_MAX`] after all others.
    pub(super) async fn next_round(
        &mut self,
        cluster: &StepTopology,
        topology: &Topology,
    ) -> Result<Option<Vec<ExtentRecord>>> {
        if self.waiting.is_empty() {
            self.wake_silent(topology).await;
        }
        if self.waiting.is_empty() {
            return Ok(None);
        }
        let count = self.waiting.len().min(DEVICES_AT_ONCE);
        let next: Vec<DeviceWalk> = self.waiting.drain(..count).collect();
        let pages = join_all(next.iter().map(|walk| walk.list(cluster))).await;
        let mut records = Vec::new();
        for (walk, page) in next.into_iter().zip(pages) {
            match page {
                Ok(page) => {
                    self.silent_since = None;
                    if page.len() == PAGE {
                        let after = page.last().map(|record| record.extent.id);
                        self.waiting.push_back(DeviceWalk { after, ..walk });
                    }
                    records.extend(page);
                }
                Err(error) => self.keep_silent(walk, &error)?,
            }
        }
        Ok(Some(records))
    }

    /// Continues the walks of silent devices that are still in a data ring.
    async fn wake_silent(&mut self, topology: &Topology) {
        if self.silent.is_empty() {
            return;
        }
        self.silent_since.get_or_insert_with(Instant::now);
        tokio::time::sleep(PAUSE).await;
        let present = StepTopology::of(topology).data_devices_of(&DeviceScope::All);
        let walks = self.silent.drain(..).filter(|walk| present.contains(&walk.device));
        self.waiting.extend(walks);
    }

    fn keep_silent(&mut self, walk: DeviceWalk, error: &Error) -> Result<()> {
        if self.silent_since.is_some_and(|since| since.elapsed() >= SILENCE_MAX) {
            let device = walk.device;
            return Err(Error::unavailable(format!(
                "device {device} can't be listed: {error}. Bring it back or remove it from the rings, \
                 and start the rebuild again"
            )));
        }
        self.silent.push(walk);
        Ok(())
    }
}

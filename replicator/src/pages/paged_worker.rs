//! A worker that walks pages of extents.

use std::collections::{BTreeSet, HashSet, VecDeque};

use async_trait::async_trait;
use martlet_protocol::extent::ExtentRecord;
use martlet_protocol::{DeviceId, ExtentId, Result};

use super::visits::Visits;
use crate::cluster::StepTopology;
use crate::worker::StepProgress;

/// Extents in one page.
pub(crate) const PAGE: usize = 500;

/// A page that was looked at, and its remaining work.
pub(crate) struct ExtentPage<T> {
    pub(crate) deeds: VecDeque<T>,
    /// Position of the next page; none at the end of the device.
    pub(super) next: Option<ExtentId>,
}

/// Place and turn of work on a device.
#[derive(Clone, Copy)]
pub(crate) struct PassPlace<'a> {
    pub(crate) cluster: &'a StepTopology,
    pub(crate) device: DeviceId,
    /// Number of completed passes of the device, which decides the turns.
    pub(crate) turn: u64,
}

/// A worker that walks pages of extents.
#[async_trait]
pub(crate) trait PagedWorker: Send + Sync + 'static {
    /// Name in cursors and messages.
    const NAME: &str;

    /// Possible work on an extent.
    type Action: Send + Sync + 'static;

    /// Devices to walk.
    fn devices(&self, cluster: &StepTopology) -> BTreeSet<DeviceId>;

    fn now_ms(&self) -> u64;

    /// Returns the placements that may need work.
    async fn visits(&self, at: PassPlace<'_>) -> Result<Visits>;

    /// Determines the work on a page of a device's extents.
    async fn look(
        &self,
        at: PassPlace<'_>,
        records: Vec<ExtentRecord>,
    ) -> Result<(VecDeque<Self::Action>, StepProgress)>;

    /// Does as much work on a page as fits into a step. `full` has the devices that refused bytes
    /// as full in this pass.
    async fn work(
        &self,
        at: PassPlace<'_>,
        page: &mut ExtentPage<Self::Action>,
        full: &mut HashSet<DeviceId>,
    ) -> Result<StepProgress>;
}

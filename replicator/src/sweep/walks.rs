//! Walks over the devices of a node at the same time.
//!
//! A step lists extents of up to [`DEVICES_AT_ONCE`] devices, each its share of the batch. A device
//! that hangs delays a step by a call's patience, [`TRIES`] times a pass at most.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::join_all;
use martlet_protocol::extent::ExtentRecord;
use martlet_protocol::{BackendExt, DeviceId, Error, ExtentId};

use super::PAGE;
use crate::cluster::{StepTopology, in_time};
use crate::cursors::Cursors;
use crate::pages::DEVICES_AT_ONCE;
use crate::pages::positions::{load_positions, save_positions};

/// Number of failures to list a device, after which the rest of the device waits for a later pass.
const TRIES: u32 = 3;
/// Position behind all extents.
const END: ExtentId = ExtentId([0xff; 16]);

/// An extent on a device.
pub(super) struct Found {
    pub(super) device: DeviceId,
    pub(super) record: ExtentRecord,
}

/// Walk over one device.
#[derive(Clone, Copy, Debug, Default)]
struct DeviceWalk {
    /// Last extent visited.
    after: Option<ExtentId>,
    has_ended: bool,
    /// Successive failures to list the device's extents.
    failures: u32,
}

/// Walks of a pass.
#[derive(Debug, Default)]
pub(super) struct Walks {
    walks: BTreeMap<DeviceId, DeviceWalk>,
    /// Device that was listed last.
    last: Option<DeviceId>,
}

/// New places of walks, which count once the extents before them were asked about.
pub(super) struct NextPlaces(Vec<(DeviceId, DeviceWalk)>);

/// Extents of a step.
pub(super) struct Listed {
    pub(super) found: Vec<Found>,
    pub(super) places: NextPlaces,
    /// Error of a device that could not be listed, if any.
    pub(super) error: Option<Error>,
}

/// Extents of one device.
struct OfDevice {
    device: DeviceId,
    records: Vec<ExtentRecord>,
    after: Option<ExtentId>,
    is_last: bool,
    error: Option<Error>,
}

impl Walks {
    /// Loads the positions that were saved last.
    pub(super) fn load(cursors: &dyn Cursors, name: &str) -> Self {
        let walk =
            |(device, after)| (device, DeviceWalk { after: Some(after), ..DeviceWalk::default() });
        let walks = load_positions(cursors, name).into_iter().map(walk).collect();
        Self { walks, last: None }
    }

    /// Saves the positions. Devices that ended the pass have the last one.
    pub(super) fn save(&self, cursors: &dyn Cursors, name: &str) {
        let places = self.walks.iter().filter_map(|(device, walk)| {
            Some((*device, if walk.has_ended { END } else { walk.after? }))
        });
        save_positions(cursors, name, places);
    }

    /// Returns true if all devices have ended the pass.
    pub(super) fn have_ended(&self, devices: &BTreeSet<DeviceId>) -> bool {
        devices.iter().all(|device| self.walks.get(device).is_some_and(|walk| walk.has_ended))
    }

    /// Lists about `batch` extents of the devices that are next.
    pub(super) async fn list(
        &mut self,
        cluster: &StepTopology,
        devices: &BTreeSet<DeviceId>,
        batch: usize,
    ) -> Listed {
        self.walks.retain(|device, _| devices.contains(device));
        let behind = devices.iter().filter(|it| self.last.is_none_or(|last| **it > last));
        let before = devices.iter().filter(|it| self.last.is_some_and(|last| **it <= last));
        let has_more = |it: &&DeviceId| !self.walks.get(*it).is_some_and(|walk| walk.has_ended);
        let next: Vec<DeviceId> =
            behind.chain(before).filter(has_more).take(DEVICES_AT_ONCE).copied().collect();
        self.last = next.last().copied().or(self.last);
        let share = (batch / next.len().max(1)).max(PAGE);
        let lists = next.into_iter().map(|device| {
            let after = self.walks.get(&device).and_then(|walk| walk.after);
            list_device(cluster, device, after, share)
        });
        let mut listed = Listed { found: Vec::new(), places: NextPlaces(Vec::new()), error: None };
        for OfDevice { device, records, after, is_last, error } in join_all(lists).await {
            let mut walk = self.walks.get(&device).copied().unwrap_or_default();
            (walk.after, walk.has_ended) = (after, is_last);
            if error.is_some() && records.is_empty() {
                walk.failures += 1;
                walk.has_ended = walk.failures >= TRIES;
            } else {
                walk.failures = 0;
            }
            listed.found.extend(records.into_iter().map(|record| Found { device, record }));
            listed.places.0.push((device, walk));
            listed.error = error.or(listed.error);
        }
        listed
    }

    /// Advances to the places behind extents that were asked about.
    pub(super) fn advance(&mut self, places: NextPlaces) {
        self.walks.extend(places.0);
    }
}

async fn list_device(
    cluster: &StepTopology,
    device: DeviceId,
    after: Option<ExtentId>,
    share: usize,
) -> OfDevice {
    let mut of = OfDevice { device, records: Vec::new(), after, is_last: false, error: None };
    while of.records.len() < share && !of.is_last {
        let page = match cluster.node(device) {
            Ok(node) => in_time(node.list_extents(device, of.after, PAGE)).await,
            Err(error) => Err(error),
        };
        match page {
            Ok(page) => {
                of.is_last = page.len() < PAGE;
                of.after = page.last().map_or(of.after, |record| Some(record.extent.id));
                of.records.extend(page);
            }
            // The next step tries the rest again.
            Err(error) => {
                of.error = Some(error);
                break;
            }
        }
    }
    of
}

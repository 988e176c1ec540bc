//! Holders of the fragments of a page's extents. First the homes of the fragments watched by a
//! device are queried. If one lacks its fragment, all homes are queried; then all other devices
//! about the missing fragments.

use std::collections::{BTreeMap, BTreeSet};

use martlet_erasure::FragmentIndex;
use martlet_protocol::backend::Presence;
use martlet_protocol::extent::ExtentRecord;
use martlet_protocol::{DeviceId, ExtentId};

use super::plan::{FragmentPresence, StripeAction, plan, watched};
use crate::cluster::StepTopology;
use crate::coded::{CodedExtent, PresenceMap};
use crate::replicate::plan::CopyTurn;

/// An extent of which a device has fragments.
pub(super) struct DeviceFragments {
    pub(super) coded: CodedExtent,
    /// Fragments that the device has.
    pub(super) records: Vec<ExtentRecord>,
    pub(super) seen: Vec<FragmentPresence>,
    pub(super) everyone_asked: bool,
}

type FragmentLists = BTreeMap<DeviceId, BTreeSet<ExtentId>>;

impl DeviceFragments {
    /// Returns the action of `device` on the extent.
    pub(super) fn action(&self, device: DeviceId, pass: u64) -> StripeAction {
        let turn = CopyTurn::of(self.coded.whole, pass);
        plan(device, &self.seen, self.coded.geometry.needed(), turn, self.everyone_asked)
    }

    /// Returns the fragments that the holder of these records watches.
    fn watched(&self) -> BTreeSet<FragmentIndex> {
        let stored: Vec<FragmentIndex> = self.coded.fragments().collect();
        let numbers = self.records.iter().map(|record| record.extent.id.fragment_number());
        let at = numbers.filter_map(|number| stored.iter().position(|it| it.0 == number));
        let needed = self.coded.geometry.needed();
        at.flat_map(|at| watched(at, stored.len(), needed)).map(|at| stored[at]).collect()
    }

    /// Returns the holders of fragments; `first` comes before other devices.
    pub(super) fn sources(&self, first: DeviceId) -> Vec<(FragmentIndex, DeviceId)> {
        let mut sources: Vec<_> = self
            .seen
            .iter()
            .flat_map(|seen| seen.holders().map(|device| (seen.fragment, device)))
            .collect();
        sources.sort_by_key(|(fragment, device)| (*device != first, *fragment));
        sources
    }
}

/// Groups a device's records by coded extent; also returns the number of records with an unknown
/// policy.
pub(super) fn items(
    cluster: &StepTopology,
    records: Vec<ExtentRecord>,
) -> (Vec<DeviceFragments>, u64) {
    let mut items: Vec<DeviceFragments> = Vec::new();
    let mut unknown = 0;
    for record in records {
        match CodedExtent::of_record(cluster, &record) {
            None => {}
            Some(Err(error)) => {
                tracing::debug!(extent = %record.extent.id, %error, "a fragment has no place in \
                                                                     the ring");
                unknown += 1;
            }
            Some(Ok(coded)) => match items.last_mut() {
                Some(last) if last.coded.whole == coded.whole => last.records.push(record),
                _ => items.push(DeviceFragments {
                    coded,
                    records: vec![record],
                    seen: Vec::new(),
                    everyone_asked: false,
                }),
            },
        }
    }
    (items, unknown)
}

/// Returns the items that lack a fragment watched by this device, as their homes report.
pub(super) async fn suspects(
    cluster: &StepTopology,
    mut items: Vec<DeviceFragments>,
) -> Vec<DeviceFragments> {
    let mut lists = FragmentLists::new();
    for item in &items {
        for fragment in item.watched() {
            let home = item.coded.place(fragment).home;
            lists.entry(home).or_default().insert(item.coded.id(fragment));
        }
    }
    let mut presences = PresenceMap::default();
    presences.query(cluster, lists).await;
    items.retain(|item| {
        let is_here = |it| presences.of(item.coded.place(it).home, item.coded.id(it));
        !item.watched().into_iter().all(|it| is_here(it) == Some(Presence::Here))
    });
    items
}

/// Queries the homes of all fragments, and the devices from which they are taking over.
pub(super) async fn query_homes(cluster: &StepTopology, items: &mut [DeviceFragments]) {
    let mut lists = FragmentLists::new();
    for item in &*items {
        for fragment in item.coded.fragments() {
            let (place, id) = (item.coded.place(fragment), item.coded.id(fragment));
            for queried in [Some(place.home), place.previous].into_iter().flatten() {
                lists.entry(queried).or_default().insert(id);
            }
        }
    }
    let mut presences = PresenceMap::default();
    presences.query(cluster, lists).await;
    for item in items {
        let seen = |fragment| {
            let (place, id) = (item.coded.place(fragment), item.coded.id(fragment));
            FragmentPresence {
                fragment,
                home: place.home,
                at_home: presences.of(place.home, id),
                previous: place.previous.map(|previous| (previous, presences.of(previous, id))),
                others: Vec::new(),
                is_late: false,
            }
        };
        item.seen = item.coded.fragments().map(seen).collect();
    }
}

/// Queries all other devices about the fragments that are not at home.
pub(super) async fn query_all(cluster: &StepTopology, items: &mut [&mut DeviceFragments]) {
    let mut lists = FragmentLists::new();
    for item in &*items {
        for (id, queried) in elsewhere(cluster, item) {
            for device in queried {
                lists.entry(device).or_default().insert(id);
            }
        }
    }
    let mut presences = PresenceMap::default();
    presences.query(cluster, lists).await;
    for item in items {
        for (id, queried) in elsewhere(cluster, item) {
            let seen = item.seen.iter_mut().find(|seen| item.coded.id(seen.fragment) == id);
            let Some(seen) = seen else { continue };
            seen.others = queried.into_iter().map(|it| (it, presences.of(it, id))).collect();
        }
        item.everyone_asked = true;
    }
}

/// Returns the other devices that may have an item's fragments that are not at home.
fn elsewhere(cluster: &StepTopology, item: &DeviceFragments) -> Vec<(ExtentId, Vec<DeviceId>)> {
    let everyone = item.coded.everyone(cluster).unwrap_or_default();
    let away = item.seen.iter().filter(|seen| seen.at_home != Some(Presence::Here));
    let others = |seen: &FragmentPresence| {
        let previous = seen.previous.map(|(device, _)| device);
        let is_other = |it: &DeviceId| *it != seen.home && Some(*it) != previous;
        (item.coded.id(seen.fragment), everyone.iter().copied().filter(is_other).collect())
    };
    away.map(others).collect()
}

//! Count of extents: the actual and required holders of each extent, or of each of its fragments.

use std::collections::BTreeSet;

use martlet_erasure::Geometry;
use martlet_protocol::backend::Presence;
use martlet_protocol::extent::ExtentRecord;
use martlet_protocol::{BackendExt, DeviceId, ExtentId};

use super::bodies::NeededExtents;
use super::streams::MergedStreams;
use super::{CensusRun, KindCounts};
use crate::cluster::in_time;
use crate::coded::CodedExtent;
use crate::replicate::required_devices::RequiredDevices;

/// Extents requested at a time.
const PAGE: usize = 1000;

/// Holders of a copy or a fragment, by the lists of all devices.
struct PieceHolders {
    id: ExtentId,
    holders: Vec<(DeviceId, ExtentRecord)>,
}

/// Requirements of the rings for an extent.
struct RequiredHolders {
    record: ExtentRecord,
    /// Each required or existing piece, and its required holders.
    pieces: Vec<(ExtentId, Vec<DeviceId>)>,
    /// Number of distinct fragments needed; none for copies.
    needed: Option<u8>,
    /// Number of pieces that differ from the rest.
    unlike: u64,
}

impl CensusRun<'_> {
    pub(super) async fn count_extents(&mut self) {
        let cluster = self.cluster;
        let all = cluster.policies().flat_map(martlet_ring::Ring::devices).map(|device| device.id);
        let devices: BTreeSet<DeviceId> = all.filter(|it| !self.silent.contains(it)).collect();
        let mut streams = MergedStreams::of(devices.iter().copied());
        let read = async |device: DeviceId, after: Option<ExtentId>| {
            let node = cluster.node(device)?;
            let page = in_time(node.list_extents(device, after, PAGE)).await?;
            Ok(page.into_iter().map(|record| (record.extent.id, record)).collect::<Vec<_>>())
        };
        // The fragments of an extent are adjacent in the order of ids.
        let mut pieces: Vec<PieceHolders> = Vec::new();
        while !streams.is_over() {
            self.silent.extend(streams.fill(read).await);
            let mut odd = Vec::new();
            while let Some((id, holders)) = streams.next() {
                let name = named(&holders);
                if pieces.last().is_some_and(|last| named(&last.holders) != name) {
                    odd.extend(self.count(&std::mem::take(&mut pieces)));
                }
                pieces.push(PieceHolders { id, holders });
            }
            if streams.is_over() {
                odd.extend(self.count(&std::mem::take(&mut pieces)));
            }
            if !odd.is_empty() {
                self.query_again(&devices, &odd).await;
            }
            self.rest().await;
        }
    }

    /// Counts an extent; returns the rings' requirements if they are not met.
    fn count(&mut self, pieces: &[PieceHolders]) -> Option<RequiredHolders> {
        let due = self.due(pieces)?;
        self.report.extents.things += 1;
        self.report.extents.copies += pieces.iter().map(|it| it.holders.len() as u64).sum::<u64>();
        let has = |id: ExtentId, device: &DeviceId| {
            let piece = pieces.iter().find(|piece| piece.id == id);
            piece.is_some_and(|piece| piece.holders.iter().any(|(holder, _)| holder == device))
        };
        let is_whole = due.pieces.iter().all(|(id, homes)| homes.iter().all(|it| has(*id, it)));
        let is_due = |id: ExtentId, device: DeviceId| {
            due.pieces.iter().any(|(it, homes)| *it == id && homes.contains(&device))
        };
        let mut all =
            pieces.iter().flat_map(|it| it.holders.iter().map(|(device, _)| (it.id, *device)));
        let is_odd = due.unlike > 0 || !is_whole || all.any(|(id, device)| !is_due(id, device));
        is_odd.then_some(due)
    }

    fn due(&self, pieces: &[PieceHolders]) -> Option<RequiredHolders> {
        let (_, record) = pieces.first()?.holders.first()?;
        let coded = CodedExtent::of_record(self.cluster, record).and_then(Result::ok);
        let mut ids: BTreeSet<ExtentId> = pieces.iter().map(|piece| piece.id).collect();
        if let Some(coded) = &coded {
            ids.extend(coded.fragments().map(|fragment| coded.id(fragment)));
        }
        let with_homes = |id: ExtentId| {
            let mut homes = match &coded {
                Some(coded) => coded.home_of(id).into_iter().collect(),
                None => RequiredDevices::of(self.cluster).primaries(record),
            };
            homes.retain(|device| !self.silent.contains(device));
            (id, homes)
        };
        let unlike = pieces.iter().map(|piece| unlike(piece, record)).sum();
        Some(RequiredHolders {
            record: record.clone(),
            pieces: ids.into_iter().map(with_homes).collect(),
            needed: coded.map(|coded| Geometry::needed(&coded.geometry)),
            unlike,
        })
    }

    /// Queries all devices about extents that looked wrong, and counts the faults that remain.
    async fn query_again(&mut self, devices: &BTreeSet<DeviceId>, odd: &[RequiredHolders]) {
        self.wait().await;
        let ids: Vec<ExtentId> =
            odd.iter().flat_map(|due| due.pieces.iter().map(|(id, _)| *id)).collect();
        let mut holders: Vec<BTreeSet<DeviceId>> = vec![BTreeSet::new(); ids.len()];
        for device in devices {
            if self.silent.contains(device) {
                continue;
            }
            for (chunk, holders) in ids.chunks(PAGE).zip(holders.chunks_mut(PAGE)) {
                let node = self.cluster.node(*device);
                let reply = async { in_time(node?.presence(*device, chunk)).await }.await;
                let Ok(presences) = reply else {
                    self.silent.insert(*device);
                    break;
                };
                for (holders, presence) in holders.iter_mut().zip(presences) {
                    if presence == Presence::Here {
                        holders.insert(*device);
                    }
                }
            }
        }
        let (mut rest, mut wants) = (&holders[..], NeededExtents::of(self.cluster));
        for due in odd {
            let (mine, others) = rest.split_at(due.pieces.len());
            rest = others;
            self.count_extent(due, mine, &mut wants).await;
        }
    }

    async fn count_extent(
        &mut self,
        due: &RequiredHolders,
        holders: &[BTreeSet<DeviceId>],
        wants: &mut NeededExtents<'_>,
    ) {
        if holders.iter().all(BTreeSet::is_empty) {
            return;
        }
        let mut tally = KindCounts { older: due.unlike, ..KindCounts::default() };
        for ((_, homes), holders) in due.pieces.iter().zip(holders) {
            let answering = homes.iter().filter(|device| !self.silent.contains(device));
            tally.missing += answering.filter(|device| !holders.contains(device)).count() as u64;
            tally.stray += holders.iter().filter(|device| !homes.contains(device)).count() as u64;
        }
        let found = holders.iter().filter(|holders| !holders.is_empty()).count();
        let is_short = due.needed.is_some_and(|needed| found < usize::from(needed));
        let is_lost = is_short && self.silent.is_empty();
        if is_lost && !wants.record(&due.record).await {
            // A write that is in progress, or has died: a matter of the sweep, and no loss.
            tally.missing = 0;
        } else if is_lost {
            self.report.lost += 1;
        }
        if tally.is_clean() {
            return;
        }
        let total = &mut self.report.extents;
        total.missing += tally.missing;
        total.older += tally.older;
        total.stray += tally.stray;
        let lost = if is_lost && tally.missing > 0 { "LOST; " } else { "" };
        let all: BTreeSet<&DeviceId> = holders.iter().flatten().collect();
        self.found(|| {
            let KindCounts { missing, older, stray, .. } = tally;
            let holders: Vec<String> = all.iter().map(ToString::to_string).collect();
            let (id, on) = (due.record.named(), holders.join(" "));
            format!("extent {id}: {lost}{missing} missing, {older} other, {stray} stray; on {on}")
        });
    }
}

/// Returns the extent id in manifests of a piece on these devices.
fn named(holders: &[(DeviceId, ExtentRecord)]) -> Option<ExtentId> {
    holders.first().map(|(_, record)| record.named())
}

/// Number of holders whose piece differs from the first holder's piece, or was encoded unlike
/// `record`.
fn unlike(piece: &PieceHolders, record: &ExtentRecord) -> u64 {
    let first = piece.holders.first().map(|(_, record)| record.extent);
    let is_like = |held: &ExtentRecord| Some(held.extent) == first && held.layout == record.layout;
    piece.holders.iter().filter(|(_, held)| !is_like(held)).count() as u64
}

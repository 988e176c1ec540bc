//! The count of extents: for each, who has it and who should.

use std::collections::BTreeSet;

use martlet_protocol::backend::Presence;
use martlet_protocol::extent::{ExtentRecord, ExtentRef};
use martlet_protocol::{DeviceId, ExtentId};

use super::streams::Streams;
use super::{Census, Tally};
use crate::cluster::in_time;
use crate::replicate::places::Places;

/// Extents asked for at a time.
const PAGE: usize = 1000;

/// An extent that looked wrong.
struct Odd {
    id: ExtentId,
    primaries: Vec<DeviceId>,
    /// Copies that are other than the rest.
    unlike: u64,
}

impl Census<'_> {
    pub(super) async fn count_extents(&mut self) {
        let cluster = self.cluster;
        let all = cluster.data.values().flat_map(|ring| ring.devices()).map(|device| device.id);
        let devices: BTreeSet<DeviceId> = all.filter(|it| !self.silent.contains(it)).collect();
        let Ok(places) = Places::of(cluster).await else {
            self.found(|| "nobody can tell which buckets there are".into());
            self.silent.extend(cluster.index_devices());
            return;
        };
        let mut streams = Streams::of(devices.iter().copied());
        let read = async |device: DeviceId, after: Option<ExtentId>| {
            let node = cluster.node(device)?;
            let page = in_time(node.list_extents(device, after, PAGE)).await?;
            Ok(page.into_iter().map(|record| (record.extent.id, record)).collect::<Vec<_>>())
        };
        while !streams.is_over() {
            self.silent.extend(streams.fill(read).await);
            let mut odd = Vec::new();
            while let Some((id, holders)) = streams.next() {
                self.report.extents.things += 1;
                self.report.extents.copies += holders.len() as u64;
                odd.extend(self.oddity(&places, id, &holders));
            }
            if !odd.is_empty() {
                self.ask_again(&devices, &odd).await;
            }
            self.rest().await;
        }
    }

    /// What looks wrong with an extent that these devices have.
    fn oddity(
        &self,
        places: &Places<'_>,
        id: ExtentId,
        holders: &[(DeviceId, ExtentRecord)],
    ) -> Option<Odd> {
        let (_, record) = holders.first()?;
        let first: &ExtentRef = &record.extent;
        let unlike = holders.iter().filter(|(_, record)| record.extent != *first).count() as u64;
        let mut primaries = places.primaries(record);
        primaries.retain(|device| !self.silent.contains(device));
        let has = |device: &DeviceId| holders.iter().any(|(holder, _)| holder == device);
        let is_odd = unlike > 0
            || !primaries.iter().all(has)
            || holders.iter().any(|(holder, _)| !primaries.contains(holder));
        is_odd.then_some(Odd { id, primaries, unlike })
    }

    /// Asks everybody about extents that looked wrong, and counts those that still do.
    async fn ask_again(&mut self, devices: &BTreeSet<DeviceId>, odd: &[Odd]) {
        self.wait().await;
        let ids: Vec<ExtentId> = odd.iter().map(|odd| odd.id).collect();
        let mut holders: Vec<BTreeSet<DeviceId>> = vec![BTreeSet::new(); ids.len()];
        for device in devices {
            if self.silent.contains(device) {
                continue;
            }
            for (chunk, holders) in ids.chunks(PAGE).zip(holders.chunks_mut(PAGE)) {
                let node = self.cluster.node(*device);
                let asked = async { in_time(node?.presence(*device, chunk)).await }.await;
                let Ok(said) = asked else {
                    self.silent.insert(*device);
                    break;
                };
                for (holders, presence) in holders.iter_mut().zip(said) {
                    if presence == Presence::Here {
                        holders.insert(*device);
                    }
                }
            }
        }
        for (Odd { id, primaries, unlike }, holders) in odd.iter().zip(&holders) {
            self.note(*id, primaries, *unlike, holders);
        }
    }

    fn note(
        &mut self,
        id: ExtentId,
        primaries: &[DeviceId],
        older: u64,
        holders: &BTreeSet<DeviceId>,
    ) {
        if holders.is_empty() {
            return;
        }
        let answering = primaries.iter().filter(|device| !self.silent.contains(device));
        let missing = answering.filter(|device| !holders.contains(device)).count() as u64;
        let stray = holders.iter().filter(|device| !primaries.contains(device)).count() as u64;
        let tally = Tally { missing, older, stray, ..Tally::default() };
        if tally.is_clean() {
            return;
        }
        let total = &mut self.report.extents;
        total.missing += missing;
        total.older += older;
        total.stray += stray;
        self.found(|| {
            let holders: Vec<String> = holders.iter().map(ToString::to_string).collect();
            format!(
                "extent {id}: {missing} missing, {older} other, {stray} stray; on {}",
                holders.join(" ")
            )
        });
    }
}

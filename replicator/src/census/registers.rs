//! Count of registers: the actual and required holders of each, and outdated copies.

use std::collections::BTreeMap;

use martlet_protocol::backend::{Holding, Walk, Want};
use martlet_protocol::tree::Span;
use martlet_protocol::{BackendExt, DeviceId, RegisterKey, Stamp};

use super::streams::MergedStreams;
use super::{CensusRun, KindCounts};
use crate::cluster::in_time;

/// Registers requested at a time.
const PAGE: usize = 1000;
/// Registers in one request of a second check.
const AGAIN: usize = 500;

/// Orders of one register, by device.
type HeldOrders = BTreeMap<DeviceId, Stamp>;

impl CensusRun<'_> {
    pub(super) async fn count_registers(&mut self) {
        let cluster = self.cluster;
        let devices = cluster.index_devices().into_iter().filter(|it| !self.silent.contains(it));
        let mut streams = MergedStreams::of(devices.collect::<Vec<_>>());
        let walk = Walk { span: Span::ALL, bin: None, want: Want::Entry };
        let read = async |device: DeviceId, after: Option<RegisterKey>| {
            let node = cluster.node(device)?;
            let page = in_time(node.walk(device, &walk, after.as_ref(), PAGE)).await?;
            let held = page.into_iter().filter_map(|(key, view)| Some((key, view.entry?)));
            Ok(held.collect::<Vec<_>>())
        };
        while !streams.is_over() {
            self.silent.extend(streams.fill(read).await);
            let (mut odd, mut named) = (Vec::new(), Vec::new());
            while let Some((key, holders)) = streams.next() {
                let newest = holders.iter().map(|(_, entry)| entry).max_by_key(|it| it.order);
                if let Some(newest) = newest {
                    named.extend(self.named_by(&key, newest).await);
                }
                let held: HeldOrders =
                    holders.into_iter().map(|(device, entry)| (device, entry.order)).collect();
                self.report.registers.things += 1;
                self.report.registers.copies += held.len() as u64;
                if !self.count_register(&key, &held).is_clean() {
                    odd.push(key);
                }
            }
            for odd in odd.chunks(AGAIN) {
                self.recount(odd).await;
            }
            self.find_missing(named).await;
            self.rest().await;
        }
    }

    /// Returns the faults of a register with these holders.
    fn count_register(&self, key: &RegisterKey, held: &HeldOrders) -> KindCounts {
        let sets = self.cluster.sets(key.placement());
        let newest = held.values().max();
        let mut tally = KindCounts::default();
        for member in sets.members().filter(|member| !self.silent.contains(member)) {
            match held.get(&member) {
                None => tally.missing += 1,
                order if order < newest => tally.older += 1,
                Some(_) => {}
            }
        }
        tally.stray = held.keys().filter(|device| !sets.contains(**device)).count() as u64;
        tally
    }

    /// Queries all devices about registers that looked wrong, and counts the faults that remain.
    async fn recount(&mut self, keys: &[RegisterKey]) {
        self.wait().await;
        let cluster = self.cluster;
        let mut held: Vec<HeldOrders> = vec![HeldOrders::new(); keys.len()];
        for device in cluster.index_devices() {
            if self.silent.contains(&device) {
                continue;
            }
            let reply = async { in_time(cluster.node(device)?.holdings(device, keys)).await }.await;
            let Ok(holdings) = reply else {
                self.silent.insert(device);
                continue;
            };
            for (held, Holding { held: entry, .. }) in held.iter_mut().zip(holdings) {
                if let Some((order, _)) = entry {
                    held.insert(device, order);
                }
            }
        }
        for (key, held) in keys.iter().zip(&held) {
            let tally = if held.is_empty() {
                KindCounts::default()
            } else {
                self.count_register(key, held)
            };
            if tally.is_clean() {
                continue;
            }
            let KindCounts { missing, older, stray, .. } = tally;
            let total = &mut self.report.registers;
            total.missing += missing;
            total.older += older;
            total.stray += stray;
            self.found(|| {
                let holders: Vec<String> = held.keys().map(ToString::to_string).collect();
                format!(
                    "{key:?}: {missing} missing, {older} older, {stray} stray; on {}",
                    holders.join(" ")
                )
            });
        }
    }
}

//! Comparison of an extent's copies on its primaries.
//!
//! ```text
//! a page of a device's extents ──its first primary is this device──▶ records of the other primaries
//!                                                                      equal │ noted, reported, kept
//! ```
//!
//! Other workers compare which extents the devices have, and the audit compares a copy with its own record. So a
//! primary that has other whole bytes than the others, as a worker of an early release could store them, shows in the
//! records alone. They are compared by length and BLAKE3. Nothing is deleted: only the manifest knows which of two
//! contents is right.
//!
//! Fragments of coded extents are not compared. Each has one home, and neither the records of other devices nor the
//! manifest know its bytes.

use std::collections::BTreeMap;

use futures::StreamExt;
use martlet_protocol::backend::Sought;
use martlet_protocol::extent::{ExtentRecord, ExtentRef};
use martlet_protocol::{BackendExt, DeviceId, ExtentId, PolicyId, Result};

use crate::cluster::{StepTopology, in_time};
use crate::cursors::Cursors;
use crate::replicate::agreement::agreement_of_others;
use crate::replicate::required_devices::RequiredDevices;

/// Extents of a page.
const PAGE: usize = 1024;
/// Bytes that a listed extent counts for the audit's rate: more than its records on three devices.
const RECORD_BYTES: u64 = 1024;
/// Differing extents that are remembered. A further one is logged, and found again by the next pass.
const KNOWN_MAX: usize = 1000;
/// Interval at which remembered extents are compared again.
const AGAIN_MS: u64 = 60 * 60 * 1000;
/// Devices queried concurrently.
const AT_ONCE: usize = 16;
/// Name under which remembered extents are stored.
const NAME: &str = "audit-differing";

/// Outcome of the comparison of a page.
#[derive(Debug, Default)]
pub(super) struct ComparedPage {
    /// Bytes of the records, for the rate.
    pub(super) bytes: u64,
    /// Extents of which a primary didn't answer.
    pub(super) unanswered: u64,
    /// Extents with different bytes on two primaries.
    pub(super) differing: Vec<(ExtentId, PolicyId)>,
    /// Last extent of the page; none at the end of the device.
    pub(super) next: Option<ExtentId>,
}

/// Compares the copies of the next extents of a device, of those whose first primary it is.
///
/// # Errors
/// If the device doesn't answer. Silence of another primary is counted.
pub(super) async fn compare(
    cluster: &StepTopology,
    device: DeviceId,
    after: Option<ExtentId>,
) -> Result<ComparedPage> {
    let page = in_time(cluster.node(device)?.list_extents(device, after, PAGE)).await?;
    let next = page.last().map(|record| record.extent.id).filter(|_| page.len() >= PAGE);
    let places = RequiredDevices::of(cluster);
    let is_first = |record: &&ExtentRecord| {
        let primaries = places.primaries(record);
        primaries.len() > 1 && primaries.first() == Some(&device)
    };
    let records: Vec<&ExtentRecord> = page.iter().filter(is_first).collect();
    let agreed = agreement_of_others(&places, device, &records).await;
    let bytes = page.len() as u64 * RECORD_BYTES;
    let mut compared = ComparedPage { bytes, next, ..ComparedPage::default() };
    for (record, agreed) in records.into_iter().zip(agreed) {
        compared.unanswered += u64::from(agreed.is_silent);
        if agreed.differs {
            let (extent, owner) = (record.extent.id, &record.owner);
            tracing::error!(%extent, bucket = %owner.bucket, key = %owner.key, "the copies of an extent differ");
            compared.differing.push((record.extent.id, record.layout.policy));
        }
    }
    Ok(compared)
}

/// Extents whose copies differ, as far as is known.
#[derive(Debug, Default)]
pub(super) struct DifferingExtents {
    known: BTreeMap<ExtentId, PolicyId>,
    /// Time of the last comparison, in milliseconds since 1970.
    compared_ms: u64,
}

impl DifferingExtents {
    /// Loads the extents that were saved; those that are invalid count as none.
    pub(super) fn load(cursors: &dyn Cursors) -> Self {
        let one = |word: &str| {
            let (policy, id) = word.split_once(':')?;
            Some((id.parse().ok()?, PolicyId(policy.parse().ok()?)))
        };
        let saved = cursors.load(NAME).unwrap_or_default();
        Self { known: saved.split(' ').filter_map(one).collect(), compared_ms: 0 }
    }

    /// Saves the extents for [`Self::load`].
    pub(super) fn save(&self, cursors: &dyn Cursors) {
        let words = self.known.iter().map(|(id, policy)| format!("{}:{id}", policy.0));
        cursors.save(NAME, &words.collect::<Vec<_>>().join(" "));
    }

    /// Returns their number, at most 1,000.
    pub(super) fn count(&self) -> u64 {
        self.known.len() as u64
    }

    /// Remembers extents.
    pub(super) fn note(&mut self, differing: Vec<(ExtentId, PolicyId)>) {
        for (id, policy) in differing {
            if self.known.len() < KNOWN_MAX {
                self.known.insert(id, policy);
            }
        }
    }

    /// Compares the extents again, once an hour, and forgets those of which all primaries answer and no two differ.
    pub(super) async fn compare_again(&mut self, cluster: &StepTopology, now_ms: u64) {
        if self.known.is_empty() || now_ms < self.compared_ms.saturating_add(AGAIN_MS) {
            return;
        }
        self.compared_ms = now_ms;
        for id in equal_ones(cluster, &self.known).await {
            self.known.remove(&id);
            tracing::info!(extent = %id, "the copies of an extent don't differ any more");
        }
    }
}

/// Returns those of some extents of which all primaries answer and no two differ.
async fn equal_ones(
    cluster: &StepTopology,
    extents: &BTreeMap<ExtentId, PolicyId>,
) -> Vec<ExtentId> {
    let mut queries: BTreeMap<DeviceId, Vec<ExtentId>> = BTreeMap::new();
    // The copies of each extent; none if a primary is not known or silent.
    let mut copies: BTreeMap<ExtentId, Option<Vec<ExtentRef>>> = BTreeMap::new();
    for (id, policy) in extents {
        let ring = cluster.data(*policy).ok();
        copies.insert(*id, ring.map(|_| Vec::new()));
        for primary in ring.into_iter().flat_map(|it| it.primaries(it.partition(id.placement()))) {
            queries.entry(primary).or_default().push(*id);
        }
    }
    let calls = queries.into_iter().map(|(device, ids)| async move {
        let sought = async { in_time(cluster.node(device)?.seek_extents(device, &ids)).await };
        let sought = sought.await.unwrap_or_default();
        (ids, sought)
    });
    let calls: Vec<_> = calls.collect();
    let mut calls = futures::stream::iter(calls).buffer_unordered(AT_ONCE);
    while let Some((ids, sought)) = calls.next().await {
        let mut sought = sought.into_iter();
        for id in ids {
            let Some(held) = copies.get_mut(&id) else { continue };
            match (sought.next(), held.as_mut()) {
                (Some(Sought::Here(record)), Some(held)) => held.push(record.extent),
                (Some(_), _) => {}
                (None, _) => *held = None,
            }
        }
    }
    let is_equal = |held: &Option<Vec<ExtentRef>>| {
        held.as_ref().is_some_and(|held| held.windows(2).all(|two| two[0] == two[1]))
    };
    copies.into_iter().filter(|(_, held)| is_equal(held)).map(|(id, _)| id).collect()
}

#[cfg(test)]
mod tests;

//! Check of a page of a device's fragments: what to rebuild, delete, or report.

use std::collections::{HashSet, VecDeque};

use martlet_erasure::FragmentIndex;
use martlet_protocol::extent::ExtentRecord;
use martlet_protocol::{Clock, ExtentId, Result};
use parking_lot::Mutex;

use super::build::Rebuild;
use super::holders::{DeviceFragments, items, query_all, query_homes, suspects};
use super::plan::{FragmentPresence, StripeAction};
use super::silence::Silence;
use crate::cluster::StepTopology;
use crate::needed_extents::NeedCheck;
use crate::pages::PassPlace;
use crate::replicate::delete_marks::{BucketStates, check_marks, is_wanted};
use crate::sweep::list_buckets;
use crate::worker::StepProgress;

/// Device that checks, with time and turn.
#[derive(Clone, Copy)]
pub(super) struct PageCheck<'a> {
    pub(super) at: PassPlace<'a>,
    /// Birth time from which on extents are left to their writers.
    pub(super) young_ms: u64,
    pub(super) now_ms: u64,
    pub(super) clock: &'a dyn Clock,
}

impl PageCheck<'_> {
    /// Returns the rebuilds of extents of which the device has these fragments.
    pub(super) async fn jobs(
        &self,
        records: Vec<ExtentRecord>,
        silence: &Mutex<Silence>,
        progress: &mut StepProgress,
    ) -> Result<VecDeque<Rebuild>> {
        let (items, unknown) = items(self.at.cluster, records);
        progress.kept += unknown;
        let mut items = suspects(self.at.cluster, items).await;
        query_homes(self.at.cluster, &mut items).await;
        silence.lock().record(items.iter_mut().flat_map(|item| &mut item.seen), self.now_ms);
        items.retain(|item| {
            let is_well = matches!(self.action(item), StripeAction::Nothing | StripeAction::Leave);
            let is_young = item.records.iter().any(|record| record.birth_ms >= self.young_ms);
            progress.kept += u64::from(is_young && !is_well);
            !is_well && !is_young
        });
        self.search(&mut items).await;
        let items = self.decide(items, progress).await?;
        let (mut jobs, mut lost) = (VecDeque::new(), Vec::new());
        for item in items {
            match self.action(&item) {
                StripeAction::Nothing | StripeAction::Leave => {}
                StripeAction::Judge | StripeAction::Search | StripeAction::Wait => {
                    progress.kept += 1;
                }
                StripeAction::Lost => lost.push(item),
                StripeAction::Build(those) => jobs.extend(self.job(item, those)),
            }
        }
        progress.kept += report_lost(self.at.cluster, &lost).await;
        Ok(jobs)
    }

    fn action(&self, item: &DeviceFragments) -> StripeAction {
        item.action(self.at.device, self.at.turn)
    }

    fn job(&self, mut item: DeviceFragments, lost: Vec<FragmentIndex>) -> Option<Rebuild> {
        let mut sources = item.sources(self.at.device);
        // The holder of a late fragment is busy with copies.
        sources.retain(|(fragment, _)| !lost.contains(fragment));
        Some(Rebuild { record: item.records.pop()?, coded: item.coded, lost, sources })
    }

    /// Queries all devices about fragments missing at home.
    async fn search(&self, items: &mut [DeviceFragments]) {
        let mut queried: Vec<&mut DeviceFragments> =
            items.iter_mut().filter(|item| self.action(item) == StripeAction::Search).collect();
        if !queried.is_empty() {
            query_all(self.at.cluster, &mut queried).await;
        }
    }

    /// Deletes extents that were deleted elsewhere and are unneeded; returns the remaining items.
    /// Needed extents are repaired: devices with a delete mark don't have their fragments.
    async fn decide(
        &self,
        items: Vec<DeviceFragments>,
        progress: &mut StepProgress,
    ) -> Result<Vec<DeviceFragments>> {
        let is_judged = |item: &DeviceFragments| self.action(item) == StripeAction::Judge;
        let (judged, mut rest): (Vec<DeviceFragments>, Vec<DeviceFragments>) =
            items.into_iter().partition(is_judged);
        let records = judged.iter().flat_map(|item| item.records.clone()).collect();
        let PassPlace { cluster, device, .. } = self.at;
        let wanted = check_marks(cluster, device, records, self.clock, progress).await?;
        let wanted: HashSet<ExtentId> = wanted.iter().map(ExtentRecord::named).collect();
        let is_wanted = |item: &DeviceFragments| wanted.contains(&item.coded.whole);
        let mut stay: Vec<DeviceFragments> = judged.into_iter().filter(is_wanted).collect();
        let forget = |stay: &mut Vec<DeviceFragments>| {
            stay.iter_mut()
                .flat_map(|item| &mut item.seen)
                .for_each(FragmentPresence::forget_deleted);
        };
        forget(&mut stay);
        self.search(&mut stay).await;
        forget(&mut stay);
        rest.extend(stay);
        Ok(rest)
    }
}

/// Logs extents that can't be rebuilt, and returns their number; excludes extents that no entry
/// names.
async fn report_lost(cluster: &StepTopology, lost: &[DeviceFragments]) -> u64 {
    if lost.is_empty() {
        return 0;
    }
    let buckets = match list_buckets(cluster).await {
        Ok(buckets) => buckets,
        Err(error) => {
            tracing::debug!(%error, "could not check the entries of lost extents");
            return lost.len() as u64;
        }
    };
    let records = lost.iter().filter_map(|item| item.records.first());
    let buckets = BucketStates::of(cluster, buckets, records).await;
    let (mut wanted, mut reported) = (NeedCheck::new(cluster), 0);
    for item in lost {
        let Some(record) = item.records.first() else { continue };
        match is_wanted(&buckets, &mut wanted, record).await {
            Ok(false) => continue,
            Ok(true) => {
                let extent = item.coded.whole;
                tracing::error!(%extent, "an extent is lost: too few fragments are left");
            }
            Err(error) => {
                let extent = item.coded.whole;
                tracing::debug!(%extent, %error, "could not check the entry of an extent");
            }
        }
        reported += 1;
    }
    reported
}

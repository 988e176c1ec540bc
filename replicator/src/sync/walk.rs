//! The walk over the registers of a device that syncs and of its peers, side by side.
//!
//! Every device tells its registers in the same order, a page at a time. What lies up to the lowest
//! end of the pages that were full is complete; the rest comes with the next page. A register that a
//! peer's page leaves out, that peer does not hold.

use std::collections::{BTreeMap, HashMap};

use futures::future::try_join_all;
use futures::{StreamExt, TryStreamExt};
use martlet_protocol::backend::{RegisterView, Want, WriteReply};
use martlet_protocol::{DeviceId, Error, RegisterKey, Result, Stamp, StampSource};

use super::Session;
use crate::cluster::{Cluster, in_time};
use crate::identity::{Candidate, Voters, newest, settle};

/// Registers asked for at a time.
const PAGE: usize = 256;
/// Registers that are copied at once.
const AT_ONCE: usize = 16;

/// Registers that belong on the device, and what everyone holds of them.
pub(super) struct Page {
    pub(super) registers: BTreeMap<RegisterKey, HashMap<DeviceId, RegisterView>>,
    /// Where the next page begins; none when this was the last.
    pub(super) horizon: Option<RegisterKey>,
}

/// What was found of one register.
enum Found {
    /// Nothing was missing, or nothing that the votes must wait for.
    Complete,
    /// Something from below the floor was missing, and was copied.
    Missing,
}

impl Session {
    /// The next page.
    pub(super) async fn page(&self, cluster: &Cluster) -> Result<Page> {
        let after = self.after.as_ref();
        let asked = self.peers.keys().chain([&self.device]).map(|device| async move {
            let node = cluster.node(*device)?;
            let page = in_time(node.registers(*device, after, PAGE)).await?;
            Ok::<_, Error>((*device, page))
        });
        let pages = try_join_all(asked).await?;
        let full = pages.iter().filter(|(_, page)| page.len() >= PAGE);
        let horizon = full.filter_map(|(_, page)| page.last()).map(|(key, _)| key).min().cloned();
        let mut registers: BTreeMap<RegisterKey, HashMap<DeviceId, RegisterView>> = BTreeMap::new();
        for (device, page) in pages {
            let within = page
                .into_iter()
                .take_while(|(key, _)| horizon.as_ref().is_none_or(|horizon| key <= horizon));
            for (key, view) in within {
                if cluster.holders(key.placement()).primaries.contains(&self.device) {
                    registers.entry(key).or_default().insert(device, view);
                }
            }
        }
        Ok(Page { registers, horizon })
    }

    /// Copies what is missing of a page: how much of it was from below the floor, and the highest
    /// promise that was met.
    pub(super) async fn copy(
        &self,
        cluster: &Cluster,
        stamps: &StampSource,
        page: &Page,
    ) -> Result<(u64, Stamp)> {
        let views = page.registers.values().flat_map(HashMap::values);
        let promise = views.map(|view| view.promise).max().unwrap_or_default();
        let mut copies = Vec::with_capacity(page.registers.len());
        for (key, views) in &page.registers {
            copies.push(self.copy_one(cluster, stamps, key, views));
        }
        let found: Vec<Found> =
            futures::stream::iter(copies).buffer_unordered(AT_ONCE).try_collect().await?;
        let missing = found.iter().filter(|found| matches!(found, Found::Missing)).count();
        Ok((missing as u64, promise))
    }

    async fn copy_one(
        &self,
        cluster: &Cluster,
        stamps: &StampSource,
        key: &RegisterKey,
        views: &HashMap<DeviceId, RegisterView>,
    ) -> Result<Found> {
        let all = cluster.holders(key.placement());
        let is_peer = |id: &DeviceId| *id != self.device && self.peers.contains_key(id);
        let peers: Vec<DeviceId> = all.primaries.iter().copied().filter(is_peer).collect();
        let of = |id: &DeviceId| views.get(id).cloned().unwrap_or_default();
        let mut theirs: Vec<RegisterView> = peers.iter().map(of).collect();
        if !self.is_settled(&theirs) {
            // Pages are of different moments: a write may just have passed by.
            theirs = read_all(cluster, key, &peers).await?;
        }
        let voters = Voters { devices: &peers, quorum: all.quorum() };
        let mut best = merge(theirs.clone());
        let was_settled = self.is_settled(&theirs);
        if !was_settled {
            best = settle(cluster, stamps, key, voters, best, self.promise).await?;
        }
        let Some(mut best) = best else { return Ok(Found::Complete) };
        let mine = of(&self.device).entry.map(|entry| entry.order);
        if mine >= Some(best.entry.order) {
            return Ok(Found::Complete);
        }
        let is_old = best.entry.order < self.floor || !was_settled;
        if let WriteReply::Behind(floor) = self.bring(cluster, key, &best).await? {
            // A session that ended early has left its floor behind: the order rises above it.
            let above = floor.max(self.promise);
            let settled = settle(cluster, stamps, key, voters, Some(best), above).await?;
            best = settled.ok_or_else(|| Error::internal("a write that is known was not found"))?;
            self.bring(cluster, key, &best).await?;
        }
        Ok(if is_old { Found::Missing } else { Found::Complete })
    }

    /// Whether the peers agree, or differ only in what was written above the floor: that is on its
    /// way by itself, through quorums of those that remember.
    fn is_settled(&self, theirs: &[RegisterView]) -> bool {
        let held = |view: &RegisterView| view.entry.as_ref().map(|it| (it.order, it.write_id));
        let first = theirs.first().and_then(held);
        let newest = theirs.iter().filter_map(held).max();
        theirs.iter().all(|view| held(view) == first)
            || newest.is_some_and(|(order, _)| order >= self.floor)
    }

    async fn bring(
        &self,
        cluster: &Cluster,
        key: &RegisterKey,
        candidate: &Candidate,
    ) -> Result<WriteReply> {
        let node = cluster.node(self.device)?;
        in_time(node.write(self.device, candidate.repair(key))).await
    }
}

/// The newest of what is held.
fn merge(views: Vec<RegisterView>) -> Option<Candidate> {
    views.into_iter().map(Candidate::of).fold(None, newest)
}

async fn read_all(
    cluster: &Cluster,
    key: &RegisterKey,
    peers: &[DeviceId],
) -> Result<Vec<RegisterView>> {
    let reads = peers.iter().map(|peer| async move {
        in_time(cluster.node(*peer)?.read(*peer, key, Want::EntryAndInline)).await
    });
    try_join_all(reads).await
}

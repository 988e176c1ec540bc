//! Queries and commands to devices about tombstones.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use futures::StreamExt;
use futures::future::{join_all, try_join_all};
use martlet_protocol::backend::{Holding, RegisterDrop, StrayCondition};
use martlet_protocol::{BackendExt, DeviceId, Error, RegisterKey, Result, Stamp};

use super::decision::{CollectDecision, TombstoneCase};
use crate::cluster::{StepTopology, in_time};

/// Devices that are queried at a time.
pub(super) const DEVICES_AT_ONCE: usize = 256;
/// Most registers of a page: as many as one request asks a device about.
pub(super) const PAGE: usize = 512;
/// Most bytes of a page's keys, unless one key is longer: every device gets them, and
/// [`DEVICES_AT_ONCE`] requests are held at a time.
const PAGE_BYTES_MAX: usize = 96 * 1024;
/// Bytes of a key beside its name, at most.
const KEY_BYTES: usize = 32;

/// Tombstones of a page, with devices' holdings. Devices other than primaries that hold nothing are
/// left out: they have answered, and most of them hold nothing.
pub(super) struct Cases {
    pub(super) keys: Vec<(RegisterKey, Stamp)>,
    /// Holdings of each key.
    holdings: Vec<HashMap<DeviceId, Holding>>,
}

/// Drops of each device.
pub(super) type DeviceDrops = BTreeMap<DeviceId, Vec<RegisterDrop>>;

/// Divides registers into pages of bounded length, at least one register each.
pub(super) fn pages_of(due: Vec<(RegisterKey, Stamp)>) -> Vec<Vec<(RegisterKey, Stamp)>> {
    let (mut pages, mut bytes) = (Vec::<Vec<_>>::new(), 0);
    for item in due {
        let length = item.0.name.len() + KEY_BYTES;
        match pages.last_mut() {
            Some(page) if page.len() < PAGE && bytes + length <= PAGE_BYTES_MAX => {
                page.push(item);
                bytes += length;
            }
            _ => {
                pages.push(vec![item]);
                bytes = length;
            }
        }
    }
    pages
}

/// Returns the devices that keep hints.
///
/// # Errors
/// Unless every device of the index ring answers with its votes, at the highest known term.
pub(crate) async fn check_everyone(cluster: &StepTopology) -> Result<BTreeSet<DeviceId>> {
    let statuses = cluster.statuses().await;
    let term = cluster.term();
    for device in cluster.index_devices() {
        let answers = statuses.get(&device).is_some_and(|it| it.voting && it.term == term);
        if !answers {
            return Err(Error::unavailable(format!(
                "device {device} does not answer with votes at the highest term"
            )));
        }
    }
    Ok(statuses.values().filter(|it| it.hints > 0).map(|it| it.device).collect())
}

/// Marks tombstones on all of their primaries.
pub(super) async fn mark(cluster: &StepTopology, marks: &[(RegisterKey, Stamp)]) -> Result<()> {
    let mut by_device: BTreeMap<DeviceId, Vec<(RegisterKey, Stamp)>> = BTreeMap::new();
    for (key, order) in marks {
        for device in cluster.holders(key.placement()).primaries {
            by_device.entry(device).or_default().push((key.clone(), *order));
        }
    }
    let marked = by_device.iter().map(|(device, marks)| async move {
        in_time(cluster.node(*device)?.mark_collectable(*device, marks)).await
    });
    try_join_all(marked).await.map(drop)
}

/// Returns those of `marks` that every primary holds marked, by a new query. A mark is skipped where
/// a newer entry came, without an error.
pub(super) async fn confirmed(
    cluster: &StepTopology,
    marks: Vec<(RegisterKey, Stamp)>,
) -> Result<Vec<(RegisterKey, Stamp)>> {
    let Cases { keys, holdings } = Cases::query_some(cluster, marks, |_| BTreeSet::new()).await?;
    let is_marked = |((key, order), holdings): &((RegisterKey, Stamp), HashMap<_, Holding>)| {
        let has_mark = |device: &DeviceId| {
            holdings
                .get(device)
                .is_some_and(|it| it.collectable && it.held.is_some_and(|(held, _)| held == *order))
        };
        cluster.holders(key.placement()).primaries.iter().all(has_mark)
    };
    let marked = keys.into_iter().zip(holdings).filter(is_marked);
    Ok(marked.map(|(it, _)| it).collect())
}

/// Drops registers on their holders while the condition holds, on `last` at the end: a restarted worker
/// looks for leftovers there.
pub(super) async fn drop_registers(
    cluster: &StepTopology,
    last: DeviceId,
    mut drops: DeviceDrops,
    condition: StrayCondition,
) -> Result<()> {
    let of_last = drops.remove(&last);
    let drop = |(device, drops): (DeviceId, Vec<RegisterDrop>)| async move {
        in_time(cluster.node(device)?.drop_strays(device, &drops, condition)).await
    };
    join_all(drops.into_iter().map(drop)).await.into_iter().collect::<Result<()>>()?;
    match of_last {
        Some(drops) => drop((last, drops)).await,
        None => Ok(()),
    }
}

/// Returns a device's holdings of registers.
async fn holdings_of(
    cluster: &StepTopology,
    device: DeviceId,
    keys: &[RegisterKey],
) -> Result<Vec<Holding>> {
    let holdings = in_time(cluster.node(device)?.holdings(device, keys)).await?;
    if holdings.len() != keys.len() {
        return Err(Error::internal(format!("device {device} left out registers")));
    }
    Ok(holdings)
}

impl Cases {
    /// Queries every device of the index ring about these registers: each device once.
    pub(super) async fn query(
        cluster: &StepTopology,
        due: Vec<(RegisterKey, Stamp)>,
    ) -> Result<Self> {
        let keys: Vec<RegisterKey> = due.iter().map(|(key, _)| key.clone()).collect();
        let mut cases = UnansweredCases::new(cluster, due);
        let queries = cluster.index_devices().into_iter().map(|device| {
            let keys = &keys;
            async move { Ok::<_, Error>((device, holdings_of(cluster, device, keys).await?)) }
        });
        let queries: Vec<_> = queries.collect();
        let mut replies = futures::stream::iter(queries).buffer_unordered(DEVICES_AT_ONCE);
        while let Some(reply) = replies.next().await {
            let (device, holdings) = reply?;
            for (at, holding) in holdings.into_iter().enumerate() {
                cases.record(at, device, holding);
            }
        }
        drop(replies);
        Ok(cases.cases)
    }

    /// Queries the primaries of each register, and the devices that may hold it elsewhere: each
    /// device once, about its registers alone.
    pub(super) async fn query_some(
        cluster: &StepTopology,
        due: Vec<(RegisterKey, Stamp)>,
        elsewhere: impl Fn(&RegisterKey) -> BTreeSet<DeviceId>,
    ) -> Result<Self> {
        let mut cases = UnansweredCases::new(cluster, due);
        let mut asked: BTreeMap<DeviceId, Vec<usize>> = BTreeMap::new();
        for (at, (key, _)) in cases.cases.keys.iter().enumerate() {
            let primaries = cases.primaries[at].iter().copied();
            for device in primaries.chain(elsewhere(key)).collect::<BTreeSet<_>>() {
                asked.entry(device).or_default().push(at);
            }
        }
        let queries = asked.into_iter().map(|(device, of)| {
            let key = |at: &usize| cases.cases.keys[*at].0.clone();
            let keys: Vec<RegisterKey> = of.iter().map(key).collect();
            async move { Ok::<_, Error>((device, of, holdings_of(cluster, device, &keys).await?)) }
        });
        let queries: Vec<_> = queries.collect();
        let mut replies = futures::stream::iter(queries).buffer_unordered(DEVICES_AT_ONCE);
        while let Some(reply) = replies.next().await {
            let (device, of, holdings) = reply?;
            for (at, holding) in of.into_iter().zip(holdings) {
                cases.record(at, device, holding);
            }
        }
        drop(replies);
        Ok(cases.cases)
    }

    /// Asks the primaries again about each register that one of them lacks, and returns the cases
    /// without those that have changed. A device answers once, and another one later: an older copy
    /// may have moved from the later one to a primary that had nothing. A primary that holds the
    /// tombstone accepts nothing older.
    pub(super) async fn unmoved(self, cluster: &StepTopology) -> Result<Self> {
        let primaries = |key: &RegisterKey| cluster.holders(key.placement()).primaries;
        let lacks = |holdings: &HashMap<DeviceId, Holding>, primary: &DeviceId| {
            holdings.get(primary).is_none_or(|it| it.held.is_none())
        };
        let is_incomplete = |at: &usize| {
            let of = &self.holdings[*at];
            primaries(&self.keys[*at].0).iter().any(|primary| lacks(of, primary))
        };
        let incomplete: Vec<usize> = (0..self.keys.len()).filter(is_incomplete).collect();
        if incomplete.is_empty() {
            return Ok(self);
        }
        let asked = incomplete.iter().map(|at| self.keys[*at].clone()).collect();
        let again = Self::query_some(cluster, asked, |_| BTreeSet::new()).await?;
        let mut changed = BTreeSet::new();
        for (at, now) in incomplete.into_iter().zip(&again.holdings) {
            let before = &self.holdings[at];
            let is_same = |primary: &DeviceId| now.get(primary) == before.get(primary);
            if !primaries(&self.keys[at].0).iter().all(is_same) {
                changed.insert(at);
            }
        }
        let all = self.keys.into_iter().zip(self.holdings).enumerate();
        let unmoved = all.filter(|(at, _)| !changed.contains(at)).map(|(_, case)| case);
        let (keys, holdings) = unmoved.unzip();
        Ok(Self { keys, holdings })
    }

    /// Returns the drops of each device that holds something of these registers.
    fn by_holder(&self, drops: Vec<(usize, RegisterDrop)>) -> DeviceDrops {
        let mut all = DeviceDrops::new();
        for (at, drop) in drops {
            let holders = self.holdings[at].iter().filter(|(_, it)| **it != Holding::default());
            for (device, _) in holders {
                all.entry(*device).or_default().push(drop.clone());
            }
        }
        all
    }

    /// Returns the drops of registers that hold only promises from before a time, and the number of
    /// these registers.
    pub(super) fn spent_promises(
        &self,
        cluster: &StepTopology,
        before: Stamp,
    ) -> (DeviceDrops, u64) {
        let spent = |(at, (key, _)): (usize, &(RegisterKey, Stamp))| {
            let holders = cluster.holders(key.placement());
            let case = TombstoneCase {
                order: Stamp::ZERO,
                primaries: &holders.primaries,
                holdings: &self.holdings[at],
                before,
            };
            let up_to = case.spent_promise().filter(|_| !holders.in_transition)?;
            Some((at, RegisterDrop { key: key.clone(), up_to, collectable: false }))
        };
        let drops: Vec<_> = self.keys.iter().enumerate().filter_map(spent).collect();
        let count = drops.len() as u64;
        (self.by_holder(drops), count)
    }

    /// Returns the drops of marked tombstones, and the number of tombstones.
    pub(super) fn drops(&self, cluster: &StepTopology, before: Stamp) -> (DeviceDrops, u64) {
        let verdicts = self.verdicts(cluster, before).into_iter().enumerate();
        let drop = |(at, (key, _, verdict)): (usize, (RegisterKey, Stamp, CollectDecision))| {
            let CollectDecision::Drop { up_to } = verdict else { return None };
            Some((at, RegisterDrop { key, up_to, collectable: true }))
        };
        let drops: Vec<_> = verdicts.filter_map(drop).collect();
        let count = drops.len() as u64;
        (self.by_holder(drops), count)
    }

    /// Returns the verdict on each tombstone.
    pub(super) fn verdicts(
        &self,
        cluster: &StepTopology,
        before: Stamp,
    ) -> Vec<(RegisterKey, Stamp, CollectDecision)> {
        let verdict = |(at, (key, order)): (usize, &(RegisterKey, Stamp))| {
            let holders = cluster.holders(key.placement());
            let case = TombstoneCase {
                order: *order,
                primaries: &holders.primaries,
                holdings: &self.holdings[at],
                before,
            };
            let verdict =
                if holders.in_transition { CollectDecision::Keep } else { case.verdict() };
            (key.clone(), *order, verdict)
        };
        self.keys.iter().enumerate().map(verdict).collect()
    }
}

/// Cases whose answers are still coming.
struct UnansweredCases {
    cases: Cases,
    /// Primaries of each register.
    primaries: Vec<Vec<DeviceId>>,
}

impl UnansweredCases {
    fn new(cluster: &StepTopology, due: Vec<(RegisterKey, Stamp)>) -> Self {
        let primaries =
            |(key, _): &(RegisterKey, Stamp)| cluster.holders(key.placement()).primaries;
        let primaries = due.iter().map(primaries).collect();
        let holdings = vec![HashMap::new(); due.len()];
        Self { cases: Cases { keys: due, holdings }, primaries }
    }

    fn record(&mut self, at: usize, device: DeviceId, holding: Holding) {
        if holding != Holding::default() || self.primaries[at].contains(&device) {
            self.cases.holdings[at].insert(device, holding);
        }
    }
}

#[cfg(test)]
mod tests {
    use martlet_protocol::BucketId;

    use super::*;

    fn due(count: usize, length: usize) -> Vec<(RegisterKey, Stamp)> {
        let key = |at: usize| format!("{at:0length$}");
        let register = |at| (RegisterKey::object(BucketId([1; 16]), 16, &key(at)), Stamp::ZERO);
        (0..count).map(register).collect()
    }

    #[test]
    fn pages_are_bounded_by_keys_and_by_bytes_and_leave_nothing_out() {
        for (count, length, pages) in
            [(0, 9, 0), (1, 9, 1), (512, 9, 1), (513, 9, 2), (512, 1024, 6)]
        {
            let all = due(count, length);
            let divided = pages_of(all.clone());
            assert_eq!(divided.len(), pages, "{count} keys of {length} bytes");
            for page in &divided {
                let bytes: usize = page.iter().map(|(key, _)| key.name.len()).sum();
                assert!(page.len() <= PAGE && bytes <= PAGE_BYTES_MAX && !page.is_empty());
            }
            assert_eq!(divided.concat(), all);
        }
    }
}

//! Queries and commands to devices about tombstones.

use std::collections::{BTreeMap, HashMap};

use futures::StreamExt;
use futures::future::{join_all, try_join_all};
use martlet_protocol::backend::{Holding, RegisterDrop};
use martlet_protocol::{BackendExt, DeviceId, Error, RegisterKey, Result, Stamp};

use super::decision::{CollectDecision, TombstoneCase};
use crate::cluster::{StepTopology, in_time};

/// Devices that are queried at a time.
const DEVICES_AT_ONCE: usize = 256;

/// Tombstones of a page, with every device's holdings. Devices other than primaries that hold
/// nothing are left out: they have answered, and most of them hold nothing.
pub(super) struct Cases {
    pub(super) keys: Vec<(RegisterKey, Stamp)>,
    /// Holdings of each key.
    holdings: Vec<HashMap<DeviceId, Holding>>,
}

/// Returns an error unless every device of the index ring answers with its votes, at the highest
/// known term.
pub(super) async fn check_everyone(cluster: &StepTopology) -> Result<()> {
    let statuses = cluster.statuses().await;
    let term = cluster.term();
    for device in cluster.index_devices() {
        let answers = statuses.get(&device).is_some_and(|it| it.voting && it.term == term);
        if !answers {
            return Err(Error::unavailable(format!(
                "device {device} does not answer with votes: tombstones stay until then"
            )));
        }
    }
    Ok(())
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

/// Drops registers on all devices, on `last` at the end: a restarted worker looks for leftovers
/// there.
pub(super) async fn drop_registers(
    cluster: &StepTopology,
    last: DeviceId,
    drops: &[RegisterDrop],
) -> Result<()> {
    if drops.is_empty() {
        return Ok(());
    }
    let drop =
        |device| async move { in_time(cluster.node(device)?.drop_registers(device, drops)).await };
    let others = cluster.index_devices().into_iter().filter(|device| *device != last);
    join_all(others.map(drop)).await.into_iter().collect::<Result<()>>()?;
    drop(last).await
}

impl Cases {
    /// Queries every device of the index ring about these tombstones.
    pub(super) async fn query(
        cluster: &StepTopology,
        due: Vec<(RegisterKey, Stamp)>,
    ) -> Result<Self> {
        let keys: Vec<RegisterKey> = due.iter().map(|(key, _)| key.clone()).collect();
        let primaries = |key: &RegisterKey| cluster.holders(key.placement()).primaries;
        let primaries: Vec<Vec<DeviceId>> = keys.iter().map(primaries).collect();
        let queries = cluster.index_devices().into_iter().map(|device| {
            let keys = &keys;
            async move {
                let holdings = in_time(cluster.node(device)?.holdings(device, keys)).await?;
                if holdings.len() != keys.len() {
                    return Err(Error::internal("a device's reply is incomplete"));
                }
                Ok((device, holdings))
            }
        });
        let queries: Vec<_> = queries.collect();
        let mut replies = futures::stream::iter(queries).buffer_unordered(DEVICES_AT_ONCE);
        let mut all = vec![HashMap::new(); keys.len()];
        while let Some(reply) = replies.next().await {
            let (device, holdings) = reply?;
            for ((of_key, primaries), holding) in all.iter_mut().zip(&primaries).zip(holdings) {
                if holding != Holding::default() || primaries.contains(&device) {
                    of_key.insert(device, holding);
                }
            }
        }
        drop(replies);
        Ok(Self { keys: due, holdings: all })
    }

    /// Returns the drops of registers that hold only promises from before a time.
    pub(super) fn spent_promises(
        &self,
        cluster: &StepTopology,
        before: Stamp,
    ) -> Vec<RegisterDrop> {
        let spent = |(at, (key, _)): (usize, &(RegisterKey, Stamp))| {
            let holders = cluster.holders(key.placement());
            let case = TombstoneCase {
                order: Stamp::ZERO,
                primaries: &holders.primaries,
                holdings: &self.holdings[at],
                before,
            };
            let up_to = case.spent_promise().filter(|_| !holders.in_transition)?;
            Some(RegisterDrop { key: key.clone(), up_to, collectable: false })
        };
        self.keys.iter().enumerate().filter_map(spent).collect()
    }

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

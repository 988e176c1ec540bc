//! Strays: registers on devices that are no longer members of their partition. They are copied to
//! the members, and dropped once all members confirm that they hold them.
//!
//! Conditions of a drop: every device that decides at the current term holds this order or a newer
//! one. And the dropping device has recorded that term, so that no quorum of an older term can rely
//! on it (rules P1, P3). The device compares its term again in the step that drops: a drop that comes
//! late has no effect on a device that has become a member again.
//!
//! Refusals and statuses raise the known term above the ring, until the next ring comes. By that
//! ring the device may be a member. So a drop names a term of the ring alone, and nothing is copied
//! or dropped while the process is behind.

use futures::StreamExt;
use futures::future::{join, join_all};
use martlet_protocol::backend::{Holding, RegisterDrop, RegisterView, StrayCondition, Walk, Want};
use martlet_protocol::{BackendExt, DeviceId, Error, Partition, RegisterKey, Result, Stamp, Term};

use super::repair::RegisterRepair;
use crate::cluster::in_time;
use crate::worker::StepProgress;

/// Registers processed at a time.
const PAGE: usize = 256;
const AT_ONCE: usize = 16;
/// Maximum age in milliseconds of replies that justify a drop.
const WORD_AGE_MS_MAX: u64 = 60_000;

/// Outcome of a page of a partition's strays.
#[derive(Debug, Default)]
pub(super) struct EvictionOutcome {
    pub(super) progress: StepProgress,
    /// Start of the next page, if any.
    pub(super) next: Option<RegisterKey>,
    /// Members that did not answer: nothing of the page was dropped.
    pub(super) silent: Vec<DeviceId>,
}

/// Processes a page of a partition's strays on a device. Members that are `out` are not queried.
/// Members that answer get missing registers, and nothing is dropped. Nothing is done while the ring
/// lacks the change in progress.
///
/// # Errors
/// Errors of the device itself.
pub(super) async fn evict_misplaced(
    mender: &RegisterRepair<'_>,
    device: DeviceId,
    partition: Partition,
    after: Option<RegisterKey>,
    out: impl Fn(DeviceId) -> bool,
) -> Result<EvictionOutcome> {
    if mender.cluster.is_behind() {
        return Ok(EvictionOutcome::default());
    }
    // The term by which the device is no member: a drop names this one (rule P3), not a later one.
    let (ring, term) = (mender.cluster.index(), mender.cluster.named()?);
    let sets = ring.sets(partition, term);
    if sets.contains(device) {
        return Ok(EvictionOutcome::default());
    }
    let (mut silent, reachable): (Vec<DeviceId>, Vec<DeviceId>) =
        sets.members().partition(|member| out(*member));
    let walk = Walk { span: ring.span(partition), bin: None, want: Want::Entry };
    let node = mender.cluster.node(device)?;
    let page = in_time(node.walk(device, &walk, after.as_ref(), PAGE)).await?;
    let next = page.last().map(|(key, _)| key.clone()).filter(|_| page.len() >= PAGE);
    let keys: Vec<RegisterKey> = page.into_iter().map(|(key, _): (_, RegisterView)| key).collect();
    let mut progress = StepProgress { items: keys.len() as u64, ..StepProgress::default() };
    let held = PageHoldings::query_holdings(mender, device, &reachable, &keys).await?;
    progress.repaired = held.copy_to_members(mender, device, &keys).await;
    silent.extend(held.silent);
    if silent.is_empty() {
        let drops = evict(mender, device, term, &reachable, &keys).await?;
        progress.done = drops;
    }
    progress.kept = keys.len() as u64 - progress.done;
    Ok(EvictionOutcome { progress, next, silent })
}

/// Drops the registers that all members of `term` hold; returns their number.
async fn evict(
    mender: &RegisterRepair<'_>,
    device: DeviceId,
    term: Term,
    members: &[DeviceId],
    keys: &[RegisterKey],
) -> Result<u64> {
    let asked_ms = mender.clock.now_ms();
    let held = PageHoldings::query_holdings(mender, device, members, keys).await?;
    let drops = held.by_all(keys);
    if mender.clock.now_ms().saturating_sub(asked_ms) > WORD_AGE_MS_MAX {
        return Err(Error::unavailable("the members' replies are too old to delete strays"));
    }
    if !drops.is_empty() {
        let condition = StrayCondition::at(term, asked_ms);
        in_time(mender.cluster.node(device)?.drop_strays(device, &drops, condition)).await?;
    }
    Ok(drops.len() as u64)
}

/// Holdings of some registers on a device and on other devices.
struct PageHoldings {
    mine: Vec<Holding>,
    theirs: Vec<(DeviceId, Vec<Holding>)>,
    /// Other devices that did not answer.
    silent: Vec<DeviceId>,
}

impl PageHoldings {
    async fn query_holdings(
        mender: &RegisterRepair<'_>,
        device: DeviceId,
        members: &[DeviceId],
        keys: &[RegisterKey],
    ) -> Result<Self> {
        let holdings_of = |id: DeviceId| async move {
            let held = in_time(mender.cluster.node(id)?.holdings(id, keys)).await?;
            let all = (held.len() == keys.len()).then_some(held);
            all.ok_or_else(|| Error::internal(format!("device {id} left out registers")))
        };
        let others =
            join_all(members.iter().map(|id| async move { (*id, holdings_of(*id).await) }));
        let (mine, others) = join(holdings_of(device), others).await;
        let (mut theirs, mut silent) = (Vec::new(), Vec::new());
        for (id, held) in others {
            match held {
                Ok(held) => theirs.push((id, held)),
                Err(error) => {
                    tracing::debug!(device = %id, %error, "keeping strays: a member does not \
                                                           answer");
                    silent.push(id);
                }
            }
        }
        Ok(Self { mine: mine?, theirs, silent })
    }

    /// Copies the device's registers to every member with an older entry or none; returns the
    /// number of registers.
    async fn copy_to_members(
        &self,
        mender: &RegisterRepair<'_>,
        device: DeviceId,
        keys: &[RegisterKey],
    ) -> u64 {
        let mut ways = Vec::new();
        for (at, key) in keys.iter().enumerate() {
            for (member, holdings) in &self.theirs {
                if order(&holdings[at]) < order(&self.mine[at]) {
                    ways.push(async move { mender.repair(key, device, *member).await });
                }
            }
        }
        let ways = futures::stream::iter(ways).buffer_unordered(AT_ONCE);
        let brought = ways.map(|brought| u64::from(matches!(brought, Ok(true))));
        brought.collect::<Vec<_>>().await.into_iter().sum()
    }

    /// Returns drops of the registers that all members hold in the device's order or a newer one;
    /// none if a member did not answer.
    fn by_all(&self, keys: &[RegisterKey]) -> Vec<RegisterDrop> {
        let mut drops = Vec::new();
        for (at, key) in keys.iter().enumerate().filter(|_| self.silent.is_empty()) {
            let mine = order(&self.mine[at]);
            if self.theirs.iter().all(|(_, holdings)| order(&holdings[at]) >= mine) {
                let up_to = mine.unwrap_or_default().max(self.mine[at].promise);
                drops.push(RegisterDrop { key: key.clone(), up_to, collectable: false });
            }
        }
        drops
    }
}

fn order(holding: &Holding) -> Option<Stamp> {
    holding.held.map(|(order, _)| order)
}

#[cfg(test)]
mod tests {
    use martlet_protocol::{BucketId, Shard, WriteId};

    use super::*;

    fn holding(ms: Option<u64>) -> Holding {
        let held = ms.map(|ms| (Stamp::at_ms(ms), WriteId([1; 16])));
        Holding { held, promise: Stamp::ZERO, hint: None, collectable: false }
    }

    /// Number of drops of a stray of order 5 whose members hold these orders.
    fn drops(members: &[Option<u64>], silent: &[DeviceId]) -> usize {
        let key = RegisterKey::object(BucketId([1; 16]), 1, "k");
        assert_eq!(key.shard, Shard(0));
        let theirs = members.iter().map(|ms| (DeviceId(2), vec![holding(*ms)])).collect();
        let held = PageHoldings { mine: vec![holding(Some(5))], theirs, silent: silent.to_vec() };
        held.by_all(&[key]).len()
    }

    #[test]
    fn a_stray_is_dropped_only_once_every_member_holds_it_or_a_newer_entry() {
        assert_eq!(drops(&[Some(5), Some(6)], &[]), 1);
        for older in [Some(4), None] {
            assert_eq!(drops(&[Some(5), older], &[]), 0, "{older:?}");
            assert_eq!(drops(&[older, older], &[]), 0, "{older:?}");
        }
        assert_eq!(drops(&[Some(5), Some(6)], &[DeviceId(3)]), 0, "a member did not answer");
    }
}

//! Registers on devices that no longer have business with them: brought to those who should have
//! them, and let go once all of those say that they do.
//!
//! Before anything goes: every device that has a say at the term in force holds that order or a
//! newer one; and the device that lets go was told of that term, so that no quorum which goes by an
//! older one can count on it any more (rules P1, P3).

use futures::StreamExt;
use futures::future::try_join_all;
use martlet_protocol::backend::{Holding, LetGo, RegisterView, Walk, Want};
use martlet_protocol::{DeviceId, Error, Partition, RegisterKey, Result, Stamp};

use super::mend::Mender;
use crate::cluster::in_time;
use crate::worker::Progress;

/// Registers that are looked at at a time.
const PAGE: usize = 256;
const AT_ONCE: usize = 16;
/// What was said longer ago is no reason to let go.
const WORD_AGE_MS_MAX: u64 = 60_000;

/// Deals with a page of a partition's strays on a device; where the next begins, if there is more.
pub(super) async fn strays(
    mender: &Mender<'_>,
    device: DeviceId,
    partition: Partition,
    after: Option<RegisterKey>,
) -> Result<(Progress, Option<RegisterKey>)> {
    let ring = &mender.cluster.index;
    let sets = ring.sets(partition, mender.cluster.term.get());
    if sets.contains(device) {
        return Ok((Progress::default(), None));
    }
    let members: Vec<DeviceId> = sets.members().collect();
    let walk = Walk { span: ring.span(partition), bin: None, want: Want::Entry };
    let node = mender.cluster.node(device)?;
    let page = in_time(node.walk(device, &walk, after.as_ref(), PAGE)).await?;
    let next = page.last().map(|(key, _)| key.clone()).filter(|_| page.len() >= PAGE);
    let keys: Vec<RegisterKey> = page.into_iter().map(|(key, _): (_, RegisterView)| key).collect();
    let mut progress = Progress { items: keys.len() as u64, ..Progress::default() };
    progress.repaired = bring_to_members(mender, device, &members, &keys).await?;
    let asked_ms = mender.clock.now_ms();
    let drops = held_by_all(mender, device, &members, &keys).await?;
    progress.kept = (keys.len() - drops.len()) as u64;
    if mender.clock.now_ms().saturating_sub(asked_ms) > WORD_AGE_MS_MAX {
        return Err(Error::unavailable("what others said is too old to let go of anything"));
    }
    if !drops.is_empty() {
        in_time(node.drop_registers(device, &drops)).await?;
        progress.done = drops.len() as u64;
    }
    Ok((progress, next))
}

/// Brings what the device holds to every member that holds less; how many registers.
async fn bring_to_members(
    mender: &Mender<'_>,
    device: DeviceId,
    members: &[DeviceId],
    keys: &[RegisterKey],
) -> Result<u64> {
    let held = Held::ask(mender, device, members, keys).await?;
    let mut ways = Vec::new();
    for (at, key) in keys.iter().enumerate() {
        for (member, holdings) in members.iter().zip(&held.theirs) {
            if order(&holdings[at]) < order(&held.mine[at]) {
                ways.push(async move { mender.mend(key, device, *member).await });
            }
        }
    }
    let ways = futures::stream::iter(ways).buffer_unordered(AT_ONCE);
    let brought = ways.map(|brought| u64::from(matches!(brought, Ok(true))));
    Ok(brought.collect::<Vec<_>>().await.into_iter().sum())
}

/// Those registers that all members hold as new as the device does, or newer.
async fn held_by_all(
    mender: &Mender<'_>,
    device: DeviceId,
    members: &[DeviceId],
    keys: &[RegisterKey],
) -> Result<Vec<LetGo>> {
    let held = Held::ask(mender, device, members, keys).await?;
    let mut drops = Vec::new();
    for (at, key) in keys.iter().enumerate() {
        let mine = order(&held.mine[at]);
        if held.theirs.iter().all(|holdings| order(&holdings[at]) >= mine) {
            let up_to = mine.unwrap_or_default().max(held.mine[at].promise);
            drops.push(LetGo { key: key.clone(), up_to, collectable: false });
        }
    }
    Ok(drops)
}

/// What a device and others hold of some registers.
struct Held {
    mine: Vec<Holding>,
    theirs: Vec<Vec<Holding>>,
}

impl Held {
    async fn ask(
        mender: &Mender<'_>,
        device: DeviceId,
        members: &[DeviceId],
        keys: &[RegisterKey],
    ) -> Result<Self> {
        let asked = [device].iter().chain(members).copied().collect::<Vec<_>>();
        let asked = asked.into_iter().map(|id| async move {
            let held = in_time(mender.cluster.node(id)?.holdings(id, keys)).await?;
            let all = (held.len() == keys.len()).then_some(held);
            all.ok_or_else(|| Error::internal(format!("device {id} left out registers")))
        });
        let mut theirs = try_join_all(asked).await?;
        let mine = theirs.remove(0);
        Ok(Self { mine, theirs })
    }
}

fn order(holding: &Holding) -> Option<Stamp> {
    holding.held.map(|(order, _)| order)
}

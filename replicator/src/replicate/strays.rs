//! Registers on devices that no longer have business with them: brought to those who should have
//! them, and let go once all of those say that they do.
//!
//! Before anything goes: every device that has a say at the term in force holds that order or a
//! newer one; and the device that lets go was told of that term, so that no quorum which goes by an
//! older one can count on it any more (rules P1, P3).

use futures::StreamExt;
use futures::future::{join, join_all};
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

/// A page of a partition's strays, dealt with.
#[derive(Debug, Default)]
pub(super) struct Dealt {
    pub(super) progress: Progress,
    /// Where the next page begins, if there is more.
    pub(super) next: Option<RegisterKey>,
    /// The members that did not answer: nothing of the page was let go.
    pub(super) silent: Vec<DeviceId>,
}

/// Deals with a page of a partition's strays on a device. Members that are `out` are not asked: those
/// that answer get what they lack, and nothing is let go.
///
/// # Errors
/// Those of the device itself.
pub(super) async fn strays(
    mender: &Mender<'_>,
    (device, partition): (DeviceId, Partition),
    after: Option<RegisterKey>,
    out: impl Fn(DeviceId) -> bool,
) -> Result<Dealt> {
    let ring = &mender.cluster.index;
    let sets = ring.sets(partition, mender.cluster.term.get());
    if sets.contains(device) {
        return Ok(Dealt::default());
    }
    let (mut silent, asked): (Vec<DeviceId>, Vec<DeviceId>) =
        sets.members().partition(|member| out(*member));
    let walk = Walk { span: ring.span(partition), bin: None, want: Want::Entry };
    let node = mender.cluster.node(device)?;
    let page = in_time(node.walk(device, &walk, after.as_ref(), PAGE)).await?;
    let next = page.last().map(|(key, _)| key.clone()).filter(|_| page.len() >= PAGE);
    let keys: Vec<RegisterKey> = page.into_iter().map(|(key, _): (_, RegisterView)| key).collect();
    let mut progress = Progress { items: keys.len() as u64, ..Progress::default() };
    let held = Held::ask(mender, device, &asked, &keys).await?;
    progress.repaired = held.bring_to_members(mender, device, &keys).await;
    silent.extend(held.silent);
    if silent.is_empty() {
        let drops = let_go(mender, device, &asked, &keys).await?;
        progress.done = drops;
    }
    progress.kept = keys.len() as u64 - progress.done;
    Ok(Dealt { progress, next, silent })
}

/// Lets go of those registers that all members hold; how many they were.
async fn let_go(
    mender: &Mender<'_>,
    device: DeviceId,
    members: &[DeviceId],
    keys: &[RegisterKey],
) -> Result<u64> {
    let asked_ms = mender.clock.now_ms();
    let held = Held::ask(mender, device, members, keys).await?;
    let drops = held.by_all(keys);
    if mender.clock.now_ms().saturating_sub(asked_ms) > WORD_AGE_MS_MAX {
        return Err(Error::unavailable("what others said is too old to let go of anything"));
    }
    if !drops.is_empty() {
        in_time(mender.cluster.node(device)?.drop_registers(device, &drops)).await?;
    }
    Ok(drops.len() as u64)
}

/// What a device and others hold of some registers.
struct Held {
    mine: Vec<Holding>,
    theirs: Vec<(DeviceId, Vec<Holding>)>,
    /// The others that did not answer.
    silent: Vec<DeviceId>,
}

impl Held {
    async fn ask(
        mender: &Mender<'_>,
        device: DeviceId,
        members: &[DeviceId],
        keys: &[RegisterKey],
    ) -> Result<Self> {
        let ask = |id: DeviceId| async move {
            let held = in_time(mender.cluster.node(id)?.holdings(id, keys)).await?;
            let all = (held.len() == keys.len()).then_some(held);
            all.ok_or_else(|| Error::internal(format!("device {id} left out registers")))
        };
        let others = join_all(members.iter().map(|id| async move { (*id, ask(*id).await) }));
        let (mine, others) = join(ask(device), others).await;
        let (mut theirs, mut silent) = (Vec::new(), Vec::new());
        for (id, held) in others {
            match held {
                Ok(held) => theirs.push((id, held)),
                Err(error) => {
                    tracing::debug!(device = %id, %error, "strays stay: a member does not answer");
                    silent.push(id);
                }
            }
        }
        Ok(Self { mine: mine?, theirs, silent })
    }

    /// Brings what the device holds to every member that holds less; how many registers.
    async fn bring_to_members(
        &self,
        mender: &Mender<'_>,
        device: DeviceId,
        keys: &[RegisterKey],
    ) -> u64 {
        let mut ways = Vec::new();
        for (at, key) in keys.iter().enumerate() {
            for (member, holdings) in &self.theirs {
                if order(&holdings[at]) < order(&self.mine[at]) {
                    ways.push(async move { mender.mend(key, device, *member).await });
                }
            }
        }
        let ways = futures::stream::iter(ways).buffer_unordered(AT_ONCE);
        let brought = ways.map(|brought| u64::from(matches!(brought, Ok(true))));
        brought.collect::<Vec<_>>().await.into_iter().sum()
    }

    /// Those registers that all members hold as new as the device does, or newer; none where a member
    /// did not answer.
    fn by_all(&self, keys: &[RegisterKey]) -> Vec<LetGo> {
        let mut drops = Vec::new();
        for (at, key) in keys.iter().enumerate().filter(|_| self.silent.is_empty()) {
            let mine = order(&self.mine[at]);
            if self.theirs.iter().all(|(_, holdings)| order(&holdings[at]) >= mine) {
                let up_to = mine.unwrap_or_default().max(self.mine[at].promise);
                drops.push(LetGo { key: key.clone(), up_to, collectable: false });
            }
        }
        drops
    }
}

fn order(holding: &Holding) -> Option<Stamp> {
    holding.held.map(|(order, _)| order)
}

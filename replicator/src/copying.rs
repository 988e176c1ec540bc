//! Copies registers to a device that lacks them, from devices that hold them.
//!
//! `ranges` finds by sums the ranges of registers in which the device differs from its sources, and
//! reads their pages. A page holds the registers of each source up to the lowest end of the pages;
//! the rest comes with the next page. A source doesn't hold a register that its page leaves out.
//!
//! Registers on which the sources agree are copied unchanged. If sources differ, the newest write
//! may exist on few devices only. Copied unchanged, it could become a quorum's value, although a
//! ballot that passed it is still running. So an identity round settles the register first (rule
//! R6).

pub(crate) mod ranges;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use futures::future::try_join_all;
use futures::{StreamExt, TryStreamExt};
use martlet_protocol::backend::{RegisterView, Want, WriteReply};
use martlet_protocol::entry::Body;
use martlet_protocol::{
    BackendExt, BootInstant, DeviceId, Error, RegisterKey, Result, Stamp, StampSource, Term,
};

use crate::cluster::{StepTopology, in_time};
use crate::identity::{Candidate, ReadCandidate, newest, run_round};

/// Registers requested at a time.
pub(crate) const PAGE: usize = 256;
/// Registers copied concurrently: a whole page, so that many of them share a synced batch of the device.
/// Half of them wait while a batch syncs: 128 in 24 ms of a disk that turns are 5,000 a second.
const AT_ONCE: usize = PAGE;
/// Maximum age of a page. A worker that was suspended must not bring back registers that were
/// collected meanwhile (rule T1).
const PAGE_AGE_MAX: Duration = Duration::from_mins(2);

/// Registers of several devices up to a common end, with the devices' views.
pub(crate) struct RegisterPage {
    registers: BTreeMap<RegisterKey, HashMap<DeviceId, RegisterView>>,
    /// Start of the next page; none after the last page.
    pub(crate) horizon: Option<RegisterKey>,
    /// Sleep of the host counts.
    read_at: BootInstant,
    /// A time before the first page was read, in milliseconds since 1970.
    read_ms: u64,
}

/// A device that lacks registers, and its sources.
pub(crate) struct RegisterCopy<'a> {
    pub(crate) cluster: &'a StepTopology,
    pub(crate) stamps: &'a StampSource,
    pub(crate) device: DeviceId,
    /// All sources, without the device itself.
    pub(crate) sources: &'a [DeviceId],
    /// Sources whose pages were read: all of them, or one if their sums agreed before.
    pub(crate) read_from: &'a [DeviceId],
    /// Order from which on a register may have changed since the sums agreed. None if no register
    /// without a fresh write can change.
    pub(crate) changing_from: Option<Stamp>,
    /// Stamp from which on quorums deliver writes without this copy.
    pub(crate) fresh_from: Option<Stamp>,
    /// Lower bound of ballots.
    pub(crate) above: Stamp,
}

/// Outcome of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PageOutcome {
    /// Registers visited.
    pub(crate) items: u64,
    /// Registers copied.
    pub(crate) brought: u64,
    /// Copied registers that were written before `fresh_from`.
    pub(crate) missing: u64,
    /// Highest promise found.
    pub(crate) promise: Stamp,
}

/// Outcome for one register.
enum RegisterOutcome {
    /// The device holds its newest write.
    Complete,
    /// It was missing and was copied, although the copy was not needed.
    Fresh,
    /// It was missing and was copied.
    Missing,
}

impl RegisterPage {
    /// Merges pages of several devices with a common start, of [`PAGE`] registers at most; they
    /// were requested at `read_ms` or later.
    pub(crate) fn merge(
        read_ms: u64,
        pages: Vec<(DeviceId, Vec<(RegisterKey, RegisterView)>)>,
        belongs: impl Fn(&RegisterKey) -> bool,
    ) -> Self {
        // A page that isn't full was the last of its device.
        let full = pages.iter().filter(|(_, page)| page.len() >= PAGE);
        let horizon = full.filter_map(|(_, page)| page.last()).map(|(key, _)| key).min().cloned();
        let is_within = |key: &RegisterKey| horizon.as_ref().is_none_or(|horizon| key <= horizon);
        let mut registers: BTreeMap<RegisterKey, HashMap<DeviceId, RegisterView>> = BTreeMap::new();
        for (device, page) in pages {
            let within = page.into_iter().take_while(|(key, _)| is_within(key));
            for (key, view) in within.filter(|(key, _)| belongs(key)) {
                registers.entry(key).or_default().insert(device, view);
            }
        }
        Self { registers, horizon, read_at: BootInstant::now(), read_ms }
    }
}

impl RegisterCopy<'_> {
    /// Copies the registers of a page that the device lacks.
    pub(crate) async fn page(&self, page: &RegisterPage) -> Result<PageOutcome> {
        let views = page.registers.values().flat_map(HashMap::values);
        let promise = views.map(|view| view.promise).max().unwrap_or_default();
        let mut copies = Vec::with_capacity(page.registers.len());
        for (key, views) in &page.registers {
            copies.push(self.register(page, key, views));
        }
        let found: Vec<RegisterOutcome> =
            futures::stream::iter(copies).buffer_unordered(AT_ONCE).try_collect().await?;
        let count = |is: fn(&RegisterOutcome) -> bool| {
            found.iter().filter(|found| is(found)).count() as u64
        };
        Ok(PageOutcome {
            items: found.len() as u64,
            brought: count(|found| !matches!(found, RegisterOutcome::Complete)),
            missing: count(|found| matches!(found, RegisterOutcome::Missing)),
            promise,
        })
    }

    async fn register(
        &self,
        page: &RegisterPage,
        key: &RegisterKey,
        views: &HashMap<DeviceId, RegisterView>,
    ) -> Result<RegisterOutcome> {
        if page.read_at.elapsed() > PAGE_AGE_MAX {
            return Err(Error::unavailable("copying was interrupted for too long and restarts"));
        }
        let sets = self.cluster.sets(key.placement());
        let among = |devices: &[DeviceId]| -> Vec<DeviceId> {
            devices.iter().copied().filter(|id| sets.contains(*id)).collect()
        };
        // Devices that decide alone before the change; their writes remain valid after it.
        let deciding = |devices: &[DeviceId]| -> Vec<bool> {
            devices.iter().map(|id| sets.is_of(0, *id)).collect()
        };
        let of = |id: &DeviceId| views.get(id).cloned().unwrap_or_default();
        let read_from = among(self.read_from);
        let mut decide = deciding(&read_from);
        let mut theirs: Vec<RegisterView> = read_from.iter().map(of).collect();
        let read_ms = page.read_ms;
        if self.may_have_changed(&theirs) || !self.is_settled(&theirs, &decide) {
            // Pages were read at different times: a write may be in progress.
            let all = among(self.sources);
            decide = deciding(&all);
            theirs = self.read_all(key, &all).await?;
        }
        let was_settled = self.is_settled(&theirs, &decide);
        self.complete(key, &read_from, &mut theirs).await?;
        let mut best = theirs.into_iter().map(Candidate::of).fold(None, newest);
        if !was_settled {
            let known = best.map(|candidate| ReadCandidate { candidate, read_ms });
            best = run_round(self.cluster, self.stamps, key, known, self.above).await?;
        }
        let Some(mut best) = best else { return Ok(RegisterOutcome::Complete) };
        let mine = of(&self.device).entry.map(|entry| entry.order);
        if mine >= Some(best.entry.order) {
            return Ok(RegisterOutcome::Complete);
        }
        let is_fresh = was_settled && self.fresh_from.is_some_and(|from| best.entry.order >= from);
        if let WriteReply::Behind(floor) = self.copy_register(key, &best, read_ms).await? {
            // A promise of the device refuses the write: the order rises above the promise.
            let above = floor.max(self.above);
            let known = Some(ReadCandidate { candidate: best, read_ms });
            let settled = run_round(self.cluster, self.stamps, key, known, above).await?;
            best = settled.ok_or_else(|| Error::internal("a known write was not found"))?;
            self.copy_register(key, &best, read_ms).await?;
        }
        Ok(if is_fresh { RegisterOutcome::Fresh } else { RegisterOutcome::Missing })
    }

    /// Returns true if the deciding devices agree on the newest write. Also true if the newest
    /// write is fresh, because quorums deliver it.
    fn is_settled(&self, theirs: &[RegisterView], decide: &[bool]) -> bool {
        let held = |view: &RegisterView| view.entry.as_ref().map(|it| (it.order, it.write_id));
        let newest = theirs.iter().map(held).max().flatten();
        let mut deciding = theirs.iter().zip(decide).filter(|(_, decides)| **decides);
        deciding.all(|(view, _)| held(view) == newest)
            || self.fresh_from.is_some_and(|from| newest.is_some_and(|(order, _)| order >= from))
    }

    /// Returns true if only one source was read, and the others may hold another write by now.
    fn may_have_changed(&self, theirs: &[RegisterView]) -> bool {
        let orders = theirs.iter().filter_map(|view| view.entry.as_ref()).map(|it| it.order);
        self.read_from.len() < self.sources.len()
            && self.changing_from.is_some_and(|from| orders.max() >= Some(from))
    }

    /// Reads the inline bytes of the newest entry, if pages came without them.
    async fn complete(
        &self,
        key: &RegisterKey,
        from: &[DeviceId],
        theirs: &mut [RegisterView],
    ) -> Result<()> {
        let order = |view: &RegisterView| view.entry.as_ref().map(|it| it.order);
        let newest = theirs.iter().map(order).max().flatten();
        let is_newest = |view: &RegisterView| newest.is_some() && order(view) == newest;
        let lacks = |view: &RegisterView| {
            let body = view.entry.as_ref().and_then(|entry| entry.value.body());
            view.inline.is_none() && matches!(body, Some(Body::Inline { .. }))
        };
        let is_whole = theirs.iter().any(|view| is_newest(view) && !lacks(view));
        let at = theirs.iter().position(|view| is_newest(view) && lacks(view));
        let Some(at) = at.filter(|at| !is_whole && *at < from.len()) else { return Ok(()) };
        let node = self.cluster.node(from[at])?;
        theirs[at] = in_time(node.read(from[at], key, Want::EntryAndInline, Term::ANY)).await?;
        Ok(())
    }

    async fn copy_register(
        &self,
        key: &RegisterKey,
        candidate: &Candidate,
        read_ms: u64,
    ) -> Result<WriteReply> {
        let node = self.cluster.node(self.device)?;
        let repair = candidate.repair(key, read_ms, self.cluster.named()?);
        let reply = in_time(node.write(self.device, repair)).await;
        match reply.inspect_err(|error| self.cluster.learn(error))? {
            WriteReply::OutOfTime => Err(Error::unavailable("a page was copied too late")),
            reply => Ok(reply),
        }
    }

    async fn read_all(&self, key: &RegisterKey, from: &[DeviceId]) -> Result<Vec<RegisterView>> {
        let reads = from.iter().map(|id| async move {
            let node = self.cluster.node(*id)?;
            in_time(node.read(*id, key, Want::EntryAndInline, Term::ANY)).await
        });
        try_join_all(reads).await
    }
}

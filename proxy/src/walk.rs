//! Walks over registers in order of name, across all devices with shards of them.
//!
//! A walk reaches as far as needed (rule L1). At level `any` it reads one replica of each shard.
//! Otherwise it reads all members, and a quorum of each set must reply up to the end (rule P2). If
//! the level allows, it falls back to every device that replies, with its hints merged in. Failed
//! devices are left out. A walk that must reach further, or meets a newer term, starts again after
//! the last name that it returned.
//!
//! Devices pass over tombstones, so that a long run of them costs few bytes. A device that missed a
//! delete then shows a name that no quorum shows, and a register read settles it (rule R5). After
//! some such reads the walk begins anew with tombstones, which settle names in the merge. Without a
//! quorum nothing else hides a deleted name, so such a walk gets tombstones from the start.

mod meter;
mod paths;

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use bytes::Bytes;
use martlet_protocol::backend::{
    Detail, ListReply, ListRequest, ListStart, RowKinds, RowSelection, Want,
};
use martlet_protocol::key::index_placement;
use martlet_protocol::limits::LIST_EMPTY_ROWS_MAX;
use martlet_protocol::{
    AchievedLevel, BackendExt, DeviceId, Entry, Error, Level, RegisterKey, Result, Shard, Term,
};
use martlet_topology::Topology;
pub(crate) use meter::{Bound, Meter, SEEN_MAX};
pub(crate) use paths::{Paths, text};
use tokio::time::Instant;

use crate::consistency::ReadAfter;
use crate::context::RequestContext;
use crate::index::{Calls, RegisterClient, ReplicaSet, Role, call_in_time, weightier};
use crate::merge::{Fold, Merge, WantedPage};

/// Maximum number of entries on one page of a device.
const PAGE_MAX: usize = 2000;
/// Growth factor of a device's later pages. The first is sized for the expected names; more pages
/// are needed after tombstones or folded names, of which more may follow.
const PAGE_GROWTH: usize = 4;

/// Entries on the first page of names that a device had skipped. Most gaps are read for one deleted
/// object; later pages grow.
const GAP_PAGE: usize = 128;

/// Register reads after which a walk gets tombstones. One replica that missed many deletes would
/// cost a read for each name.
const SETTLED_MAX: usize = 32;

/// Minimum wait for late pages after those of a quorum.
const LAG_MIN: Duration = Duration::from_millis(2);

/// Set of devices that a walk reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// One member of each shard.
    One,
    /// All members; a quorum of each set must reply.
    Quorum,
    /// Members, previous holders and handoffs; as many as reply.
    Everyone,
}

struct DeviceListing {
    device: DeviceId,
    role: Role,
    request: ListRequest,
    is_out: bool,
}

/// A walk over registers, tombstones included.
pub(crate) struct Walk<'a> {
    registers: &'a RegisterClient,
    context: &'a RequestContext,
    paths: Paths,
    level: Level,
    reach: Reach,
    token: Option<ReadAfter>,
    replica_sets: Vec<(Shard, ReplicaSet)>,
    listings: Vec<DeviceListing>,
    merge: Merge,
    /// Start of the walk if it is begun again.
    resume: ListStart,
    /// Failed devices.
    out: HashSet<DeviceId>,
    expected: usize,
    /// Number of replicas that must agree on an entry; none if a shard is moving.
    quorum: Option<usize>,
    /// Rows that the caller needs, set before the first name. It may get tombstones besides.
    pub(crate) selection: RowSelection,
    /// Names that a register read had to settle.
    settled: usize,
    pub(crate) meter: Meter,
}

impl<'a> Walk<'a> {
    /// A walk from `start` whose caller expects to read about `expected` names.
    pub(crate) fn new(
        registers: &'a RegisterClient,
        context: &'a RequestContext,
        paths: &Paths,
        start: ListStart,
        expected: usize,
        level: Level,
    ) -> Result<Self> {
        let replica_sets = replica_sets(&registers.replicas.topology, paths)?;
        let is_alone = replica_sets.iter().all(|(_, replica_set)| replica_set.is_alone());
        let reach = if level == Level::Any && !is_alone { Reach::One } else { Reach::Quorum };
        let quorum = quorum(&replica_sets);
        let mut walk = Self {
            registers,
            context,
            paths: paths.clone(),
            level,
            reach,
            token: None,
            replica_sets,
            listings: Vec::new(),
            merge: Merge::new(0, ListStart::First, None),
            resume: start,
            out: HashSet::new(),
            expected,
            quorum,
            selection: RowSelection { detail: Detail::Whole, kinds: RowKinds::Live },
            settled: 0,
            meter: Meter::new(),
        };
        walk.begin(reach);
        Ok(walk)
    }

    /// Makes the walk return no state older than the token (rule A3). Must precede the first name.
    pub(crate) fn honour(&mut self, token: Option<ReadAfter>) {
        let Some(token) = token else { return };
        self.token = Some(token);
        self.begin(if token.quorum { Reach::Quorum } else { Reach::Everyone });
    }

    /// Position of a walk that pauses at its meter's bound: a walk that begins there returns what
    /// this one would. None for a walk that is over or goes on.
    pub(crate) fn paused(&self) -> Option<ListStart> {
        if self.meter.is_full() { self.merge.frontier() } else { None }
    }

    /// Starts the walk, or restarts it after the last name, on the devices of `reach`.
    fn begin(&mut self, reach: Reach) {
        self.reach = reach;
        let mut requested: BTreeMap<(DeviceId, Role), Vec<Shard>> = BTreeMap::new();
        for (shard, replica_set) in &self.replica_sets {
            let holders = if reach == Reach::One { 1 } else { usize::MAX };
            for device in replica_set.members().take(holders) {
                requested.entry((device, Role::Member)).or_default().push(*shard);
            }
            if reach == Reach::Everyone {
                for device in replica_set.previous() {
                    requested.entry((device, Role::Previous)).or_default().push(*shard);
                }
            }
        }
        let share = self.expected.saturating_mul(self.copies()) / requested.len().max(1);
        let slack = if requested.len() > 1 { share / 4 + 8 } else { 0 };
        let limit = share.saturating_add(slack).clamp(1, PAGE_MAX);
        if reach == Reach::Everyone {
            for device in self.registers.replicas.topology.cluster().index().devices() {
                requested.insert((device.id, Role::Handoff), self.paths.shards.clone());
            }
        }
        self.listings = requested
            .into_iter()
            .map(|((device, role), shards)| self.listing(device, role, shards, limit))
            .collect();
        let fold = self.paths.fold.clone().map(|delimiter| {
            let prefix = self.paths.prefix.clone();
            Fold { prefix, delimiter }
        });
        self.merge = Merge::new(self.listings.len(), self.resume.clone(), fold);
        for (at, listing) in self.listings.iter().enumerate() {
            if listing.is_out {
                self.merge.leave_out(at);
            }
        }
    }

    /// Number of the queried devices that hold each name.
    fn copies(&self) -> usize {
        match self.reach {
            Reach::One => 1,
            _ => self
                .replica_sets
                .iter()
                .map(|(_, replica_set)| replica_set.members().len())
                .max()
                .unwrap_or(1),
        }
    }

    fn listing(
        &self,
        device: DeviceId,
        role: Role,
        shards: Vec<Shard>,
        limit: usize,
    ) -> DeviceListing {
        let request = ListRequest {
            bucket: self.paths.bucket,
            shards,
            kind: self.paths.kind,
            prefix: self.paths.prefix.clone(),
            start: ListStart::First,
            limit,
            fold: None,
            term: self.term(),
        };
        DeviceListing { device, role, request, is_out: self.out.contains(&device) }
    }

    /// The next name and its entry; none at the end, or if the walk pauses.
    pub(crate) async fn next(&mut self) -> Result<Option<(Bytes, Entry)>> {
        loop {
            if self.merge.is_wanting() {
                if self.paused().is_some() {
                    return Ok(None);
                }
                self.refill().await?;
                continue;
            }
            let Some((name, entry)) = self.merge.next() else { return Ok(None) };
            self.resume = ListStart::After(name.clone());
            if self.reach == Reach::One || self.agrees_on(&name) {
                return Ok(Some((name, entry)));
            }
            if self.reach == Reach::Everyone {
                // No quorum confirms the entry.
                self.context.note(AchievedLevel::Degraded);
                return Ok(Some((name, self.selection.detail.of(entry))));
            }
            // Replicas differ: a register read settles the entry first (rule R5).
            let key = self.paths.register(name.clone());
            let read = self.registers.read(self.context, &key, Want::Entry, self.level).await?;
            self.settled += 1;
            if self.settled == SETTLED_MAX {
                self.begin(self.reach);
            }
            if let Some(entry) = read.entry {
                return Ok(Some((name, self.selection.detail.of(entry))));
            }
        }
    }

    /// Rows that devices return.
    fn rows(&self) -> RowSelection {
        let needs_tombstones = self.reach == Reach::Everyone || self.settled >= SETTLED_MAX;
        let kinds = if needs_tombstones { RowKinds::All } else { self.selection.kinds };
        RowSelection { kinds, ..self.selection }
    }

    /// Returns true if a quorum of each set agrees on the last name of the merge.
    fn agrees_on(&self, name: &Bytes) -> bool {
        let agreeing = self.merge.agreeing();
        if let Some(quorum) = self.quorum {
            return agreeing.len() >= quorum;
        }
        let RegisterKey { shard, .. } = self.paths.register(name.clone());
        let replica_set = self.replica_sets.iter().find(|(of, _)| *of == shard);
        let devices = agreeing.iter().map(|at| self.listings[*at].device);
        replica_set.is_some_and(|(_, replica_set)| replica_set.has_quorum(&devices))
    }

    /// The term of the walk, common to all its shards.
    fn term(&self) -> Term {
        self.replica_sets.first().map_or(Term::NONE, |(_, replica_set)| replica_set.term)
    }

    /// Skips all names below `floor`.
    pub(crate) fn skip_to(&mut self, floor: Bytes) {
        self.resume = ListStart::At(floor.clone());
        self.merge.skip_to(floor);
    }

    /// Requests the pages that the merge needs next.
    async fn refill(&mut self) -> Result<()> {
        let mut calls = Calls::new();
        let wanting = self.merge.wanting();
        for (at, WantedPage { start, folds }) in wanting.iter().cloned() {
            let request = &mut self.listings[at].request;
            request.start = start;
            if !folds && request.fold.is_some() {
                request.limit = GAP_PAGE;
            }
            request.fold = self.paths.fold.clone().filter(|_| folds);
            self.request_page(&mut calls, at);
        }
        let began = Instant::now();
        let mut deadline = began + self.registers.replicas.call_time();
        let mut silent: HashSet<usize> = wanting.iter().map(|(at, _)| *at).collect();
        let (mut failure, mut is_over) = (None, false);
        while let Ok(Some((device, role, reply))) =
            self.registers.replicas.reply(&mut calls, deadline).await
        {
            let Some(at) = self.listing_of(device, role) else { continue };
            silent.remove(&at);
            match reply {
                Ok(page) => self.take(at, page),
                Err(error) => {
                    is_over |= error.newer_term().is_some() && self.has_moved_on();
                    failure = Some(weightier(failure, error));
                    self.leave_out(at);
                }
            }
            if is_over {
                return self.restart_at_newer_term();
            }
            if !silent.is_empty() && self.can_do_without(&silent) {
                deadline = deadline.min(Instant::now() + self.lag(&silent, began.elapsed()));
            }
        }
        // A device that was merely not the first was no more silent than the others.
        if began.elapsed() >= self.registers.replicas.hedge_time() {
            self.registers.replicas.note_silence(&calls, began);
        }
        for at in silent {
            self.leave_out(at);
        }
        let is_behind = failure.as_ref().filter(|_| !self.has_quorums(&HashSet::new()));
        if let Some((_, replica_set)) = self.replica_sets.first()
            && self.registers.replicas.has_moved_on_after(replica_set, is_behind).await
        {
            return self.restart_at_newer_term();
        }
        self.reach_enough(failure)
    }

    fn has_moved_on(&self) -> bool {
        self.replica_sets
            .first()
            .is_some_and(|(_, replica_set)| self.registers.replicas.has_moved_on(replica_set))
    }

    /// Restarts the walk at the newer term.
    fn restart_at_newer_term(&mut self) -> Result<()> {
        self.replica_sets = replica_sets(&self.registers.replicas.topology, &self.paths)?;
        self.quorum = quorum(&self.replica_sets);
        self.out.clear();
        self.begin(self.reach);
        Ok(())
    }

    /// Wait for late devices that the walk can do without: as long as the others took, since one
    /// more reply settles many differences cheaply. Zero if all were silent lately.
    fn lag(&self, silent: &HashSet<usize>, took: Duration) -> Duration {
        let is_shunned =
            |at: &usize| self.registers.replicas.health.is_shunned(self.listings[*at].device);
        if silent.iter().all(is_shunned) {
            return Duration::ZERO;
        }
        took.clamp(LAG_MIN, self.registers.replicas.hedge_time().max(LAG_MIN))
    }

    fn listing_of(&self, device: DeviceId, role: Role) -> Option<usize> {
        self.listings.iter().position(|listing| listing.device == device && listing.role == role)
    }

    fn request_page(&self, calls: &mut Calls<ListReply>, at: usize) {
        let DeviceListing { device, role, request, .. } = &self.listings[at];
        let (device, role, request, rows) = (*device, *role, request.clone(), self.rows());
        let Some((_, replica_set)) = self.replica_sets.first() else { return };
        let most = self.registers.replicas.call_time();
        let call = call_in_time(&replica_set.cluster, device, most, move |node| async move {
            match role {
                Role::Member | Role::Previous => node.list_rows(device, &request, rows).await,
                Role::Handoff => node.list_hints(device, &request).await,
            }
        });
        calls.push(device, role, call);
    }

    fn take(&mut self, at: usize, reply: ListReply) {
        let limit = &mut self.listings[at].request.limit;
        let passed = if reply.position().is_some() { LIST_EMPTY_ROWS_MAX } else { 0 };
        self.meter.seen += reply.entries.len() + passed;
        *limit = limit.saturating_mul(PAGE_GROWTH).min(PAGE_MAX);
        if self.listings[at].role == Role::Handoff && !reply.entries.is_empty() {
            self.context.note(AchievedLevel::Degraded);
        }
        self.merge.refill(at, reply);
    }

    fn leave_out(&mut self, at: usize) {
        self.listings[at].is_out = true;
        self.out.insert(self.listings[at].device);
        self.merge.leave_out(at);
    }

    /// Returns true if the walk reaches enough devices without these sources.
    fn can_do_without(&self, silent: &HashSet<usize>) -> bool {
        self.reach == Reach::Quorum && self.has_quorums(silent)
    }

    /// Devices that have not failed, of the roles that `is_part` accepts, without the sources in
    /// `but`.
    fn there(&self, is_part: impl Fn(Role) -> bool, but: &HashSet<usize>) -> HashSet<DeviceId> {
        let listings = self.listings.iter().enumerate();
        let there = listings.filter(|(at, listing)| !listing.is_out && !but.contains(at));
        there
            .filter(|(_, listing)| is_part(listing.role))
            .map(|(_, listing)| listing.device)
            .collect()
    }

    /// Returns true if a quorum of each set of every shard has not failed, without the sources in
    /// `but`.
    fn has_quorums(&self, but: &HashSet<usize>) -> bool {
        let there = self.there(|role| role == Role::Member, but);
        let is_there = |device: &DeviceId| there.contains(device);
        self.replica_sets
            .iter()
            .all(|(_, replica_set)| replica_set.has_quorum(&replica_set.members().filter(is_there)))
    }

    /// Returns true if enough nodes reply for every shard, a member among them. A previous holder doesn't count: it may have
    /// dropped what it held. A read of one key takes more to report it absent: there a handoff needs a tombstone to count.
    fn has_responders(&self) -> bool {
        let members = self.there(|role| role == Role::Member, &HashSet::new());
        let handoffs = self.there(|role| role == Role::Handoff, &HashSet::new());
        self.replica_sets.iter().all(|(_, replica_set)| {
            let of_shard: Vec<_> =
                replica_set.members().filter(|device| members.contains(device)).collect();
            let responders = of_shard.iter().chain(&handoffs).copied();
            !of_shard.is_empty() && replica_set.has_nodes(&responders)
        })
    }

    /// Restarts the walk on more devices. If all of them have failed, evaluates the result at once.
    fn reach_further(&mut self, reach: Reach, failure: Option<Error>) -> Result<()> {
        self.begin(reach);
        if self.merge.is_wanting() { Ok(()) } else { self.reach_enough(failure) }
    }

    /// Goes on if enough devices have replied, extends the reach if allowed, or fails.
    fn reach_enough(&mut self, failure: Option<Error>) -> Result<()> {
        let none = || Error::unavailable("too few replicas of the index answer");
        let all_there = !self.listings.iter().any(|listing| listing.is_out);
        let has_quorums = || self.has_quorums(&HashSet::new());
        match self.reach {
            Reach::One if all_there => {
                self.context.note(AchievedLevel::Any);
                Ok(())
            }
            Reach::One => self.reach_further(Reach::Quorum, failure),
            Reach::Quorum if all_there || has_quorums() => Ok(()),
            // Members of a later term are reachable: other devices may not reply in their place.
            Reach::Quorum if failure.as_ref().is_some_and(|error| error.newer_term().is_some()) => {
                Err(failure.unwrap_or_else(none))
            }
            Reach::Quorum if self.level != Level::Strict && self.token.is_none() => {
                self.reach_further(Reach::Everyone, failure)
            }
            Reach::Everyone if self.token.is_some() && all_there => Ok(()),
            Reach::Everyone if self.token.is_none() && self.has_responders() => {
                self.context.note(AchievedLevel::Degraded);
                Ok(())
            }
            Reach::Quorum | Reach::Everyone => Err(failure.unwrap_or_else(none)),
        }
    }
}

/// Current devices of a walk's shards.
fn replica_sets(topology: &Topology, paths: &Paths) -> Result<Vec<(Shard, ReplicaSet)>> {
    let (cluster, term) = (topology.cluster(), topology.term());
    let replica_set = |shard: &Shard| {
        let placement = index_placement(paths.bucket, *shard);
        Ok((*shard, ReplicaSet::of(cluster.clone(), term, placement)?))
    };
    paths.shards.iter().map(replica_set).collect()
}

/// The largest quorum of any shard; none if a shard has two sets.
fn quorum(replica_sets: &[(Shard, ReplicaSet)]) -> Option<usize> {
    let quorum = |(_, replica_set): &(Shard, ReplicaSet)| {
        (!replica_set.sets.is_joint()).then(|| replica_set.sets.quorum(0))
    };
    replica_sets.iter().map(quorum).try_fold(1, |most, quorum| Some(most.max(quorum?)))
}

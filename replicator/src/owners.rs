//! Owners of extents, asked about in batches (rule X3).
//!
//! ```text
//! questions ──▶ hints, then parts and uploads of all deciding devices
//!           ──▶ hints, then objects and versions of all deciding devices
//!           ──▶ spilled manifests, each once ──▶ answers
//! ```
//!
//! The rules are those of [`needed_extents`](crate::needed_extents): bytes move from a part to its
//! upload, to the object, to a version, and from hints to registers; so an extent on its way is
//! seen at least once. A node gets one request for all of its devices and 512 claims.
//! It answers with the extents that its entries need, and with digests that show if devices agree.
//!
//! While a replica moves, old and new holders decide together. All of them must answer, and all old
//! holders must agree. A new holder that has joined must agree too. One that has not may lack
//! entries, and gets them from old holders; extents that it names are needed.
//!
//! Counts for a batch of b questions, n nodes and r deciding devices: one status for each node and
//! stage, or in five seconds where no uploads are in question, and at most n + b·r / 512 requests
//! for each of two stages.
//!
//! * `sightings`: devices that don't answer, and the extents that their hints may name.
//! * `manifests`: contents of spilled manifests, kept within a bound.
//! * `requests`: requests to nodes.

mod manifests;
mod requests;
pub(crate) mod sightings;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use futures::StreamExt;
use martlet_protocol::backend::{
    ClaimPart, ClaimSource, ClaimState, DeviceStatus, OwnerClaim, SpilledManifest,
};
use martlet_protocol::key::index_placement;
use martlet_protocol::{DeviceId, ExtentId, Result, Term};
use parking_lot::Mutex;

use self::manifests::Manifests;
use self::requests::{Asked, ask};
use self::sightings::{Sightings, SilentDevices};
use crate::cluster::StepTopology;
use crate::needed_extents::{ExtentClaim, NeedCheck};

/// Most devices with hints that a batch asks. Beyond these, a device counts as silent: extents that
/// its hints may name wait until its hints are delivered.
const HINT_DEVICES_MAX: usize = 16;
/// Maximum milliseconds for which statuses of devices are kept.
const STATUSES_KEPT_MS: u64 = 5000;
/// Spilled manifests read concurrently.
const MANIFESTS_AT_ONCE: usize = 8;

/// Extents of one owner whose need is in question.
#[derive(Clone, Debug)]
pub(crate) struct OwnerQuestion {
    pub(crate) claim: OwnerClaim,
    pub(crate) ids: BTreeSet<ExtentId>,
    /// Birth of the youngest of these extents, in milliseconds since 1970.
    pub(crate) born_ms: u64,
}

/// Answer to a question.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnerAnswer {
    needed: HashSet<ExtentId>,
    is_known: bool,
}

/// Knowledge that batches share.
#[derive(Default)]
pub(crate) struct Owners {
    pub(crate) sightings: Arc<Sightings>,
    manifests: Manifests,
    /// Statuses of all devices, and a time before they were read, in milliseconds since 1970.
    statuses: Mutex<Option<(u64, Statuses)>>,
    /// Milliseconds for which statuses are kept. It is far below every grace time: a hint that was
    /// stored since then names no extent that was superseded or orphaned before it.
    kept_ms: u64,
}

type Statuses = Arc<HashMap<DeviceId, DeviceStatus>>;

/// Answers of the devices to one question.
#[derive(Default)]
struct Findings {
    needed: HashSet<ExtentId>,
    spilled: Vec<SpilledManifest>,
    /// True if a device that must answer has not, or if deciding devices differ.
    is_unknown: bool,
    /// True if a device has more entries than a batch carries.
    is_long: bool,
}

/// Agreement of the deciding devices about one question, in one stage.
#[derive(Default)]
struct Agreement {
    heads: Vec<[u8; 16]>,
    parts: Vec<[u8; 16]>,
    all_ended: bool,
    answered: usize,
}

/// Devices that decide about one question.
struct Deciders {
    /// Devices whose entries count.
    members: Vec<DeviceId>,
    /// Those that must agree.
    agreeing: Vec<DeviceId>,
}

impl OwnerAnswer {
    /// Returns true if an entry needs the extent, and false if none does; none if it is unknown.
    pub(crate) fn needs(&self, id: ExtentId) -> Option<bool> {
        if self.needed.contains(&id) {
            return Some(true);
        }
        self.is_known.then_some(false)
    }
}

impl Owners {
    /// Creates the knowledge of a process, whose sightings were loaded before. Entries are
    /// superseded for `grace_ms` before their extents are in question.
    pub(crate) fn new(sightings: Arc<Sightings>, grace_ms: u64) -> Self {
        Self { sightings, kept_ms: STATUSES_KEPT_MS.min(grace_ms / 10), ..Self::default() }
    }

    /// Returns the statuses of all devices, with a time before they were read. Those of a moment
    /// ago do, unless uploads are in question: an extent on its way from a part to its object must
    /// meet hints that are read between the two.
    async fn statuses(
        &self,
        cluster: &StepTopology,
        now_ms: u64,
        of_uploads: bool,
    ) -> (u64, Statuses) {
        if let Some((read_ms, kept)) = self.statuses.lock().clone()
            && !of_uploads
            && self.kept_ms > 0
            && (read_ms..=read_ms.saturating_add(self.kept_ms)).contains(&now_ms)
        {
            return (read_ms, kept);
        }
        let statuses = Arc::new(cluster.statuses().await);
        *self.statuses.lock() = Some((now_ms, statuses.clone()));
        (now_ms, statuses)
    }

    /// Answers each question, in order. An unanswered question is unknown, and delays no other.
    pub(crate) async fn ask(
        &self,
        cluster: &StepTopology,
        now_ms: u64,
        questions: &[OwnerQuestion],
    ) -> Vec<OwnerAnswer> {
        let mut batch = Batch { cluster, owners: self, now_ms, questions, findings: Vec::new() };
        batch.findings.resize_with(questions.len(), Findings::default);
        let of_uploads: Vec<usize> =
            (0..questions.len()).filter(|at| questions[*at].claim.upload.is_some()).collect();
        batch.stage(ClaimPart::Upload, of_uploads).await;
        batch.stage(ClaimPart::Object, (0..questions.len()).collect()).await;
        batch.read_manifests().await;
        batch.query_singly().await;
        let findings = batch.findings.into_iter();
        findings.map(|it| OwnerAnswer { needed: it.needed, is_known: !it.is_unknown }).collect()
    }
}

/// Questions of one call, and the findings so far.
struct Batch<'a> {
    cluster: &'a StepTopology,
    owners: &'a Owners,
    now_ms: u64,
    questions: &'a [OwnerQuestion],
    findings: Vec<Findings>,
}

impl Batch<'_> {
    /// Asks about one part of the registers: first the hints, then the deciding devices.
    async fn stage(&mut self, part: ClaimPart, of: Vec<usize>) {
        // Long claims are asked singly, whatever the rest says.
        let of: Vec<usize> = of.into_iter().filter(|at| !self.findings[*at].is_long).collect();
        if of.is_empty() {
            return;
        }
        let term = self.cluster.named();
        let of_uploads = of.iter().any(|at| self.questions[*at].claim.upload.is_some());
        let (read_ms, statuses) = self.owners.statuses(self.cluster, self.now_ms, of_uploads).await;
        match term {
            Ok(term) if !self.cluster.is_behind() => {
                self.note_sightings(read_ms, &statuses);
                self.query_hints(part, term, &statuses, &of).await;
                self.query_deciders(part, term, &statuses, &of).await;
            }
            _ => {
                for at in of {
                    self.findings[at].is_unknown = true;
                }
            }
        }
    }

    fn note_sightings(&self, read_ms: u64, statuses: &HashMap<DeviceId, DeviceStatus>) {
        for status in statuses.values().filter(|status| status.hints == 0) {
            self.owners.sightings.note(status.device, read_ms);
        }
    }

    async fn query_hints(
        &mut self,
        part: ClaimPart,
        term: Term,
        statuses: &HashMap<DeviceId, DeviceStatus>,
        of: &[usize],
    ) {
        let (mut silent, mut with_hints) = (SilentDevices::default(), Vec::new());
        for device in self.cluster.index_devices() {
            match statuses.get(&device) {
                Some(status) if status.hints == 0 => {}
                Some(_) if with_hints.len() < HINT_DEVICES_MAX => with_hints.push(device),
                _ => silent.add(self.owners.sightings.of(device, self.now_ms)),
            }
        }
        let devices = with_hints.iter().map(|device| (*device, of.to_vec())).collect();
        let asked = Asked { source: ClaimSource::Hints, part, term, devices };
        let (questions, mut answered) = (self.questions, HashSet::new());
        let take = |device, at: usize, state: Option<&ClaimState>| {
            if let Some(state) = state {
                answered.insert((device, at));
                self.findings[at].add(&questions[at], state);
            }
        };
        ask(self.cluster, &asked, |at| &questions[at].claim, take).await;
        for at in of {
            let mut silent = silent;
            for device in with_hints.iter().filter(|id| !answered.contains(&(**id, *at))) {
                silent.add(self.owners.sightings.of(*device, self.now_ms));
            }
            let OwnerQuestion { claim, born_ms, .. } = &questions[*at];
            self.findings[*at].is_unknown |= silent.may_name(claim, *born_ms);
        }
    }

    async fn query_deciders(
        &mut self,
        part: ClaimPart,
        term: Term,
        statuses: &HashMap<DeviceId, DeviceStatus>,
        of: &[usize],
    ) {
        let change = self.cluster.index().change();
        let joined = |id: &DeviceId| {
            statuses.get(id).is_some_and(|status| status.voting && status.joined >= change)
        };
        let deciders: HashMap<usize, Deciders> =
            of.iter().map(|at| (*at, self.deciders(*at, joined))).collect();
        let mut devices: BTreeMap<DeviceId, Vec<usize>> = BTreeMap::new();
        for at in of {
            for device in &deciders[at].members {
                devices.entry(*device).or_default().push(*at);
            }
        }
        let asked = Asked { source: ClaimSource::Registers, part, term, devices };
        let mut agreements: HashMap<usize, Agreement> = HashMap::new();
        let questions = self.questions;
        let take = |device, at: usize, state: Option<&ClaimState>| {
            let Some(state) = state else { return };
            let agrees = deciders[&at].agreeing.contains(&device);
            agreements.entry(at).or_default().add(state, agrees);
            self.findings[at].add(&questions[at], state);
        };
        ask(self.cluster, &asked, |at| &questions[at].claim, take).await;
        for at in of {
            let members = deciders[at].members.len();
            let is_settled = agreements.get(at).is_some_and(|it| it.is_settled(part, members));
            self.findings[*at].is_unknown |= !is_settled;
        }
    }

    fn deciders(&self, at: usize, joined: impl Fn(&DeviceId) -> bool) -> Deciders {
        let claim = &self.questions[at].claim;
        let sets = self.cluster.sets(index_placement(claim.bucket, claim.shard));
        let members: Vec<DeviceId> = sets.members().collect();
        let agreeing = members.iter().filter(|id| sets.is_of(0, **id) || joined(id));
        Deciders { agreeing: agreeing.copied().collect(), members }
    }

    /// Reads each spilled manifest once, and finds the extents in question among its extents.
    async fn read_manifests(&mut self) {
        let mut named: BTreeMap<Vec<ExtentId>, (SpilledManifest, Vec<usize>)> = BTreeMap::new();
        for (at, findings) in self.findings.iter_mut().enumerate() {
            for spilled in std::mem::take(&mut findings.spilled) {
                let pieces: Vec<ExtentId> = spilled.pieces.iter().map(|piece| piece.id).collect();
                named.entry(pieces).or_insert_with(|| (spilled, Vec::new())).1.push(at);
            }
        }
        let (cluster, manifests) = (self.cluster, &self.owners.manifests);
        let reads = named.into_iter().map(|(pieces, (spilled, of))| async move {
            (manifests.extents(cluster, &pieces, &spilled).await, of)
        });
        let mut reads =
            futures::stream::iter(reads.collect::<Vec<_>>()).buffer_unordered(MANIFESTS_AT_ONCE);
        while let Some((extents, of)) = reads.next().await {
            for at in of {
                match &extents {
                    Ok(extents) => {
                        let ids = self.questions[at].ids.iter();
                        let named = ids.filter(|id| extents.binary_search(id).is_ok());
                        self.findings[at].needed.extend(named);
                    }
                    Err(error) => {
                        let key = &self.questions[at].claim.key;
                        tracing::debug!(key, %error, "could not read a manifest");
                        self.findings[at].is_unknown = true;
                    }
                }
            }
        }
    }

    /// Asks page by page about keys with more versions or parts than a batch carries.
    async fn query_singly(&mut self) {
        for (findings, question) in self.findings.iter_mut().zip(self.questions) {
            if !findings.is_long {
                continue;
            }
            let single = single(self.cluster, question).await;
            findings.is_unknown = single.is_err();
            match single {
                Ok(needed) => findings.needed.extend(needed),
                Err(error) => {
                    let key = &question.claim.key;
                    tracing::debug!(key, %error, "could not check the entries of a long key");
                }
            }
        }
    }
}

async fn single(cluster: &StepTopology, question: &OwnerQuestion) -> Result<Vec<ExtentId>> {
    let OwnerClaim { bucket, shard, key, upload } = question.claim.clone();
    let claim = ExtentClaim { bucket, shard, key, upload };
    let mut check = NeedCheck::new(cluster);
    let mut needed = Vec::new();
    for id in &question.ids {
        if check.is_needed(&claim, *id).await? {
            needed.push(*id);
        }
    }
    Ok(needed)
}

impl Findings {
    fn add(&mut self, question: &OwnerQuestion, state: &ClaimState) {
        self.is_long |= state.truncated;
        self.needed.extend(state.extents.iter().filter(|id| question.ids.contains(*id)));
        for spilled in &state.spilled {
            let pieces = spilled.pieces.iter().map(|piece| piece.id);
            self.needed.extend(pieces.filter(|id| question.ids.contains(id)));
            if !self.spilled.contains(spilled) {
                self.spilled.push(spilled.clone());
            }
        }
    }
}

impl Agreement {
    fn add(&mut self, state: &ClaimState, agrees: bool) {
        self.all_ended = (self.answered == 0 || self.all_ended) && state.has_ended;
        self.answered += 1;
        if agrees {
            self.heads.push(state.head);
            self.parts.push(state.parts);
        }
    }

    fn is_settled(&self, part: ClaimPart, members: usize) -> bool {
        let are_equal = |all: &[[u8; 16]]| all.windows(2).all(|two| two[0] == two[1]);
        let parts_agree = part == ClaimPart::Object || self.all_ended || are_equal(&self.parts);
        self.answered == members && are_equal(&self.heads) && parts_agree
    }
}

#[cfg(test)]
mod tests;

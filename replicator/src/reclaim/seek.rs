//! Locations and owners of many extents: one question to each device that should hold some.
//!
//! An extent is sought on its primaries, on devices from which they are taking over, and on the
//! first handoffs, where a write that met a failed primary has put it. A primary is asked about the
//! one fragment that belongs there. Everything else is asked only if these have too few copies or
//! fragments, and don't remember the rest as deleted: all devices, some at a time. A short extent has
//! fewer fragments than its code ([`Geometry::stored`](martlet_erasure::Geometry::stored)).

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use martlet_protocol::backend::Sought;
use martlet_protocol::extent::{ExtentRef, Stripe};
use martlet_protocol::{BackendExt, DeviceId, ExtentId, PolicyId, Result, UploadId};

use crate::cluster::{StepTopology, in_time};
use crate::coded::{CodedExtent, code_of_policy};

/// Handoffs on which an extent is sought besides its primaries.
const HANDOFFS: usize = 2;
/// Calls in flight, and extents in each: a disk may have to be read for each extent.
const CALLS_AT_ONCE: usize = 64;
const IDS_MAX: usize = 1024;
/// Ids asked together where all devices are asked, unless one device gets more.
const SPREAD_IDS_MAX: usize = 512 * 1024;

/// An extent of a record of garbage.
#[derive(Clone, Debug)]
pub(super) struct SoughtExtent {
    /// Position of the record.
    pub(super) record: usize,
    pub(super) policy: PolicyId,
    pub(super) extent: ExtentRef,
    /// True if it holds a part of a manifest.
    pub(super) is_manifest: bool,
}

/// An extent with its location.
#[derive(Debug)]
pub(super) struct FoundExtent {
    pub(super) sought: SoughtExtent,
    pub(super) located: Located,
}

/// Location of an extent.
#[derive(Debug)]
pub(super) enum Located {
    /// No device has it.
    Nowhere,
    /// No device that answered has it, and one that may have it did not answer.
    Unknown,
    /// Some device has it.
    Here {
        /// Key of the owner.
        key: String,
        upload: Option<UploadId>,
        /// Birth of the youngest copy, in milliseconds since 1970.
        born_ms: u64,
        /// Devices that have it, and devices that should: each with the id that it has.
        targets: BTreeSet<(DeviceId, ExtentId)>,
        /// True if a device that may have it did not answer.
        is_silent: bool,
    },
}

/// Search for one extent.
struct Search {
    sought: SoughtExtent,
    places: Places,
    /// True if all devices are asked: the likely ones answered, and have too little.
    is_spread: bool,
    findings: Findings,
}

#[derive(Default)]
struct Findings {
    owner: Option<(String, Option<UploadId>)>,
    born_ms: u64,
    here: Vec<(DeviceId, ExtentId)>,
    /// Devices that remember a deletion.
    deleted: Vec<(DeviceId, ExtentId)>,
    is_silent: bool,
}

impl FoundExtent {
    /// Returns true if it is unknown if a device has the extent.
    pub(super) fn is_unknown(&self) -> bool {
        matches!(self.located, Located::Unknown)
    }

    /// Returns the devices that get a delete, each with the id that it may have.
    pub(super) fn targets(&self) -> impl Iterator<Item = (DeviceId, ExtentId)> + '_ {
        let targets = match &self.located {
            Located::Here { targets, .. } => Some(targets),
            _ => None,
        };
        targets.into_iter().flatten().copied()
    }
}

/// Locates extents, in order.
pub(super) async fn locate(cluster: &StepTopology, extents: Vec<SoughtExtent>) -> Vec<FoundExtent> {
    let mut searches: Vec<Search> =
        extents.into_iter().map(|sought| Search::new(cluster, sought)).collect();
    ask_all(cluster, &mut searches, |search| search.places.likely.clone()).await;
    for search in &mut searches {
        // While a home is silent its record waits anyway.
        search.is_spread = !search.findings.is_silent && !search.is_complete();
    }
    let policies: BTreeSet<PolicyId> =
        searches.iter().filter(|it| it.is_spread).map(|it| it.sought.policy).collect();
    for policy in policies {
        let devices = cluster.data_devices(policy).unwrap_or_default();
        spread(cluster, &mut searches, policy, &devices).await;
    }
    searches.into_iter().map(Search::end).collect()
}

/// Asks all devices of a policy about the extents that are not found yet, some devices at a time.
async fn spread(
    cluster: &StepTopology,
    searches: &mut [Search],
    policy: PolicyId,
    devices: &[DeviceId],
) {
    let is_open = |search: &Search| {
        search.is_spread && search.sought.policy == policy && !search.is_complete()
    };
    let mut rest = devices;
    while !rest.is_empty() {
        let open = searches.iter().filter(|search| is_open(search));
        let ids: usize = open.map(|search| search.places.ids.len()).sum();
        let Some(at_once) = SPREAD_IDS_MAX.checked_div(ids) else { break };
        let (now, later) = rest.split_at(at_once.clamp(1, rest.len()));
        rest = later;
        let others = |search: &Search| {
            if is_open(search) { search.places.others(now) } else { Vec::new() }
        };
        ask_all(cluster, searches, others).await;
    }
}

/// Asks devices about the ids that `of` names for each search.
async fn ask_all(
    cluster: &StepTopology,
    searches: &mut [Search],
    of: impl Fn(&Search) -> Vec<(DeviceId, ExtentId)>,
) {
    let mut by_device: BTreeMap<DeviceId, Vec<(usize, ExtentId)>> = BTreeMap::new();
    for (at, search) in searches.iter().enumerate() {
        for (device, id) in of(search) {
            by_device.entry(device).or_default().push((at, id));
        }
    }
    let chunks: Vec<(DeviceId, &[(usize, ExtentId)])> = by_device
        .iter()
        .flat_map(|(device, asked)| asked.chunks(IDS_MAX).map(|chunk| (*device, chunk)))
        .collect();
    let mut chunks = chunks.into_iter();
    let mut calls = FuturesUnordered::new();
    loop {
        let free = CALLS_AT_ONCE - calls.len();
        calls.extend(chunks.by_ref().take(free).map(|(device, asked)| ask(cluster, device, asked)));
        let Some((device, asked, reply)) = calls.next().await else { break };
        let reply = reply.unwrap_or_else(|error| {
            tracing::debug!(%device, %error, "could not seek extents on a device");
            Vec::new()
        });
        if reply.len() != asked.len() {
            for (at, _) in asked {
                searches[*at].findings.is_silent = true;
            }
            continue;
        }
        for ((at, id), sought) in asked.iter().zip(reply) {
            searches[*at].findings.add(device, *id, sought);
        }
    }
}

/// Asks a device about some ids, each with the position of its search.
async fn ask<'a>(
    cluster: &StepTopology,
    device: DeviceId,
    asked: &'a [(usize, ExtentId)],
) -> (DeviceId, &'a [(usize, ExtentId)], Result<Vec<Sought>>) {
    let ids: Vec<ExtentId> = asked.iter().map(|(_, id)| *id).collect();
    let call = async { in_time(cluster.node(device)?.seek_extents(device, &ids)).await };
    (device, asked, call.await)
}

impl Search {
    fn new(cluster: &StepTopology, sought: SoughtExtent) -> Self {
        let places = Places::of(cluster, &sought);
        let is_silent = places.is_err();
        let findings = Findings { is_silent, ..Findings::default() };
        Self { sought, places: places.unwrap_or_default(), is_spread: false, findings }
    }

    /// Returns true if as many copies or fragments were found, or deleted, as there should be.
    fn is_complete(&self) -> bool {
        let found = self.findings.here.iter().chain(&self.findings.deleted);
        let found = if self.places.ids.len() > 1 {
            found.map(|(_, id)| *id).collect::<BTreeSet<ExtentId>>().len()
        } else {
            found.count()
        };
        found >= self.places.homes.len()
    }

    fn end(self) -> FoundExtent {
        let Self { sought, places: Places { homes, .. }, findings, .. } = self;
        let Findings { owner, born_ms, here, is_silent, .. } = findings;
        let located = match owner {
            Some((key, upload)) => Located::Here {
                key,
                upload,
                born_ms,
                targets: here.into_iter().chain(homes).collect(),
                is_silent,
            },
            None if is_silent => Located::Unknown,
            None => Located::Nowhere,
        };
        FoundExtent { sought, located }
    }
}

impl Findings {
    fn add(&mut self, device: DeviceId, id: ExtentId, sought: Sought) {
        match sought {
            Sought::Missing => {}
            Sought::Deleted => self.deleted.push((device, id)),
            Sought::Here(record) => {
                self.here.push((device, id));
                self.born_ms = self.born_ms.max(record.birth_ms);
                self.owner.get_or_insert((record.owner.key, record.owner.upload));
            }
        }
    }
}

/// Places of an extent.
#[derive(Default)]
struct Places {
    /// Ids that devices may have: its own, or those of its fragments.
    ids: Vec<ExtentId>,
    /// Devices that should have it, each with its id there.
    homes: Vec<(DeviceId, ExtentId)>,
    /// Devices that are asked first, each with an id that it may have.
    likely: Vec<(DeviceId, ExtentId)>,
}

impl Places {
    /// Returns the places of an extent: fragment number i belongs to replica number i, a copy to each
    /// replica.
    fn of(cluster: &StepTopology, sought: &SoughtExtent) -> Result<Self> {
        let SoughtExtent { policy, extent: ExtentRef { id, length, .. }, .. } = *sought;
        let ring = cluster.data(policy)?;
        let partition = ring.partition(id.placement());
        let (mut ids, mut homes, mut before) = (Vec::new(), Vec::new(), Vec::new());
        if let Some(code) = code_of_policy(cluster, policy)? {
            let stripe = Stripe { k: code.k(), m: code.m(), length };
            let coded = CodedExtent::new(cluster, policy, id, stripe)?;
            for fragment in coded.fragments() {
                let place = coded.place(fragment);
                ids.push(coded.id(fragment));
                homes.push((place.home, coded.id(fragment)));
                before.extend(place.previous);
            }
        } else {
            ids.push(id);
            homes.extend(ring.primaries(partition).map(|device| (device, id)));
            let previous = (0..homes.len()).filter_map(|at| ring.previous(partition, at));
            before.extend(previous.filter(|device| ring.device(*device).is_some()));
        }
        // Fragments of failed homes, and of places that changed, may have any number.
        let near = before.into_iter().chain(ring.handoffs(partition).take(HANDOFFS));
        let near: BTreeSet<DeviceId> = near.collect();
        let all = near.into_iter().flat_map(|device| ids.iter().map(move |id| (device, *id)));
        let likely: BTreeSet<_> = homes.iter().copied().chain(all).collect();
        Ok(Self { ids, homes, likely: likely.into_iter().collect() })
    }

    /// Returns what some devices were not asked first, each with the id.
    fn others(&self, devices: &[DeviceId]) -> Vec<(DeviceId, ExtentId)> {
        let pairs = devices.iter().flat_map(|device| self.ids.iter().map(move |id| (*device, *id)));
        // Sorted, as they come from a set.
        pairs.filter(|pair| self.likely.binary_search(pair).is_err()).collect()
    }
}

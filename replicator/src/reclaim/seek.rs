//! Locations and owners of many extents: one question to each device that should hold some.
//!
//! An extent is sought on its primaries, on devices from which they are taking over, and on the
//! first handoffs, where a write that met a failed primary has put it. All other devices are asked
//! only if these have too few copies or fragments, and don't remember the rest as deleted.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt;
use martlet_protocol::backend::Sought;
use martlet_protocol::extent::ExtentRef;
use martlet_protocol::{BackendExt, DeviceId, ExtentId, PolicyId, Result, UploadId};

use crate::cluster::{StepTopology, in_time};
use crate::coded::{code_of_policy, stored_ids};

/// Handoffs on which an extent is sought besides its primaries.
const HANDOFFS: usize = 2;
/// Calls in flight, and extents in each: a disk may have to be read for each extent.
const CALLS_AT_ONCE: usize = 64;
const IDS_MAX: usize = 1024;

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
    /// Ids that devices may have: its own, or those of its fragments.
    ids: Vec<ExtentId>,
    /// Devices that should have it, each with its id there.
    homes: Vec<(DeviceId, ExtentId)>,
    asked: BTreeSet<DeviceId>,
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
    ask_all(cluster, &mut searches, |search| search.asked.iter().copied().collect()).await;
    let others = |search: &Search| {
        // While a home is silent its record waits anyway.
        if search.findings.is_silent || search.is_complete() {
            return Vec::new();
        }
        let all = cluster.data_devices(search.sought.policy).unwrap_or_default();
        all.into_iter().filter(|device| !search.asked.contains(device)).collect()
    };
    ask_all(cluster, &mut searches, others).await;
    searches.into_iter().map(Search::end).collect()
}

/// Asks devices about the extents for which `of` names them.
async fn ask_all(
    cluster: &StepTopology,
    searches: &mut [Search],
    of: impl Fn(&Search) -> Vec<DeviceId>,
) {
    let mut by_device: BTreeMap<DeviceId, Vec<(usize, ExtentId)>> = BTreeMap::new();
    for (at, search) in searches.iter().enumerate() {
        for device in of(search) {
            let ids = search.ids.iter().map(|id| (at, *id));
            by_device.entry(device).or_default().extend(ids);
        }
    }
    let chunks = by_device
        .iter()
        .flat_map(|(device, asked)| asked.chunks(IDS_MAX).map(|chunk| (*device, chunk.to_vec())));
    let calls = chunks.map(|(device, asked)| async move {
        let ids: Vec<ExtentId> = asked.iter().map(|(_, id)| *id).collect();
        let call = async { in_time(cluster.node(device)?.seek_extents(device, &ids)).await };
        let reply: Result<Vec<Sought>> = call.await;
        (device, asked, reply)
    });
    let calls: Vec<_> = calls.collect();
    let mut replies = futures::stream::iter(calls).buffer_unordered(CALLS_AT_ONCE);
    while let Some((device, asked, reply)) = replies.next().await {
        let reply = reply.unwrap_or_else(|error| {
            tracing::debug!(%device, %error, "could not seek extents on a device");
            Vec::new()
        });
        let is_whole = reply.len() == asked.len();
        for (at, _) in asked.iter().filter(|_| !is_whole) {
            searches[*at].findings.is_silent = true;
        }
        for ((at, id), sought) in asked.into_iter().zip(reply).filter(|_| is_whole) {
            searches[at].findings.add(device, id, sought);
        }
    }
}

impl Search {
    fn new(cluster: &StepTopology, sought: SoughtExtent) -> Self {
        let id = sought.extent.id;
        let places = places(cluster, sought.policy, id);
        let is_silent = places.is_err();
        let Places { ids, homes, asked } = places.unwrap_or_default();
        Self { sought, ids, homes, asked, findings: Findings { is_silent, ..Findings::default() } }
    }

    /// Returns true if as many copies or fragments were found, or deleted, as there should be.
    fn is_complete(&self) -> bool {
        let found = self.findings.here.iter().chain(&self.findings.deleted);
        let found = if self.ids.len() > 1 {
            found.map(|(_, id)| *id).collect::<BTreeSet<ExtentId>>().len()
        } else {
            found.count()
        };
        found >= self.homes.len()
    }

    fn end(self) -> FoundExtent {
        let Self { sought, homes, findings, .. } = self;
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
    ids: Vec<ExtentId>,
    homes: Vec<(DeviceId, ExtentId)>,
    asked: BTreeSet<DeviceId>,
}

/// Returns the places of an extent: fragment number i belongs to replica number i, a copy to each
/// replica.
fn places(cluster: &StepTopology, policy: PolicyId, id: ExtentId) -> Result<Places> {
    let ids = stored_ids(cluster, policy, &[id])?;
    let ring = cluster.data(policy)?;
    let partition = ring.partition(id.placement());
    let primaries = ring.primaries(partition);
    let homes: Vec<(DeviceId, ExtentId)> = if code_of_policy(cluster, policy)?.is_some() {
        primaries.zip(ids.iter().copied()).collect()
    } else {
        primaries.map(|device| (device, id)).collect()
    };
    let before = (0..homes.len()).filter_map(|replica| ring.previous(partition, replica));
    let before = before.filter(|device| ring.device(*device).is_some());
    let near = ring.handoffs(partition).take(HANDOFFS);
    let asked = homes.iter().map(|(device, _)| *device).chain(before).chain(near).collect();
    Ok(Places { ids, homes, asked })
}

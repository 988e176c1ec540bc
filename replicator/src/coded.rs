//! Extents that are kept as fragments: their fragments, homes and holders.
//!
//! Invariants:
//! * fragment number i of an extent belongs to replica number i of its partition, and nowhere else;
//! * a ring of another code determines no home of a fragment.

pub(crate) mod read;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use futures::StreamExt;
use martlet_erasure::{Code, FragmentIndex, Geometry};
use martlet_protocol::backend::Presence;
use martlet_protocol::extent::{ExtentRecord, Stripe};
use martlet_protocol::{BackendExt, DeviceId, Error, ExtentId, PolicyId, Result};
use martlet_ring::Ring;

use crate::cluster::{StepTopology, in_time};

/// Devices queried concurrently, and extents in one query.
const AT_ONCE: usize = 16;
const IDS_MAX: usize = 1000;

/// A coded extent, and the homes of its fragments.
#[derive(Clone, Debug)]
pub(crate) struct CodedExtent {
    /// Extent id in manifests.
    pub(crate) whole: ExtentId,
    pub(crate) policy: PolicyId,
    pub(crate) geometry: Geometry,
    /// Place of each fragment.
    places: Vec<FragmentHome>,
}

/// Place of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FragmentHome {
    pub(crate) home: DeviceId,
    /// Device from which the home is taking over.
    pub(crate) previous: Option<DeviceId>,
}

/// Returns the code of a ring, if it is one of fragments.
pub(crate) fn code_of(ring: &Ring) -> Option<Code> {
    Code::of(ring.identity().redundancy).ok().flatten()
}

/// Returns the code of a policy, if its devices hold fragments.
///
/// # Errors
/// If the policy has no ring.
pub(crate) fn code_of_policy(cluster: &StepTopology, policy: PolicyId) -> Result<Option<Code>> {
    Ok(code_of(cluster.data(policy)?))
}

/// Returns the ids that devices may hold of these extents of a policy: their own, or all
/// fragments'.
pub(crate) fn stored_ids(
    cluster: &StepTopology,
    policy: PolicyId,
    extents: &[ExtentId],
) -> Result<Vec<ExtentId>> {
    let Some(code) = code_of_policy(cluster, policy)? else { return Ok(extents.to_vec()) };
    let fragments = |id: &ExtentId| {
        let id = *id;
        code.fragments().map(move |fragment| id.fragment(fragment.0))
    };
    Ok(extents.iter().flat_map(fragments).collect())
}

impl CodedExtent {
    /// Returns the extent of a record's fragment; none for a copy.
    ///
    /// # Errors
    /// If its policy has no ring, or one of another code.
    pub(crate) fn of_record(cluster: &StepTopology, record: &ExtentRecord) -> Option<Result<Self>> {
        let stripe = record.layout.stripe?;
        Some(Self::new(cluster, record.layout.policy, record.named(), stripe))
    }

    /// Returns an extent of a policy.
    ///
    /// # Errors
    /// If the policy has no ring, or one of another code.
    pub(crate) fn new(
        cluster: &StepTopology,
        policy: PolicyId,
        whole: ExtentId,
        Stripe { k, m, length }: Stripe,
    ) -> Result<Self> {
        let code = Code::new(k, m)?;
        if code_of_policy(cluster, policy)? != Some(code) {
            let policy = policy.0;
            let message =
                format!("extent {whole} has the code {code}, but policy {policy} does not");
            return Err(Error::invalid(message));
        }
        let geometry = Geometry::new(code, u64::from(length))?;
        let ring = cluster.data(policy)?;
        let partition = ring.partition(whole.placement());
        let place = |(replica, home)| {
            let previous = ring.previous(partition, replica).filter(|before| *before != home);
            FragmentHome {
                home,
                previous: previous.filter(|before| ring.device(*before).is_some()),
            }
        };
        let places = ring.primaries(partition).enumerate().map(place).collect();
        Ok(Self { whole, policy, geometry, places })
    }

    /// Returns the stored fragments, in order.
    pub(crate) fn fragments(&self) -> impl Iterator<Item = FragmentIndex> + use<> {
        self.geometry.stored().iter().collect::<Vec<_>>().into_iter()
    }

    /// Id under which a device holds a fragment.
    pub(crate) fn id(&self, fragment: FragmentIndex) -> ExtentId {
        self.whole.fragment(fragment.0)
    }

    /// Place of a fragment.
    pub(crate) fn place(&self, fragment: FragmentIndex) -> FragmentHome {
        self.places[usize::from(fragment.0)]
    }

    /// Returns the home of an id, if it is a stored fragment.
    pub(crate) fn home_of(&self, id: ExtentId) -> Option<DeviceId> {
        let fragment = FragmentIndex(id.fragment_number());
        let is_stored = self.geometry.stored_bytes(fragment) > 0;
        is_stored.then(|| self.place(fragment).home)
    }

    /// Returns every device that may have a fragment: the homes first, in order.
    pub(crate) fn everyone(&self, cluster: &StepTopology) -> Result<Vec<DeviceId>> {
        cluster.holders_of(self.policy, self.whole)
    }
}

/// Presence of extents and fragments, as devices report it.
#[derive(Debug, Default)]
pub(crate) struct PresenceMap {
    by_copy: HashMap<(DeviceId, ExtentId), Presence>,
    pub(crate) silent: BTreeSet<DeviceId>,
}

impl PresenceMap {
    /// Returns the presence of an extent or a fragment on a device; none if the device is silent.
    pub(crate) fn of(&self, device: DeviceId, id: ExtentId) -> Option<Presence> {
        self.by_copy.get(&(device, id)).copied()
    }

    /// Returns the part of these lists that has no answer.
    pub(crate) fn unanswered(
        &self,
        lists: &BTreeMap<DeviceId, BTreeSet<ExtentId>>,
    ) -> BTreeMap<DeviceId, BTreeSet<ExtentId>> {
        let without = |(device, ids): (&DeviceId, &BTreeSet<ExtentId>)| {
            let ids = ids.iter().filter(|id| self.of(*device, **id).is_none()).copied();
            let ids: BTreeSet<ExtentId> = ids.collect();
            (!ids.is_empty()).then_some((*device, ids))
        };
        lists.iter().filter_map(without).collect()
    }

    /// Queries devices, each about its list.
    pub(crate) async fn query(
        &mut self,
        cluster: &StepTopology,
        lists: BTreeMap<DeviceId, BTreeSet<ExtentId>>,
    ) {
        let mut calls = Vec::new();
        for (device, ids) in lists {
            let ids: Vec<ExtentId> = ids.into_iter().collect();
            calls.extend(ids.chunks(IDS_MAX).map(|ids| (device, ids.to_vec())));
        }
        let calls = calls.into_iter().map(|(device, ids)| async move {
            let node = cluster.node(device);
            let answer = async { in_time(node?.presence(device, &ids)).await }.await;
            (device, ids, answer)
        });
        let calls: Vec<_> = calls.collect();
        let mut calls = futures::stream::iter(calls).buffer_unordered(AT_ONCE);
        while let Some((device, ids, answer)) = calls.next().await {
            match answer {
                Ok(answer) => {
                    let answers = ids.into_iter().zip(answer);
                    self.by_copy.extend(answers.map(|(id, presence)| ((device, id), presence)));
                }
                Err(error) => {
                    tracing::debug!(%device, %error, "could not list a device's fragments");
                    self.silent.insert(device);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;

//! Condition and status lines of a storage node.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures::FutureExt;
use martlet_membership::{DeviceLineSource, Member};
use martlet_protocol::backend::DeviceStatus;
use martlet_protocol::{Backend, DeviceId};
use martlet_serving::operator::{Health, RoleCondition};
use martlet_storage_node::{Reserve, StorageNode};

use super::devices;
use crate::process::admin_status::{condition, device_lines};
use crate::process::direct::lending_limits;

/// Open storage node.
#[derive(Clone)]
pub(super) struct OpenNode {
    pub(super) name: Arc<str>,
    pub(super) member: Arc<Member>,
    pub(super) node: Arc<StorageNode>,
    pub(super) devices: Arc<BTreeMap<DeviceId, PathBuf>>,
    /// Reserve of each device.
    pub(super) reserve: Reserve,
    /// Time at which the devices were opened.
    pub(super) opened: Instant,
}

/// Time after a start in which a node waits for the votes of all its devices before it is ready.
/// Devices get their votes one after another. Nodes that start together, each with one vote, would
/// serve partitions that have no quorum yet.
const VOTES_WAIT: Duration = Duration::from_secs(5);

#[async_trait]
impl Health for OpenNode {
    async fn condition(&self) -> RoleCondition {
        let statuses = self.node.devices().await.unwrap_or_default();
        let mut condition = condition(&statuses);
        let rings = self.member.keeper.rings();
        let holds_entries = |device: &&DeviceStatus| {
            rings.index().is_some_and(|index| index.device(device.device).is_some())
        };
        let (voting, without_votes): (Vec<_>, Vec<_>) =
            statuses.iter().filter(holds_entries).partition(|device| device.voting);
        for device in &without_votes {
            let id = device.device;
            condition.reasons.push(format!(
                "device {id} has no votes yet: it gets them when a replicator has synced it"
            ));
        }
        // Later one vote suffices: a device may be replaced, or refused by its peers.
        let waits = self.opened.elapsed() < VOTES_WAIT;
        condition.serves &= without_votes.is_empty() || (!voting.is_empty() && !waits);
        for name in devices::missing(&rings, &self.name, &self.devices) {
            condition.reasons.push(format!("the device {name} of the rings is not configured"));
        }
        condition.reasons.extend(lending_limits(&self.node));
        condition.reasons.extend(self.member.version_problems());
        condition.serves &= self.member.level.refusal().is_none();
        condition
    }
}

impl OpenNode {
    /// Returns region and zone of the node, as the rings have them.
    pub(super) fn zone(&self) -> Option<String> {
        let rings = self.member.keeper.rings();
        let of_data = rings.data().map(|(_, ring)| &**ring);
        rings.index().map(|ring| &**ring).into_iter().chain(of_data).find_map(|ring| {
            let device = self.devices.keys().find_map(|id| ring.device(*id))?;
            Some(format!("r{}z{}", device.region, device.zone))
        })
    }

    /// Returns the source of the devices' status lines.
    pub(super) fn device_source(&self) -> DeviceLineSource {
        let opened = self.clone();
        Arc::new(move || {
            let opened = opened.clone();
            async move {
                let statuses = opened.node.devices().await.unwrap_or_default();
                let rings = opened.member.keeper.rings();
                let name = move |id: DeviceId| {
                    rings.places().get(&id).map(|place| place.device.clone()).unwrap_or_default()
                };
                device_lines(statuses, opened.reserve, name).await
            }
            .boxed()
        })
    }
}

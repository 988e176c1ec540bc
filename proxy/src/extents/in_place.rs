//! Search for the devices that hold extents, for clients that read them in place.
//!
//! Each device that should hold one of the extents is requested once for all of them. Extents that
//! none of these devices holds are sought on a few handoffs, again with one request each. Devices
//! of nodes without a data port are left out: a client couldn't read there.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use futures::future::join_all;
use martlet_protocol::backend::Presence;
use martlet_protocol::{BackendExt, DataPort, DeviceId, ExtentId, PolicyId, Result};
use martlet_ring::Ring;
use tokio::time::timeout;

use super::ExtentClient;
use super::holders::{likely, others};
use crate::located::PieceHolder;

/// Timeout of a device's reply. A late device counts as one without the extents.
const REPLY_TIME: Duration = Duration::from_secs(2);
/// Further devices on which an extent is sought if its likely devices don't hold it.
const FURTHER_MAX: usize = 6;

/// A running search.
struct Search<'a> {
    client: &'a ExtentClient,
    ids: &'a [ExtentId],
    ports: HashMap<DeviceId, Option<DataPort>>,
    /// Devices that were queried for each extent, in the order of preference.
    queried: Vec<Vec<DeviceId>>,
    found: Vec<Vec<PieceHolder>>,
}

impl ExtentClient {
    /// Returns the devices that hold each of these extents, copies or fragments, of a policy.
    pub(crate) async fn holders_in_place(
        &self,
        policy: PolicyId,
        ids: &[ExtentId],
    ) -> Result<Vec<Vec<PieceHolder>>> {
        let cluster = self.cluster();
        let ring = cluster.data(policy)?;
        let nothing = vec![Vec::new(); ids.len()];
        let ports = HashMap::new();
        let (queried, found) = (nothing, vec![Vec::new(); ids.len()]);
        let mut search = Search { client: self, ids, ports, queried, found };
        search.round(|_, id| likely(ring, &self.health, id)).await;
        search.round(|queried, id| further(ring, queried, id)).await;
        Ok(search.found)
    }
}

fn further(ring: &Ring, queried: &[DeviceId], id: ExtentId) -> Vec<DeviceId> {
    others(ring, id, queried).take(FURTHER_MAX).collect()
}

impl Search<'_> {
    /// Queries candidates for the extents that are not found yet.
    async fn round(&mut self, candidates: impl Fn(&[DeviceId], ExtentId) -> Vec<DeviceId>) {
        let mut by_device: BTreeMap<DeviceId, Vec<usize>> = BTreeMap::new();
        for (at, id) in self.ids.iter().enumerate() {
            if !self.found[at].is_empty() {
                continue;
            }
            for device in candidates(&self.queried[at], *id) {
                if self.port(device).is_some() {
                    by_device.entry(device).or_default().push(at);
                }
                self.queried[at].push(device);
            }
        }
        let requests = by_device.into_iter().map(|(device, wanted)| {
            let ids: Vec<ExtentId> = wanted.iter().map(|at| self.ids[*at]).collect();
            let client = self.client;
            async move { (device, wanted, client.presence_on(device, &ids).await) }
        });
        for (device, wanted, present) in join_all(requests).await {
            let Some(port) = self.port(device) else { continue };
            for (at, presence) in wanted.into_iter().zip(present) {
                if presence == Presence::Here {
                    self.found[at].push(PieceHolder { device, port: port.clone() });
                }
            }
        }
        for (found, queried) in self.found.iter_mut().zip(&self.queried) {
            found.sort_by_key(|holder| queried.iter().position(|it| *it == holder.device));
        }
    }

    fn port(&mut self, device: DeviceId) -> Option<DataPort> {
        let client = self.client;
        self.ports.entry(device).or_insert_with(|| client.data_port(device)).clone()
    }
}

impl ExtentClient {
    /// Data port of a device's node, if it has one and answers.
    fn data_port(&self, device: DeviceId) -> Option<DataPort> {
        self.topology.data_port(self.cluster().node_name(device)?)
    }

    /// Presence of extents on a device; empty if the device doesn't answer in time.
    async fn presence_on(&self, device: DeviceId, ids: &[ExtentId]) -> Vec<Presence> {
        let request = async { self.cluster().node(device)?.clone().presence(device, ids).await };
        match timeout(REPLY_TIME, request).await {
            Ok(Ok(present)) => present,
            Ok(Err(error)) => {
                tracing::debug!(%device, %error, "could not find out which extents a device holds");
                Vec::new()
            }
            Err(_) => Vec::new(),
        }
    }
}

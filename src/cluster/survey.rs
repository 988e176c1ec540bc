//! Status of a cluster: processes by their own reports, devices and rings by the ring files.

use futures::future::{join, join_all};
use martlet_admin_api::control::{
    ClusterStatus, DataDevice, ProcessRole, ProcessState, ProcessStatus, RingLine,
};
use martlet_protocol::DeviceId;
use martlet_ring::Ring;

use super::probe::{self, Readiness};
use super::rings;
use super::supervisor::{SupervisedProcess, Supervisor};

/// Number of hash characters that are shown.
const HASH_CHARACTERS: usize = 16;

/// Collects the status of all processes, devices and rings.
pub(super) async fn status(supervisor: &Supervisor) -> ClusterStatus {
    let folder = &supervisor.folder;
    let processes = join_all(supervisor.watched.iter().map(process)).await;
    let rings = rings::load(folder.path(), &folder.layout).unwrap_or_default();
    let held = |is_index: bool, id: DeviceId| {
        let those = rings.iter().filter(|(name, _)| (name == rings::INDEX) == is_index);
        those.map(|(_, ring)| held(ring, id)).sum()
    };
    let devices = rings.first().map(|(_, ring)| ring.devices()).unwrap_or_default();
    let devices = devices.iter().map(|device| DataDevice {
        id: device.id.0,
        node: device.node.name.clone(),
        name: device.name.clone(),
        zone: device.zone,
        path: folder.path().join(&device.node.name).join(&device.name),
        index_replicas: held(true, device.id),
        data_replicas: held(false, device.id),
    });
    let proxies = supervisor.watched.iter().filter(|it| it.member.role == ProcessRole::Proxy);
    let addresses = proxies.filter_map(|watched| watched.member.address);
    ClusterStatus {
        data_dir: folder.path().to_owned(),
        replicas: folder.layout.replicas,
        endpoints: addresses.map(|address| format!("http://{address}")).collect(),
        processes,
        devices: devices.collect(),
        rings: rings.iter().map(|(name, ring)| line(name, ring)).collect(),
    }
}

fn held(ring: &Ring, id: DeviceId) -> usize {
    ring.partitions().map(|it| ring.primaries(it).filter(|device| *device == id).count()).sum()
}

fn line(name: &str, ring: &Ring) -> RingLine {
    let mut hash = hex::encode(ring.hash());
    hash.truncate(HASH_CHARACTERS);
    RingLine {
        name: name.to_owned(),
        epoch: ring.epoch(),
        hash,
        partitions: ring.partitions().count(),
        moving: ring.moves().len(),
    }
}

async fn process(SupervisedProcess { member, process }: &SupervisedProcess) -> ProcessStatus {
    let is_there = *process.state() == ProcessState::Running;
    let (readiness, rings) = match member
        .address
        .filter(|_| member.role == ProcessRole::StorageNode)
    {
        _ if !is_there => {
            let reason = process.state().to_string();
            (Readiness { ready: false, reason }, String::new())
        }
        Some(address) => join(probe::readiness(member.admin_address), probe::rings(address)).await,
        None => (probe::readiness(member.admin_address).await, String::new()),
    };
    ProcessStatus {
        name: member.name.clone(),
        role: member.role,
        node: member.node.clone(),
        pid: process.pid(),
        state: process.state().clone(),
        ready: readiness.ready,
        reason: readiness.reason,
        address: member.address,
        admin_address: member.admin_address,
        log: process.log().to_owned(),
        rings,
    }
}

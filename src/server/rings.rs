//! Rings of an embedded server, stored in the data folder. Stored rings are kept, so that later
//! versions find existing data where it was placed.
//!
//! ```text
//! <data-dir>/index.ring     places entries; made at the first start
//! <data-dir>/data.ring      policy 0, one copy: places new extents; made again for added devices
//! <data-dir>/data-1.ring    an erasure-coded policy; added devices get their share of it
//! ```
//!
//! * An existing policy stays, requested or not, and its code never changes.
//! * Data that is to survive the loss of m devices needs its entry. If the first start requests a
//!   code, entries have 2m+1 copies, a majority of which survives the loss of m. A data folder that
//!   began with one copy of each entry keeps one.

use std::fs;
use std::io::ErrorKind;

use martlet_protocol::{DeviceId, PolicyId, Redundancy};
use martlet_ring::{Builder, Device, NewDevice, RebalanceContext, Ring};
use martlet_serving::Failure;
use martlet_serving::folder::DataFolder;
use martlet_topology::is_same_policy;

use super::devices::{ClusterFile, POLICY};
use crate::policies::NamedCode;

const INDEX: &str = "index.ring";
const DATA: &str = "data.ring";
/// Placeholder address of the single node, which no client connects to.
const ADDRESS: &str = "local";
/// Copies of each entry and extent, unless a code requires more.
const REPLICAS: usize = 1;

/// Rings over the devices of the server.
#[derive(Debug)]
pub(crate) struct ServerRings {
    pub(crate) index: Ring,
    /// Rings of extents, by the number of their policy, from 0.
    pub(crate) data: Vec<Ring>,
}

impl ServerRings {
    /// Loads the rings, or makes new ones if the devices have changed. Adds rings for new policies.
    pub(crate) fn settle(
        folder: &DataFolder,
        file: &ClusterFile,
        configured: &[NamedCode],
    ) -> Result<Self, Failure> {
        let devices = file.data_devices();
        let mut coded = kept_codes(folder)?;
        let new = missing(&coded, configured)?;
        let copies = index_copies(configured, file.index_devices().len());
        let index = kept_or_dealt(folder, INDEX, copies, &file.index_devices())?;
        let mut data = vec![kept_or_dealt(folder, DATA, REPLICAS, &devices)?];
        for ring in &mut coded {
            if !is_over(ring, &devices) {
                *ring = grown(ring, &with_address(&devices))?;
                folder.replace(&name_of(ring.identity().policy), &ring.encode())?;
            }
        }
        for NamedCode { name, code } in new {
            let last = coded.last().map_or(POLICY, |ring| ring.identity().policy);
            let ring = Ring::of_code(PolicyId(last.0 + 1), name, *code, &with_address(&devices))
                .map_err(|error| {
                    Failure::refused(format!("the policy {name} can't be created: {error}"))
                })?;
            folder.replace(&name_of(ring.identity().policy), &ring.encode())?;
            coded.push(ring);
        }
        data.append(&mut coded);
        Ok(Self { index, data })
    }
}

/// Refuses codes with more fragments than devices, before any ring is made.
pub(crate) fn check_devices(configured: &[NamedCode], devices: usize) -> Result<(), Failure> {
    match configured.iter().find(|policy| policy.devices() > devices) {
        None => Ok(()),
        Some(policy) => Err(Failure::usage(format!(
            "the policy {}={} needs {} devices, one for each fragment, and there are {devices}: \
             name more with --device, or choose a code with fewer fragments",
            policy.name,
            policy.code,
            policy.devices()
        ))),
    }
}

fn name_of(policy: PolicyId) -> String {
    format!("data-{}.ring", policy.0)
}

/// Number of copies of each entry in a new index ring.
fn index_copies(configured: &[NamedCode], devices: usize) -> usize {
    let parity = configured.iter().map(|policy| match policy.code {
        Redundancy::Erasure { m, .. } => usize::from(m),
        Redundancy::Replicated => 0,
    });
    let copies = 2 * parity.max().unwrap_or(0) + REPLICAS;
    // An even number of copies survives no more losses than the odd number below it.
    copies.min(devices.saturating_sub(1) | 1)
}

/// Loads the rings of erasure-coded policies, in order.
fn kept_codes(folder: &DataFolder) -> Result<Vec<Ring>, Failure> {
    let mut rings = Vec::new();
    for number in 1..=u16::MAX {
        let Some(ring) = kept(folder, &name_of(PolicyId(number)))? else { break };
        rings.push(ring);
    }
    Ok(rings)
}

/// Returns the requested policies that don't exist yet. A different code for an existing policy is
/// refused.
fn missing<'a>(kept: &[Ring], configured: &'a [NamedCode]) -> Result<Vec<&'a NamedCode>, Failure> {
    let mut missing = Vec::new();
    for policy in configured {
        let known = kept
            .iter()
            .map(Ring::identity)
            .find(|it| is_same_policy(&it.policy_name, &policy.name));
        match known {
            None => missing.push(policy),
            Some(it) if it.redundancy == policy.code => {}
            Some(it) => {
                return Err(Failure::refused(format!(
                    "the policy {} is {}, and its code can't change: use {}={}, or give {} another \
                     name",
                    it.policy_name, it.redundancy, it.policy_name, it.redundancy, policy.code
                )));
            }
        }
    }
    Ok(missing)
}

/// Makes the next ring of an erasure-coded policy, with added devices. Moving fragments are also
/// looked for on their previous devices.
fn grown(ring: &Ring, devices: &[Device]) -> Result<Ring, Failure> {
    let unfit = |error: &dyn std::fmt::Display| {
        let name = &ring.identity().policy_name;
        Failure::refused(format!("the policy {name} can't use these devices: {error}"))
    };
    let mut builder = Builder::from_ring(ring, 0, 0.0, 0)?;
    for device in devices.iter().filter(|device| ring.device(device.id).is_none()) {
        let given = builder.add(new_device(device)).map_err(|error| unfit(&error))?;
        if given != device.id {
            return Err(unfit(&format_args!("{} would get the id {given}", device.id)));
        }
    }
    builder
        .rebalance(RebalanceContext { seed: ring.epoch() + 1, ..RebalanceContext::default() })?;
    builder.ring().map_err(|error| unfit(&error))
}

/// Returns the devices with a node address, which a builder requires.
fn with_address(devices: &[Device]) -> Vec<Device> {
    let mut devices = devices.to_vec();
    for device in &mut devices {
        ADDRESS.clone_into(&mut device.node.address);
    }
    devices
}

fn new_device(device: &Device) -> NewDevice {
    let Device { region, zone, node, name, weight, meta, .. } = device.clone();
    NewDevice { region, zone, node, name, weight, meta }
}

fn kept_or_dealt(
    folder: &DataFolder,
    name: &str,
    replicas: usize,
    devices: &[Device],
) -> Result<Ring, Failure> {
    if let Some(ring) = kept(folder, name)?.filter(|ring| is_over(ring, devices)) {
        return Ok(ring);
    }
    let ring = Ring::of_devices(POLICY, replicas, devices)
        .map_err(|error| Failure::refused(format!("the devices don't form a cluster: {error}")))?;
    folder.replace(name, &ring.encode())?;
    Ok(ring)
}

fn kept(folder: &DataFolder, name: &str) -> Result<Option<Ring>, Failure> {
    let path = folder.join(name);
    let failure =
        |what: &str| Failure::refused(format!("{} {what}: restore it from a copy", path.display()));
    match fs::read(&path) {
        Ok(bytes) => Ring::decode(&bytes)
            .map(Some)
            .map_err(|error| failure(&format!("is damaged ({error})"))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failure(&format!("can't be read ({error})"))),
    }
}

fn is_over(ring: &Ring, devices: &[Device]) -> bool {
    let ids = |devices: &[Device]| -> Vec<DeviceId> {
        let mut ids: Vec<_> = devices.iter().map(|device| device.id).collect();
        ids.sort_unstable();
        ids
    };
    ids(ring.devices()) == ids(devices)
}

#[cfg(test)]
mod tests;

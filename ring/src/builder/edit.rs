//! Edits of a builder between rebalances.

use martlet_protocol::DeviceId;
use serde::{Deserialize, Serialize};

use super::{Builder, Drain, LONG_AGO_MS, StartedMove, check_overload, check_replicas};
use crate::device::{Device, Node};
use crate::error::{Error, Result};
use crate::ring::{Move, check_redundancy};
use crate::table::{PART_POWER_MAX, Table};

/// Longest name or address, in bytes.
const NAME_BYTES_MAX: usize = 255;
/// Longest metadata, in bytes.
const META_BYTES_MAX: usize = 4096;
/// Largest weight. Sums of weights stay exact enough to divide them.
const WEIGHT_MAX: f64 = 1e15;
/// Smallest weight above zero. A share of replicas stays finite.
const WEIGHT_MIN: f64 = 1e-9;

/// A device to add; the builder assigns its id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NewDevice {
    /// Region of the device.
    pub region: u32,
    /// Zone within the region.
    pub zone: u32,
    /// Node within the zone.
    pub node: Node,
    /// Name of the device on its node.
    pub name: String,
    /// Share of the data, relative to the other devices' weights.
    pub weight: f64,
    /// Free text for operators.
    #[serde(default)]
    pub meta: String,
}

/// Changes of a device that don't move data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Address of the device's node: changes for all devices of the node.
    pub address: Option<String>,
    /// Name of the device on its node.
    pub name: Option<String>,
    /// Free text for operators.
    pub meta: Option<String>,
}

impl Builder {
    /// Adds a device. It receives its share with the next rebalance.
    pub fn add(&mut self, new: NewDevice) -> Result<DeviceId> {
        check_weight(new.weight)?;
        self.check_room()?;
        let id = DeviceId(self.next_id);
        let next_id = self.next_id.checked_add(1).ok_or_else(|| {
            Error::invalid("no device id is left: make a new builder from the ring in use")
        })?;
        let NewDevice { region, zone, node, name, weight, meta } = new;
        let device = Device { id, region, zone, node, name, weight, meta };
        self.check_names(&device)?;
        self.next_id = next_id;
        self.devices.push(device);
        self.removed.push(false);
        self.changed = true;
        Ok(id)
    }

    fn check_names(&self, new: &Device) -> Result<()> {
        if new.node.name.is_empty() || new.node.address.is_empty() || new.name.is_empty() {
            let message = "a device needs its node's name and address and its own name, such as \
                r1z2-alpha@10.0.0.5:6200/sdb";
            return Err(Error::invalid(message));
        }
        check_lengths(new)?;
        for other in self.devices() {
            if other.node.address == new.node.address && other.node_path() != new.node_path() {
                return Err(Error::invalid(format!(
                    "{} already has the address {}, as the node of {}: each node needs its own \
                     address",
                    other.node.name, new.node.address, other.id
                )));
            }
            if other.node_path() == new.node_path() && other.node.address != new.node.address {
                return Err(Error::invalid(format!(
                    "node {} has the address {}, not {}: use the known address, or change it first \
                     with `set-info {} --address {}`",
                    new.node.name, other.node.address, new.node.address, other.id, new.node.address
                )));
            }
            if other.node_path() == new.node_path() && other.name == new.name {
                return Err(Error::invalid(format!(
                    "{new} is already in the ring as {}: to change its weight, use `set-weight {} \
                     WEIGHT`",
                    other.id, other.id
                )));
            }
        }
        Ok(())
    }

    /// Removes a dead or empty device: the next rebalance moves all its replicas at once. Without
    /// `force`, refuses to remove the last device of a region or zone that replicas need for their
    /// distance.
    pub fn remove(&mut self, id: DeviceId, force: bool) -> Result<()> {
        let slot = self.slot_of(id)?;
        if !force {
            self.check_domains_survive(slot)?;
        }
        self.drains.retain(|drain| drain.device != id);
        self.changed = true;
        if self.table.is_some() {
            self.removed[slot] = true;
        } else {
            self.devices.remove(slot);
            self.removed.remove(slot);
        }
        Ok(())
    }

    fn check_domains_survive(&self, slot: usize) -> Result<()> {
        let leaving = &self.devices[slot];
        if leaving.weight <= 0.0 {
            return Ok(());
        }
        let (region, zone) = leaving.zone_path();
        self.check_survives(slot, &format!("region r{region}"), |device| (device.region, 0))?;
        self.check_survives(slot, &format!("zone r{region}z{zone}"), Device::zone_path)
    }

    /// Checks that the domain of a device, given by `path`, has another device with weight, or
    /// isn't needed for the distance of replicas.
    fn check_survives(
        &self,
        slot: usize,
        place: &str,
        path: impl Fn(&Device) -> (u32, u32),
    ) -> Result<()> {
        let leaving = &self.devices[slot];
        let mut domains: Vec<_> = self.devices().filter(|d| d.weight > 0.0).map(&path).collect();
        let mates = domains.iter().filter(|domain| **domain == path(leaving)).count();
        domains.sort_unstable();
        domains.dedup();
        #[expect(clippy::cast_precision_loss, reason = "at most 2^16 domains")]
        let needed = domains.len() as f64 <= self.settings.replicas.ceil();
        if mates != 1 || !needed || domains.len() < 2 {
            return Ok(());
        }
        let kind = place.split(' ').next().unwrap_or(place);
        let left = domains.len() - 1;
        Err(Error::conflict(format!(
            "{} ({leaving}) is the last device of {place}, and without it {} replicas share {left} \
             {kind}{}: first add a device in {place}, or repeat with --force",
            leaving.id,
            self.settings.replicas,
            if left == 1 { "" } else { "s" },
        )))
    }

    /// Changes a device's weight; ends its drain.
    pub fn set_weight(&mut self, id: DeviceId, weight: f64) -> Result<()> {
        check_weight(weight)?;
        let slot = self.slot_of(id)?;
        self.drains.retain(|drain| drain.device != id);
        self.changed |= self.devices[slot].weight.to_bits() != weight.to_bits();
        self.devices[slot].weight = weight;
        Ok(())
    }

    /// Changes a device's description. No data moves; the next ring contains the change.
    pub fn set_info(&mut self, id: DeviceId, info: DeviceInfo) -> Result<()> {
        let slot = self.slot_of(id)?;
        let mut device = self.devices[slot].clone();
        if let Some(name) = info.name {
            device.name = name;
        }
        if let Some(meta) = info.meta {
            device.meta = meta;
        }
        let path = (device.region, device.zone, device.node.name.clone());
        let is_mate = |d: &Device| d.node_path() == (path.0, path.1, path.2.as_str());
        for other in self.devices().filter(|other| other.id != id) {
            if is_mate(other) && other.name == device.name {
                return Err(Error::invalid(format!(
                    "{} already has the name {}: choose another name",
                    other.id, other.name
                )));
            }
            if info.address.as_ref() == Some(&other.node.address) && !is_mate(other) {
                return Err(Error::invalid(format!(
                    "{} already has the address {}: each node needs its own address",
                    other.node.name, other.node.address
                )));
            }
        }
        if device.name.is_empty() || info.address.as_ref().is_some_and(String::is_empty) {
            return Err(Error::invalid("names and addresses need at least one character"));
        }
        check_lengths(&device)?;
        self.devices[slot] = device;
        if let Some(address) = info.address {
            for mate in self.devices.iter_mut().filter(|d| is_mate(d)) {
                mate.node.address.clone_from(&address);
            }
        }
        self.changed = true;
        Ok(())
    }

    /// Empties a device in `steps` rebalances, lowering its weight to zero. Then it can be removed
    /// without a replica ever missing.
    pub fn drain(&mut self, id: DeviceId, steps: u32) -> Result<()> {
        let slot = self.slot_of(id)?;
        if steps == 0 {
            return Err(Error::invalid("the number of steps must be at least 1"));
        }
        let weight = self.devices[slot].weight;
        if weight <= 0.0 {
            return Err(Error::conflict(format!("{id} already has weight 0: it is drained")));
        }
        self.drains.retain(|drain| drain.device != id);
        self.drains.push(Drain { device: id, step: weight / f64::from(steps) });
        self.changed = true;
        Ok(())
    }

    /// Lowers the weights of draining devices by one step.
    pub(super) fn step_drains(&mut self) {
        for drain in std::mem::take(&mut self.drains) {
            let Ok(slot) = self.slot_of(drain.device) else { continue };
            let weight = &mut self.devices[slot].weight;
            *weight -= drain.step;
            self.changed = true;
            // A rest below half a step is a rounding error of the division.
            if *weight < drain.step / 2.0 {
                *weight = 0.0;
            } else {
                self.drains.push(drain);
            }
        }
    }

    /// Changes the overload; takes effect with the next rebalance.
    pub fn set_overload(&mut self, overload: f64) -> Result<()> {
        check_overload(overload)?;
        self.settings.overload = overload;
        self.changed = true;
        Ok(())
    }

    /// Changes min-part-hours.
    pub fn set_min_part_hours(&mut self, hours: u32) {
        self.settings.min_part_hours = hours;
    }

    /// Changes the number of replicas. The next rebalance places additional replicas, or drops
    /// surplus ones.
    pub fn set_replicas(&mut self, replicas: f64) -> Result<()> {
        check_replicas(replicas)?;
        check_redundancy(self.settings.redundancy, replicas)?;
        self.settings.replicas = replicas;
        self.changed = true;
        Ok(())
    }

    /// Lets the next rebalance move partitions with unsettled moves. Their previous holders stay
    /// listed.
    pub fn pretend_min_part_hours_passed(&mut self) {
        self.moves.iter_mut().for_each(|begun| begun.at_ms = LONG_AGO_MS);
    }

    /// Settles all moves, after a census has found them complete: previous holders are dropped, in
    /// a ring of a new epoch (the next rebalance's, if devices have changed meanwhile). Returns the
    /// number of settled replicas.
    pub fn settle(&mut self) -> Result<usize> {
        let settled = std::mem::take(&mut self.moves).len();
        if settled > 0 && !self.changed {
            self.commit()?;
        }
        Ok(settled)
    }

    /// Doubles the partitions: each is split into two with unchanged devices. Returns the new part
    /// power.
    pub fn increase_part_power(&mut self) -> Result<u8> {
        let power = self.settings.part_power + 1;
        if power > PART_POWER_MAX {
            let message = format!("the part power is already the maximum of {PART_POWER_MAX}");
            return Err(Error::invalid(message));
        }
        self.settings.part_power = power;
        self.table = self.table.take().map(|table| table.doubled());
        let halves = |begun: &StartedMove| {
            let Move { partition, .. } = begun.replica;
            [0, 1].map(|half| {
                let partition = martlet_protocol::Partition(partition.0 * 2 + half);
                StartedMove { replica: Move { partition, ..begun.replica }, ..*begun }
            })
        };
        self.moves = self.moves.iter().flat_map(halves).collect();
        self.moves.sort_by_key(|begun| begun.replica);
        if self.table.is_some() && !self.changed {
            self.commit()?;
        }
        Ok(power)
    }
}

/// Checks the lengths of names, address and metadata, which fields of the ring file bound.
pub(super) fn check_lengths(device: &Device) -> Result<()> {
    let fields = [
        ("node name", &device.node.name, NAME_BYTES_MAX),
        ("address", &device.node.address, NAME_BYTES_MAX),
        ("device name", &device.name, NAME_BYTES_MAX),
        ("metadata", &device.meta, META_BYTES_MAX),
    ];
    match fields.into_iter().find(|(_, text, most)| text.len() > *most) {
        None => Ok(()),
        Some((field, text, most)) => Err(Error::invalid(format!(
            "the {field} has {} bytes, more than the maximum of {most}: shorten it",
            text.len()
        ))),
    }
}

/// Checks that a weight is 0, or 10^-9 to 10^15.
pub(super) fn check_weight(weight: f64) -> Result<()> {
    if weight == 0.0 || (WEIGHT_MIN..=WEIGHT_MAX).contains(&weight) {
        return Ok(());
    }
    if weight.is_finite() && weight > 0.0 {
        let message = format!("a weight must be 0, or 10^-9 to 10^15, not {weight}");
        return Err(Error::invalid(message));
    }
    Err(Error::invalid(format!(
        "a weight must be a finite number of at least 0, such as the size in GB, not {weight}. To \
         empty a device, drain it"
    )))
}

impl Table {
    /// Returns a table with each partition twice.
    fn doubled(&self) -> Self {
        let mut doubled = Self::empty(self.part_power() + 1, self.width(), self.extra() * 2);
        for (partition, row) in self.rows() {
            doubled.row_mut(partition * 2).copy_from_slice(row);
            doubled.row_mut(partition * 2 + 1).copy_from_slice(row);
        }
        doubled
    }
}

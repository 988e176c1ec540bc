//! The builder, which computes rings: devices with their weights, the current assignment, and the
//! moves between assignments.
//!
//! Operators edit devices at any time (`edit`); replicas only move in a rebalance (`rebalance`).
//! One rebalance is a pure function (`solve`) in stages:
//!
//! 1. `tree`: the devices as a tree of regions, zones, nodes.
//! 2. `targets`: the replicas that each element of the tree should hold, by weight, distance and
//!    overload, and the resulting bounds for one partition; `quotas`: whole numbers over all
//!    partitions.
//! 3. `passes`: a holder for every replica, then distance, then balance. Replicas are moved one by
//!    one from devices over their quotas to devices below. A search down the tree (`rules`) draws
//!    the receiving device at random in proportion to need (`needs`); `assignment` keeps the
//!    counts.
//!
//! Where aims conflict, their order is: removed devices, distance within overload, balance, least
//! movement. A rebalance moves at most one replica of a partition, besides replicas on removed
//! devices. It moves none while an earlier move of the partition is in progress (rule P3).

mod assignment;
mod check;
mod cross_tier_moves;
pub(crate) mod device_location;
pub(crate) mod edit;
mod exchanges;
pub(crate) mod file;
mod layout;
mod needs;
mod new_ring;
mod passes;
mod quality;
mod quotas;
pub(crate) mod rebalance;
mod rounding_bias;
mod rules;
mod solve;
mod split_mix;
mod swap_chains;
mod targets;
pub(crate) mod tree;

use martlet_protocol::{DeviceId, PolicyId, Redundancy};
use serde::{Deserialize, Serialize};

pub(crate) use targets::spread;

use crate::device::Device;
use crate::error::{Error, Result};
use crate::ring::{Lineage, Move, Ring, RingHash, RingIdentity, check_redundancy};
use crate::table::{DEVICES_MAX, PART_POWER_MAX, REPLICAS_MAX, Table};

/// Settings of a ring.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RingSettings {
    /// Id of the storage policy that the ring places.
    pub policy: PolicyId,
    /// Name of the storage policy.
    pub policy_name: String,
    /// Redundancy of the policy: copies or fragments.
    #[serde(default, skip_serializing_if = "Redundancy::is_replicated")]
    pub redundancy: Redundancy,
    /// The ring has 2^`part_power` partitions.
    pub part_power: u8,
    /// Replicas of each partition; with 2.5, half of the partitions have three and the others two.
    pub replicas: f64,
    /// Hours between rebalances, unless the moves are settled or a device is removed before. A
    /// moved partition stays locked until its move is settled, however long ago the move began.
    pub min_part_hours: u32,
    /// Share by which a device may exceed its share by weight, 0.1 for a tenth, to increase the
    /// distance between replicas.
    pub overload: f64,
}

impl RingSettings {
    fn check(&self) -> Result<()> {
        if self.part_power > PART_POWER_MAX {
            return Err(Error::invalid(format!(
                "part power {} is too large: the maximum is {PART_POWER_MAX}",
                self.part_power
            )));
        }
        check_replicas(self.replicas)?;
        check_redundancy(self.redundancy, self.replicas)?;
        check_overload(self.overload)
    }
}

fn no_ring_yet() -> Error {
    Error::conflict("there is no ring yet: add devices, then rebalance")
}

fn check_replicas(replicas: f64) -> Result<()> {
    #[expect(clippy::cast_precision_loss, reason = "a small constant")]
    let most = REPLICAS_MAX as f64;
    if (1.0..=most).contains(&replicas) {
        return Ok(());
    }
    let message = format!("the number of replicas must be 1 to {REPLICAS_MAX}, not {replicas}");
    Err(Error::invalid(message))
}

fn check_overload(overload: f64) -> Result<()> {
    if overload.is_finite() && overload >= 0.0 {
        return Ok(());
    }
    let message =
        format!("overload must be a finite fraction of at least 0, such as 0.1, not {overload}");
    Err(Error::invalid(message))
}

/// Record of an operator's action on a builder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryEntry {
    /// Time of the action, in milliseconds since 1970.
    pub at_ms: u64,
    /// Operator.
    pub who: String,
    /// Description of the action.
    pub what: String,
}

/// Start time of a move that doesn't lock its partition.
const LONG_AGO_MS: u64 = 0;

/// A move with its start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StartedMove {
    replica: Move,
    at_ms: u64,
}

impl StartedMove {
    /// Returns true while the partition's other replicas may not move.
    fn locks(&self) -> bool {
        self.at_ms != LONG_AGO_MS
    }
}

/// A device being drained: its weight falls by `step` with each rebalance.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Drain {
    device: DeviceId,
    step: f64,
}

/// Builder of a ring.
#[derive(Clone, Debug, PartialEq)]
pub struct Builder {
    settings: RingSettings,
    lineage: Lineage,
    epoch: u64,
    /// Number of the last change; rises with every rebalance that moves or places a replica.
    change: u64,
    parent: RingHash,
    /// Hash of this epoch's ring; the parent of the next ring.
    hash: RingHash,
    handoff_unit: f64,
    next_id: u32,
    /// Devices in the order of their ids; the position is the slot.
    devices: Vec<Device>,
    /// For each device, true if it loses all its replicas with the next rebalance.
    removed: Vec<bool>,
    drains: Vec<Drain>,
    /// The assignment; none before the first rebalance.
    table: Option<Table>,
    moves: Vec<StartedMove>,
    /// True if devices or settings changed since the last rebalance.
    changed: bool,
    history: Vec<HistoryEntry>,
}

impl Builder {
    /// Creates a builder without devices. Rings of different lineage never replace one another;
    /// pass 16 random bytes as `lineage`.
    pub fn create(settings: RingSettings, lineage: Lineage) -> Result<Self> {
        settings.check()?;
        Ok(Self {
            settings,
            lineage,
            epoch: 0,
            change: 0,
            parent: [0; 32],
            hash: [0; 32],
            handoff_unit: 1.0,
            next_id: 0,
            devices: Vec::new(),
            removed: Vec::new(),
            drains: Vec::new(),
            table: None,
            moves: Vec::new(),
            changed: true,
            history: Vec::new(),
        })
    }

    /// Creates a builder for devices that have ids.
    pub(crate) fn of_devices(
        settings: RingSettings,
        devices: Vec<Device>,
        next_id: u32,
    ) -> Result<Self> {
        if let Some(pair) = devices.windows(2).find(|pair| pair[0].id == pair[1].id) {
            return Err(Error::invalid(format!("two devices have the id {}", pair[0].id)));
        }
        let removed = vec![false; devices.len()];
        Ok(Self { next_id, devices, removed, ..Self::create(settings, [0; 16])? })
    }

    /// Recreates a builder from its ring, with devices, assignment and moves. The ring doesn't
    /// contain min-part-hours, overload and history: pass the first two; the history is lost.
    pub fn from_ring(ring: &Ring, min_part_hours: u32, overload: f64, now_ms: u64) -> Result<Self> {
        let identity = ring.identity();
        let settings = RingSettings {
            policy: identity.policy,
            policy_name: identity.policy_name.clone(),
            redundancy: identity.redundancy,
            part_power: ring.part_power(),
            replicas: ring.replicas_exact(),
            min_part_hours,
            overload,
        };
        let moves =
            ring.moves().iter().map(|&replica| StartedMove { replica, at_ms: now_ms }).collect();
        Ok(Self {
            epoch: identity.epoch,
            change: identity.change,
            parent: identity.parent,
            hash: ring.hash(),
            handoff_unit: identity.handoff_unit,
            next_id: identity.next_id,
            devices: ring.devices().to_vec(),
            removed: vec![false; ring.devices().len()],
            table: Some(ring.table.clone()),
            moves,
            changed: false,
            ..Self::create(settings, identity.lineage)?
        })
    }

    /// Returns the ring of the last rebalance; an error if devices have changed since.
    pub fn ring(&self) -> Result<Ring> {
        if self.changed && self.table.is_some() {
            return Err(Error::conflict(
                "devices or settings have changed since the last rebalance: rebalance before \
                 writing the ring",
            ));
        }
        self.current_ring()
    }

    /// Returns the current assignment over the current devices: new devices hold nothing yet,
    /// removed ones still hold replicas. For display only; must not be written to a file.
    pub fn current_ring(&self) -> Result<Ring> {
        let Some(table) = &self.table else { return Err(no_ring_yet()) };
        let moves = self.moves.iter().map(|begun| begun.replica).collect();
        Ring::from_parts(self.identity(), self.devices.clone(), table.clone(), moves)
    }

    /// Makes the current state the ring of the next epoch.
    fn commit(&mut self) -> Result<()> {
        let next = self.epoch.checked_add(1).filter(|_| self.change < u64::MAX);
        let none_left = || Error::invalid("no epoch is left for another ring: make a new builder");
        self.epoch = next.ok_or_else(none_left)?;
        self.parent = self.hash;
        self.changed = false;
        self.hash = self.ring()?.hash();
        Ok(())
    }

    fn identity(&self) -> RingIdentity {
        RingIdentity {
            epoch: self.epoch,
            policy: self.settings.policy,
            policy_name: self.settings.policy_name.clone(),
            redundancy: self.settings.redundancy,
            change: self.change,
            lineage: self.lineage,
            parent: self.parent,
            handoff_unit: self.handoff_unit,
            next_id: self.next_id,
        }
    }

    /// Settings of the ring.
    pub fn settings(&self) -> &RingSettings {
        &self.settings
    }

    /// Epoch of the last ring; 0 before the first.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Devices that aren't removed.
    pub fn devices(&self) -> impl Iterator<Item = &Device> {
        self.devices.iter().zip(&self.removed).filter(|(_, gone)| !**gone).map(|(device, _)| device)
    }

    /// Devices that lose all their replicas with the next rebalance.
    pub fn removed(&self) -> impl Iterator<Item = &Device> {
        self.devices.iter().zip(&self.removed).filter(|(_, gone)| **gone).map(|(device, _)| device)
    }

    /// True if devices or settings changed since the last rebalance.
    pub fn is_changed(&self) -> bool {
        self.changed
    }

    /// Number of replicas that were moved and not settled.
    pub fn moving(&self) -> usize {
        self.moves.len()
    }

    /// Recorded actions, oldest first.
    pub fn history(&self) -> &[HistoryEntry] {
        &self.history
    }

    /// Records an action.
    pub fn record(&mut self, at_ms: u64, who: &str, what: impl Into<String>) {
        self.history.push(HistoryEntry { at_ms, who: who.to_owned(), what: what.into() });
    }

    /// The assignment; none before the first rebalance.
    pub(crate) fn table(&self) -> Option<&Table> {
        self.table.as_ref()
    }

    /// All devices, and for each true if it is removed; by slot.
    pub(crate) fn slots(&self) -> (&[Device], &[bool]) {
        (&self.devices, &self.removed)
    }

    fn slot_of(&self, id: DeviceId) -> Result<usize> {
        self.devices
            .binary_search_by_key(&id, |device| device.id)
            .ok()
            .filter(|slot| !self.removed[*slot])
            .ok_or_else(|| {
                let known: Vec<String> =
                    self.devices().take(8).map(|device| device.id.to_string()).collect();
                let more = if self.devices().count() > known.len() { ", …" } else { "" };
                let known = if known.is_empty() { "none yet".to_owned() } else { known.join(", ") };
                Error::not_found(format!(
                    "there is no device {id}; there are: {known}{more}. `show` lists all devices"
                ))
            })
    }

    fn check_room(&self) -> Result<()> {
        if self.devices.len() < DEVICES_MAX {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "a ring has at most {DEVICES_MAX} devices: use another ring for more"
        )))
    }
}

/// Number of replicas that were moved to these devices and not settled.
pub fn moving_to(builder: &Builder, is_one: impl Fn(DeviceId) -> bool) -> usize {
    let Some(table) = &builder.table else { return 0 };
    let arrives = |begun: &&StartedMove| {
        let Move { partition, replica, .. } = begun.replica;
        let slot = table.row(partition.0).get(usize::from(replica));
        let holder = slot.and_then(|slot| builder.devices.get(usize::from(*slot)));
        holder.is_some_and(|holder| is_one(holder.id))
    };
    builder.moves.iter().filter(arrives).count()
}

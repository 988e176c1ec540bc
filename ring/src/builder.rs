//! What rebuilds the ring: the devices as people want them, the assignment as it is, and the moves
//! between the two.
//!
//! People change devices as often as they like (`edit`); nothing moves until they rebalance
//! (`rebalance`). One rebalance is a pure function (`solve`) in stages:
//!
//! 1. `tree`: the devices as a tree of regions, zones, nodes.
//! 2. `targets`: what each element of the tree should hold, by weight, distance and overload, and
//!    the bounds for one partition that follow; `quotas`: whole numbers over all partitions.
//! 3. `passes`: a holder for every replica, then distance, then balance. Replicas are moved one by
//!    one from who has too much to who needs more, found by a search down the tree (`rules`) that
//!    draws by lot in proportion to need (`needs`); `state` keeps the counts.
//!
//! Aims, where they conflict, in this order: dead devices, distance within overload, balance, least
//! movement. Of a partition at most one replica moves in a rebalance, but for those that a removed
//! device held, and none while an earlier move of it is under way (rule P3).

mod chains;
mod chance;
mod check;
mod crossings;
mod edit;
mod exchanges;
pub(crate) mod file;
mod layout;
mod lean;
mod needs;
mod passes;
mod quotas;
mod rebalance;
mod rules;
mod solve;
mod spec;
mod state;
mod targets;
pub(crate) mod tree;

use martlet_protocol::{DeviceId, PolicyId, Redundancy};
use serde::{Deserialize, Serialize};

pub use edit::{DeviceInfo, NewDevice};
pub use rebalance::{Occasion, Report};
pub use spec::Place;
pub(crate) use targets::spread;

use crate::device::Device;
use crate::error::{Error, Result};
use crate::ring::{Identity, Lineage, Move, Ring, RingHash};
use crate::table::{DEVICES_MAX, PART_POWER_MAX, REPLICAS_MAX, Table};

/// What a ring is made with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// The storage policy that it places.
    pub policy: PolicyId,
    /// The policy's name.
    pub policy_name: String,
    /// Whether its devices hold copies or fragments.
    #[serde(default, skip_serializing_if = "Redundancy::is_replicated")]
    pub redundancy: Redundancy,
    /// There will be two to the power of this many partitions.
    pub part_power: u8,
    /// Replicas of each partition; 2.5 gives half of them three and the others two.
    pub replicas: f64,
    /// Hours from one rebalance to the next, unless the moves are settled before. A partition that
    /// moved is left alone until its move is settled, however long ago that began.
    pub min_part_hours: u32,
    /// How far beyond its share by weight a device may be loaded, 0.1 being a tenth, so that
    /// replicas lie further apart.
    pub overload: f64,
}

impl Settings {
    fn check(&self) -> Result<()> {
        if self.part_power > PART_POWER_MAX {
            return Err(Error::invalid(format!(
                "part power {} is too large: the largest is {PART_POWER_MAX}",
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
    let message = format!("a ring has 1 to {REPLICAS_MAX} replicas, not {replicas}");
    Err(Error::invalid(message))
}

/// A policy of fragments has a replica for each fragment.
pub(crate) fn check_redundancy(redundancy: Redundancy, replicas: f64) -> Result<()> {
    let Some(fragments) = redundancy.fragments() else { return Ok(()) };
    if replicas.to_bits() == f64::from(fragments).to_bits() {
        return Ok(());
    }
    let message = format!(
        "a ring of the erasure code {redundancy} has {fragments} replicas, one for each fragment, \
         and not {replicas}"
    );
    Err(Error::invalid(message))
}

fn check_overload(overload: f64) -> Result<()> {
    if overload.is_finite() && overload >= 0.0 {
        return Ok(());
    }
    let message = format!(
        "overload is a share such as 0.1 for a tenth, and never below zero; not {overload}"
    );
    Err(Error::invalid(message))
}

/// Who did what, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryEntry {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// Who.
    pub who: String,
    /// What.
    pub what: String,
}

/// The beginning of a move that nobody has to wait for.
const LONG_AGO_MS: u64 = 0;

/// A move and when it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Begun {
    replica: Move,
    at_ms: u64,
}

impl Begun {
    /// Returns true while no rebalance may move another replica of the partition.
    fn locks(&self) -> bool {
        self.at_ms != LONG_AGO_MS
    }
}

/// A device on its way out: its weight falls by `step` with each rebalance.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Drain {
    device: DeviceId,
    step: f64,
}

/// What rebuilds the ring.
#[derive(Clone, Debug, PartialEq)]
pub struct Builder {
    settings: Settings,
    lineage: Lineage,
    epoch: u64,
    /// Rises with every rebalance that moves or places a replica.
    change: u64,
    parent: RingHash,
    /// Hash of the ring of this epoch, which the next one names.
    hash: RingHash,
    handoff_unit: f64,
    next_id: u32,
    /// By id; the position is the slot.
    devices: Vec<Device>,
    /// For each device whether it is to lose everything with the next rebalance.
    removed: Vec<bool>,
    drains: Vec<Drain>,
    /// The assignment; none before the first rebalance.
    table: Option<Table>,
    moves: Vec<Begun>,
    /// Whether devices or settings changed since the last rebalance.
    changed: bool,
    history: Vec<HistoryEntry>,
}

impl Builder {
    /// A builder without devices. Two rings of different lineage never replace one another; pass
    /// 16 random bytes.
    pub fn create(settings: Settings, lineage: Lineage) -> Result<Self> {
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

    /// A builder of devices that have their ids already.
    pub(crate) fn of_devices(
        settings: Settings,
        devices: Vec<Device>,
        next_id: u32,
    ) -> Result<Self> {
        if let Some(pair) = devices.windows(2).find(|pair| pair[0].id == pair[1].id) {
            return Err(Error::invalid(format!("two devices have the id {}", pair[0].id)));
        }
        let removed = vec![false; devices.len()];
        Ok(Self { next_id, devices, removed, ..Self::create(settings, [0; 16])? })
    }

    /// A builder made again from the ring that it made: devices, assignment and moves are there;
    /// min-part-hours, overload and history are not, so say what they were.
    pub fn from_ring(ring: &Ring, min_part_hours: u32, overload: f64, now_ms: u64) -> Result<Self> {
        let identity = ring.identity();
        let settings = Settings {
            policy: identity.policy,
            policy_name: identity.policy_name.clone(),
            redundancy: identity.redundancy,
            part_power: ring.part_power(),
            replicas: ring.replicas_exact(),
            min_part_hours,
            overload,
        };
        let moves = ring.moves().iter().map(|&replica| Begun { replica, at_ms: now_ms }).collect();
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

    /// The ring as it was last rebalanced; refused while devices have changed since.
    pub fn ring(&self) -> Result<Ring> {
        if self.changed && self.table.is_some() {
            return Err(Error::conflict(
                "devices or settings have changed since the last rebalance, and a ring written now \
                 would not be what you asked for: rebalance first",
            ));
        }
        self.standing()
    }

    /// The assignment as it stands, over all devices of now: new ones hold nothing yet, removed ones
    /// still do. To look at, never to be written.
    pub fn standing(&self) -> Result<Ring> {
        let Some(table) = &self.table else { return Err(no_ring_yet()) };
        let moves = self.moves.iter().map(|begun| begun.replica).collect();
        Ring::from_parts(self.identity(), self.devices.clone(), table.clone(), moves)
    }

    /// Makes what stands now the ring of the next epoch.
    fn commit(&mut self) -> Result<()> {
        self.epoch += 1;
        self.parent = self.hash;
        self.changed = false;
        self.hash = self.ring()?.hash();
        Ok(())
    }

    fn identity(&self) -> Identity {
        Identity {
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

    /// What the ring is made with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The epoch of the last ring; 0 before the first.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Devices that aren't removed.
    pub fn devices(&self) -> impl Iterator<Item = &Device> {
        self.devices.iter().zip(&self.removed).filter(|(_, gone)| !**gone).map(|(device, _)| device)
    }

    /// Devices that will lose everything with the next rebalance.
    pub fn removed(&self) -> impl Iterator<Item = &Device> {
        self.devices.iter().zip(&self.removed).filter(|(_, gone)| **gone).map(|(device, _)| device)
    }

    /// Whether devices or settings changed since the last rebalance.
    pub fn is_changed(&self) -> bool {
        self.changed
    }

    /// Replicas that are moving: moved, and not settled.
    pub fn moving(&self) -> usize {
        self.moves.len()
    }

    /// What was done, oldest first.
    pub fn history(&self) -> &[HistoryEntry] {
        &self.history
    }

    /// Writes down what was done.
    pub fn record(&mut self, at_ms: u64, who: &str, what: impl Into<String>) {
        self.history.push(HistoryEntry { at_ms, who: who.to_owned(), what: what.into() });
    }

    /// Replicas that each device holds, by slot; nothing before the first rebalance.
    pub(crate) fn table(&self) -> Option<&Table> {
        self.table.as_ref()
    }

    /// All devices with the mark of those removed, by slot.
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
                    "there is no device {id}; there are: {known}{more}. `show` lists them all"
                ))
            })
    }

    fn check_room(&self) -> Result<()> {
        if self.devices.len() < DEVICES_MAX {
            return Ok(());
        }
        Err(Error::invalid(format!("a ring takes {DEVICES_MAX} devices at most: make another")))
    }
}

//! Where things go.
//!
//! A **ring** divides the space of placement hashes into 2^part-power **partitions** and says which
//! **devices** are the **primaries** of each, one for every replica, and in which order all other
//! devices stand in for them as **handoffs**. It is immutable: servers load a [ring file](mod@file) and
//! ask; [`Ring::check_successor`] decides which newer ring may take its place.
//!
//! A [`Builder`] makes rings. It keeps the devices as people want them, with regions, zones, nodes
//! and weights, and moves as little as it can when they change; see [`builder`].
//!
//! Around the two: [`Figures`] says how good a ring is (balance and dispersion, as Swift defines
//! them), [`Plan`] what a rebalance will cost before it is done, [`Diff`] how two rings differ,
//! [`svg`] draws one.
//!
//! Nothing here knows the network, reads a clock or draws chance of its own: times and seeds are
//! given, and the same input makes the same ring everywhere.

pub mod builder;
mod device;
mod diff;
mod disk;
mod error;
mod figures;
pub mod file;
mod handoff;
mod plan;
mod ring;
mod sets;
mod succession;
pub mod svg;
mod table;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use builder::{
    Builder, DeviceInfo, HistoryEntry, NewDevice, Occasion, Place, Report, Settings,
};
pub use device::{Device, Node};
pub use diff::Diff;
pub use error::{Error, ErrorKind, Result};
pub use figures::{BALANCE_WORST, Crowded, DeviceFigures, Figures};
pub use plan::{DevicePlan, Pace, Plan, Usage};
pub use ring::{Identity, Lineage, Move, Ring, RingHash};
pub use sets::Sets;
pub use table::{DEVICES_MAX, PART_POWER_MAX, REPLICAS_MAX};

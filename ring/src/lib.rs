//! Rings: placement of partitions on devices.
//!
//! A **ring** divides the space of placement hashes into 2^part-power **partitions**. For each
//! partition it names the **primaries**, one **device** for each replica, and the order of all
//! other devices as **handoffs**. A ring is immutable: servers load a [ring file](mod@file), and
//! [`Ring::check_successor`] decides if a newer ring may replace it.
//!
//! A [`Builder`] computes rings. It keeps the configured devices with regions, zones, nodes and
//! weights, and moves as few replicas as possible when they change; see [`builder`].
//!
//! Further types: [`Figures`] measure a ring's quality (balance and dispersion, as defined by
//! Swift), [`RebalancePlan`] predicts the cost of a rebalance, [`Diff`] compares two rings, and
//! [`svg`] draws a ring.
//!
//! This crate uses no network, no clock and no randomness of its own: times and seeds are
//! arguments, and equal inputs give equal rings.

pub mod builder;
mod device;
mod diff;
mod disk;
mod error;
mod figures;
pub mod file;
#[cfg(feature = "testing")]
pub mod fixtures;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod handoff;
mod leave;
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

pub use builder::device_location::DeviceLocation;
pub use builder::edit::{DeviceInfo, NewDevice};
pub use builder::rebalance::{ASSIGNMENTS_MAX, RebalanceContext, Report, rebalance_observed};
pub use builder::{Builder, HistoryEntry, RingSettings, moving_to};
pub use device::{Device, Node};
pub use diff::Diff;
pub use error::{Error, ErrorKind, Result};
pub use figures::{BALANCE_WORST, CrowdedElement, DeviceFigures, Figures};
pub use plan::{DevicePlan, MovePace, RebalancePlan, Usage};
pub use ring::{Lineage, Move, Ring, RingHash, RingIdentity};
pub use sets::Sets;
pub use table::{DEVICES_MAX, PART_POWER_MAX, REPLICAS_MAX};

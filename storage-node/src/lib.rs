//! One storage node: devices that keep registers and extents, and nothing of who should hold what.
//!
//! ```text
//!                     Backend
//!                        │
//!                  StorageNode
//!                        │ one for each device
//!                     Device ── format.json, lock, ballast, clean-shutdown marker
//!                        │      monitor: opening, space, reopening; threads for what waits
//!                    ┌───┴────┐
//!                 Index    ExtentStore
//!           (RocksDB, one     │
//!            committer)      Disk (posix, faulty)
//! ```
//!
//! * [`index`]: the registers of a device in RocksDB, behind one committer thread that turns the
//!   writes that wait into one synced batch, and decides each of them (rules R1, R2).
//!   It also keeps writes for devices that are out (rule A2), and knows whether this one votes (rule G1).
//! * [`extents`]: immutable object bytes, packed into volumes or in files of their own.
//! * [`disk`]: the file calls that extents rest on, real or faulty.
//! * [`device`]: a folder that is a device: whose it is, who has it open, what space is left.
//! * [`node`]: the devices of a node behind [`Backend`](martlet_protocol::Backend).
//!
//! What is acknowledged is on disk: extent bytes are synced before the entry that names them, the
//! entry before the reply (rule X6). A failed sync fails its write, and the device is closed and
//! opened again before it takes another.

pub mod device;
pub mod disk;
pub mod extents;
pub mod index;
pub mod metrics;
pub mod node;

pub use device::{DeviceConfig, Incarnation, OpeningStatus, Reserve, Uuid};
pub use index::ExtentTable;
pub use metrics::{DeviceMetrics, IndexMetrics, NodeMetrics};
pub use node::{NodeOptions, Patience, StorageNode};

//! One storage node: devices that store registers and extents. Other crates decide placement.
//!
//! ```text
//!                     Backend
//!                        │
//!                  StorageNode
//!                        │ one for each device
//!                     Device ── format.json, lock, ballast, clean-shutdown marker
//!                        │      monitor: opening, space, reopening; threads for blocking calls
//!                    ┌───┴────┐
//!                 Index    ExtentStore
//!           (RocksDB, one     │
//!            committer)      Disk (posix, faulty)
//! ```
//!
//! * [`index`]: the registers of a device in RocksDB. One committer thread turns waiting writes
//!   into one synced batch, and decides each write (rules R1, R2). The index also stores hints for
//!   devices that are out (rule A2), and knows if its device votes (rule G1).
//! * [`extents`]: immutable object bytes, packed into volumes or in files of their own.
//! * [`disk`]: the file calls that extents rest on, real or faulty.
//! * [`device`]: a folder that is a device: its identity, its lock, its free space.
//! * [`bulk`]: loading of many objects without bytes, for benchmarks.
//! * [`node`]: the devices of a node behind [`Backend`](martlet_protocol::Backend).
//! * [`direct`]: the socket on which processes of the machine receive descriptors of extents.
//!
//! Acknowledged data is on disk: extent bytes are synced before the entry that names them, the
//! entry before the reply (rule X6). A failed sync fails its write. The device is then closed and
//! opened again before it accepts another write.

pub mod bulk;
pub mod device;
pub mod direct;
pub mod disk;
pub mod extents;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod index;
pub mod metrics;
pub mod node;
mod sync;

pub use bulk::{BulkLoad, BulkObject};
pub use device::{DeviceConfig, FolderFormat, Reserve};
pub use direct::{DirectFigures, DirectListener, DirectOptions, DirectServer, DirectTimes};
pub use extents::{ExtentInPlace, LendingLimit, SendEnd, SentBytes};
pub use index::ExtentTable;
pub use martlet_protocol::opening::{Incarnation, OpeningStatus, Uuid};
pub use metrics::{DeviceMetrics, IndexMetrics, NodeMetrics};
pub use node::{NodeOptions, Patience, StorageNode, WRITE_BUFFER_BYTES_MIN};

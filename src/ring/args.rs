//! Arguments of `martlet ring`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use martlet_serving::Size;

use crate::admin::AdminConnectionArgs;

/// Arguments of `martlet ring`.
#[derive(Args, Debug)]
#[command(
    subcommand_negates_reqs = true,
    arg_required_else_help = true,
    after_help = "\
Start here:
  martlet ring data.builder create --part-power 16 --replicas 3
  martlet ring data.builder add r1z1-alpha@10.0.0.1:6200/sdb 4000 r1z2-beta@10.0.0.2:6200/sdb 4000
  martlet ring data.builder plan
  martlet ring data.builder rebalance
  martlet ring data.builder write-ring

Select devices by id (d7) or by place: r1, r1z2, r1z2-alpha, r1z2-alpha/sdb."
)]
pub(crate) struct RingArgs {
    /// Builder file; read-only commands also accept a ring file
    pub(super) builder: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    pub(super) json: bool,
    /// Write a picture (SVG) of the ring's balance to this file
    #[arg(long, global = true, value_name = "FILE")]
    pub(super) svg: Option<PathBuf>,
    /// Author of the change in the builder's history
    #[arg(long, global = true, value_name = "NAME", env = "USER", hide_env_values = true)]
    pub(super) who: Option<String>,
    #[command(subcommand)]
    pub(super) command: BuilderCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum BuilderCommand {
    /// Create a builder without devices
    Create(CreateArgs),
    /// Add devices, such as r1z2-alpha@10.0.0.5:6200/sdb 4000
    Add(AddArgs),
    /// Remove dead or empty devices; the next rebalance moves all their replicas
    Remove {
        /// Devices by id or place
        #[arg(required = true)]
        devices: Vec<String>,
        /// Remove even the last device of a zone that placement needs
        #[arg(long)]
        force: bool,
    },
    /// Change the weight of devices
    SetWeight {
        /// Devices by id or place
        devices: String,
        /// New weight: the share of data relative to other devices
        #[arg(allow_negative_numbers = true)]
        weight: f64,
    },
    /// Change a device's address, name or metadata; no data moves
    SetInfo(InfoArgs),
    /// Empty devices in steps, one per rebalance
    Drain {
        /// Devices by id or place
        #[arg(required = true)]
        devices: Vec<String>,
        /// Number of rebalances until the devices are empty
        #[arg(long, default_value_t = 4)]
        steps: u32,
    },
    /// Set how far a device may exceed its share for better dispersion
    SetOverload {
        /// Fraction of the share, such as 0.1
        #[arg(allow_negative_numbers = true)]
        overload: f64,
    },
    /// Set the number of replicas
    SetReplicas {
        /// Number such as 3, or 2.5: three for half of the partitions, two for the others
        #[arg(allow_negative_numbers = true)]
        replicas: f64,
    },
    /// Set the minimum time between two moves of a partition
    SetMinPartHours {
        /// Hours
        hours: u32,
    },
    /// Double the number of partitions; no data moves
    IncreasePartPower,
    /// Show the moves of a rebalance and their cost
    Plan(PlanArgs),
    /// Assign partitions to devices anew, and make the next ring
    Rebalance {
        /// Show the plan without changing the builder
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        plan: PlanArgs,
    },
    /// Write the ring file that servers read
    WriteRing {
        /// Output file [default: builder's name with .ring]
        file: Option<PathBuf>,
    },
    /// Recreate a lost builder from its ring file
    Reconstruct {
        /// Ring file in use
        ring: PathBuf,
        /// Minimum hours between two moves of a partition
        #[arg(long, default_value_t = 24)]
        min_part_hours: u32,
        /// Maximum excess of a device over its share for better dispersion
        #[arg(long, default_value_t = 0.0)]
        overload: f64,
    },
    /// Record that all moves are done, after a clean census
    Settle,
    /// Let the next rebalance move recently moved partitions again
    PretendMinPartHoursPassed,
    /// Check the builder for inconsistencies
    Validate,
    /// Show the tree of regions, zones, nodes and devices with replicas and shares
    Show {
        /// Depth of the tree [default: device, or node above 64 devices]
        #[arg(long, value_enum)]
        depth: Option<Depth>,
    },
    /// Show the deviation of devices from their shares
    Balance {
        /// Show all devices instead of the worst ones
        #[arg(long)]
        all: bool,
    },
    /// Show places whose replicas are closer together than necessary
    Dispersion,
    /// List devices by id or place
    Search {
        /// Id or place: d7, r1, r1z2, r1z2-alpha, r1z2-alpha/sdb
        devices: String,
    },
    /// Show partition, primaries and handoffs of a key
    Locate(LocateArgs),
    /// Show the history of changes
    History,
    /// Compare two ring files
    Diff {
        /// Older ring file
        old: PathBuf,
        /// Newer ring file
        new: PathBuf,
    },
}

/// Depth of the tree of `show`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(super) enum Depth {
    Region,
    Zone,
    Node,
    Device,
}

#[derive(Args, Debug)]
pub(super) struct CreateArgs {
    /// Number of partitions as a power of two; plan 100 or more per device of the largest cluster
    /// to come
    #[arg(long, default_value_t = 16)]
    pub(super) part_power: u8,
    /// Number of replicas [default: 3]
    #[arg(long, allow_negative_numbers = true, conflicts_with = "erasure")]
    pub(super) replicas: Option<f64>,
    /// Erasure code instead of replicas, such as 4+2: four data and two parity fragments, of which
    /// any two may be lost. Only for data rings
    #[arg(long, value_name = "K+M")]
    pub(super) erasure: Option<String>,
    /// Minimum hours between two moves of a partition
    #[arg(long, default_value_t = 24)]
    pub(super) min_part_hours: u32,
    /// Maximum excess of a device over its share for better dispersion, such as 0.1
    #[arg(long, default_value_t = 0.0, allow_negative_numbers = true)]
    pub(super) overload: f64,
    /// Number of the ring's storage policy
    #[arg(long, default_value_t = 0)]
    pub(super) policy: u16,
    /// Name of the storage policy, for buckets and storage classes [default for policy 0: default]
    #[arg(long, value_name = "NAME")]
    pub(super) policy_name: Option<String>,
}

#[derive(Args, Debug)]
pub(super) struct AddArgs {
    /// Place and weight of each device
    #[arg(value_names = ["PLACE", "WEIGHT"], num_args = 2.., allow_negative_numbers = true)]
    pub(super) devices: Vec<String>,
    /// File with a place, a weight and metadata on each line
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "devices",
        required_unless_present = "devices"
    )]
    pub(super) from: Option<PathBuf>,
    /// Free-form metadata
    #[arg(long, default_value = "", conflicts_with = "from")]
    pub(super) meta: String,
}

#[derive(Args, Debug)]
pub(super) struct InfoArgs {
    /// Device by id or place
    pub(super) device: String,
    /// New address of the device's node, as host:port
    #[arg(long)]
    pub(super) address: Option<String>,
    /// New name of the device on its node
    #[arg(long)]
    pub(super) name: Option<String>,
    /// New metadata
    #[arg(long)]
    pub(super) meta: Option<String>,
}

#[derive(Args, Debug)]
pub(super) struct PlanArgs {
    /// Seed for ties [default: derived from the epoch, so that a rebalance follows its plan]
    #[arg(long)]
    pub(super) seed: Option<u64>,
    /// Usage of devices: JSON such as {"d0": {"used": 1000, "capacity": 4000}}, or the output of
    /// `martlet admin status --json`
    #[arg(long, value_name = "FILE")]
    pub(super) usage: Option<PathBuf>,
    /// Bytes per second of moves at each device
    #[arg(long, value_name = "BYTES", default_value = "100MB")]
    pub(super) bandwidth: Size,
    /// Fraction of a device's capacity above which the plan warns
    #[arg(long, value_name = "SHARE", default_value_t = 0.9)]
    pub(super) high_water: f64,
}

#[derive(Args, Debug)]
pub(super) struct LocateArgs {
    /// Name or id (32 hexadecimal digits) of the bucket
    #[arg(required_unless_present_any = ["extent", "partition"])]
    pub(super) bucket: Option<String>,
    /// Key; a bucket given by name needs a running server, which knows its id
    pub(super) key: Option<String>,
    /// Number of index shards of a bucket given by id
    #[arg(long, default_value_t = martlet_protocol::limits::INDEX_SHARDS_DEFAULT)]
    pub(super) shards: u16,
    #[command(flatten)]
    pub(super) connection: AdminConnectionArgs,
    /// Extent by its id (32 hexadecimal digits), on a data ring
    #[arg(long, value_name = "ID", conflicts_with_all = ["bucket", "partition"])]
    pub(super) extent: Option<String>,
    /// Partition by its number
    #[arg(long, value_name = "NUMBER", conflicts_with = "bucket")]
    pub(super) partition: Option<u32>,
    /// Number of handoffs to list
    #[arg(long, default_value_t = 6)]
    pub(super) handoffs: usize,
}

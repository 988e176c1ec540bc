//! Arguments of `martlet ring`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::units::Size;

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

Devices are named by id (d7), or by where they are: r1, r1z2, r1z2-alpha, r1z2-alpha/sdb."
)]
pub(crate) struct RingArgs {
    /// The builder file; commands that only look take a ring file too
    pub(super) builder: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    pub(super) json: bool,
    /// Draw the ring's balance into this file
    #[arg(long, global = true, value_name = "FILE")]
    pub(super) svg: Option<PathBuf>,
    /// Who does this, for the builder's history
    #[arg(long, global = true, value_name = "NAME", env = "USER", hide_env_values = true)]
    pub(super) who: Option<String>,
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Make a builder without devices
    Create(CreateArgs),
    /// Add devices, such as r1z2-alpha@10.0.0.5:6200/sdb 4000
    Add(AddArgs),
    /// Remove devices that are dead or empty: what they held goes elsewhere at once
    Remove {
        /// Which devices
        #[arg(required = true)]
        devices: Vec<String>,
        /// Even the last device of a zone that placement needs
        #[arg(long)]
        force: bool,
    },
    /// Change the weight of devices
    SetWeight {
        /// Which devices
        devices: String,
        /// Their share of the data, in proportion to the others'
        #[arg(allow_negative_numbers = true)]
        weight: f64,
    },
    /// Change what is known of a device; no data moves
    SetInfo(InfoArgs),
    /// Empty devices in steps, one with each rebalance
    Drain {
        /// Which devices
        #[arg(required = true)]
        devices: Vec<String>,
        /// Rebalances until they are empty
        #[arg(long, default_value_t = 4)]
        steps: u32,
    },
    /// Change how far beyond its share a device may be loaded for the sake of distance
    SetOverload {
        /// 0.1 for a tenth
        #[arg(allow_negative_numbers = true)]
        overload: f64,
    },
    /// Change the number of replicas
    SetReplicas {
        /// 3, or 2.5 for half the partitions with three and half with two
        #[arg(allow_negative_numbers = true)]
        replicas: f64,
    },
    /// Change how long a moved partition is left alone
    SetMinPartHours {
        /// Hours
        hours: u32,
    },
    /// Double the number of partitions; no data moves
    IncreasePartPower,
    /// What a rebalance would move, and what that takes
    Plan(PlanArgs),
    /// Make the assignment follow the devices
    Rebalance {
        /// Only say what it would do, as `plan` does
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        plan: PlanArgs,
    },
    /// Write the ring file that servers read
    WriteRing {
        /// Where to; beside the builder, with the ending .ring, if it isn't given
        file: Option<PathBuf>,
    },
    /// Make a lost builder again from its ring file
    Reconstruct {
        /// The ring file that is in use
        ring: PathBuf,
        /// How long a moved partition is left alone, in hours
        #[arg(long, default_value_t = 24)]
        min_part_hours: u32,
        /// How far beyond its share a device may be loaded for the sake of distance
        #[arg(long, default_value_t = 0.0)]
        overload: f64,
    },
    /// Say that all moves are done, as a census found
    Settle,
    /// Let the next rebalance move what moved lately
    PretendMinPartHoursPassed,
    /// Look for contradictions
    Validate,
    /// Regions, zones, nodes and devices, with what they hold beside their share
    Show {
        /// How far down the tree to go; nodes where there are many devices
        #[arg(long, value_enum)]
        depth: Option<Depth>,
    },
    /// How far devices are from their shares
    Balance {
        /// All devices, not only the worst
        #[arg(long)]
        all: bool,
    },
    /// Where replicas lie closer together than they need to
    Dispersion,
    /// Devices by id or place
    Search {
        /// d7, r1, r1z2, r1z2-alpha, r1z2-alpha/sdb
        devices: String,
    },
    /// Where a key is: its partition, primaries and handoffs
    Locate(LocateArgs),
    /// Who did what, and when
    History,
    /// How two ring files differ
    Diff {
        /// The older ring
        old: PathBuf,
        /// The newer ring
        new: PathBuf,
    },
}

/// How far down the tree `show` goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(super) enum Depth {
    Region,
    Zone,
    Node,
    Device,
}

#[derive(Args, Debug)]
pub(super) struct CreateArgs {
    /// There will be two to the power of this many partitions: aim at 100 or more for each device
    /// of the largest cluster that you can imagine
    #[arg(long, default_value_t = 16)]
    pub(super) part_power: u8,
    /// Copies of everything [default: 3]
    #[arg(long, allow_negative_numbers = true, conflicts_with = "erasure")]
    pub(super) replicas: Option<f64>,
    /// Fragments instead of copies: 4+2 for four of data and two of parity, any two of which may be
    /// lost. For rings of extents; entries are always copied
    #[arg(long, value_name = "K+M")]
    pub(super) erasure: Option<String>,
    /// How long a moved partition is left alone, in hours
    #[arg(long, default_value_t = 24)]
    pub(super) min_part_hours: u32,
    /// How far beyond its share a device may be loaded for the sake of distance: 0.1 for a tenth
    #[arg(long, default_value_t = 0.0, allow_negative_numbers = true)]
    pub(super) overload: f64,
    /// Number of the storage policy that the ring places
    #[arg(long, default_value_t = 0)]
    pub(super) policy: u16,
    /// Its name, by which buckets and storage classes ask for it; that of policy 0 is `default` unless
    /// it is given
    #[arg(long, value_name = "NAME")]
    pub(super) policy_name: Option<String>,
}

#[derive(Args, Debug)]
pub(super) struct AddArgs {
    /// Places and weights in turn
    #[arg(value_names = ["PLACE", "WEIGHT"], num_args = 2.., allow_negative_numbers = true)]
    pub(super) devices: Vec<String>,
    /// A file with a place, a weight and metadata on each line
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "devices",
        required_unless_present = "devices"
    )]
    pub(super) from: Option<PathBuf>,
    /// Whatever else people want to know of the devices
    #[arg(long, default_value = "", conflicts_with = "from")]
    pub(super) meta: String,
}

#[derive(Args, Debug)]
pub(super) struct InfoArgs {
    /// Which device
    pub(super) device: String,
    /// New address of its node, as host:port
    #[arg(long)]
    pub(super) address: Option<String>,
    /// New name on the node
    #[arg(long)]
    pub(super) name: Option<String>,
    /// New metadata
    #[arg(long)]
    pub(super) meta: Option<String>,
}

#[derive(Args, Debug)]
pub(super) struct PlanArgs {
    /// Breaks ties; the same for the same epoch if it isn't given, so that a rebalance does what its
    /// plan said
    #[arg(long)]
    pub(super) seed: Option<u64>,
    /// How full devices are: JSON such as {"d0": {"used": 1000, "capacity": 4000}}, or what
    /// `martlet admin status --json` says
    #[arg(long, value_name = "FILE")]
    pub(super) usage: Option<PathBuf>,
    /// Bytes a second that each device gives to moving
    #[arg(long, value_name = "BYTES", default_value = "100MB")]
    pub(super) bandwidth: Size,
    /// Fullness above which a device takes no more
    #[arg(long, value_name = "SHARE", default_value_t = 0.9)]
    pub(super) high_water: f64,
}

#[derive(Args, Debug)]
pub(super) struct LocateArgs {
    /// Name of the bucket, or its id in 32 hexadecimal digits
    #[arg(required_unless_present_any = ["extent", "partition"])]
    pub(super) bucket: Option<String>,
    /// The key; a running server is asked for the id of a bucket that is given by its name
    pub(super) key: Option<String>,
    /// Shards of the index of a bucket that is given by its id
    #[arg(long, default_value_t = martlet_protocol::limits::INDEX_SHARDS_DEFAULT)]
    pub(super) shards: u16,
    /// Admin address of the server or proxy to ask
    #[arg(
        long,
        value_name = "HOST:PORT",
        env = "MARTLET_ADMIN_ADDRESS",
        default_value = "127.0.0.1:9001"
    )]
    pub(super) admin_address: SocketAddr,
    /// Data folder of the server to ask, for its credentials
    #[arg(long, value_name = "DIR", env = "MARTLET_DATA_DIR", default_value = "martlet-data")]
    pub(super) data_dir: PathBuf,
    /// File with the key of the cluster to ask
    #[arg(long, value_name = "FILE", env = "MARTLET_CLUSTER_KEY_FILE")]
    pub(super) cluster_key_file: Option<PathBuf>,
    /// An extent by its id in 32 hexadecimal digits, on a ring of extents
    #[arg(long, value_name = "ID", conflicts_with_all = ["bucket", "partition"])]
    pub(super) extent: Option<String>,
    /// A partition by its number
    #[arg(long, value_name = "NUMBER", conflicts_with = "bucket")]
    pub(super) partition: Option<u32>,
    /// Handoffs to name
    #[arg(long, default_value_t = 6)]
    pub(super) handoffs: usize,
}

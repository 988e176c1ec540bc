//! Arguments of `martlet cluster`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use martlet_admin_api::control::{ControlRequest, TargetSelector};
use martlet_serving::{Failure, Size};

use super::layout::{ClusterShape, DEVICES_MAX, NODES_MAX, PROXIES_MAX};
use crate::policies::NamedCode;

/// Arguments of `martlet cluster`.
#[derive(Args, Debug)]
#[command(after_help = "\
A cluster of several machines from one file:
  martlet cluster plan cluster.toml        what would change: rings, bytes, hours, files
  martlet cluster apply cluster.toml       writes a folder for each machine, and pushes rings

A test cluster on this machine:
  martlet cluster up --nodes 4             4 nodes, 3 copies, and a proxy at 127.0.0.1:9000
  martlet cluster status                   processes, addresses and readiness
  martlet cluster kill 2                   node 2 loses power; reads and writes continue
  martlet cluster start 2                  node 2 comes back
  martlet cluster pause n3                 one process hangs until `resume n3`
  martlet cluster add-node --zone 2        a node joins and takes its share of entries and extents

A number selects a node with all its processes, like a failing machine; a name such as n2, r2 or \
p1 selects one process. `status` and the commands below it need a running `up` in the same folder.")]
pub(crate) struct ClusterArgs {
    #[command(subcommand)]
    pub(super) command: ClusterCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum ClusterCommand {
    /// Show the changes that follow from a cluster's file, and touch nothing
    #[command(after_help = "\
A node that joins, a disk that drains (weight = 0) and a new zone are edits of the file. The plan \
shows the partitions, bytes and hours of their moves, and how full devices become.

Example:
  martlet cluster plan cluster.toml --out out --bandwidth 200MB")]
    Plan(DeployArgs),
    /// Make what a cluster's file asks for: keys, certificates, rings, settings and units
    #[command(after_help = "\
Each machine gets a folder in --out, to be copied to its /etc/martlet. The folder cluster/ keeps \
builders and keys: copy it to a safe place. Newer rings are pushed to nodes that run. A second \
apply has nothing to change.

Root credentials come from MARTLET_ROOT_ACCESS_KEY and MARTLET_ROOT_SECRET_KEY, the first tenant's \
key from MARTLET_FIRST_ACCESS_KEY and MARTLET_FIRST_SECRET_KEY. Without them the first apply makes \
random ones in the files cluster/credentials and cluster/first-key. They are not printed.

Example:
  martlet cluster apply cluster.toml --out out")]
    Apply(DeployArgs),
    /// Start a cluster of real processes on this machine until Ctrl-C
    #[command(after_help = "\
The first start creates keys, credentials and rings in the folder. A later start restores the same \
cluster and needs only the folder; other flags don't change an existing cluster.

MARTLET_NOTIFICATIONS and the other event settings, MARTLET_ACCESS_LOG, \
MARTLET_BUCKET_LOG_INTERVAL, MARTLET_ALLOW_SIGNATURE_V2, MARTLET_MAX_REQUESTS, \
MARTLET_WINDOW_CACHE and MARTLET_LIFECYCLE_DAY_SECONDS are \
passed to the processes that use them. Other settings belong in the processes' files (<folder>/p1/proxy.toml and so on).

Examples:
  martlet cluster up
  martlet cluster up --nodes 6 --zones 3 --proxies 2 --data-dir /srv/try
  martlet cluster up --nodes 6 --policy ec=4+2
  martlet cluster up --data-ports          objects are read in place, at the nodes
  martlet cluster up --nodes 1 --replicas 1 --devices-per-node 1")]
    Up(UpArgs),
    /// Show processes, devices and rings
    Status {
        #[command(flatten)]
        place: ClusterFolderArgs,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Kill a node or a process, like a power cut
    #[command(after_help = "Example:\n  martlet cluster kill 2")]
    Kill(TargetArgs),
    /// Restart a killed, stopped or dead node or process
    #[command(after_help = "Example:\n  martlet cluster start 2")]
    Start(TargetArgs),
    /// Stop a node or a process cleanly
    #[command(after_help = "Example:\n  martlet cluster stop p2")]
    Stop(TargetArgs),
    /// Suspend a node or a process; its connections stay open
    #[command(after_help = "Example:\n  martlet cluster pause 3")]
    Pause(TargetArgs),
    /// Resume a paused node or process
    #[command(after_help = "Example:\n  martlet cluster resume 3")]
    Resume(TargetArgs),
    /// Add a node, which takes its share of entries and extents
    #[command(after_help = "\
The new devices are added to all rings, and a node gets the rings and spreads them. The \
replicators copy the moved data.

Example:
  martlet cluster add-node --zone 2")]
    AddNode {
        #[command(flatten)]
        place: ClusterFolderArgs,
        /// Zone of the node [default: the next in turn]
        #[arg(long)]
        zone: Option<u32>,
    },
    /// Wrapper of `up`'s processes that dies with its parent
    #[command(hide = true)]
    Child {
        /// Process id of the parent
        #[arg(long)]
        parent: u32,
        /// Role and its flags
        #[arg(last = true, required = true)]
        arguments: Vec<String>,
    },
}

/// Arguments of `martlet cluster plan` and `apply`.
#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(super) struct DeployArgs {
    /// File that describes the cluster
    pub(super) file: PathBuf,
    /// Folder for keys, builders and the machines' files
    #[arg(long, value_name = "DIR", default_value = "out")]
    pub(super) out: PathBuf,
    /// Settle the moves of earlier rings, after a clean `martlet admin census`
    #[arg(long)]
    pub(super) settle: bool,
    /// Let even the last device of a zone leave
    #[arg(long)]
    pub(super) force: bool,
    /// Bytes per second of moves at each device, for the hours of the plan
    #[arg(long, value_name = "BYTES", default_value = "100MB")]
    pub(super) bandwidth: Size,
    /// Fraction of a device's capacity above which the plan warns
    #[arg(long, value_name = "SHARE", default_value_t = 0.9)]
    pub(super) high_water: f64,
    /// Query no nodes and push no rings
    #[arg(long, conflicts_with = "settle")]
    pub(super) offline: bool,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// Selection of a cluster.
#[derive(Args, Clone, Debug)]
pub(super) struct ClusterFolderArgs {
    /// Folder of the cluster
    #[arg(
        long,
        value_name = "DIR",
        env = "MARTLET_CLUSTER_DIR",
        default_value = "martlet-cluster"
    )]
    pub(super) data_dir: PathBuf,
}

/// Selection of a cluster and one of its nodes or processes.
#[derive(Args, Debug)]
pub(super) struct TargetArgs {
    /// Node number or process name: 2, n2, r2, p1
    pub(super) which: TargetSelector,
    #[command(flatten)]
    pub(super) place: ClusterFolderArgs,
}

/// Arguments of `martlet cluster up`.
#[derive(Args, Debug)]
pub(super) struct UpArgs {
    #[command(flatten)]
    pub(super) place: ClusterFolderArgs,
    /// Nodes
    #[arg(long, default_value_t = 4)]
    nodes: usize,
    /// Devices per node
    #[arg(long, default_value_t = 2)]
    devices_per_node: usize,
    /// Zones, which get the nodes in turn
    #[arg(long, default_value_t = 2)]
    zones: u32,
    /// Proxies
    #[arg(long, default_value_t = 1)]
    proxies: usize,
    /// Copies of each object, on different nodes
    #[arg(long, default_value_t = 3)]
    replicas: usize,
    /// Erasure-coded storage policy, such as ec=4+2: four data and two parity fragments; repeatable
    #[arg(long = "policy", value_name = "NAME=K+M")]
    policies: Vec<String>,
    /// Port of the first proxy; a free one is chosen and kept if it is in use
    #[arg(long, default_value_t = 9000)]
    s3_port: u16,
    /// Give each node a data port, at which clients read in place
    #[arg(long)]
    data_ports: bool,
    /// Give each node a direct socket, DIR/n1/direct.sock and so on; needs --data-ports
    #[arg(long, requires = "data_ports")]
    direct_sockets: bool,
}

impl UpArgs {
    /// Returns the requested shape. Values out of range are usage errors.
    pub(super) fn shape(&self) -> Result<ClusterShape, Failure> {
        let Self { nodes, devices_per_node, zones, proxies, replicas, s3_port, .. } = *self;
        let Self { data_ports, direct_sockets, .. } = *self;
        let policies = NamedCode::parse_all(&self.policies)?;
        let within = |name: &str, value: usize, most: usize| {
            if (1..=most).contains(&value) {
                return Ok(());
            }
            Err(Failure::usage(format!("--{name} must be 1 to {most}, not {value}")))
        };
        within("nodes", nodes, NODES_MAX)?;
        within("devices-per-node", devices_per_node, DEVICES_MAX)?;
        within("proxies", proxies, PROXIES_MAX)?;
        within("zones", zones.try_into().unwrap_or(usize::MAX), nodes)?;
        if !(1..=nodes).contains(&replicas) {
            return Err(Failure::usage(format!(
                "{replicas} copies need as many nodes, and there are {nodes}: use --nodes \
                 {replicas} or fewer --replicas"
            )));
        }
        let devices = nodes * devices_per_node;
        if let Some(policy) = policies.iter().find(|policy| policy.devices() > devices) {
            return Err(Failure::usage(format!(
                "the policy {}={} needs {} devices, one for each fragment, and there are \
                 {devices}: use more --nodes or --devices-per-node, or a code with fewer fragments",
                policy.name,
                policy.code,
                policy.devices()
            )));
        }
        Ok(ClusterShape {
            nodes,
            devices_per_node,
            zones,
            proxies,
            replicas,
            policies,
            s3_port,
            data_ports,
            direct_sockets,
        })
    }
}

impl ClusterCommand {
    /// Returns the request for a running cluster, and that cluster's place. `None` for `up` and
    /// `child`.
    pub(super) fn request(&self) -> Option<(&ClusterFolderArgs, ControlRequest)> {
        let of = |target: &'_ TargetArgs| target.which.clone();
        Some(match self {
            Self::Status { place, .. } => (place, ControlRequest::Status),
            Self::Kill(target) => (&target.place, ControlRequest::Kill { which: of(target) }),
            Self::Start(target) => (&target.place, ControlRequest::Start { which: of(target) }),
            Self::Stop(target) => (&target.place, ControlRequest::Stop { which: of(target) }),
            Self::Pause(target) => (&target.place, ControlRequest::Pause { which: of(target) }),
            Self::Resume(target) => (&target.place, ControlRequest::Resume { which: of(target) }),
            Self::AddNode { place, zone } => (place, ControlRequest::AddNode { zone: *zone }),
            Self::Up(_) | Self::Child { .. } | Self::Plan(_) | Self::Apply(_) => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct ClusterCli {
        #[command(flatten)]
        cluster: ClusterArgs,
    }

    fn parse(line: &str) -> Result<ClusterCommand, String> {
        let words = std::iter::once("cluster").chain(line.split(' '));
        ClusterCli::try_parse_from(words)
            .map(|cli| cli.cluster.command)
            .map_err(|it| it.to_string())
    }

    fn shape(line: &str) -> Result<ClusterShape, Failure> {
        let ClusterCommand::Up(args) = parse(line).unwrap() else { panic!("{line} is no up") };
        args.shape()
    }

    #[test]
    fn the_usual_cluster_has_four_nodes_and_three_copies() {
        let shape = shape("up").unwrap();
        assert_eq!((shape.nodes, shape.replicas, shape.s3_port), (4, 3, 9000));
        assert_eq!((shape.proxies, shape.zones, shape.devices_per_node), (1, 2, 2));
        assert!(shape.policies.is_empty());
        assert!(!shape.data_ports && !shape.direct_sockets);
    }

    #[test]
    fn direct_sockets_need_data_ports_and_proxies_with_tokens() {
        let both = shape("up --data-ports --direct-sockets").unwrap();
        assert!(both.data_ports && both.direct_sockets);
        let refusal = parse("up --direct-sockets").unwrap_err();
        assert!(refusal.contains("--data-ports"), "{refusal}");
    }

    #[test]
    fn policies_of_fragments_may_be_several() {
        let shape = shape("up --policy ec=4+2 --policy small=2+1").unwrap();
        let names: Vec<_> = shape.policies.iter().map(|policy| policy.name.as_str()).collect();
        assert_eq!(names, ["ec", "small"]);
    }

    #[test]
    fn shapes_that_can_not_be_are_refused_with_what_can() {
        for (line, words) in [
            ("up --nodes 2", "use --nodes 3"),
            ("up --nodes 0", "--nodes must be 1 to 32"),
            ("up --replicas 0", "0 copies"),
            ("up --zones 5", "--zones must be 1 to 4"),
            ("up --zones 0", "--zones must be 1 to 4"),
            ("up --proxies 99", "--proxies must be 1 to 16"),
            ("up --devices-per-node 17", "--devices-per-node must be 1 to 16"),
            (
                "up --policy ec=8+3",
                "ec=8+3 needs 11 devices, one for each fragment, and there are 8",
            ),
            ("up --policy 4+2", "as in ec=4+2"),
        ] {
            let Err(Failure::Usage(sentence)) = shape(line) else { panic!("{line} is allowed") };
            assert!(sentence.contains(words), "{line}: {sentence}");
        }
    }

    #[test]
    fn commands_name_what_they_mean() {
        let request = |line: &str| parse(line).unwrap().request().unwrap().1;
        assert_eq!(request("kill 2"), ControlRequest::Kill { which: TargetSelector::Node(2) });
        assert_eq!(
            request("stop p1"),
            ControlRequest::Stop { which: TargetSelector::Process("p1".into()) }
        );
        assert_eq!(request("add-node --zone 3"), ControlRequest::AddNode { zone: Some(3) });
        assert_eq!(request("status --json"), ControlRequest::Status);
        assert!(parse("up").unwrap().request().is_none());
        let refusal = parse("kill everything/now").unwrap_err();
        assert!(refusal.contains("2, n2, r2 or p1"), "{refusal}");
        assert!(parse("kill").is_err());
    }

    #[test]
    fn each_command_speaks_to_the_cluster_of_a_folder() {
        let command = parse("pause 1 --data-dir /a/b").unwrap();
        let (place, _) = command.request().unwrap();
        assert_eq!(place.data_dir, PathBuf::from("/a/b"));
    }
}

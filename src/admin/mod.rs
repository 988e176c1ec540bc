//! `martlet admin`: queries a running process and prints its answers, for people or as JSON.

mod accounts;
pub(crate) mod address;
mod audit;
mod backup;
mod bucket;
mod bundle;
mod census;
mod checkpoints;
pub(crate) mod client;
mod cluster;
mod connection;
mod device;
mod import;
mod index;
mod job;
mod limits;
mod policy;
mod print;
mod profile;
mod requester;
mod ring;
mod session;
mod workers;

use clap::{Args, Subcommand};
use martlet_admin_api as wire;
use martlet_membership::ClusterSecret;
use martlet_serving::Failure;

use self::accounts::{KeyCommand, RoleCommand, TenantCommand, UserCommand};
pub(crate) use self::address::AdminAddress;
use self::audit::AuditArgs;
use self::backup::BackupCommand;
use self::bucket::BucketCommand;
use self::bundle::BundleArgs;
use self::census::{CensusArgs, CensusOutcome};
use self::checkpoints::CheckpointCommand;
pub(crate) use self::client::{AdminEndpoint, PollFailure};
use self::cluster::ClusterCommand;
pub(crate) use self::connection::{AdminConnection, AdminConnectionArgs};
use self::device::DeviceCommand;
use self::import::ImportArgs;
use self::index::IndexCommand;
use self::job::JobCommand;
use self::policy::PolicyCommand;
use self::profile::ProfileCommand;
use self::ring::RingCommand;
use self::session::SessionCommand;
use self::workers::WorkersArgs;

/// Arguments of `martlet admin`.
#[derive(Args, Debug)]
#[command(after_help = "\
The commands authenticate with the root secret from MARTLET_ROOT_SECRET_KEY or from the data \
folder of a server on this machine. Members of a cluster need --cluster-key-file instead. Both are \
meant for the first admin key: martlet admin key create --role operator --key-file ops.key. From \
then on, --admin-key-file ops.key signs the requests.

Examples:
  martlet admin status
  martlet admin --admin-key-file ops.key audit --since 1d
  martlet admin policy list
  martlet admin bucket set checkpoints --consistency strict
  martlet admin tenant create research
  martlet admin key create --tenant research
  martlet admin --admin-address n1:6201 --admin-ca ca.crt --cluster-key-file cluster.key status
  martlet admin --admin-config admin.toml capacity       # the flags above, from a file
  martlet admin --admin-config admin.toml census
  martlet admin --cluster-key-file cluster.key workers --url http://127.0.0.1:6301
  martlet admin --admin-config admin.toml ring push index.ring")]
pub(crate) struct AdminArgs {
    #[command(flatten)]
    connection: AdminConnectionArgs,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: AdminCommand,
}

#[derive(Debug, Subcommand)]
enum AdminCommand {
    /// Show file, offset, length and BLAKE3 of an object's extents
    Extents {
        /// Bucket
        bucket: String,
        /// Key
        key: String,
    },
    /// Show the status of a process and its cluster
    Status,
    /// Show used, expected and free space of devices and policies
    Capacity,
    /// Show dispersion and balance of the rings in use
    Dispersion,
    /// Compare all devices with the rings; exit code 1 on differences
    Census(CensusArgs),
    /// Show progress and backlog of all background workers
    Workers(WorkersArgs),
    /// Write an archive with the state of all reachable processes, without secrets
    SupportBundle(BundleArgs),
    /// Copy a bucket of another S3 store into a bucket of this one
    Import(Box<ImportArgs>),
    /// Storage policies
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Bucket settings beyond S3's
    #[command(subcommand)]
    Bucket(BucketCommand),
    /// Checkpoint sets of a bucket: generations, retention
    #[command(subcommand)]
    Checkpoints(CheckpointCommand),
    /// Tenants: accounts that own buckets
    #[command(subcommand)]
    Tenant(TenantCommand),
    /// Users of a tenant, with limited permissions
    #[command(subcommand)]
    User(UserCommand),
    /// Roles of a tenant, for temporary credentials
    #[command(subcommand)]
    Role(RoleCommand),
    /// Access keys of tenants and users, and keys of the admin API
    #[command(subcommand)]
    Key(KeyCommand),
    /// Sessions of the admin API
    #[command(subcommand)]
    Session(SessionCommand),
    /// Show who changed what, from where, and with which outcome
    Audit(AuditArgs),
    /// Lost index partitions: keep the bytes, accept the loss, rebuild objects from extents
    #[command(subcommand)]
    Index(IndexCommand),
    /// Backup and restore of accounts, bucket settings and rings
    #[command(subcommand)]
    Backup(BackupCommand),
    /// Jobs of a process: censuses, rewrites, ring pushes, rebuilds of the index
    #[command(subcommand)]
    Job(JobCommand),
    /// Profiles of a process: processor time and heap by functions, memory by mappings
    #[command(subcommand)]
    Profile(ProfileCommand),
    /// Print the OpenAPI document of the process's admin API
    Openapi,
    /// Devices: items in quarantine
    #[command(subcommand)]
    Device(DeviceCommand),
    /// Format level of a cluster after an upgrade
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Rings of a cluster: show their epochs, push newer ones
    #[command(subcommand)]
    Ring(RingCommand),
}

/// Returns the settings of a bucket, from the process at an admin address.
pub(crate) fn bucket(
    connection: &AdminConnectionArgs,
    name: &str,
) -> Result<wire::BucketLine, Failure> {
    bucket::show(&connection.resolve()?.endpoint()?, name)
}

/// Runs the command and prints its answer. `program` is the whole command line.
pub(crate) fn run(args: &AdminArgs, program: &clap::Command) -> Result<(), Failure> {
    let connection = args.connection.resolve()?;
    let server = || connection.endpoint();
    match &args.command {
        AdminCommand::Extents { bucket, key } => {
            let query = [("bucket", bucket.as_str()), ("key", key.as_str())];
            let answer: wire::ObjectExtents = server()?.request_json(wire::EXTENTS, &query)?;
            print::show(&answer, args.json, print::extents);
        }
        AdminCommand::Status => {
            let answer: wire::ServerStatus = server()?.request_json(wire::STATUS, &[])?;
            print::show(&answer, args.json, print::status);
        }
        AdminCommand::Capacity => {
            let answer: wire::forecast::Capacity = server()?.request_json(wire::CAPACITY, &[])?;
            print::show(&answer, args.json, print::capacity);
        }
        AdminCommand::Dispersion => {
            let answer: Vec<wire::forecast::RingSpread> =
                server()?.request_json(wire::DISPERSION, &[])?;
            print::show(&answer, args.json, |rings| print::dispersion(rings));
        }
        AdminCommand::Index(command) => command.run(&server()?, args.json)?,
        AdminCommand::Job(command) => command.run(&server()?, args.json)?,
        AdminCommand::Openapi => {
            let document: serde_json::Value = server()?.request_json(wire::DOCUMENT, &[])?;
            print::show(&document, true, ToString::to_string);
        }
        AdminCommand::Census(census) => {
            let secret =
                connection.cluster_key_file.as_deref().map(ClusterSecret::load).transpose()?;
            match census::take(census, &server()?, secret, args.json)? {
                CensusOutcome::Report(report) => {
                    print::show(&*report, args.json, print::census);
                    census::check_outcome(&report)?;
                }
                CensusOutcome::Detached(job) => job::show_detached(&job, args.json),
            }
        }
        AdminCommand::Workers(workers) => {
            let answer = workers.fetch(&connection)?;
            print::show(&answer, args.json, |processes| print::workers(processes));
        }
        AdminCommand::Import(command) => command.run(args.json)?,
        AdminCommand::Policy(command) => {
            let answer = command.fetch(&server()?)?;
            print::show(&answer, args.json, |policies| policy::lines(policies));
        }
        AdminCommand::SupportBundle(command) => {
            bundle::run(command, &connection, program, args.json)?;
        }
        AdminCommand::Bucket(command) => command.run(&server()?, args.json)?,
        AdminCommand::Checkpoints(command) => command.run(&server()?, args.json)?,
        AdminCommand::Tenant(command) => command.run(&server()?, args.json)?,
        AdminCommand::User(command) => command.run(&server()?, args.json)?,
        AdminCommand::Role(command) => command.run(&server()?, args.json)?,
        AdminCommand::Key(command) => command.run(&server()?, args.json)?,
        AdminCommand::Session(command) => command.run(&server()?, args.json)?,
        AdminCommand::Audit(command) => command.run(&connection, args.json)?,
        AdminCommand::Backup(command) => command.run(&connection, args.json)?,
        AdminCommand::Profile(command) => command.run(&connection, args.json)?,
        AdminCommand::Device(command) => command.run(&server()?, args.json)?,
        AdminCommand::Cluster(command) => command.run(&server()?, args.json)?,
        AdminCommand::Ring(command) => ring::run(command, &connection, args.json)?,
    }
    Ok(())
}

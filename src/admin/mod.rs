//! `martlet admin`: asks a running process, and prints its answers for people or as JSON.

mod ask;
mod bucket;
mod print;
mod ring;
pub(crate) mod wire;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use self::ask::Server;
use self::bucket::BucketCommand;
use self::ring::RingCommand;
use crate::failure::Failure;

/// Arguments of `martlet admin`.
#[derive(Args, Debug)]
#[command(after_help = "\
The commands prove themselves with the root secret: from MARTLET_ROOT_SECRET_KEY, or from the data \
folder of a server on this machine. Members of a cluster take the cluster's key instead.

Examples:
  martlet admin status
  martlet admin bucket set checkpoints --consistency strict
  martlet admin --admin-address 10.0.0.1:6201 --cluster-key-file cluster.key status
  martlet admin --cluster-key-file cluster.key ring push index.ring --node 10.0.0.1:6200")]
pub(crate) struct AdminArgs {
    /// Admin address of the server
    #[arg(
        long,
        global = true,
        value_name = "HOST:PORT",
        env = "MARTLET_ADMIN_ADDRESS",
        default_value = "127.0.0.1:9001"
    )]
    admin_address: SocketAddr,
    /// Data folder of the server, for its credentials
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        env = "MARTLET_DATA_DIR",
        default_value = "martlet-data"
    )]
    data_dir: PathBuf,
    /// File with the key of the cluster that the process belongs to
    #[arg(long, global = true, value_name = "FILE", env = "MARTLET_CLUSTER_KEY_FILE")]
    cluster_key_file: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Where the bytes of an object lie: file, offset, length and BLAKE3 of each extent
    Extents {
        /// The bucket
        bucket: String,
        /// The key
        key: String,
    },
    /// How a process, its devices, and the nodes that it knows are
    Status,
    /// What the background workers have done, and what waits for them
    Workers,
    /// What can be set about a bucket besides what S3 has words for
    #[command(subcommand)]
    Bucket(BucketCommand),
    /// The rings of a cluster: who has which, and newer ones
    #[command(subcommand)]
    Ring(RingCommand),
}

/// Asks and prints.
pub(crate) fn run(args: &AdminArgs) -> Result<(), Failure> {
    let server =
        || Server::new(args.admin_address, &args.data_dir, args.cluster_key_file.as_deref());
    match &args.command {
        Command::Extents { bucket, key } => {
            let query = [("bucket", bucket.as_str()), ("key", key.as_str())];
            let answer: wire::ObjectExtents = server()?.ask(wire::EXTENTS, &query)?;
            print::show(&answer, args.json, print::extents);
        }
        Command::Status => {
            let answer: wire::ServerStatus = server()?.ask(wire::STATUS, &[])?;
            print::show(&answer, args.json, print::status);
        }
        Command::Workers => {
            let answer: Vec<wire::WorkerLine> = server()?.ask(wire::WORKERS, &[])?;
            print::show(&answer, args.json, |lines| print::workers(lines));
        }
        Command::Bucket(command) => {
            let answer = command.ask(&server()?)?;
            print::show(&answer, args.json, print::bucket);
        }
        Command::Ring(command) => {
            let file = args.cluster_key_file.as_deref().ok_or_else(|| {
                Failure::usage("name the key of the cluster with --cluster-key-file")
            })?;
            ring::run(command, file, args.json)?;
        }
    }
    Ok(())
}

//! `martlet admin`: asks a running server, and prints its answers for people or as JSON.

mod ask;
mod print;
pub(crate) mod wire;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use self::ask::Server;
use crate::failure::Failure;

/// Arguments of `martlet admin`.
#[derive(Args, Debug)]
#[command(after_help = "\
The commands prove themselves with the root secret: from MARTLET_ROOT_SECRET_KEY, or from the data \
folder of a server on this machine.")]
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
    /// How the server and its devices are
    Status,
    /// What the background workers have done, and what waits for them
    Workers,
}

/// Asks and prints.
pub(crate) fn run(args: &AdminArgs) -> Result<(), Failure> {
    let server = Server::new(args.admin_address, &args.data_dir)?;
    match &args.command {
        Command::Extents { bucket, key } => {
            let query = [("bucket", bucket.as_str()), ("key", key.as_str())];
            let answer: wire::ObjectExtents = server.ask(wire::EXTENTS, &query)?;
            print::show(&answer, args.json, print::extents);
        }
        Command::Status => {
            let answer: wire::ServerStatus = server.ask(wire::STATUS, &[])?;
            print::show(&answer, args.json, print::status);
        }
        Command::Workers => {
            let answer: Vec<wire::WorkerLine> = server.ask(wire::WORKERS, &[])?;
            print::show(&answer, args.json, |lines| print::workers(lines));
        }
    }
    Ok(())
}

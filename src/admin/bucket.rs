//! `martlet admin bucket`.

use clap::Subcommand;
use martlet_protocol::Level;

use super::ask::Server;
use super::wire::{self, BucketLine};
use crate::failure::Failure;

/// What is asked about a bucket.
#[derive(Debug, Subcommand)]
pub(super) enum BucketCommand {
    /// Show what is set
    Show {
        /// The bucket
        bucket: String,
    },
    /// Set the consistency of requests that ask for none
    Set {
        /// The bucket
        bucket: String,
        /// available: a quorum, else whoever answers; strict: a quorum, else an error; any: reads
        /// from the first good replica
        #[arg(long, value_name = "available|strict|any")]
        consistency: Level,
    },
}

impl BucketCommand {
    /// Asks the server.
    pub(super) fn ask(&self, server: &Server) -> Result<BucketLine, Failure> {
        match self {
            Self::Show { bucket } => server.ask(wire::BUCKET, &[("bucket", bucket)]),
            Self::Set { bucket, consistency } => {
                let query = [("bucket", bucket.as_str()), ("consistency", consistency.name())];
                server.set(wire::BUCKET, &query)
            }
        }
    }
}

//! `martlet admin bucket`: settings, quotas, rewrites and rewraps of buckets.

mod rewrap;
mod watch;

use clap::{Args, Subcommand};
use martlet_protocol::Level;

use super::ask::Server;
use super::limits::{self, QuotaArgs, UsageArgs};
use super::print;
use super::wire::limits::BUCKET_QUOTA;
use super::wire::rewrite::{self, RewriteLine};
use super::wire::{self, BucketLine};
use crate::failure::Failure;
use crate::units::Size;

/// What is asked about a bucket.
#[derive(Debug, Subcommand)]
pub(super) enum BucketCommand {
    /// Show what is set
    Show {
        /// The bucket
        bucket: String,
    },
    /// Set the consistency of requests that ask for none, or where new objects go
    Set(SetArgs),
    /// Show how much it holds and may hold, or set how much it may
    Quota(QuotaArgs),
    /// Show how much it holds; it is counted if nobody has
    Usage(UsageArgs),
    /// Move the objects that lie under another storage policy to the present one
    #[command(after_help = "\
The proxy that is asked does it in the background; this command shows how far it is. Interrupting \
the command leaves the rewrite going, running it again shows it again. Clients see the same objects \
before, while they are moved, and after. Whatever ends it early, begin it again: what was moved is \
passed over.

Examples:
  martlet admin bucket set archive --storage-policy ec
  martlet admin bucket rewrite archive --rate 200MiB
  martlet admin bucket rewrite archive --stop")]
    Rewrite(RewriteArgs),
    /// Wrap the keys of encrypted objects by the first master key
    #[command(after_help = "\
To be run for each bucket once every proxy has the new master key before the old one. Bytes stay where \
they are. Interrupting the command ends it; running it again passes over what was done. When it ends \
well for all buckets nothing needs the old master key any more.

Examples:
  martlet admin bucket rewrap archive
  martlet admin bucket rewrap archive --rate 500")]
    Rewrap(rewrap::RewrapArgs),
}

/// What is set.
#[derive(Args, Debug)]
#[group(required = true, multiple = true, id = "setting", args = ["consistency", "storage_policy"])]
pub(super) struct SetArgs {
    /// The bucket
    bucket: String,
    /// available: a quorum, else whoever answers; strict: a quorum, else an error; any: reads from
    /// the first good replica
    #[arg(long, value_name = "available|strict|any")]
    consistency: Option<Level>,
    /// Where new objects and new uploads go; what is there stays until the bucket is rewritten
    #[arg(long, value_name = "NAME")]
    storage_policy: Option<String>,
}

/// What is moved, and how fast.
#[derive(Args, Debug)]
pub(super) struct RewriteArgs {
    /// The bucket
    bucket: String,
    /// Bytes a second at most, such as 200MiB [default: as fast as it goes while clients don't wait]
    #[arg(long, value_name = "BYTES", conflicts_with = "stop")]
    rate: Option<Size>,
    /// End the rewrite that goes on
    #[arg(long)]
    stop: bool,
}

impl BucketCommand {
    /// Sends the command's request and prints the answer.
    pub(super) fn run(&self, server: Server, json: bool) -> Result<(), Failure> {
        let server = match self {
            Self::Usage(_) => &server.patient(limits::PATIENCE),
            _ => &server,
        };
        let answer = match self {
            Self::Show { bucket } => show(server, bucket)?,
            Self::Set(args) => args.ask(server)?,
            Self::Quota(args) => return args.run(server, (BUCKET_QUOTA, "bucket"), json),
            Self::Usage(args) => return args.run(server, json),
            Self::Rewrite(args) => return args.run(server, json),
            Self::Rewrap(args) => return args.run(server, json),
        };
        print::show(&answer, json, print::bucket);
        Ok(())
    }
}

/// Returns the settings of a bucket.
pub(super) fn show(server: &Server, bucket: &str) -> Result<BucketLine, Failure> {
    server.ask(wire::BUCKET, &[("bucket", bucket)])
}

impl SetArgs {
    fn ask(&self, server: &Server) -> Result<BucketLine, Failure> {
        let mut query = vec![("bucket", self.bucket.as_str())];
        query.extend(self.consistency.map(|level| ("consistency", level.name())));
        query.extend(self.storage_policy.as_deref().map(|name| ("storage_policy", name)));
        server.set(wire::BUCKET, &query)
    }
}

impl RewriteArgs {
    fn run(&self, server: &Server, json: bool) -> Result<(), Failure> {
        let mut query = vec![("bucket", self.bucket.as_str())];
        let rate = self.rate.map(|Size(bytes)| bytes.to_string());
        query.extend(rate.as_deref().map(|rate| ("rate", rate)));
        if self.stop {
            query.push(("stop", "true"));
        }
        let begun: RewriteLine = server.set(rewrite::REWRITE, &query)?;
        let line = watch::until_it_ends(server, begun, json)?;
        print::show(&line, json, watch::text);
        if self.stop { Ok(()) } else { watch::judge(&line) }
    }
}

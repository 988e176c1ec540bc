//! `martlet admin bucket`: settings, quotas, checkpoint rules, rewrites and rewraps of buckets.

mod list;
mod rewrap;
mod watch;

use clap::{Args, Subcommand};
use martlet_admin_api::jobs::{JobRequest, REWRITE};
use martlet_admin_api::limits::BUCKET_QUOTA;
use martlet_admin_api::{self as wire, BucketLine};
use martlet_protocol::Level;
use martlet_protocol::entry::ETagKind;
use martlet_serving::{Failure, Size};

use super::checkpoints::RulesArgs;
use super::client::AdminEndpoint;
use super::job;
use super::limits::{QuotaArgs, UsageArgs};
use super::print;

/// Subcommands of `martlet admin bucket`.
#[derive(Debug, Subcommand)]
pub(super) enum BucketCommand {
    /// List buckets with their owners, settings, and sizes at the last count
    #[command(after_help = "\
Sizes are those of the last count. Workers count each bucket within some minutes of a change, and \
buckets under a quota within seconds: bucket usage --now counts at once.

Examples:
  martlet admin bucket list
  martlet admin bucket list --tenant research --json
  martlet admin bucket list --limit 100 --after train")]
    List(list::ListArgs),
    /// Show the settings of a bucket
    Show {
        /// Bucket
        bucket: String,
    },
    /// Set the default consistency, or the storage policy or ETags of new objects
    Set(SetArgs),
    /// Show or set the quota of a bucket
    Quota(QuotaArgs),
    /// Show the usage of a bucket, counting it if no count exists
    Usage(UsageArgs),
    /// Show or set the checkpoint rules of a bucket
    #[command(after_help = "\
Examples:
  martlet admin bucket checkpoints train
  martlet admin bucket checkpoints train --file rules.json")]
    Checkpoints(RulesArgs),
    /// Move objects to the bucket's present storage policy
    #[command(after_help = "\
The proxy at the admin address rewrites as a job, and this command follows the job. \
Interrupting the command doesn't stop the rewrite; running the command again shows the progress \
again. Clients see the same objects before, during and after a rewrite. If a rewrite ends early, \
start it again: it skips moved objects.

Examples:
  martlet admin bucket set archive --storage-policy ec
  martlet admin bucket rewrite archive --rate 200MiB
  martlet admin bucket rewrite archive --stop")]
    Rewrite(RewriteArgs),
    /// Rewrap the data keys of encrypted objects with the first master key
    #[command(after_help = "\
Run it for each bucket after every proxy lists the new master key before the old one. Object data \
is not moved. The proxy at the admin address rewraps as a job, and this command follows the job: \
interrupting the command doesn't stop the rewrap. If a rewrap ends early, start it again: it skips \
finished versions. After it succeeds for all buckets, the old master key is no longer needed.

Examples:
  martlet admin bucket rewrap archive
  martlet admin bucket rewrap archive --rate 500
  martlet admin bucket rewrap archive --stop")]
    Rewrap(rewrap::RewrapArgs),
}

/// Arguments of `martlet admin bucket set`.
#[derive(Args, Debug)]
#[group(required = true, multiple = true, id = "setting", args = ["consistency", "storage_policy", "etags"])]
pub(super) struct SetArgs {
    /// Bucket
    bucket: String,
    /// available: a quorum, else any replica; strict: a quorum, else an error; any: read from the
    /// first good replica
    #[arg(long, value_name = "available|strict|any")]
    consistency: Option<Level>,
    /// Storage policy of new objects and uploads; existing ones stay until a rewrite
    #[arg(long, value_name = "NAME")]
    storage_policy: Option<String>,
    /// Kind of the ETags of new objects and uploads. opaque saves the MD5 of each body, about half
    /// of the CPU time of a large upload; clients that compare ETags with MD5s need md5
    #[arg(long, value_name = "md5|opaque")]
    etags: Option<ETagKind>,
}

/// Arguments of `martlet admin bucket rewrite`.
#[derive(Args, Debug)]
pub(super) struct RewriteArgs {
    /// Bucket
    bucket: String,
    /// Maximum bytes per second, such as 200MiB [default: unlimited while clients don't wait]
    #[arg(long, value_name = "BYTES", conflicts_with = "stop")]
    rate: Option<Size>,
    /// Stop the running rewrite
    #[arg(long)]
    stop: bool,
    /// Start the rewrite, print its job and return
    #[arg(long, conflicts_with = "stop")]
    detach: bool,
}

impl BucketCommand {
    /// Sends the command's request and prints the answer.
    pub(super) fn run(&self, server: &AdminEndpoint, json: bool) -> Result<(), Failure> {
        let answer = match self {
            Self::List(args) => return args.run(server, json),
            Self::Show { bucket } => show(server, bucket)?,
            Self::Set(args) => args.send(server)?,
            Self::Quota(args) => return args.run(server, BUCKET_QUOTA, "bucket", json),
            Self::Usage(args) => return args.run(server, json),
            Self::Checkpoints(args) => return args.run(server, json),
            Self::Rewrite(args) => return args.run(server, json),
            Self::Rewrap(args) => return args.run(server, json),
        };
        print::show(&answer, json, print::bucket);
        Ok(())
    }
}

/// Returns the settings of a bucket.
pub(super) fn show(server: &AdminEndpoint, bucket: &str) -> Result<BucketLine, Failure> {
    server.request_json(wire::BUCKET, &[("bucket", bucket)])
}

impl SetArgs {
    fn send(&self, server: &AdminEndpoint) -> Result<BucketLine, Failure> {
        let mut query = vec![("bucket", self.bucket.as_str())];
        query.extend(self.consistency.map(|level| ("consistency", level.name())));
        query.extend(self.storage_policy.as_deref().map(|name| ("storage_policy", name)));
        query.extend(self.etags.map(|kind| ("etags", kind.name())));
        server.set(wire::BUCKET, &query)
    }
}

impl RewriteArgs {
    fn run(&self, server: &AdminEndpoint, json: bool) -> Result<(), Failure> {
        if self.stop {
            let job = job::cancel_running(server, REWRITE, &self.bucket)?;
            print::show(&watch::line_of(&job)?, json, watch::text);
            return Ok(());
        }
        let bytes_per_s = self.rate.map(|Size(bytes)| bytes);
        let request = JobRequest::Rewrite { bucket: self.bucket.clone(), bytes_per_s };
        let begun = job::start(server, &request)?;
        if self.detach {
            job::show_detached(&begun, json);
            return Ok(());
        }
        let line = watch::line_of(&job::follow(server, begun, json)?)?;
        print::show(&line, json, watch::text);
        watch::check_outcome(&line)
    }
}

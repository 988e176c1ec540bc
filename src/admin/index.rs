//! `martlet admin index`: what to do after all copies of an index partition are lost.

use std::fmt::Write as _;

use clap::{Args, Subcommand, ValueEnum};
use martlet_admin_api::BucketLine;
use martlet_admin_api::index::{ADOPT, AcceptLine, HOLD, INDEX, IndexLine, RebuildLine};
use martlet_admin_api::jobs::{ACCEPT_LOSS, JobLine, JobRequest, REBUILD, RebuildRequest};
use martlet_serving::Failure;
use serde::de::DeserializeOwned;

use super::client::AdminEndpoint;
use super::print::{self, show};
use super::{bucket, job};

/// Findings that are printed; `--json` has more.
const FINDINGS_MAX: usize = 100;

/// Subcommands of `martlet admin index`.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
Look for the lost disks first: a disk that comes back has its entries, and a rebuild doesn't. \
docs/OPERATIONS.md has the order of the steps, and what a rebuild brings back.

Examples:
  martlet admin index status
  martlet admin index accept-loss --devices 3,4 --yes
  martlet admin index adopt 52fdfc072182654f163f5f0f9a621d72 train --index-shards 16 --versioning off
  martlet admin index rebuild                    # a dry run
  martlet admin index rebuild --bucket train --apply
  martlet admin index release --yes")]
pub(super) enum IndexCommand {
    /// Show the hold on collection, lost devices, and devices that no peer can fill
    Status,
    /// Hold the collection of extents and tombstones
    Hold,
    /// End the hold: extents without an entry are deleted from then on
    Release(Consent),
    /// Hold collection, and return votes to devices whose registers are lost for good
    AcceptLoss(AcceptArgs),
    /// Create a bucket under the id of one whose register is lost
    Adopt(AdoptArgs),
    /// Find objects in lost partitions by their extents; a dry run without --apply
    Rebuild(RebuildArgs),
}

/// Consent to a step without a way back.
#[derive(Args, Debug)]
pub(super) struct Consent {
    /// Confirm that no rebuild is needed any more. Without it, nothing but the state is shown
    #[arg(long)]
    yes: bool,
}

/// Arguments of `martlet admin index accept-loss`.
#[derive(Args, Debug)]
pub(super) struct AcceptArgs {
    /// Confirm that the disks don't come back
    #[arg(long, required = true)]
    yes: bool,
    /// Numbers of the devices to give up, as index status names them; refused if others lack votes too
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', required = true)]
    devices: Vec<u32>,
    /// Start the job, print it and return
    #[arg(long)]
    detach: bool,
}

/// Arguments of `martlet admin index adopt`.
#[derive(Args, Debug)]
pub(super) struct AdoptArgs {
    /// Id of the lost bucket, as a rebuild names it
    id: String,
    /// Name of the bucket
    bucket: String,
    /// Tenant that owns the bucket [default: root]
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// Number of index shards of the lost bucket: 16, unless it was made with another number
    #[arg(long, value_name = "N")]
    index_shards: u16,
    /// Versioning that the lost bucket had. Writes are kept by it from the first one on
    #[arg(long, value_enum)]
    versioning: LostVersioning,
    /// Storage policy of new objects [default: that of new buckets]
    #[arg(long, value_name = "NAME")]
    storage_policy: Option<String>,
}

/// Versioning of a lost bucket.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum LostVersioning {
    /// Never enabled
    Off,
    /// Suspended
    Suspended,
    /// Enabled
    Enabled,
    /// Enabled, with Object Lock
    Locked,
}

impl LostVersioning {
    fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Suspended => "suspended",
            Self::Enabled => "enabled",
            Self::Locked => "locked",
        }
    }
}

/// Arguments of `martlet admin index rebuild`.
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
#[derive(Args, Debug)]
pub(super) struct RebuildArgs {
    /// Partition of the index ring [default: those whose loss was accepted]
    #[arg(long, value_name = "N")]
    partition: Option<u32>,
    /// Bucket [default: all]
    #[arg(long, value_name = "NAME")]
    bucket: Option<String>,
    /// Show what would come back; the default
    #[arg(long, conflicts_with = "apply")]
    dry_run: bool,
    /// Write the entries
    #[arg(long)]
    apply: bool,
    /// Accept extents of releases that didn't record encryption: encrypted objects come back as
    /// ciphertext
    #[arg(long)]
    without_facts: bool,
    /// Accept uploads whose parts 1 to n lie whole: they may not have been completed
    #[arg(long)]
    uploads: bool,
    /// Accept the order of births where several bodies of a key have no certain one: one of them
    /// comes back, or all of them as versions
    #[arg(long)]
    latest: bool,
    /// Accept bodies that were born after the entry of their key, over this entry
    #[arg(long)]
    over_older: bool,
    /// Follow the job until its end; the default
    #[arg(long, conflicts_with = "detach")]
    wait: bool,
    /// Start the job, print it and return
    #[arg(long)]
    detach: bool,
    /// Stop the running rebuild of this scope
    #[arg(long, conflicts_with = "detach")]
    stop: bool,
}

impl IndexCommand {
    /// Sends the command's request and prints the answer.
    pub(super) fn run(&self, server: &AdminEndpoint, json: bool) -> Result<(), Failure> {
        match self {
            Self::Status => show(&server.request_json::<IndexLine>(INDEX, &[])?, json, status),
            Self::Hold => show(&server.set::<IndexLine>(HOLD, &[])?, json, status),
            Self::Release(Consent { yes: true }) => {
                show(&server.delete::<IndexLine>(HOLD, &[])?, json, status);
            }
            Self::Release(Consent { yes: false }) => {
                show(&server.request_json::<IndexLine>(INDEX, &[])?, json, status);
                let sentence = "extents without an entry are deleted after the hold: look at what was \
                                left out above, and add --yes";
                return Err(Failure::refused(sentence));
            }
            Self::AcceptLoss(args) => return args.run(server, json),
            Self::Adopt(args) => show(&args.send(server)?, json, print::bucket),
            Self::Rebuild(args) => return args.run(server, json),
        }
        Ok(())
    }
}

impl AcceptArgs {
    fn run(&self, server: &AdminEndpoint, json: bool) -> Result<(), Failure> {
        let devices = self.devices.clone();
        let begun = job::start(server, &JobRequest::IndexAcceptLoss { devices })?;
        if self.detach {
            job::show_detached(&begun, json);
            return Ok(());
        }
        let ended = job::follow(server, begun, json)?;
        job::check_outcome(&ended)?;
        show(&detail::<AcceptLine>(&ended, ACCEPT_LOSS)?, json, accepted);
        Ok(())
    }
}

impl AdoptArgs {
    fn send(&self, server: &AdminEndpoint) -> Result<BucketLine, Failure> {
        let shards = self.index_shards.to_string();
        let mut query = vec![
            ("id", self.id.as_str()),
            ("bucket", self.bucket.as_str()),
            ("index_shards", shards.as_str()),
            ("versioning", self.versioning.name()),
        ];
        query.extend(self.tenant.as_deref().map(|name| ("tenant", name)));
        query.extend(self.storage_policy.as_deref().map(|name| ("storage_policy", name)));
        server.set(ADOPT, &query)
    }
}

impl RebuildArgs {
    fn request(&self) -> RebuildRequest {
        RebuildRequest {
            bucket: self.bucket.clone(),
            partition: self.partition,
            apply: self.apply,
            without_facts: self.without_facts,
            uploads: self.uploads,
            latest: self.latest,
            over_older: self.over_older,
        }
    }

    fn run(&self, server: &AdminEndpoint, json: bool) -> Result<(), Failure> {
        if let Some(bucket) = &self.bucket {
            bucket::show(server, bucket)?;
        }
        if self.stop {
            let stopped = job::cancel_running_kind(server, REBUILD)?;
            show(&detail::<RebuildLine>(&stopped, REBUILD)?, json, rebuilt);
            return Ok(());
        }
        let begun = job::start(server, &JobRequest::IndexRebuild(self.request()))?;
        if self.detach {
            job::show_detached(&begun, json);
            return Ok(());
        }
        let ended = job::follow(server, begun, json)?;
        show(&detail::<RebuildLine>(&ended, REBUILD)?, json, rebuilt);
        job::check_outcome(&ended)
    }
}

fn detail<T: DeserializeOwned>(line: &JobLine, kind: &str) -> Result<T, Failure> {
    let detail = serde_json::from_value(line.detail.clone().unwrap_or_default());
    detail.map_err(|error| {
        Failure::refused(format!("the outcome of the {kind} is not one of this version: {error}"))
    })
}

fn status(line: &IndexLine) -> String {
    let mut text = match line.held_since_ms {
        Some(since_ms) => format!("collection is held since {since_ms} (ms since 1970)\n"),
        None => "collection is not held\n".to_owned(),
    };
    if !line.lost_devices.is_empty() {
        let (devices, partitions) = (list(&line.lost_devices), line.lost_partitions);
        let _ = writeln!(text, "accepted: devices {devices} lost {partitions} index partitions");
    }
    if !line.acceptable_devices.is_empty() {
        let (devices, partitions) = (list(&line.acceptable_devices), line.acceptable_partitions);
        let numbers: Vec<String> = line.acceptable_devices.iter().map(u32::to_string).collect();
        let _ = writeln!(
            text,
            "devices {devices} have no votes, and no peer has {partitions} of their partitions: \
             index accept-loss --devices {} --yes gives them up",
            numbers.join(",")
        );
    }
    if let Some(reason) = &line.nothing_to_accept {
        let _ = writeln!(text, "no loss to accept: {reason}");
    }
    match &line.last_rebuild {
        Some(last) => left_out(&mut text, last),
        None => text.push_str("no rebuild has ended in this process since its start\n"),
    }
    text
}

/// Appends what the last rebuild left out: these extents are deleted after the hold.
fn left_out(text: &mut String, line: &RebuildLine) {
    let scope = if line.scope.is_empty() { "unknown scope" } else { &line.scope };
    let refused: u64 = line.refused.values().sum();
    let _ = writeln!(
        text,
        "the last rebuild of this process ({scope}) left out {} copies with an unknown owner, {} failed keys, \
         {refused} bodies, {} older bodies, {} extents of keys that have an entry, {} lost buckets",
        line.uncertain,
        line.failed,
        line.older,
        line.taken_extents,
        line.unknown_buckets.len()
    );
}

fn accepted(line: &AcceptLine) -> String {
    format!(
        "devices {} have their votes again, {} index partitions lost registers\ncollection is held: \
         run index rebuild, then index release\n",
        list(&line.devices),
        line.partitions
    )
}

fn rebuilt(line: &RebuildLine) -> String {
    let mut text = String::new();
    for finding in line.findings.iter().take(FINDINGS_MAX) {
        let _ = writeln!(text, "{finding}");
    }
    let more = line.findings.len().saturating_sub(FINDINGS_MAX);
    if more > 0 {
        let _ = writeln!(text, "… and {more} more findings: --json prints up to 1000");
    }
    for unknown in &line.unknown_buckets {
        let (id, copies, key) = (&unknown.id, unknown.copies, &unknown.key);
        let _ = writeln!(
            text,
            "bucket {id} has no register: {copies} copies of extents, of {key:?} among others; index \
             adopt {id} NAME --index-shards N makes one"
        );
    }
    let verb =
        if line.applied { "are back" } else { "would come back (a dry run: --apply writes)" };
    let _ = writeln!(
        text,
        "{} copies listed, {} extents of {} keys without an entry\n{} objects of {} bytes {verb}; {} \
         older bodies stay away\n{} keys have an entry, which stays; {} of their extents have none; {} \
         bodies of these keys are newer than the entry",
        line.listed,
        line.unowned,
        line.keys,
        line.objects,
        line.bytes,
        line.older,
        line.taken,
        line.taken_extents,
        line.newer
    );
    for (reason, count) in &line.refused {
        let _ = writeln!(text, "{count} not brought back: {reason}");
    }
    for (count, what) in [
        (line.uncertain, "copies have an unknown owner: run it again once all devices answer"),
        (line.deleted, "extents were deleted before"),
        (line.failed, "keys failed: run it again"),
    ] {
        if count > 0 {
            let _ = writeln!(text, "{count} {what}");
        }
    }
    text
}

fn list(devices: &[u32]) -> String {
    let names: Vec<String> = devices.iter().map(|device| format!("d{device}")).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use martlet_admin_api::index::UnknownBucketLine;

    use super::*;

    #[test]
    fn a_dry_run_lists_recoverable_and_lost_objects() {
        let line = RebuildLine {
            objects: 2,
            bytes: 9,
            refused: [("encrypted".to_owned(), 3)].into(),
            findings: vec!["b/k: would come back, 9 bytes".into(); FINDINGS_MAX + 1],
            unknown_buckets: vec![UnknownBucketLine {
                id: "ab".into(),
                copies: 6,
                key: "x".into(),
            }],
            uncertain: 4,
            ..RebuildLine::default()
        };
        let text = rebuilt(&line);
        for words in [
            "b/k: would come back, 9 bytes\n",
            "… and 1 more findings",
            "bucket ab has no register: 6 copies",
            "2 objects of 9 bytes would come back (a dry run: --apply writes)",
            "3 not brought back: encrypted\n",
            "4 copies have an unknown owner",
        ] {
            assert!(text.contains(words), "{words:?} is missing in {text}");
        }
        assert!(rebuilt(&RebuildLine { applied: true, ..line }).contains("9 bytes are back;"));
    }

    #[test]
    fn the_state_names_what_is_held_and_what_may_be_given_up() {
        let line = IndexLine {
            held_since_ms: Some(7),
            lost_devices: vec![1, 2],
            lost_partitions: 5,
            ..IndexLine::default()
        };
        let text = status(&line);
        assert!(text.contains("held since 7") && text.contains("devices d1, d2 lost 5 index"));
        assert!(text.contains("no rebuild has ended in this process"), "{text}");
        let refused = [("upload".to_owned(), 2), ("several".to_owned(), 4)].into();
        let last = RebuildLine { refused, taken_extents: 8, ..RebuildLine::default() };
        let text = status(&IndexLine { last_rebuild: Some(last), ..line });
        assert!(text.contains("left out 0 copies") && text.contains("6 bodies"), "{text}");
        assert!(text.contains("8 extents of keys that have an entry"), "{text}");
        let text = status(&IndexLine {
            acceptable_devices: vec![3],
            acceptable_partitions: 1,
            ..IndexLine::default()
        });
        assert!(text.contains("not held") && text.contains("accept-loss --devices 3 --yes gives"));
    }
}

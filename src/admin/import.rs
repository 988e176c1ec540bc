//! `martlet admin import`: copies a bucket of another S3 store, with progress, report and summary.

mod display;
mod endpoints;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use martlet_importer::{
    Import, ImportPlan, KeyFilter, Overwrite, PART_BYTES_MAX, PART_BYTES_MIN, Passes, Summary,
};
use martlet_serving::{Failure, Signals, Size};

use self::display::Display;
use self::endpoints::{BucketName, SourceArgs, TargetArgs};

/// Arguments of `martlet admin import`.
#[derive(Args, Debug)]
#[command(after_help = "\
Credentials never stand on the command line. The source's come from --source-key-file, from a \
profile of awscli, or from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; the target's from \
--target-key-file, from a profile, or from MARTLET_TARGET_ACCESS_KEY and \
MARTLET_TARGET_SECRET_KEY. The flags of the admin address are not used.

Run the same command again after an interruption: it continues. Exit code 1: an object failed, \
or differs at the target.

Examples:
  martlet admin key create --tenant research --key-file target.key
  martlet admin import s3://train s3://train --source-endpoint https://minio.local:9000 \\
    --source-profile minio --target-key-file target.key --create-bucket --verify
  martlet admin import s3://old/images/ s3://new --exclude '*.tmp' --tags --report failed.jsonl
  martlet admin import s3://old s3://new --dry-run
  martlet admin import s3://old s3://new --overwrite changed     # catch up before the switch
  martlet admin import s3://old s3://new --verify-only")]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent command-line flag")]
pub(super) struct ImportArgs {
    /// Bucket to read, with a prefix of its keys: `s3://BUCKET/PREFIX`
    source: BucketName,
    /// Bucket to write: `s3://BUCKET`. Keys stay as they are
    target: BucketName,
    #[command(flatten)]
    from: SourceArgs,
    #[command(flatten)]
    to: TargetArgs,
    /// Import only keys with this prefix
    #[arg(long, value_name = "PREFIX")]
    prefix: Option<String>,
    /// Import only keys that match one of these patterns; * and ? match slashes too
    #[arg(long, value_name = "PATTERN")]
    include: Vec<String>,
    /// Leave out keys that match one of these patterns
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// Objects to replace at the target
    #[arg(long, value_enum, default_value = "never")]
    overwrite: OverwriteChoice,
    /// Copy tags too; takes a request more for each object
    #[arg(long)]
    tags: bool,
    /// Create the target's bucket if it is missing
    #[arg(long)]
    create_bucket: bool,
    /// Objects or parts in transfer at once, each with about 1 MiB of memory
    #[arg(long, default_value_t = 32, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    concurrency: u16,
    /// Size of parts where those of the source can't be kept
    #[arg(long, default_value = "64MiB", value_name = "BYTES")]
    part_size: Size,
    /// Attempts after the first one, for each request and each object
    #[arg(long, default_value_t = 7, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=100))]
    retries: u32,
    /// Count objects and bytes that would be copied, and copy nothing
    #[arg(long, group = "pass")]
    dry_run: bool,
    /// Compare both buckets after the copy
    #[arg(long, group = "pass")]
    verify: bool,
    /// Compare both buckets, and copy nothing
    #[arg(long, group = "pass")]
    verify_only: bool,
    /// File for one JSON line per object that failed, differs or was kept
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// File with the progress of an unfinished import [default: martlet-import-SOURCE-TARGET.state]
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Don't list the source a second time to estimate the time left
    #[arg(long)]
    no_estimate: bool,
}

/// Values of `--overwrite`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OverwriteChoice {
    /// None: each write requires that the key has no object
    Never,
    /// Objects that differ, unless the target's was written later
    Changed,
    /// All objects, equal ones too
    Always,
}

impl ImportArgs {
    /// Runs the import and prints its summary.
    pub(super) fn run(&self, json: bool) -> Result<(), Failure> {
        let import = Import::prepare(self.plan()?)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let summary = runtime.block_on(async {
            let mut signals = Signals::take()?;
            let display = Display::begin(import.counters());
            let stop = async move {
                signals.next().await;
            };
            let summary = import.run(stop).await;
            display.end().await;
            Ok::<_, Failure>(summary?)
        })?;
        runtime.shutdown_background();
        super::print::show(&summary, json, Summary::text);
        if summary.is_clean() { Ok(()) } else { Err(self.failure(&summary)) }
    }

    fn failure(&self, summary: &Summary) -> Failure {
        let reason = if summary.interrupted {
            "the import was interrupted: run the same command again to continue"
        } else if summary.failed.objects > 0 {
            "objects could not be copied: run the same command again"
        } else {
            "objects at the target differ from the source"
        };
        let hint = match &self.report {
            Some(file) => format!(" ({} lists them)", file.display()),
            None if summary.interrupted => String::new(),
            None => " (--report FILE lists them)".to_owned(),
        };
        Failure::refused(format!("{reason}{hint}"))
    }

    fn plan(&self) -> Result<ImportPlan, Failure> {
        let (source, target) = (&self.source, &self.target);
        if !target.prefix.is_empty() {
            return Err(Failure::usage("the target must be a bucket: keys stay as they are"));
        }
        if self.prefix.is_some() && !source.prefix.is_empty() {
            return Err(Failure::usage(
                "name the prefix in the source or by --prefix, not in both",
            ));
        }
        if !(PART_BYTES_MIN..=PART_BYTES_MAX).contains(&self.part_size.0) {
            return Err(Failure::usage("--part-size must be from 5MiB to 5GiB"));
        }
        let state = format!("martlet-import-{}-{}.state", source.bucket, target.bucket);
        Ok(ImportPlan {
            source: self.from.location(&source.bucket)?,
            target: self.to.location(&target.bucket)?,
            prefix: self.prefix.clone().unwrap_or_else(|| source.prefix.clone()),
            filter: KeyFilter::new(&self.include, &self.exclude),
            overwrite: match self.overwrite {
                OverwriteChoice::Never => Overwrite::Never,
                OverwriteChoice::Changed => Overwrite::Changed,
                OverwriteChoice::Always => Overwrite::Always,
            },
            passes: match (self.dry_run, self.verify, self.verify_only) {
                (true, ..) => Passes::DryRun,
                (_, true, _) => Passes::CopyAndVerify,
                (.., true) => Passes::Verify,
                _ => Passes::Copy,
            },
            with_tags: self.tags,
            concurrency: self.concurrency.into(),
            part_bytes: self.part_size.0,
            attempts: self.retries + 1,
            creates_bucket: self.create_bucket,
            has_opaque_etags: self.from.has_opaque_etags(),
            counts_ahead: !self.no_estimate && !self.dry_run,
            state_file: self.state.clone().unwrap_or_else(|| state.into()),
            report_file: self.report.clone(),
        })
    }
}

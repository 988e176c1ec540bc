//! `martlet admin backup restore`: compares a backup with a running cluster, prints a plan, and
//! restores what differs, by one request for each record.
//!
//! The file is read twice. The first pass checks it to its end and compares all records, so that a
//! damaged file changes nothing. The second pass compares again, so that a run that was interrupted
//! goes on where it ended.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread;

use clap::{Args, ValueEnum};
use martlet_admin_api::backup::{
    COMPARE, CompareReply, CompareRequest, PAGE_MAX, RECORD, RecordLine, RecordVerdict,
    RestoreRequest, VerdictState,
};
use martlet_serving::Failure;
use martlet_serving::folder::make_folder;
use serde::Serialize;

use super::lines::{BackupReader, FileLine, Line};
use super::open;
use super::progress::{FileProgress, RestoredRecords};
use super::secret::{BackupSecret, SecretArgs};
use crate::admin::client::AdminEndpoint;
use crate::admin::connection::AdminConnection;
use crate::admin::print::show;
use crate::columns::table;

/// Maximum bytes of the records of one comparison. A request may have 1 MiB.
const BATCH_BYTES_MAX: usize = 512 << 10;
/// Concurrent requests that restore records.
const WRITES_AT_ONCE: usize = 8;
/// Maximum number of printed items for each state.
const EXAMPLES_MAX: usize = 20;
/// Kind of the records of buckets; all other kinds are accounts.
const BUCKET: &str = "bucket";

/// Arguments of `martlet admin backup restore`.
#[derive(Args, Debug)]
#[command(after_help = "\
Items that were changed or deleted after the backup are left as they are, unless --replace is named. \
An interrupted run can be started again: what is restored already is skipped. A restored bucket is \
new and empty. Rings are files: --files-to writes them, martlet admin ring push sends them.")]
pub(in crate::admin) struct RestoreArgs {
    /// File of the backup
    file: PathBuf,
    #[command(flatten)]
    secret: SecretArgs,
    /// Print the plan, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Restore only these parts
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PART")]
    only: Vec<Part>,
    /// Undo changes and deletions that are later than the backup
    #[arg(long)]
    replace: bool,
    /// Write the rings and added files of the backup to this folder; existing files are refused
    #[arg(long, value_name = "DIR")]
    files_to: Option<PathBuf>,
}

/// Part of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Rings, and files that were added
    Rings,
    /// Tenants, users, roles, access keys and admin keys
    Accounts,
    /// Owners and settings of buckets
    Buckets,
}

/// Records of one kind, with their length in bytes.
#[derive(Default)]
struct Batch {
    records: Vec<RecordLine>,
    bytes: usize,
}

/// Numbers of records by their state, of one kind.
type Tally = BTreeMap<VerdictState, u64>;

/// Comparison of a backup with a cluster, and the outcome of the restore.
#[derive(Debug, Default, Serialize)]
struct Report {
    /// Records by kind and state.
    plan: BTreeMap<String, Tally>,
    /// Items other than missing and equal ones: kind, name, state and reason. The first of each
    /// state.
    examples: Vec<Example>,
    /// Names of the rings and files in the backup.
    files: Vec<String>,
    /// True if nothing was to be changed.
    dry_run: bool,
    /// Records that were restored.
    restored: u64,
    /// Records whose restore failed.
    failed: u64,
    /// Reasons of the first failures.
    failures: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
struct Example {
    kind: String,
    name: String,
    state: VerdictState,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl RestoreArgs {
    /// Prints the plan and restores the backup.
    pub(super) fn run(&self, connection: &AdminConnection, json: bool) -> Result<(), Failure> {
        let secret = self.secret.require()?;
        if self.only == [Part::Rings] && self.files_to.is_none() {
            return Err(Failure::usage("name the folder for the rings with --files-to"));
        }
        let server = self.has_records().then(|| connection.endpoint()).transpose()?;
        let file_bytes = fs::metadata(&self.file).map_or(0, |file| file.len());
        let mut progress = FileProgress::begin("backup restore", file_bytes, json);
        let mut report = self.planned(&secret, server.as_ref(), &mut progress)?;
        // No bar stands between the lines of the plan.
        drop(progress);
        report.dry_run = self.dry_run;
        if !json {
            print!("{}", plan_text(&report, self.replace));
            io::stdout().flush()?;
        }
        if !self.dry_run {
            let mut progress = FileProgress::begin("backup restore", file_bytes, json);
            self.write_files(&secret, &mut progress)?;
            if let Some(server) = &server {
                self.restore(&secret, server, &mut report, &mut progress)?;
            }
        }
        show(&report, json, outcome_text);
        let refused: u64 =
            report.plan.values().filter_map(|it| it.get(&VerdictState::Refused)).sum();
        if report.failed + refused == 0 {
            return Ok(());
        }
        Err(Failure::refused(format!(
            "{} records were not restored: remove the reasons above, and run the command again",
            report.failed.max(refused)
        )))
    }

    fn has(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }

    fn has_records(&self) -> bool {
        self.has(Part::Accounts) || self.has(Part::Buckets)
    }

    fn wants(&self, kind: &str) -> bool {
        self.has(if kind == BUCKET { Part::Buckets } else { Part::Accounts })
    }

    /// Reads the whole file. Calls `on_batch` for the wanted records, in their order.
    fn read(
        &self,
        secret: &BackupSecret,
        progress: &mut FileProgress,
        mut on_batch: impl FnMut(&mut Batch, &mut FileProgress) -> Result<(), Failure>,
        mut on_file: impl FnMut(FileLine) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let (header, file) = open(&self.file)?;
        let file = progress.counted(file);
        let mut reader = BackupReader::new(file, &header, &header.open(secret)?);
        let mut batch = Batch::default();
        while let Some(line) = reader.next()? {
            match line {
                Line::Record(record) if self.wants(&record.kind) => {
                    let bytes = serde_json::to_vec(&record).map_or(0, |bytes| bytes.len());
                    if batch.is_full_before(&record, bytes) {
                        on_batch(&mut batch, progress)?;
                        batch = Batch::default();
                    }
                    batch.bytes += bytes;
                    batch.records.push(record);
                }
                Line::File(file) if self.has(Part::Rings) => on_file(file)?,
                _ => {}
            }
        }
        if batch.records.is_empty() { Ok(()) } else { on_batch(&mut batch, progress) }
    }

    /// Checks the file to its end, and compares its records with the cluster.
    fn planned(
        &self,
        secret: &BackupSecret,
        server: Option<&AdminEndpoint>,
        progress: &mut FileProgress,
    ) -> Result<Report, Failure> {
        let (mut report, mut files, mut compared) = (Report::default(), Vec::new(), 0);
        let on_batch = |batch: &mut Batch, progress: &mut FileProgress| {
            let Some(server) = server else { return Ok(()) };
            let verdicts = batch.compare(server)?;
            compared += batch.records.len() as u64;
            progress.show_check(compared);
            for (record, verdict) in batch.records.iter().zip(verdicts) {
                report.note(record, verdict);
            }
            Ok(())
        };
        let on_file = |file: FileLine| {
            files.push(file.name);
            Ok(())
        };
        self.read(secret, progress, on_batch, on_file)?;
        report.files = files;
        Ok(report)
    }

    fn write_files(
        &self,
        secret: &BackupSecret,
        progress: &mut FileProgress,
    ) -> Result<(), Failure> {
        let Some(folder) = &self.files_to else { return Ok(()) };
        make_folder(folder)?;
        self.read(secret, progress, |_, _| Ok(()), |file| write_file(folder, &file))
    }

    fn restore(
        &self,
        secret: &BackupSecret,
        server: &AdminEndpoint,
        report: &mut Report,
        progress: &mut FileProgress,
    ) -> Result<(), Failure> {
        let all = report.plan.values().flat_map(BTreeMap::values).sum();
        let mut seen = 0;
        let on_batch = |batch: &mut Batch, progress: &mut FileProgress| {
            seen += batch.records.len() as u64;
            let verdicts = batch.compare(server)?;
            let records = std::mem::take(&mut batch.records).into_iter().zip(verdicts);
            let wanted = records.filter(|(_, verdict)| verdict.state.is_written(self.replace));
            let wanted: Vec<RecordLine> = wanted.map(|(record, _)| record).collect();
            for outcome in restored(server, &wanted, self.replace) {
                match outcome {
                    Ok(()) => report.restored += 1,
                    Err(reason) => {
                        report.failed += 1;
                        if report.failures.len() < EXAMPLES_MAX {
                            report.failures.push(reason);
                        }
                    }
                }
            }
            let (restored, failed) = (report.restored, report.failed);
            progress.show_restore(RestoredRecords { seen, restored, failed }, all);
            Ok(())
        };
        self.read(secret, progress, on_batch, |_| Ok(()))
    }
}

impl Batch {
    fn is_full_before(&self, record: &RecordLine, bytes: usize) -> bool {
        let Some(last) = self.records.last() else { return false };
        last.kind != record.kind
            || self.records.len() == PAGE_MAX
            || self.bytes + bytes > BATCH_BYTES_MAX
    }

    fn compare(&mut self, server: &AdminEndpoint) -> Result<Vec<RecordVerdict>, Failure> {
        let request = CompareRequest { records: std::mem::take(&mut self.records) };
        let reply: Result<CompareReply, Failure> = server.post(COMPARE, &request);
        self.records = request.records;
        let CompareReply { verdicts } = reply?;
        if verdicts.len() == self.records.len() {
            return Ok(verdicts);
        }
        Err(Failure::refused("the process compares as another version: use its own command"))
    }
}

impl Report {
    fn note(&mut self, record: &RecordLine, verdict: RecordVerdict) {
        let RecordVerdict { state, reason } = verdict;
        let tally = self.plan.entry(record.kind.clone()).or_default();
        *tally.entry(state).or_default() += 1;
        let is_plain = matches!(state, VerdictState::Same | VerdictState::Missing);
        let known = self.examples.iter().filter(|it| it.state == state).count();
        if !is_plain && known < EXAMPLES_MAX {
            let (kind, name) = (record.kind.clone(), record.name.clone());
            self.examples.push(Example { kind, name, state, reason });
        }
    }
}

/// Restores records of one kind, several at once. Returns the outcome of each.
fn restored(
    server: &AdminEndpoint,
    records: &[RecordLine],
    replace: bool,
) -> Vec<Result<(), String>> {
    let share = records.len().div_ceil(WRITES_AT_ONCE).max(1);
    let put = |record: &RecordLine| {
        let (kind, name) = (record.kind.clone(), record.name.clone());
        let text = format!("{kind} {name}");
        let request = RestoreRequest { kind, name, replace, record: record.clone() };
        let reply: Result<RecordVerdict, Failure> = server.put(RECORD, &request);
        reply.map(drop).map_err(|error| format!("{text}: {error}"))
    };
    let run = |share: &[RecordLine]| share.iter().map(put).collect::<Vec<_>>();
    let run = &run;
    thread::scope(|scope| {
        let shares: Vec<_> =
            records.chunks(share).map(|share| scope.spawn(move || run(share))).collect();
        let outcomes = shares.into_iter().map(thread::ScopedJoinHandle::join);
        outcomes.flat_map(|outcome| outcome.expect("a request doesn't panic")).collect()
    })
}

fn write_file(folder: &Path, file: &FileLine) -> Result<(), Failure> {
    let FileLine { name, content, .. } = file;
    let is_plain = Path::new(name).file_name().is_some_and(|base| base == name.as_str());
    let bytes = hex::decode(content).ok().filter(|_| is_plain);
    let bytes = bytes.ok_or_else(|| Failure::refused("a file in the backup is malformed"))?;
    let path = folder.join(name);
    let unwritten = |error: io::Error| {
        Failure::refused(format!("{} can't be written: {error}", path.display()))
    };
    if fs::read(&path).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    let mut made = made.map_err(unwritten)?;
    made.write_all(&bytes).and_then(|()| made.sync_all()).map_err(unwritten)
}

fn plan_text(report: &Report, replace: bool) -> String {
    let heads = ["kind", "same", "to create", "to change", "later here", "refused"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    for (kind, tally) in &report.plan {
        let count = |state: &VerdictState| tally.get(state).copied().unwrap_or_default();
        let numbers = [
            count(&VerdictState::Same),
            count(&VerdictState::Missing),
            count(&VerdictState::Older),
            count(&VerdictState::Newer) + count(&VerdictState::Deleted),
            count(&VerdictState::Refused),
        ];
        let numbers = numbers.iter().map(ToString::to_string);
        rows.push([kind.clone()].into_iter().chain(numbers).collect());
    }
    let mut text =
        if report.plan.is_empty() { String::new() } else { table(&rows, &[1, 2, 3, 4, 5]) };
    for Example { kind, name, state, reason } in &report.examples {
        let what = match state {
            VerdictState::Newer if replace => "changed since, will be replaced",
            VerdictState::Newer => "changed since, left (--replace restores it)",
            VerdictState::Deleted if replace => "deleted since, will be made again",
            VerdictState::Deleted => "deleted since, left (--replace restores it)",
            VerdictState::Refused => "refused",
            _ => "will be changed",
        };
        let reason = reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
        text.extend([kind.as_str(), " ", name, ": ", what, &reason, "\n"]);
    }
    for name in &report.files {
        text.extend(["file ", name, ": --files-to writes it\n"]);
    }
    text
}

fn outcome_text(report: &Report) -> String {
    if report.dry_run {
        return "nothing was changed: this was a dry run\n".to_owned();
    }
    let Report { restored, failed, failures, .. } = report;
    let mut lines = failures.clone();
    lines.push(format!("{restored} restored, {failed} failed\n"));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record(kind: &str, name: &str) -> RecordLine {
        RecordLine { kind: kind.into(), name: name.into(), written_ms: 1, content: json!({}) }
    }

    #[test]
    fn a_batch_has_one_kind_and_a_bounded_length() {
        let mut batch = Batch::default();
        let key = record("key", "a");
        assert!(
            !batch.is_full_before(&key, BATCH_BYTES_MAX * 2),
            "a batch has one record at least"
        );
        batch.records.push(key.clone());
        batch.bytes = 100;
        assert!(!batch.is_full_before(&key, 100));
        assert!(batch.is_full_before(&record("bucket", "b"), 100));
        assert!(batch.is_full_before(&key, BATCH_BYTES_MAX));
        batch.records = vec![key.clone(); PAGE_MAX];
        assert!(batch.is_full_before(&key, 1));
    }

    #[test]
    fn a_plan_counts_states_and_names_what_is_not_plain() {
        let mut report = Report::default();
        for (at, state) in [
            VerdictState::Same,
            VerdictState::Missing,
            VerdictState::Newer,
            VerdictState::Deleted,
            VerdictState::Refused,
        ]
        .into_iter()
        .enumerate()
        {
            let reason = (state == VerdictState::Refused).then(|| "no master key".to_owned());
            report.note(&record("key", &format!("k{at}")), RecordVerdict { state, reason });
        }
        for at in 0..EXAMPLES_MAX + 5 {
            let verdict = RecordVerdict { state: VerdictState::Older, reason: None };
            report.note(&record("bucket", &format!("b{at}")), verdict);
        }
        let text = plan_text(&report, false);
        assert!(text.contains("k2: changed since, left (--replace restores it)"), "{text}");
        assert!(text.contains("k4: refused: no master key") && !text.contains("k0"), "{text}");
        assert_eq!(text.matches("will be changed").count(), EXAMPLES_MAX, "{text}");
        assert!(plan_text(&report, true).contains("k3: deleted since, will be made again"));
    }

    #[test]
    fn files_get_plain_names_and_replace_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, content: &str| FileLine {
            name: name.into(),
            epoch: None,
            content: content.into(),
        };
        write_file(folder.path(), &file("index.ring", "0102")).unwrap();
        write_file(folder.path(), &file("index.ring", "0102")).expect("the file is the same");
        assert!(write_file(folder.path(), &file("index.ring", "03")).is_err());
        assert_eq!(fs::read(folder.path().join("index.ring")).unwrap(), [1, 2]);
        for wrong in ["../x", "/etc/x", "a/b", "..", "."] {
            assert!(write_file(folder.path(), &file(wrong, "00")).is_err(), "{wrong}");
        }
    }
}

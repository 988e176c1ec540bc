//! `martlet admin backup`: one encrypted file with what a cluster can't rebuild, and its restore.
//!
//! ```text
//! admin address ─ records of accounts and buckets, page by page ─┐
//!               ─ rings in use ──────────────────────────────────┼─▶ lines ─▶ gzip ─▶ sealed file
//! this machine  ─ files that the operator adds ──────────────────┘
//! ```
//!
//! * [`secret`]: passphrase or key; [`sealed`]: encryption and integrity; [`lines`]: contents.
//! * [`create`], [`restore`]: the commands. [`progress`]: their progress.
//!
//! Neither command holds more than one page of records, at most 500 or about 32 MiB, and one ring.

mod create;
mod lines;
mod progress;
mod restore;
mod sealed;
mod secret;

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use martlet_serving::Failure;
use serde::Serialize;

use self::create::CreateArgs;
use self::lines::{BackupReader, Line};
use self::progress::FileProgress;
use self::restore::RestoreArgs;
use self::sealed::Header;
use self::secret::{KeyForm, SecretArgs};
use super::connection::AdminConnection;
use super::print::{show, time};
use crate::columns::table;

/// Subcommands of `martlet admin backup`.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
A backup has tenants, users, roles, access keys, admin keys, the settings of all buckets, and the \
rings in use. It has no objects, and no master key, cluster key or root secret: keep copies of those \
files elsewhere. Secrets of access keys stay sealed by the master key.

Examples:
  martlet admin backup create --passphrase-file pass martlet-$(date +%F).backup
  martlet admin backup create --backup-key-file key --include index.builder - | ssh vault 'cat > b'
  martlet admin backup show --passphrase-file pass martlet-2026-11-28.backup
  martlet admin backup restore --passphrase-file pass martlet-2026-11-28.backup --dry-run
  martlet admin backup restore --passphrase-file pass b --only rings --files-to rings/")]
pub(super) enum BackupCommand {
    /// Write a backup of a running cluster
    Create(CreateArgs),
    /// Show the contents of a backup, and check that it is whole
    Show {
        /// File of the backup
        file: PathBuf,
        #[command(flatten)]
        secret: SecretArgs,
    },
    /// Compare a backup with a running cluster, and restore what is missing there
    Restore(RestoreArgs),
}

/// Lines between two displays of the progress.
const LINES_SHOWN: u64 = 256;

/// Contents of a backup, as JSON.
#[derive(Serialize)]
struct Contents {
    header: Header,
    /// Number of items by kind. `None` without the secret.
    counts: Option<Vec<(String, u64)>>,
    files: Vec<String>,
}

impl BackupCommand {
    /// Runs the command.
    pub(super) fn run(&self, connection: &AdminConnection, json: bool) -> Result<(), Failure> {
        match self {
            Self::Create(args) => args.run(&connection.endpoint()?, json),
            Self::Show { file, secret } => {
                let contents = contents(file, secret, json)?;
                show(&contents, json, describe);
                Ok(())
            }
            Self::Restore(args) => args.run(connection, json),
        }
    }
}

/// Opens a file and reads its header.
fn open(path: &Path) -> Result<(Header, BufReader<File>), Failure> {
    let name = path.display();
    let file = File::open(path)
        .map_err(|error| Failure::refused(format!("{name} can't be read: {error}")))?;
    let mut file = BufReader::new(file);
    let header = Header::read(&mut file)?;
    Ok((header, file))
}

/// Reads a backup to its end, with its progress, if the secret is named.
fn contents(path: &Path, secret: &SecretArgs, json: bool) -> Result<Contents, Failure> {
    let (header, file) = open(path)?;
    let Some(secret) = secret.load()? else {
        return Ok(Contents { header, counts: None, files: Vec::new() });
    };
    let file_bytes = file.get_ref().metadata().map_or(0, |file| file.len());
    let mut progress = FileProgress::begin("backup show", file_bytes, json);
    let mut reader = BackupReader::new(progress.counted(file), &header, &header.open(&secret)?);
    let (mut files, mut lines) = (Vec::new(), 0_u64);
    while let Some(line) = reader.next()? {
        lines += 1;
        if lines.is_multiple_of(LINES_SHOWN) {
            progress.show_lines(lines);
        }
        if let Line::File(file) = line {
            let epoch = file.epoch.map(|epoch| format!(" of epoch {epoch}")).unwrap_or_default();
            files.push(file.name + &epoch);
        }
    }
    let counts = reader.counts().iter().map(|(kind, count)| (kind.clone(), *count)).collect();
    Ok(Contents { header, counts: Some(counts), files })
}

fn describe(contents: &Contents) -> String {
    let Contents { header, counts, files } = contents;
    let by = match header.key {
        KeyForm::Passphrase { .. } => "a passphrase",
        KeyForm::KeyFile => "a key file",
    };
    let made = time(header.made_ms);
    let mut text = format!("backup of {made} by Martlet {}, sealed by {by}\n", header.martlet);
    let Some(counts) = counts else {
        return text + "name the secret to see and check the contents\n";
    };
    let row = |(kind, count): &(String, u64)| vec![kind.clone(), count.to_string()];
    let rows: Vec<_> = [vec!["kind".to_owned(), "items".to_owned()]]
        .into_iter()
        .chain(counts.iter().map(row))
        .collect();
    text += &table(&rows, &[1]);
    for file in files {
        text.extend(["file ", file, "\n"]);
    }
    text + "the backup is whole\n"
}

//! `martlet admin backup create`: reads all records of a cluster, page by page, into a file.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::Args;
use martlet_admin_api::accounts::ListPage;
use martlet_admin_api::backup::{BACKUP, BackupLine, RECORDS, RING, RecordLine, RingFile};
use martlet_serving::Failure;
use serde::Serialize;

use super::lines::{BackupWriter, EndLine, FileLine, Line};
use super::progress::{CreateProgress, KindProgress};
use super::sealed::Header;
use super::secret::SecretArgs;
use crate::admin::client::AdminEndpoint;

/// Items of one page. A bucket takes 100 KiB at most.
const PAGE: &str = "200";
/// Longest file of `--include`.
const FILE_BYTES_MAX: u64 = 16 << 20;
const STDOUT: &str = "-";

/// Arguments of `martlet admin backup create`.
#[derive(Args, Debug)]
pub(in crate::admin) struct CreateArgs {
    /// File to write; an existing file is refused. - writes to the standard output
    file: PathBuf,
    #[command(flatten)]
    secret: SecretArgs,
    /// Add this file, such as the builder of a ring; repeatable
    #[arg(long = "include", value_name = "FILE")]
    included: Vec<PathBuf>,
}

#[derive(Serialize)]
struct Made<'a> {
    file: &'a Path,
    #[serde(flatten)]
    end: &'a EndLine,
}

impl CreateArgs {
    /// Writes the backup. A file that isn't whole is removed.
    pub(super) fn run(&self, server: &AdminEndpoint, json: bool) -> Result<(), Failure> {
        let secret = self.secret.require()?;
        let included = self.included.iter().map(|path| included(path));
        let included: Vec<FileLine> = included.collect::<Result<_, _>>()?;
        if self.file == Path::new(STDOUT) {
            let begun: BackupLine = server.post(BACKUP, &serde_json::Value::Null)?;
            let (header, key) = Header::new(&secret, begun.version.clone(), begun.made_ms)?;
            let to = io::stdout().lock();
            let writer = BackupWriter::new(to, &header, &key)?;
            let (_, end) = fill(writer, server, &begun, included, json)?;
            eprintln!("{}", summary(&end));
            return Ok(());
        }
        let partial = NewFile::begin(&self.file)?;
        let begun: BackupLine = server.post(BACKUP, &serde_json::Value::Null)?;
        let (header, key) = Header::new(&secret, begun.version.clone(), begun.made_ms)?;
        let to = io::BufWriter::new(partial.open()?);
        let writer = BackupWriter::new(to, &header, &key)?;
        let (to, end) = fill(writer, server, &begun, included, json)?;
        let file = to.into_inner().map_err(io::IntoInnerError::into_error)?;
        partial.keep(&file)?;
        if json {
            let made = Made { file: &self.file, end: &end };
            println!("{}", serde_json::to_string(&made).expect("plain data can be encoded"));
        } else {
            println!("{}: {}", self.file.display(), summary(&end));
        }
        Ok(())
    }
}

/// Adds rings, files and the records of all kinds, each kind after those that it refers to.
fn fill<W: Write>(
    mut writer: BackupWriter<W>,
    server: &AdminEndpoint,
    begun: &BackupLine,
    included: Vec<FileLine>,
    json: bool,
) -> Result<(W, EndLine), Failure> {
    let mut progress = CreateProgress::begin(begun.kinds.len(), begun.expected.clone(), json);
    for name in &begun.rings {
        let ring: RingFile = server.request_json(RING, &[("ring", name)])?;
        let RingFile { ring, epoch, file } = ring;
        let name = format!("{ring}.ring");
        writer.push(&Line::File(FileLine { name, epoch: Some(epoch), content: file }))?;
    }
    for file in included {
        writer.push(&Line::File(file))?;
    }
    for (number, kind) in (1..).zip(&begun.kinds) {
        let mut after: Option<String> = None;
        let mut progressed = KindProgress { name: kind, number, records: 0 };
        loop {
            let mut query = vec![("kind", kind.as_str()), ("limit", PAGE)];
            query.extend(after.as_deref().map(|after| ("after", after)));
            let page: ListPage<RecordLine> = server.request_json(RECORDS, &query)?;
            progressed.records += page.items.len() as u64;
            progress.show(&progressed);
            for record in page.items {
                writer.push(&Line::Record(record))?;
            }
            match page.next {
                None => break,
                next => after = next,
            }
        }
    }
    Ok(writer.finish()?)
}

fn included(path: &Path) -> Result<FileLine, Failure> {
    let name = path.display();
    let unreadable = |error: io::Error| Failure::refused(format!("{name} can't be read: {error}"));
    if fs::metadata(path).map_err(unreadable)?.len() > FILE_BYTES_MAX {
        return Err(Failure::usage(format!("{name} is larger than 16 MiB: leave the file out")));
    }
    let content = hex::encode(fs::read(path).map_err(unreadable)?);
    let base = path.file_name().and_then(OsStr::to_str).ok_or_else(|| {
        Failure::usage(format!("the name of {name} isn't UTF-8: rename the file"))
    })?;
    Ok(FileLine { name: base.to_owned(), epoch: None, content })
}

fn summary(end: &EndLine) -> String {
    let counts = end.counts.iter().map(|(kind, count)| format!("{count} of kind {kind}"));
    format!("{}. Keep the master keys elsewhere", counts.collect::<Vec<_>>().join(", "))
}

/// File that gets its name when it is whole.
struct NewFile {
    path: PathBuf,
    partial: PathBuf,
}

impl NewFile {
    fn begin(path: &Path) -> Result<Self, Failure> {
        if path.exists() {
            let name = path.display();
            return Err(Failure::refused(format!("{name} exists: name a new file")));
        }
        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        Ok(Self { path: path.to_owned(), partial: partial.into() })
    }

    fn open(&self) -> Result<File, Failure> {
        let mut options = OpenOptions::new();
        let opened =
            options.write(true).create(true).truncate(true).mode(0o600).open(&self.partial);
        opened.map_err(|error| {
            Failure::refused(format!("{} can't be written: {error}", self.partial.display()))
        })
    }

    /// Makes the file durable under its name.
    fn keep(&self, file: &File) -> Result<(), Failure> {
        file.sync_all()?;
        // A hard link, which fails if the name exists by now.
        fs::hard_link(&self.partial, &self.path)?;
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        // Absent if it was never opened. A file that can't be removed is overwritten next time.
        let _ = fs::remove_file(&self.partial);
    }
}

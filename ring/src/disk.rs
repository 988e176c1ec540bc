//! Replacing a file, whole or not at all.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use crate::error::{Error, Result};

/// Puts `bytes` in the place of the file at `path`: written beside it, synced, renamed over it, and
/// the folder synced, so that after a power cut there is the old file or the new one.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let name = path
        .file_name()
        .ok_or_else(|| Error::invalid(format!("{} is no file name", path.display())))?;
    let mut beside = name.to_owned();
    beside.push(format!(".{}.new", std::process::id()));
    let beside = path.with_file_name(beside);
    let write = || {
        let mut file = File::create(&beside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&beside, path)?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    };
    write().map_err(|error| {
        // What is left of a failed attempt helps nobody; that it may not be there is fine.
        let _ = fs::remove_file(&beside);
        Error::io("writing", path, &error)
    })
}

//! Atomic replacement of a file.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use crate::error::{Error, Result};

/// Replaces the file at `path`: writes a temporary file beside it, syncs, renames, and syncs the
/// folder. After a power cut either the old or the new file exists.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let name = path
        .file_name()
        .ok_or_else(|| Error::invalid(format!("{} has no file name", path.display())))?;
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
        // Removes a partial file, if any.
        let _ = fs::remove_file(&beside);
        Error::io("writing", path, &error)
    })
}

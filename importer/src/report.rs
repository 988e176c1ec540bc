//! Report: one JSON line for each object that was not copied, or differs.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use parking_lot::Mutex;
use serde::Serialize;

use crate::error::{Error, Result};

/// Fate of a reported object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Fate {
    /// The copy failed.
    Failed,
    /// The target's object is another one, and was kept.
    Kept,
    /// The source had deleted the object when it was read.
    Vanished,
    /// The comparison found a difference.
    Different,
    /// The comparison found no object at the target.
    Missing,
    /// The comparison found equal sizes, and no checksum that both stores have.
    Unverified,
}

/// Line of the report.
#[derive(Debug, Serialize)]
pub(crate) struct ReportLine<'a> {
    pub(crate) key: &'a str,
    pub(crate) fate: Fate,
    pub(crate) bytes: u64,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) reason: &'a str,
}

/// Writer of the report; without a file, lines are dropped.
#[derive(Debug)]
pub(crate) struct Report {
    file: Option<Mutex<BufWriter<File>>>,
}

impl Report {
    /// Creates the file, or replaces it.
    pub(crate) fn create(path: Option<&Path>) -> Result<Self> {
        let create = |path: &Path| {
            let file = File::create(path).map_err(|error| {
                Error::fatal(format!("the report {} can't be created: {error}", path.display()))
            })?;
            Ok(Mutex::new(BufWriter::new(file)))
        };
        Ok(Self { file: path.map(create).transpose()? })
    }

    /// Adds a line.
    pub(crate) fn add(&self, line: &ReportLine<'_>) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let mut text = serde_json::to_vec(line).expect("a line is JSON");
        text.push(b'\n');
        file.lock().write_all(&text).map_err(|error| unwritable(&error))
    }

    /// Writes the lines that are still in memory.
    pub(crate) fn flush(&self) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        file.lock().flush().map_err(|error| unwritable(&error))
    }
}

fn unwritable(error: &std::io::Error) -> Error {
    Error::fatal(format!("the report can't be written: {error}"))
}

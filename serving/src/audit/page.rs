//! Pages of audit records. A page reads a bounded part of the files, whatever it returns.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use martlet_admin_api::audit::{AuditPage, AuditRecord, PAGE_MAX};

use super::files::{numbers, path_of};

/// Maximum bytes that a page reads.
const PAGE_BYTES: usize = 4 << 20;

/// Filter and place of a page.
#[derive(Clone, Debug, Default)]
pub(crate) struct AuditQuery {
    /// Earliest time, in milliseconds since 1970.
    pub(crate) since_ms: u64,
    /// Key, name, role, tenant, kind or address of the requester.
    pub(crate) who: Option<String>,
    /// Part of the operation, or the whole of a target.
    pub(crate) what: Option<String>,
    /// Tenant whose records are returned, and no others.
    pub(crate) tenant: Option<String>,
    /// Place after which the page begins.
    pub(crate) after: AuditCursor,
}

/// Place in the files: the number of a file, and an offset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AuditCursor {
    number: u64,
    offset: u64,
}

impl AuditCursor {
    /// Reads a cursor of a former page.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (number, offset) = text.split_once('.')?;
        Some(Self { number: number.parse().ok()?, offset: offset.parse().ok()? })
    }

    fn to_text(self) -> String {
        format!("{}.{}", self.number, self.offset)
    }
}

impl AuditQuery {
    /// Reads the page from the files of a folder.
    pub(super) fn read(&self, folder: &Path) -> io::Result<AuditPage> {
        let mut page = AuditPage::default();
        let (mut cursor, mut budget) = (self.after, PAGE_BYTES);
        let numbers = match numbers(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            numbers => numbers?,
        };
        let last = numbers.last().copied().unwrap_or_default();
        for number in numbers.into_iter().filter(|number| *number >= self.after.number) {
            if number > cursor.number {
                cursor = AuditCursor { number, offset: 0 };
            }
            let path = path_of(folder, number);
            if number < last && cursor.offset == 0 && self.is_older(&path) {
                continue;
            }
            let is_whole = self.read_file(&path, &mut cursor, &mut budget, &mut page)?;
            if !is_whole {
                page.more = true;
                break;
            }
        }
        page.next = cursor.to_text();
        Ok(page)
    }

    /// Returns true if a file was last written before the earliest time. In doubt, false.
    fn is_older(&self, path: &Path) -> bool {
        let written = std::fs::metadata(path).and_then(|about| about.modified());
        written.is_ok_and(|at| at < UNIX_EPOCH + Duration::from_millis(self.since_ms))
    }

    /// Reads a file from the cursor on. Returns false if the page ends before the file does.
    fn read_file(
        &self,
        path: &Path,
        cursor: &mut AuditCursor,
        budget: &mut usize,
        page: &mut AuditPage,
    ) -> io::Result<bool> {
        let mut file = match File::open(path) {
            // The file was the oldest one, and was deleted since.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
            file => file?,
        };
        file.seek(SeekFrom::Start(cursor.offset))?;
        let mut bytes = Vec::new();
        let read = file.take(*budget as u64).read_to_end(&mut bytes)?;
        let is_cut = read == *budget;
        *budget -= read;
        let mut consumed = 0;
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            if page.items.len() == PAGE_MAX {
                cursor.offset += consumed;
                return Ok(false);
            }
            if line.last() != Some(&b'\n') {
                break;
            }
            consumed += line.len() as u64;
            let record = serde_json::from_slice(line).ok();
            page.items.extend(record.filter(|record| self.accepts(record)));
        }
        // A run without an end of line, as long as a page, is no record.
        cursor.offset += if is_cut && consumed == 0 { read as u64 } else { consumed };
        Ok(!is_cut)
    }

    fn accepts(&self, record: &AuditRecord) -> bool {
        let AuditRecord { time_ms, who, target, operation, .. } = record;
        let is = |value: &Option<String>, wanted: &str| value.as_deref() == Some(wanted);
        let is_who = |wanted: &String| {
            is(&who.key, wanted)
                || is(&who.name, wanted)
                || is(&who.tenant, wanted)
                || is(&record.peer, wanted)
                || [&who.role, &who.kind].contains(&wanted)
        };
        let is_what = |wanted: &String| {
            operation.contains(wanted.as_str()) || target.values().any(|value| value == wanted)
        };
        let is_of =
            |tenant: &String| is(&who.tenant, tenant) || target.get("tenant") == Some(tenant);
        record.outcome.is_some()
            && *time_ms >= self.since_ms
            && self.who.as_ref().is_none_or(is_who)
            && self.what.as_ref().is_none_or(is_what)
            && self.tenant.as_ref().is_none_or(is_of)
    }
}

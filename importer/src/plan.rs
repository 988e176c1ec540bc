//! Plan of an import: both buckets, the selection of keys, and the limits of the run.

use std::path::PathBuf;

use crate::client::location::S3Location;
use crate::filter::KeyFilter;

/// Smallest part of an upload but its last, in bytes.
pub const PART_BYTES_MIN: u64 = 5 << 20;
/// Largest part of an upload, and largest object that is put at once, in bytes.
pub const PART_BYTES_MAX: u64 = 5 << 30;
/// Largest number of parts of an upload.
pub const PARTS_MAX: u64 = 10_000;

/// Treatment of objects that the target has already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overwrite {
    /// Keep all of them.
    #[default]
    Never,
    /// Replace those that differ and are older than the source's.
    Changed,
    /// Replace all of them, equal ones too.
    Always,
}

/// Passes of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Passes {
    /// Copy.
    #[default]
    Copy,
    /// Copy, then compare both buckets.
    CopyAndVerify,
    /// Compare both buckets.
    Verify,
    /// Count objects and bytes that a copy would transfer.
    DryRun,
}

/// Plan of an import.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent option")]
pub struct ImportPlan {
    /// Bucket to read.
    pub source: S3Location,
    /// Bucket to write.
    pub target: S3Location,
    /// Prefix of the imported keys.
    pub prefix: String,
    /// Selection of keys under the prefix.
    pub filter: KeyFilter,
    /// Treatment of objects that the target has already.
    pub overwrite: Overwrite,
    /// Passes of the run.
    pub passes: Passes,
    /// Copies tags too, at the cost of a request for each object.
    pub with_tags: bool,
    /// Number of objects or parts in transfer at once, at least 1.
    pub concurrency: usize,
    /// Size of parts where the source's parts can't be kept, in bytes.
    pub part_bytes: u64,
    /// Attempts for each request, and for each object; at least 1.
    pub attempts: u32,
    /// Creates the target's bucket if it is missing.
    pub creates_bucket: bool,
    /// Takes no ETag of the source for an MD5.
    pub has_opaque_etags: bool,
    /// Counts the source's objects beside the copy, for the ETA.
    pub counts_ahead: bool,
    /// File with the progress of an unfinished run.
    pub state_file: PathBuf,
    /// File for one JSON line per object that is not copied or differs.
    pub report_file: Option<PathBuf>,
}

impl ImportPlan {
    /// Returns true if the run writes to the target.
    pub(crate) fn copies(&self) -> bool {
        matches!(self.passes, Passes::Copy | Passes::CopyAndVerify)
    }

    /// Returns true if the run compares both buckets.
    pub(crate) fn verifies(&self) -> bool {
        matches!(self.passes, Passes::CopyAndVerify | Passes::Verify)
    }

    /// Returns the identity of the import: a state file belongs to one.
    pub(crate) fn identity(&self) -> String {
        let place = |at: &S3Location| format!("{}/{}", at.endpoint, at.bucket);
        format!(
            "{} to {}, prefix \"{}\", patterns {}, overwrite {:?}, tags {}",
            place(&self.source),
            place(&self.target),
            self.prefix,
            self.filter.identity(),
            self.overwrite,
            self.with_tags
        )
    }
}

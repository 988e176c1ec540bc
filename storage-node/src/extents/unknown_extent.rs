//! Files and records without a row, found by recovery.

use std::path::PathBuf;

use martlet_protocol::extent::ExtentRecord;

use super::classify::DiscoveredExtent;
use super::record::BlockRun;
use super::row::Row;

/// A file or record without a row.
pub(super) struct UnknownExtent {
    pub(super) found: DiscoveredExtent,
    pub(super) place: UnknownLocation,
    pub(super) record: Option<ExtentRecord>,
}

/// Location of an unknown extent.
#[derive(Clone)]
pub(super) enum UnknownLocation {
    File(PathBuf),
    Record(BlockRun),
    /// At the location in its row: a known rival of a thing without a row.
    Row(Row),
}

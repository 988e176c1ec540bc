//! Page of an audit: its findings, and positions between pages.

use martlet_protocol::backend::AuditResult;
use martlet_protocol::tree::{Bin, BinKey, Sum};

use super::tree::RowKey;
use super::usage::UsageMends;

/// Position after a run with entries: no bin has this number.
pub(super) const WITH_ENTRIES: Bin = Bin(u16::MAX);
/// Position after a run that may have no entries.
pub(super) const SUMS_ALONE: Bin = Bin(u16::MAX - 1);
/// Position in the middle of a run.
pub(super) const WITHIN: Bin = Bin(u16::MAX - 2);

/// Returns true if a page ended in the middle of a run.
pub(super) fn is_within(next: Option<BinKey>) -> bool {
    next.is_some_and(|next| next.bin == WITHIN)
}

/// Findings, and the corrections that make sums and usage match the entries.
#[derive(Default)]
pub(super) struct AuditFindings {
    pub(super) audited: AuditResult<BinKey>,
    pub(super) mends: Vec<(RowKey, Sum)>,
    /// Corrections that make the rows of usage match the entries.
    pub(super) usage: UsageMends,
}

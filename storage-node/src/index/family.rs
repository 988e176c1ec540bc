//! Column families of an index.

/// A column family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// Register key → promise and entry.
    Entries,
    /// Register key → write id and inline bytes. Separate, so that listings never read them.
    Inline,
    /// Extent id → its row.
    Extents,
    /// Delete marks of extents, by period.
    Deleted,
    /// Delete marks of older versions.
    Marks,
    /// Bodies of superseded entries, by time.
    Garbage,
    /// Register key → hint: a write kept for other devices.
    Hints,
    /// Fences, votes, floor.
    Meta,
    /// Bin → sum of its registers.
    Tree,
    /// Places that may hold records without a row.
    Unsettled,
    /// Run → usage of its registers.
    Usage,
    /// Tombstones and promises by time.
    Old,
}

impl Family {
    /// All column families.
    pub(super) const ALL: [Self; 12] = [
        Self::Entries,
        Self::Inline,
        Self::Extents,
        Self::Deleted,
        Self::Marks,
        Self::Garbage,
        Self::Hints,
        Self::Meta,
        Self::Tree,
        Self::Unsettled,
        Self::Usage,
        Self::Old,
    ];

    /// Permanent name on disk.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Entries => "entries",
            Self::Inline => "inline",
            Self::Extents => "extents",
            Self::Deleted => "deleted",
            Self::Marks => "marks",
            Self::Garbage => "garbage",
            Self::Hints => "hints",
            Self::Meta => "meta",
            Self::Tree => "tree",
            Self::Unsettled => "unsettled",
            Self::Usage => "usage",
            Self::Old => "old",
        }
    }
}

//! Pages of listings of documents.

/// Page of a listing of documents.
#[derive(Debug)]
pub struct Page<T> {
    /// Documents in the order of their paths.
    pub items: Vec<T>,
    /// True if more documents follow.
    pub is_truncated: bool,
}

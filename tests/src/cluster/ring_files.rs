//! Names and files of a cluster's rings.

use std::path::{Path, PathBuf};

/// Name of the index ring, which places entries.
pub const INDEX: &str = "index";
/// Name of the ring of extents of policy 0, the default policy.
pub const DATA: &str = "data-0";

/// Names of all rings: the index ring, then the rings of so many policies.
pub(super) fn names(policies: usize) -> impl Iterator<Item = String> {
    let data = (0..policies).map(|policy| format!("data-{policy}"));
    std::iter::once(INDEX.to_owned()).chain(data)
}

/// Path of a ring's file in the folder of its cluster.
pub(super) fn path(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.ring"))
}

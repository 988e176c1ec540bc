//! Text of settings files.

use std::path::Path;

/// Formats a path as a TOML string.
pub(super) fn quoted(path: &Path) -> String {
    toml::Value::from(path.display().to_string()).to_string()
}

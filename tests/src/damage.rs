//! Damage to the bytes of an object on a server's disk.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde_json::Value;

use crate::server::Server;

/// Flips one bit of an object of the bucket `box` in its file on disk, `at` bytes after the start of
/// its first extent.
///
/// # Panics
/// If the object has no extent, or the file can't be written.
pub fn flip(server: &Server, key: &str, at: u64) {
    let output = server.ask(&["--json", "extents", "box", key]);
    let extents: Value = serde_json::from_slice(&output.stdout).unwrap();
    let extent = &extents["extents"][0];
    let path = Path::new(extent["path"].as_str().unwrap());
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let offset = extent["offset"].as_u64().unwrap() + at;
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 4], offset).unwrap();
    file.sync_all().unwrap();
}

//! What becomes of a device whose index is damaged, or gone (rule G1).
//!
//! An index that is not what was written has forgotten something, and nobody knows what. Where other
//! devices hold it too, the index is moved to `quarantine/index-<generation>`, never deleted, and the
//! device begins anew beside its extents: with an empty index, another identity and no votes, so that
//! it is filled by its peers before it has a say. A lone device is left alone: whatever was done to it
//! could only lose more.
//!
//! The order: index moved aside, folders synced, then the new format. A crash between leaves a device
//! without an index, which is treated the same way by the next opening; a format that came first would
//! give the votes of a damaged index to a device that its peers don't know.

use std::fs::{self, File};
use std::path::Path;

use martlet_protocol::{Error, Result};

use super::format::Format;
use super::{DeviceConfig, Shared};

/// What a device has come to that lost its index and nothing else: opened with an empty one it would
/// vote as if it remembered. The index is made before the extents' folders are.
pub(super) fn missing(root: &Path) -> Option<String> {
    let missing = !root.join("index/CURRENT").exists() && root.join("extents").exists();
    missing.then(|| {
        let root = root.display();
        format!("{root} holds extents/ but no index: it is a device that lost its index")
    })
}

/// Formats a device anew whose index is damaged, or says why not. What was its index is in quarantine
/// when this returns.
pub(super) fn renew(
    config: &DeviceConfig,
    shared: &Shared,
    format: &Format,
    damage: &str,
) -> Result<Format> {
    let root = &config.path;
    if !shared.peers() {
        return Err(Error::corrupt(format!(
            "{damage}. Device {} is left alone, for no other device is known to hold what it held: \
             put {} back from a copy, or give the device an empty folder and do without",
            config.id,
            root.join("index").display()
        )));
    }
    set_aside(root, format.generation).map_err(|error| {
        let sentence = format!("the damaged index in {} can't be set aside", root.display());
        Error::unavailable(sentence).with_source(error)
    })?;
    let renewed = format.renewed(shared.clock.now_ms());
    renewed.store(root)?;
    tracing::error!(
        device = %config.id, path = %root.display(), damage,
        "the index forgot something and is in quarantine; the device begins anew, without votes"
    );
    Ok(renewed)
}

/// Moves the index into quarantine, durably. One that is gone needs no moving.
fn set_aside(root: &Path, generation: u64) -> std::io::Result<()> {
    let (index, quarantine) = (root.join("index"), root.join("quarantine"));
    if !index.exists() {
        return Ok(());
    }
    fs::create_dir_all(&quarantine)?;
    fs::rename(&index, quarantine.join(format!("index-{generation}")))?;
    File::open(&quarantine)?.sync_all()?;
    File::open(root)?.sync_all()
}

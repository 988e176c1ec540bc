//! Devices whose index is damaged or missing (rule G1).
//!
//! A damaged index has lost an unknown part of its registers. If the device has peers, its index
//! moves to `quarantine/index-<generation>`, and is never deleted. The device begins anew beside
//! its extents, with an empty index, another identity and no votes. Its peers fill it before it
//! votes again. A device without peers is left alone: any change could only lose more.
//!
//! The order is: move the index, sync the folders, write the new format. A crash between two steps
//! leaves a device without an index, which the next opening treats alike. If the new format came
//! first, a crash would give the votes of a damaged index to a device that its peers don't know.

use std::fs::{self, File};
use std::path::Path;

use martlet_protocol::{Error, Result};

use super::config::{DeviceConfig, DeviceHistory, SharedResources};
use super::format::Format;

/// Returns the damage if only the index is missing. Opened with an empty index, the device would
/// vote as if it remembered. The index is made before the extents' folders.
///
/// # Errors
/// `Unavailable` if the disk doesn't return what the folder holds. A failed look-up is no proof that
/// the index is gone.
pub(super) fn missing(root: &Path) -> Result<Option<String>> {
    let missing = !is_there(&root.join("index/CURRENT"))? && is_there(&root.join("extents"))?;
    Ok(missing.then(|| {
        let root = root.display();
        format!("{root} holds extents/ but no index: the device lost its index")
    }))
}

/// Returns true if a path exists. `Unavailable` if the disk doesn't return an answer.
pub(super) fn is_there(path: &Path) -> Result<bool> {
    path.try_exists().map_err(|error| {
        Error::unavailable(format!("{} can't be looked up", path.display())).with_source(error)
    })
}

/// Formats a device with a damaged index anew; the index moves into quarantine, and the history has
/// no damage any more. `Corrupt` if the device has no peers.
pub(super) fn renew(
    config: &DeviceConfig,
    shared: &SharedResources,
    format: &Format,
    history: &mut DeviceHistory,
) -> Result<Format> {
    let root = &config.path;
    let damage = history.damage.clone().unwrap_or_default();
    if !shared.peers() {
        return Err(Error::corrupt(format!(
            "{damage}. Device {} is not opened, because no other device is known to hold its data: \
             restore the whole folder {} from a copy that was made while the device was closed, or \
             give up the data and use an empty folder; an older index alone would let newer \
             extents be overwritten",
            config.id,
            root.display()
        )));
    }
    set_aside(root, format.generation).map_err(|error| {
        let sentence = format!("the damaged index in {} can't be set aside", root.display());
        Error::unavailable(sentence).with_source(error)
    })?;
    let renewed = format.renewed(shared.clock.now_ms());
    // Named before the store: one that fails may have written the format.
    history.formattings.push(renewed.device);
    renewed.store(root)?;
    history.damage = None;
    tracing::error!(
        device = %config.id, path = %root.display(), damage,
        "moved a damaged index into quarantine; the device restarts with an empty index, without \
         votes"
    );
    Ok(renewed)
}

/// Moves the index into quarantine, durably. Does nothing if the index is missing.
fn set_aside(root: &Path, generation: u64) -> std::io::Result<()> {
    let (index, quarantine) = (root.join("index"), root.join("quarantine"));
    if !index.try_exists()? {
        return Ok(());
    }
    fs::create_dir_all(&quarantine)?;
    fs::rename(&index, quarantine.join(format!("index-{generation}")))?;
    File::open(&quarantine)?.sync_all()?;
    File::open(root)?.sync_all()
}

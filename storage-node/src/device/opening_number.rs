//! The file `opening`: the number of the last opening, in hexadecimal.
//!
//! The index has the number too. An index that was restored from a copy has an older one.
//!
//! * Beside peers it counts as damaged: it would vote without what the device promised since (rule
//!   G1).
//! * On a lone device its registers are all there is, and are believed. Its rows of extents are not:
//!   they are rebuilt from the extents.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use martlet_protocol::opening::Uuid;
use martlet_protocol::{Error, Result};

use super::format::replace;
use crate::index::{ExtentTable, IndexAge};

const NAME: &str = "opening";
/// Number of a device that no release with this file has opened.
const NONE: Uuid = Uuid([0; 16]);
/// Number of a file that holds none.
const MALFORMED: Uuid = Uuid([0xff; 16]);

/// Begins an opening: compares the index with the file, and stores a new number in both, before
/// anything else is written. Returns true if the index is of the same time as the rest of the device.
/// A full disk, or one with an unreadable table, keeps the number of before.
///
/// # Errors
/// `Corrupt` if the index of a device with peers is of another time.
pub(super) fn begin(root: &Path, table: &ExtentTable, peers: bool) -> Result<bool> {
    let last = load(root)?;
    let age = table.age(last)?;
    let is_same = age == IndexAge::Same || last == NONE && age == IndexAge::Unknown;
    if age == IndexAge::Other {
        if peers {
            return Err(Error::corrupt(format!(
                "the index in {} is of another time than its device: it was restored from a copy",
                root.display()
            )));
        }
        tracing::error!(
            path = %root.display(),
            "the index is of another time than its device, so all extents are read: restore whole \
             devices only, or objects that are newer than the index are lost"
        );
    }
    if !is_same {
        table.forget_all()?;
    }
    let number = Uuid::random();
    let noted = table.note_opening(last, number);
    if let Err(error) = noted.and_then(|()| replace(root, NAME, number.to_string().as_bytes())) {
        // The device can be read all the same, and the numbers of before still fit each other.
        tracing::warn!(path = %root.display(), %error, "could not store the number of the opening");
    }
    Ok(is_same)
}

fn load(root: &Path) -> Result<Uuid> {
    let path = root.join(NAME);
    match fs::read_to_string(&path) {
        Ok(text) => Ok(Uuid::try_from(text).unwrap_or(MALFORMED)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(NONE),
        Err(error) if error.kind() == ErrorKind::InvalidData => Ok(MALFORMED),
        Err(error) => {
            let sentence = format!("{} can't be read", path.display());
            Err(Error::unavailable(sentence).with_source(error))
        }
    }
}

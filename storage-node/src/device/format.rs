//! `format.json`: what makes a folder a device, and whose.
//!
//! Written as a new file, synced, renamed into place, and the folder synced: a reader finds the old
//! file or the new one, whole. A checksum tells a file that someone edited or a disk garbled.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;

use martlet_protocol::{Error, Result};
use serde::{Deserialize, Serialize};

use super::Uuid;

const NAME: &str = "format.json";
const MAGIC: &str = "martlet device";
/// The newest format that this version reads, and the one that it writes.
const VERSION: u32 = 1;
/// What a device's folder holds besides; found without a format, it is a device that lost it.
const CONTENTS: [&str; 3] = ["index", "extents", "volumes"];

/// What `format.json` says, as JSON, and behind it a checksum:
///
/// ```text
/// {
///   "magic": "martlet device",
///   "version": 1,
///   "cluster": "<32 hexadecimal digits>",
///   "device": "<32 hexadecimal digits>",
///   "generation": 1790000000000,
///   "unready": true,
///   "checksum": "<16 hexadecimal digits>"
/// }
/// ```
///
/// The checksum is the first 16 digits of the BLAKE3 of the other fields as compact JSON, in this
/// order. `unready` is left out when it is false. `magic` and `version` mean the same in every version to come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Format {
    magic: String,
    version: u32,
    /// The cluster that the device belongs to.
    pub(crate) cluster: Uuid,
    /// The device, for life.
    pub(crate) device: Uuid,
    /// New whenever the device was made anew, and higher (rule G1).
    pub(crate) generation: u64,
    /// Whether it was made without votes: it may stand for one that its peers remember (rule G1).
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) unready: bool,
}

#[derive(Serialize, Deserialize)]
struct Checked {
    #[serde(flatten)]
    format: Format,
    checksum: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_false(unready: &bool) -> bool {
    !unready
}

/// What can be said of a file of any version.
#[derive(Deserialize)]
struct Any {
    magic: String,
    version: u32,
}

impl Format {
    pub(super) fn new(cluster: Uuid, generation: u64, unready: bool) -> Self {
        Self {
            magic: MAGIC.to_owned(),
            version: VERSION,
            cluster,
            device: Uuid::random(),
            generation,
            unready,
        }
    }

    /// The same device formatted anew, without votes: another to its peers (rule G1).
    pub(super) fn renewed(&self, now_ms: u64) -> Self {
        Self::new(self.cluster, now_ms.max(self.generation + 1), true)
    }

    /// Reads the format of the device in `root`; none if the folder was never one.
    pub(super) fn load(root: &Path) -> Result<Option<Self>> {
        let path = root.join(NAME);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Self::missing(root).map(|()| None);
            }
            Err(error) => {
                let sentence = format!("{} can't be read", path.display());
                return Err(Error::unavailable(sentence).with_source(error));
            }
        };
        Self::parse(&bytes)
            .map(Some)
            .map_err(|error| Error::new(error.kind(), format!("{}: {error}", path.display())))
    }

    /// Writes the format, durably.
    pub(super) fn store(&self, root: &Path) -> Result<()> {
        replace(root, NAME, &self.encode())
    }

    fn missing(root: &Path) -> Result<()> {
        let Some(found) = CONTENTS.iter().find(|name| root.join(name).exists()) else {
            return Ok(());
        };
        Err(Error::corrupt(format!(
            "{} holds {found}/ but no {NAME}: it is a device that lost its format, and is left alone",
            root.display()
        )))
    }

    fn encode(&self) -> Vec<u8> {
        let checked = Checked { format: self.clone(), checksum: self.checksum() };
        serde_json::to_vec_pretty(&checked).expect("a format can be encoded")
    }

    fn parse(bytes: &[u8]) -> Result<Self> {
        let foreign =
            |error| Error::corrupt("it is no format of a Martlet device").with_source(error);
        let any: Any = serde_json::from_slice(bytes).map_err(foreign)?;
        if any.magic != MAGIC {
            return Err(Error::corrupt("it is no format of a Martlet device"));
        }
        if any.version > VERSION {
            return Err(Error::invalid(format!(
                "the device has format {}, and this version of Martlet knows formats up to {VERSION}",
                any.version
            )));
        }
        let Checked { format, checksum } = serde_json::from_slice(bytes).map_err(foreign)?;
        if format.checksum() != checksum {
            return Err(Error::corrupt("its checksum is wrong"));
        }
        Ok(format)
    }

    fn checksum(&self) -> String {
        let bytes = serde_json::to_vec(self).expect("a format can be encoded");
        blake3::hash(&bytes).to_hex()[..16].to_owned()
    }
}

/// Puts a small file in place as a whole, durably.
pub(super) fn replace(root: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    let path = root.join(name);
    let fresh = root.join(format!("{name}.new"));
    let write = || {
        let mut file = File::create(&fresh)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&fresh, &path)?;
        File::open(root)?.sync_all()
    };
    write().map_err(|error| {
        let kind = match error.kind() {
            ErrorKind::StorageFull => martlet_protocol::ErrorKind::Full,
            _ => martlet_protocol::ErrorKind::Unavailable,
        };
        Error::new(kind, format!("{} can't be written", path.display())).with_source(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Format::load(folder.path()).unwrap(), None);
        for unready in [false, true] {
            let format = Format::new(Uuid::random(), 17, unready);
            format.store(folder.path()).unwrap();
            assert_eq!(Format::load(folder.path()).unwrap(), Some(format));
        }
    }

    #[test]
    fn a_format_from_before_votes_is_one_with_votes() {
        let format = Format::new(Uuid([1; 16]), 17, false);
        let text = String::from_utf8(format.encode()).unwrap();
        assert!(!text.contains("unready"), "{text}");
        assert!(!Format::parse(text.as_bytes()).unwrap().unready);
    }

    #[test]
    fn a_renewed_format_is_another_device_of_the_same_cluster() {
        let format = Format::new(Uuid([1; 16]), 17, false);
        let renewed = format.renewed(5);
        assert_eq!(
            (renewed.cluster, renewed.generation, renewed.unready),
            (format.cluster, 18, true)
        );
        assert_ne!(renewed.device, format.device);
        assert_eq!(format.renewed(99).generation, 99);
    }

    #[test]
    fn an_edited_format_is_refused() {
        let format = Format::new(Uuid::random(), 17, false);
        let text = String::from_utf8(format.encode()).unwrap();
        let edited = text.replace("17", "18");
        assert_ne!(edited, text);
        let error = Format::parse(edited.as_bytes()).unwrap_err();
        assert!(error.to_string().contains("checksum"), "{error}");
    }

    #[test]
    fn a_newer_format_is_named_even_if_it_looks_different() {
        let newer = br#"{"magic": "martlet device", "version": 2, "something": "else"}"#;
        let error = Format::parse(newer).unwrap_err();
        assert!(error.to_string().contains("has format 2"), "{error}");
        assert!(Format::parse(b"{}").is_err());
        assert!(Format::parse(br#"{"magic": "other", "version": 1}"#).is_err());
    }

    #[test]
    fn data_without_a_format_is_not_taken_for_an_empty_folder() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("extents")).unwrap();
        assert!(Format::load(folder.path()).is_err());
    }
}

//! `format.json`: the file that makes a folder a device, and names its identity.
//!
//! The file is replaced atomically: written as a new file, synced, renamed, and its folder synced.
//! So a reader finds either the old or the new file, whole. A checksum detects edits and disk
//! errors.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;

use martlet_protocol::opening::{Incarnation, Uuid};
use martlet_protocol::release::FORMATS;
use martlet_protocol::{DeviceId, Error, Result};
use serde::{Deserialize, Serialize};

use super::lost::is_there;

const NAME: &str = "format.json";
const MAGIC: &str = "martlet device";
/// Oldest version that this release writes. Versions are format levels of the cluster.
const OLDEST_WRITTEN: u32 = FORMATS.oldest as u32;
/// Version up to which a format has no `release`: earlier releases compute the checksum without it.
const OLDEST_WITHOUT_RELEASE: u32 = 2;
/// Other contents of a device's folder. Found without a format, the folder is a device that lost
/// it.
const CONTENTS: [&str; 3] = ["index", "extents", "volumes"];

/// Contents of `format.json`, as JSON with a checksum at the end:
/// ```text
/// {
///   "magic": "martlet device",
///   "version": 2,
///   "cluster": "<32 hexadecimal digits>",
///   "device": "<32 hexadecimal digits>",
///   "generation": 1790000000000,
///   "unready": true,
///   "id": 3,
///   "place": "n1/d1",
///   "nonce": "<32 hexadecimal digits>",
///   "confirmed": true,
///   "base": {"device": "<32 digits>", "generation": 1780000000000, "nonce": "<32 digits>"},
///   "replaced_by": null,
///   "checksum": "<16 hexadecimal digits>"
/// }
/// ```
///
/// The checksum is the first 16 digits of the BLAKE3 hash of the other fields as compact JSON, in
/// this order. Fields that are false or none are left out. `magic`, `version` and `release` have one
/// meaning in every future version. A version above 2 is written when the cluster is finalized, and
/// `release` is the release that did so. A file of version 1 ends with `unready`: the format of a
/// device whose opening was confirmed. It gets the other fields at its next opening with peers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Format {
    magic: String,
    version: u32,
    /// Cluster that the device belongs to.
    pub(crate) cluster: Uuid,
    /// Permanent identity of this formatting of the device.
    pub(crate) device: Uuid,
    /// Rises whenever the device is formatted anew or opened with peers (rule G1).
    pub(crate) generation: u64,
    /// True if it was made without votes: it may replace a device that its peers remember (rule
    /// G1).
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) unready: bool,
    /// Device id in the rings, once its peers know it by this id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<DeviceId>,
    /// Name of its place when it got its id, for messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    place: Option<String>,
    /// Random number that separates two copies of a device that were opened under one generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nonce: Option<Uuid>,
    /// True when its peers confirmed this opening.
    #[serde(default, skip_serializing_if = "is_false")]
    confirmed: bool,
    /// Opening that this opening follows: the last confirmed opening of this device, or the opening
    /// that peers remembered in its place when it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    base: Option<Incarnation>,
    /// Opening that peers remember instead, and that this device does not follow. The device has no
    /// vote under this identity any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) replaced_by: Option<Incarnation>,
    /// Release that raised the format to a version above 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    release: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct ChecksummedFormat {
    #[serde(flatten)]
    format: Format,
    checksum: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires this signature")]
fn is_false(unready: &bool) -> bool {
    !unready
}

/// Fields of a file of any version.
#[derive(Deserialize)]
struct FormatHeader {
    magic: String,
    version: u32,
    #[serde(default)]
    release: Option<String>,
}

impl Format {
    pub(super) fn new(cluster: Uuid, generation: u64, unready: bool) -> Self {
        Self {
            magic: MAGIC.to_owned(),
            version: OLDEST_WRITTEN,
            cluster,
            device: Uuid::random(),
            generation,
            unready,
            id: None,
            place: None,
            nonce: Some(Uuid::random()),
            confirmed: false,
            base: None,
            replaced_by: None,
            release: None,
        }
    }

    /// Format level of the device.
    pub(super) fn level(&self) -> u32 {
        self.version
    }

    /// Returns the format at a higher level, which `release` writes.
    pub(super) fn raised(&self, level: u32, release: &str) -> Self {
        let release = (level > OLDEST_WITHOUT_RELEASE).then(|| release.to_owned());
        Self { version: level, release, ..self.clone() }
    }

    /// Returns the format of this device formatted anew, without votes: peers see another device
    /// (rule G1).
    pub(super) fn renewed(&self, now_ms: u64) -> Self {
        let above = self.replaced_by.map_or(0, |by| by.generation).max(self.generation);
        let fresh = Self::new(self.cluster, now_ms.max(above.saturating_add(1)), true);
        Self {
            version: self.version.max(OLDEST_WRITTEN),
            release: self.release.clone(),
            id: self.id,
            place: self.place.clone(),
            base: self.replaced_by,
            ..fresh
        }
    }

    /// Returns the current opening, or the last one if the device is closed.
    pub(super) fn current(&self) -> Incarnation {
        let nonce = self.nonce.unwrap_or(Uuid([0; 16]));
        Incarnation { device: self.device, generation: self.generation, nonce }
    }

    /// Returns the opening that the current opening follows.
    pub(super) fn base(&self) -> Option<Incarnation> {
        self.base
    }

    /// Returns true if peers confirmed the opening. Formats of version 1 need no confirmation.
    pub(super) fn is_confirmed(&self) -> bool {
        self.confirmed || self.nonce.is_none()
    }

    /// Returns the format of the next opening. An opening that was never confirmed never had a
    /// vote, and is returned unchanged.
    pub(super) fn opened(&self, now_ms: u64) -> Self {
        if !self.is_confirmed() {
            return self.clone();
        }
        Self {
            version: self.version.max(OLDEST_WRITTEN),
            base: Some(self.current()),
            generation: now_ms.max(self.generation.saturating_add(1)),
            nonce: Some(Uuid::random()),
            confirmed: false,
            ..self.clone()
        }
    }

    /// Returns the format as confirmed by peers, for the device of this id.
    pub(super) fn confirmed(&self, id: DeviceId, place: &str) -> Self {
        Self { confirmed: true, ..self.bound(id, place) }
    }

    /// Returns the format with the device's id in the rings.
    pub(super) fn bound(&self, id: DeviceId, place: &str) -> Self {
        let version = self.version.max(OLDEST_WRITTEN);
        Self { version, id: Some(id), place: Some(place.to_owned()), ..self.clone() }
    }

    /// Returns the format of a device that was refused by peers that remember `by`.
    pub(super) fn replaced(&self, by: Incarnation) -> Self {
        let version = self.version.max(OLDEST_WRITTEN);
        Self { version, replaced_by: Some(by), ..self.clone() }
    }

    /// Returns the format of an empty, refused device that takes the place of the refusing opening.
    pub(super) fn in_place(&self) -> Self {
        let above = self.replaced_by.map_or(0, |by| by.generation);
        Self {
            base: self.replaced_by,
            replaced_by: None,
            generation: self.generation.max(above.saturating_add(1)),
            ..self.clone()
        }
    }

    /// Returns an error if the format belongs to a device of another id.
    pub(super) fn check_id(&self, root: &Path, id: DeviceId, place: &str) -> Result<()> {
        let Some(own) = self.id.filter(|own| *own != id) else { return Ok(()) };
        let own_place = self.place.as_deref().unwrap_or("somewhere else");
        Err(Error::invalid(format!(
            "{} holds device {own} ({own_place}) and was given as device {id} ({place}): mount \
             each disk where it was, or swap the paths in the settings; nothing was changed",
            root.display()
        )))
    }

    /// Reads the format of the device in `root`; none if the folder was never a device. A format
    /// above level `newest` is refused.
    pub(super) fn load(root: &Path, newest: u32) -> Result<Option<Self>> {
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
        Self::parse(&bytes, newest)
            .map(Some)
            .map_err(|error| Error::new(error.kind(), format!("{}: {error}", path.display())))
    }

    /// Writes the format, durably.
    pub(super) fn store(&self, root: &Path) -> Result<()> {
        replace(root, NAME, &self.encode())
    }

    fn missing(root: &Path) -> Result<()> {
        let mut contents = CONTENTS.iter().map(|name| Ok((name, is_there(&root.join(name))?)));
        let found = contents.find_map(|content| match content {
            Ok((name, is_there)) => is_there.then_some(Ok(name)),
            Err(error) => Some(Err(error)),
        });
        let Some(found) = found.transpose()? else { return Ok(()) };
        Err(Error::corrupt(format!(
            "{} holds {found}/ but no {NAME}: the device lost its format and is not opened",
            root.display()
        )))
    }

    fn encode(&self) -> Vec<u8> {
        let checked = ChecksummedFormat { format: self.clone(), checksum: self.checksum() };
        serde_json::to_vec_pretty(&checked).expect("a format can be encoded")
    }

    fn parse(bytes: &[u8], newest: u32) -> Result<Self> {
        let foreign = |error| Error::corrupt("not a format of a Martlet device").with_source(error);
        let any: FormatHeader = serde_json::from_slice(bytes).map_err(foreign)?;
        if any.magic != MAGIC {
            return Err(Error::corrupt("not a format of a Martlet device"));
        }
        if any.version > newest {
            let writer = any.release.map_or_else(
                || "a later release".to_owned(),
                |release| format!("release {release} or a later one"),
            );
            return Err(Error::invalid(format!(
                "the device has format {}, and this release of Martlet ({}) knows formats up to \
                 {newest}: start {writer}; nothing was changed",
                any.version,
                env!("CARGO_PKG_VERSION"),
            )));
        }
        let ChecksummedFormat { format, checksum } =
            serde_json::from_slice(bytes).map_err(foreign)?;
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

/// Format of a device, read without opening the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderFormat {
    /// Version of the format.
    pub version: u32,
    /// Device id in the rings, once its peers know it by this id.
    pub id: Option<DeviceId>,
    /// Name of its place when it got its id, such as `n1/d1`.
    pub place: Option<String>,
    /// True if peers remember another device in its place, so that it has no vote.
    pub is_replaced: bool,
}

impl FolderFormat {
    /// The newest version that this program reads.
    pub const VERSION_MAX: u32 = FORMATS.newest as u32;

    /// Reads the format of the device in `root`; none if the folder was never a device.
    ///
    /// # Errors
    /// The file is damaged or newer than this program, or the folder has a device's contents
    /// without it.
    pub fn read(root: &Path) -> Result<Option<Self>> {
        Ok(Format::load(root, Self::VERSION_MAX)?.map(|format| Self {
            version: format.version,
            id: format.id,
            is_replaced: format.replaced_by.is_some(),
            place: format.place,
        }))
    }
}

/// Replaces a small file atomically and durably.
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

    const NEWEST: u32 = FolderFormat::VERSION_MAX;

    fn load(root: &Path) -> Result<Option<Format>> {
        Format::load(root, NEWEST)
    }

    fn parse(bytes: &[u8]) -> Result<Format> {
        Format::parse(bytes, NEWEST)
    }

    #[test]
    fn a_format_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(load(folder.path()).unwrap(), None);
        for unready in [false, true] {
            let format = Format::new(Uuid::random(), 17, unready);
            format.store(folder.path()).unwrap();
            assert_eq!(load(folder.path()).unwrap(), Some(format));
        }
    }

    #[test]
    fn a_format_is_read_without_opening_the_device() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(FolderFormat::read(folder.path()).unwrap(), None);
        let format = Format::new(Uuid::random(), 17, false).bound(DeviceId(3), "n1/d1");
        format.store(folder.path()).unwrap();
        let read = FolderFormat::read(folder.path()).unwrap().unwrap();
        assert_eq!((read.version, read.id), (FolderFormat::VERSION_MAX, Some(DeviceId(3))));
        assert_eq!((read.place.as_deref(), read.is_replaced), (Some("n1/d1"), false));
        fs::remove_file(folder.path().join(NAME)).unwrap();
        fs::create_dir(folder.path().join("index")).unwrap();
        assert!(FolderFormat::read(folder.path()).unwrap_err().to_string().contains("lost its"));
    }

    #[test]
    fn a_format_from_before_votes_is_one_with_votes() {
        let format = Format::new(Uuid([1; 16]), 17, false);
        let text = String::from_utf8(format.encode()).unwrap();
        assert!(!text.contains("unready"), "{text}");
        assert!(!parse(text.as_bytes()).unwrap().unready);
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

    /// A file of version 1, before devices counted their openings.
    const VERSION_1: &str = r#"{
  "magic": "martlet device",
  "version": 1,
  "cluster": "01010101010101010101010101010101",
  "device": "02020202020202020202020202020202",
  "generation": 17,
  "checksum": "CHECKSUM"
}"#;

    fn version_1() -> Format {
        let fields = concat!(
            r#"{"magic":"martlet device","version":1,"cluster":"01010101010101010101010101010101","#,
            r#""device":"02020202020202020202020202020202","generation":17}"#
        );
        let checksum = blake3::hash(fields.as_bytes()).to_hex()[..16].to_owned();
        parse(VERSION_1.replace("CHECKSUM", &checksum).as_bytes()).unwrap()
    }

    #[test]
    fn g1_a_format_from_before_openings_is_read_and_gets_the_rest_once() {
        let before = version_1();
        assert!(before.is_confirmed() && before.id.is_none());
        let opened = before.opened(5);
        let nobody = Uuid([0; 16]);
        let base = Incarnation { device: before.device, generation: 17, nonce: nobody };
        assert_eq!((opened.base(), opened.generation), (Some(base), 18));
        assert!(!opened.is_confirmed() && opened.current().nonce != nobody);
        let confirmed = opened.confirmed(DeviceId(3), "n1/d1");
        let read = parse(&confirmed.encode()).unwrap();
        assert_eq!(read, confirmed);
        assert_eq!((read.device, read.id), (before.device, Some(DeviceId(3))));
    }

    #[test]
    fn g1_each_confirmed_opening_is_followed_by_another_and_others_are_taken_up_again() {
        let first = Format::new(Uuid([1; 16]), 17, true);
        assert_eq!(first.opened(99), first, "nobody confirmed it: it had no vote");
        let confirmed = first.confirmed(DeviceId(3), "n1/d1");
        let second = confirmed.opened(99);
        assert_eq!((second.base(), second.generation), (Some(first.current()), 99));
        assert_ne!(second.current(), confirmed.opened(99).current(), "copies differ");
        assert_eq!(second.opened(500), second);
    }

    #[test]
    fn g1_what_takes_the_place_of_another_is_above_it() {
        let device = Format::new(Uuid([1; 16]), 17, true);
        let by = Incarnation { device: Uuid([9; 16]), generation: 50, nonce: Uuid([8; 16]) };
        let refused = device.replaced(by);
        for taken in [refused.renewed(5), refused.in_place()] {
            assert_eq!((taken.base(), taken.generation), (Some(by), 51));
            assert!(taken.replaced_by.is_none() && !taken.is_confirmed());
        }
        assert_ne!(refused.renewed(5).device, device.device);
        assert_eq!(refused.in_place().device, device.device);
    }

    #[test]
    fn g1_a_format_of_another_id_is_refused_in_words() {
        let format = Format::new(Uuid([1; 16]), 17, true);
        let root = Path::new("/mnt/d2");
        assert!(format.check_id(root, DeviceId(4), "n1/d2").is_ok(), "it has none yet");
        let format = format.bound(DeviceId(3), "n1/d1");
        assert!(format.check_id(root, DeviceId(3), "n1/d1").is_ok());
        let refusal = format.check_id(root, DeviceId(4), "n1/d2").unwrap_err().to_string();
        let sentence = "/mnt/d2 holds device d3 (n1/d1) and was given as device d4 (n1/d2)";
        assert!(refusal.contains(sentence), "{refusal}");
    }

    #[test]
    fn an_edited_format_is_refused() {
        let format = Format::new(Uuid::random(), 17, false);
        let text = String::from_utf8(format.encode()).unwrap();
        let edited = text.replace("17", "18");
        assert_ne!(edited, text);
        let error = parse(edited.as_bytes()).unwrap_err();
        assert!(error.to_string().contains("checksum"), "{error}");
    }

    #[test]
    fn a_newer_format_is_named_even_if_it_looks_different() {
        let newer = br#"{"magic": "martlet device", "version": 3, "something": "else"}"#;
        let error = parse(newer).unwrap_err();
        assert!(error.to_string().contains("has format 3"), "{error}");
        assert!(error.to_string().contains("start a later release"), "{error}");
        let named = br#"{"magic": "martlet device", "version": 3, "release": "0.9.0"}"#;
        let error = parse(named).unwrap_err();
        assert!(error.to_string().contains("start release 0.9.0 or a later one"), "{error}");
        assert!(parse(b"{}").is_err());
        assert!(parse(br#"{"magic": "other", "version": 1}"#).is_err());
    }

    #[test]
    fn a_format_keeps_its_level_through_all_changes_until_it_is_raised() {
        let format = Format::new(Uuid([1; 16]), 17, true);
        assert_eq!(format.level(), 2, "a release raises no level by itself");
        let by = Incarnation { device: Uuid([9; 16]), generation: 50, nonce: Uuid([8; 16]) };
        for level in [2, 3] {
            let format = format.raised(level, "0.9.0");
            let confirmed = format.confirmed(DeviceId(3), "n1/d1");
            let changed = [
                confirmed.opened(99),
                format.replaced(by),
                format.replaced(by).renewed(5),
                format.replaced(by).in_place(),
                confirmed,
            ];
            for changed in changed {
                let read = Format::parse(&changed.encode(), 3).unwrap();
                assert_eq!((read.level(), read), (level, changed));
            }
        }
        let text = String::from_utf8(format.raised(2, "0.9.0").encode()).unwrap();
        assert!(!text.contains("release"), "releases before levels compute the checksum: {text}");
        let refused = Format::parse(&format.raised(3, "0.9.0").encode(), 2).unwrap_err();
        assert!(refused.to_string().contains("start release 0.9.0"), "{refused}");
    }

    #[test]
    fn data_without_a_format_is_not_taken_for_an_empty_folder() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("extents")).unwrap();
        assert!(load(folder.path()).is_err());
    }
}

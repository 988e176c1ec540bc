//! Cursors: positions at which long walks continue after a restart.
//!
//! A cursor is a line of text in a format of its worker. A lost cursor costs only the time of a new
//! walk. So a file of cursors is replaced whole and never synced, and an invalid cursor counts as
//! none.

use std::collections::BTreeMap;
use std::path::PathBuf;

use martlet_protocol::{DeviceId, RegisterKey};
use parking_lot::Mutex;

/// Stores cursors by worker name.
pub trait Cursors: Send + Sync {
    /// Returns the last saved cursor.
    fn load(&self, worker: &str) -> Option<String>;

    /// Saves a cursor: one line.
    fn save(&self, worker: &str, cursor: &str);
}

/// Loads the position of a walk over the registers of devices: the device, and the last register.
pub(crate) fn load_register(
    cursors: &dyn Cursors,
    worker: &str,
) -> Option<(DeviceId, Option<RegisterKey>)> {
    let saved = cursors.load(worker)?;
    let (device, after) = saved.split_once(' ')?;
    let after = bytes_of(after).and_then(|bytes| RegisterKey::decode(&bytes).ok());
    Some((DeviceId(device.parse().ok()?), after))
}

/// Saves the position for [`load_register`].
pub(crate) fn save_register(
    cursors: &dyn Cursors,
    worker: &str,
    device: DeviceId,
    after: Option<&RegisterKey>,
) {
    let after = after.map_or_else(|| "-".to_owned(), |key| hex_of(&key.encode()));
    cursors.save(worker, &format!("{} {after}", device.0));
}

/// Encodes bytes as hexadecimal digits.
pub(crate) fn hex_of(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a String can't fail");
        text
    })
}

/// Decodes the result of [`hex_of`].
pub(crate) fn bytes_of(hex: &str) -> Option<Vec<u8>> {
    let digits = |at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok();
    (0..hex.len()).step_by(2).map(digits).collect()
}

/// Cursors in memory, lost with the process.
#[derive(Debug, Default)]
pub struct MemoryCursors(Mutex<BTreeMap<String, String>>);

impl Cursors for MemoryCursors {
    fn load(&self, worker: &str) -> Option<String> {
        self.0.lock().get(worker).cloned()
    }

    fn save(&self, worker: &str, cursor: &str) {
        self.0.lock().insert(worker.to_owned(), cursor.to_owned());
    }
}

/// Cursors in a file: a line for each worker, with its name, a tab, and the cursor.
#[derive(Debug)]
pub struct FileCursors {
    path: PathBuf,
    held: Mutex<BTreeMap<String, String>>,
}

impl FileCursors {
    /// Reads the file, if it exists and is readable.
    pub fn open(path: PathBuf) -> Self {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let pairs = text.lines().filter_map(|line| line.split_once('\t'));
        let held = pairs.map(|(worker, cursor)| (worker.to_owned(), cursor.to_owned())).collect();
        Self { path, held: Mutex::new(held) }
    }

    /// Replaces the file atomically.
    fn write(&self, held: &BTreeMap<String, String>) -> std::io::Result<()> {
        let lines = held.iter().map(|(worker, cursor)| format!("{worker}\t{cursor}\n"));
        let beside = self.path.with_extension("new");
        std::fs::write(&beside, lines.collect::<String>())?;
        std::fs::rename(&beside, &self.path)
    }
}

impl Cursors for FileCursors {
    fn load(&self, worker: &str) -> Option<String> {
        self.held.lock().get(worker).cloned()
    }

    fn save(&self, worker: &str, cursor: &str) {
        let mut held = self.held.lock();
        if held.get(worker).is_some_and(|before| before == cursor) {
            return;
        }
        held.insert(worker.to_owned(), cursor.replace(['\n', '\t'], " "));
        if let Err(error) = self.write(&held) {
            tracing::debug!(path = %self.path.display(), %error, "could not save a cursor");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_remembers_what_was_saved_last_and_survives_nonsense() {
        let path = std::env::temp_dir().join(format!("martlet-cursors-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let cursors = FileCursors::open(path.clone());
        assert_eq!(cursors.load("audit"), None);
        cursors.save("audit", "3 abc");
        cursors.save("replicate-data", "1\t2\nx");
        cursors.save("audit", "4 def");
        let again = FileCursors::open(path.clone());
        assert_eq!(again.load("audit").as_deref(), Some("4 def"));
        assert_eq!(again.load("replicate-data").as_deref(), Some("1 2 x"));
        std::fs::write(&path, [0xff, 0xfe, b'\n']).unwrap();
        assert_eq!(FileCursors::open(path.clone()).load("audit"), None);
        std::fs::remove_file(&path).unwrap();
        // A missing folder is no error.
        let nowhere = FileCursors::open(path.join("gone").join("cursors"));
        nowhere.save("audit", "1");
        assert_eq!(nowhere.load("audit").as_deref(), Some("1"));
    }

    #[test]
    fn places_among_registers_are_read_as_they_were_saved() {
        let cursors = MemoryCursors::default();
        let key = RegisterKey::object(martlet_protocol::BucketId([3; 16]), 16, "a b\n");
        for after in [None, Some(key)] {
            save_register(&cursors, "collect", DeviceId(3), after.as_ref());
            assert_eq!(load_register(&cursors, "collect"), Some((DeviceId(3), after)));
        }
        for nonsense in ["", "3", "x -"] {
            cursors.save("collect", nonsense);
            assert_eq!(load_register(&cursors, "collect"), None);
        }
        cursors.save("collect", "4 0g");
        assert_eq!(load_register(&cursors, "collect"), Some((DeviceId(4), None)));
    }

    #[test]
    fn memory_remembers_too() {
        let cursors = MemoryCursors::default();
        assert_eq!(cursors.load("audit"), None);
        cursors.save("audit", "1");
        cursors.save("audit", "2");
        assert_eq!(cursors.load("audit").as_deref(), Some("2"));
    }
}

//! The format level of the cluster, as one process knows it, in memory and in its data folder.
//!
//! ```text
//! <data-dir>/format-level.json    there once the cluster was finalized above the first level
//!
//! announced level of any node ─▶ raise ─▶ devices' formats ─▶ file ─▶ own announcements
//! ```
//!
//! * The level rises and never falls. A release raises no level by itself: `finalize` does, on an
//!   operator's request, once all processes know the level.
//! * A level reaches all processes with the replies of nodes, as terms do. So a coordinator that
//!   stops halfway leaves no node behind.
//! * Devices are raised before the file, and the file before the announcement. So a process that
//!   stops between two steps takes the next step after its start, and none writes formats of a
//!   level that its own folder doesn't have.
//! * A process that can't run at the level refuses to start. One that runs already is not ready.

use std::fs;
use std::io::ErrorKind;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::future::BoxFuture;
use martlet_protocol::Release;
use martlet_protocol::http::ReleaseTag;
use martlet_serving::Failure;
use martlet_serving::folder::DataFolder;
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

const FILE: &str = "format-level.json";
const MAGIC: &str = "martlet format level";
/// Longest wait for the devices of a node. A later attempt goes on.
const DEVICES_WAIT: Duration = Duration::from_secs(3);

/// Contents of the file. Unknown fields pass.
#[derive(Serialize, Deserialize)]
struct LevelFile {
    magic: String,
    level: u16,
    /// Release that wrote the file.
    release: String,
}

/// Body of a request that raises a node's level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LevelOrder {
    pub(crate) level: u16,
}

/// Reply of a node that was asked to raise its level.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LevelAnswer {
    /// Reason why the level stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) refused: Option<String>,
}

/// Raiser of a node's devices to a level. It returns once their formats are on disk.
pub type DeviceRaiser = Arc<dyn Fn(u16) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// Format level of the cluster, as far as this process knows it.
pub struct FormatLevel {
    folder: Arc<DataFolder>,
    state: RwLock<LevelState>,
    devices: OnceLock<DeviceRaiser>,
    /// Held while the level rises.
    raising: tokio::sync::Mutex<()>,
}

struct LevelState {
    tag: ReleaseTag,
    /// Reason why this release can't run at an announced level.
    refusal: Option<String>,
}

impl FormatLevel {
    /// Reads the level of a data folder; the oldest level of `own` if the folder has none.
    pub(crate) fn open(folder: Arc<DataFolder>, own: Release) -> Result<Self, Failure> {
        let level = read(&folder, &own)?.unwrap_or(own.formats.oldest);
        let tag = ReleaseTag::new(Release { level, ..own });
        let state = RwLock::new(LevelState { tag, refusal: None });
        Ok(Self { folder, state, devices: OnceLock::new(), raising: tokio::sync::Mutex::default() })
    }

    /// Returns the level.
    pub fn get(&self) -> u16 {
        self.state.read().tag.release().level
    }

    /// Returns this release at the level, for announcements.
    pub fn tag(&self) -> ReleaseTag {
        self.state.read().tag.clone()
    }

    /// Sets the raiser of this node's devices, before the first rise.
    pub fn set_devices(&self, devices: DeviceRaiser) {
        // It is set once; a second call has no effect.
        let _ = self.devices.set(devices);
    }

    /// Returns the reason why this release can't run at the level of the cluster.
    pub fn refusal(&self) -> Option<String> {
        self.state.read().refusal.clone()
    }

    /// Records the level that a node announced. Returns true if the level of this process is lower.
    pub(crate) fn observe(&self, level: u16) -> bool {
        let mut state = self.state.write();
        if let Some(refusal) = state.tag.release().refuses_level(level) {
            if state.refusal.as_ref() != Some(&refusal) {
                tracing::error!(level, "{refusal}");
            }
            state.refusal = Some(refusal);
            return false;
        }
        level > state.tag.release().level
    }

    /// Raises the level, durably. Returns true if it was lower.
    ///
    /// # Errors
    /// A sentence, if this release doesn't know the level, or if a device or the file can't be
    /// written. The level stays as it is then.
    pub async fn raise(&self, level: u16) -> Result<bool, String> {
        let _raising = self.raising.lock().await;
        let own = self.tag().release().clone();
        if level <= own.level {
            return Ok(false);
        }
        if let Some(refusal) = own.refuses_level(level) {
            return Err(refusal);
        }
        if let Some(raise) = self.devices.get() {
            let raised = timeout(DEVICES_WAIT, raise(level)).await;
            raised.unwrap_or_else(|_| Err("a device does not answer".to_owned()))?;
        }
        let magic = MAGIC.to_owned();
        let file = LevelFile { magic, level, release: own.name.clone() };
        let bytes = serde_json::to_vec_pretty(&file).expect("plain data can be encoded");
        let folder = self.folder.clone();
        let written = tokio::task::spawn_blocking(move || folder.replace(FILE, &bytes)).await;
        written.map_err(|error| error.to_string())?.map_err(|failure| failure.to_string())?;
        tracing::info!(level, before = own.level, "raised the format level");
        self.state.write().tag = ReleaseTag::new(Release { level, ..own });
        Ok(true)
    }
}

fn read(folder: &DataFolder, own: &Release) -> Result<Option<u16>, Failure> {
    let path = folder.join(FILE);
    let refused = |sentence: String| Failure::refused(format!("{}: {sentence}", path.display()));
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(refused(format!("it can't be read: {error}"))),
    };
    let damaged = "the file is damaged: remove it, and the level is taken from the other nodes";
    let file: LevelFile =
        serde_json::from_slice(&bytes).map_err(|error| refused(format!("{damaged} ({error})")))?;
    if file.magic != MAGIC {
        return Err(refused(damaged.to_owned()));
    }
    match own.refuses_level(file.level) {
        Some(refusal) => Err(refused(format!("{refusal} (release {} wrote it)", file.release))),
        None => Ok(Some(file.level)),
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use martlet_protocol::VersionRange;
    use martlet_protocol::release::FORMATS;
    use parking_lot::Mutex;

    use super::*;

    /// The release after this one.
    fn next() -> Release {
        let formats = VersionRange { oldest: FORMATS.newest, newest: FORMATS.newest + 1 };
        Release { formats, name: "0.9.0".to_owned(), ..Release::own(0) }
    }

    fn folder(root: &tempfile::TempDir) -> Arc<DataFolder> {
        Arc::new(DataFolder::open(root.path()).unwrap())
    }

    #[tokio::test]
    async fn a_level_is_raised_on_devices_then_in_the_folder_and_stays() {
        let root = tempfile::tempdir().unwrap();
        let level = FormatLevel::open(folder(&root), next()).unwrap();
        assert_eq!(level.get(), FORMATS.newest, "a release raises no level by itself");
        assert!(!root.path().join(FILE).exists());
        let raised: Arc<Mutex<Vec<u16>>> = Arc::default();
        let (sink, file) = (raised.clone(), root.path().join(FILE));
        level.set_devices(Arc::new(move |level| {
            assert!(!file.exists(), "devices come first");
            sink.lock().push(level);
            async { Ok(()) }.boxed()
        }));
        let up = FORMATS.newest + 1;
        assert_eq!(level.raise(up).await, Ok(true));
        assert_eq!((level.raise(up).await, level.raise(1).await), (Ok(false), Ok(false)));
        assert_eq!((level.get(), raised.lock().as_slice()), (up, &[up][..]));
        assert_eq!(level.tag().release().level, up);
        drop(level);
        assert_eq!(FormatLevel::open(folder(&root), next()).unwrap().get(), up);
        let refused = FormatLevel::open(folder(&root), Release::own(0)).err().unwrap().to_string();
        assert!(refused.contains("and release 0.1.0 knows level 2"), "{refused}");
        assert!(refused.contains("release 0.9.0 wrote it"), "{refused}");
    }

    #[tokio::test]
    async fn a_level_stays_while_a_device_is_not_raised() {
        let root = tempfile::tempdir().unwrap();
        let level = FormatLevel::open(folder(&root), next()).unwrap();
        level.set_devices(Arc::new(|_| async { Err("no room".to_owned()) }.boxed()));
        assert_eq!(level.raise(FORMATS.newest + 1).await, Err("no room".to_owned()));
        assert_eq!(level.get(), FORMATS.newest);
        assert!(!root.path().join(FILE).exists());
    }

    #[test]
    fn levels_beyond_this_release_are_refused_and_lower_ones_are_no_news() {
        let root = tempfile::tempdir().unwrap();
        let level = FormatLevel::open(folder(&root), next()).unwrap();
        assert!(!level.observe(FORMATS.newest) && level.refusal().is_none());
        assert!(level.observe(FORMATS.newest + 1) && level.refusal().is_none());
        assert!(!level.observe(FORMATS.newest + 2));
        assert!(level.refusal().unwrap().contains("start the release that the cluster"));
    }

    #[test]
    fn a_damaged_file_is_refused() {
        let root = tempfile::tempdir().unwrap();
        for text in ["", "{}", r#"{"magic": "other", "level": 2, "release": "x"}"#] {
            fs::write(root.path().join(FILE), text).unwrap();
            let refused = FormatLevel::open(folder(&root), next()).err().unwrap().to_string();
            assert!(refused.contains("the file is damaged"), "{refused}");
        }
    }
}

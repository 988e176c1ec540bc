//! Opening and closing a device.
//!
//! The order of opening: lock, format, removal of the clean marker, ballast, index, number of the
//! opening, extents. The marker is removed before the first write. A crash after that finds no
//! marker, and the extents' table is rebuilt from the extents themselves. A damaged index that was
//! replaced has the same effect.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use martlet_protocol::backend::DeviceHealth;
use martlet_protocol::opening::{Incarnation, Uuid};
use martlet_protocol::{DeviceId, Error, Result};
use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::ballast::{Ballast, FillLevel};
use super::clean_marker::CleanMarker;
use super::config::{DeviceConfig, DeviceHistory, SharedResources};
use super::format::{self, Format};
use super::pool::Pool;
use super::{lost, opening_number};
use crate::disk::LentFolder;
use crate::extents::{ExtentOptions, ExtentStore, RecoveryReport};
use crate::index::{Index, IndexContext};
use crate::metrics::IndexCounters;

const CLEAN: &str = "clean";
/// Files and folders that earlier versions made readable to other users.
const ONCE_OPEN: [&str; 8] =
    ["index", "extents", "volumes", "quarantine", "format.json", "ballast", "lock", CLEAN];
/// Time for which an orderly closing waits for requests that still use the device.
const PATIENCE: Duration = Duration::from_secs(30);
const STEP: Duration = Duration::from_millis(5);

/// Parts of an open device.
pub(crate) struct OpenDevice {
    pub(crate) extents: ExtentStore,
    pub(crate) index: Index,
    pub(crate) ballast: Arc<Ballast>,
    /// Folder of file extents, if the device lends them.
    pub(crate) lent: Option<Arc<LentFolder>>,
    root: std::path::PathBuf,
    pub(crate) device: Uuid,
    /// The format on disk. Locked only briefly: health checks wait for this lock.
    pub(super) format: Mutex<Format>,
    /// Held while the format changes on disk.
    pub(super) changing: Mutex<()>,
    // Last field, so that the lock is released last.
    _lock: File,
}

impl OpenDevice {
    /// Opens a device; its counters, threads and history outlive the opening.
    pub(super) fn open(
        config: &DeviceConfig,
        shared: &SharedResources,
        counters: &Arc<IndexCounters>,
        threads: &Arc<Pool>,
        history: &mut DeviceHistory,
    ) -> Result<Self> {
        let root = &config.path;
        // Before anything is made in the folder, which may be a mount point.
        let newest = shared.level.newest().into();
        if !history.formattings.is_empty() && Format::load(root, newest)?.is_none() {
            return Err(unmounted(root));
        }
        make_folder(root).map_err(|error| unusable(root, error))?;
        let lock = lock(root)?;
        close_to_others(root);
        let loaded = load_or_make(config, shared, &history.formattings)?;
        history.formattings = vec![loaded.device];
        let mut format = at_level(loaded, root, shared)?;
        let mut marker = take_clean_marker(root, format.device, sync_folder)?;
        let ballast = Arc::new(Ballast::open(root, config.reserve)?);
        if history.damage.is_none() {
            history.damage = lost::missing(root)?;
        }
        let mut renewed = false;
        loop {
            if history.damage.is_some() {
                format = lost::renew(config, shared, &format, history)?;
                (marker, renewed) = (None, true);
            }
            format = begin_opening(format, config, shared)?;
            let surroundings = surroundings(config, shared, &format, &ballast, counters, threads);
            match OpenStores::open(root, shared, surroundings, marker) {
                Ok(OpenStores { index, extents, report }) => {
                    let (device, path) = (config.id, root.display());
                    let clean = marker.is_some();
                    tracing::info!(%device, %path, clean, ?report, "device opened");
                    let lent = if shared.lends { lent_folder(root, config.id) } else { None };
                    let (root, device) = (root.clone(), format.device);
                    return Ok(Self {
                        extents,
                        index,
                        ballast,
                        lent,
                        root,
                        device,
                        format: Mutex::new(format),
                        changing: Mutex::default(),
                        _lock: lock,
                    });
                }
                Err(OpenFailure::Damaged(error)) if !renewed => {
                    history.damage = Some(error.to_string());
                }
                Err(OpenFailure::Damaged(error) | OpenFailure::Other(error)) => return Err(error),
            }
        }
    }

    /// Returns the reason if the device accepts no more writes.
    pub(super) fn fault(&self) -> Option<String> {
        self.index.fault().or_else(|| self.extents.suspect())
    }

    pub(super) fn health(&self) -> DeviceHealth {
        match self.fault() {
            Some(reason) => DeviceHealth::Suspect(reason),
            None => match self.unconfirmed() {
                Some(reason) => DeviceHealth::Suspect(reason),
                None if self.ballast.level() != FillLevel::Ready => DeviceHealth::Full,
                None => DeviceHealth::Ready,
            },
        }
    }

    /// Returns the reason if the device must not use its votes (rule G1).
    fn unconfirmed(&self) -> Option<String> {
        let votes = self.index.voting_snapshot();
        match self.format.lock().replaced_by {
            Some(Incarnation { device, .. }) if device == self.device => Some(
                "the device is older than its peers remember, and has no vote until it has \
                 restarted with an empty index and synced"
                    .to_owned(),
            ),
            Some(Incarnation { device, .. }) => Some(format!(
                "its peers remember another disk in its place, {device}; the device has no vote \
                 until it has restarted with an empty index and synced"
            )),
            None if votes.has_votes && !votes.voting => {
                Some("its peers have not confirmed the device yet".to_owned())
            }
            None => None,
        }
    }

    /// Folder of the device.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns total and free bytes.
    pub(super) fn space(&self) -> (u64, u64) {
        (self.ballast.total_bytes(), self.ballast.free_bytes())
    }

    /// Closes in good order: syncs all parts, then writes the clean marker.
    pub(super) fn close(opened: Arc<Self>) -> Result<()> {
        let Self { extents, index, root, device, _lock, .. } = alone(opened, PATIENCE)?;
        let in_order = extents.close();
        index.close()?;
        if in_order {
            let saved_space = extents.save_space().inspect_err(|error| {
                tracing::warn!(%error, "could not save the free space: the next opening counts all \
                                        extents");
            });
            let marker = CleanMarker { saved_space: saved_space.ok() };
            format::replace(&root, CLEAN, marker.text(device).as_bytes())?;
        }
        Ok(())
    }

    /// Closes after a failure, and trusts nothing in memory. Waits for hung calls without limit:
    /// the device stays locked until they end, and the last call must not close it on its own
    /// thread.
    pub(super) fn abandon(opened: Arc<Self>) -> Result<()> {
        opened.extents.give_up("the device is being closed after a failure");
        let opened = alone(opened, Duration::MAX)?;
        opened.extents.close();
        drop(opened);
        Ok(())
    }
}

/// Index and extents, open.
struct OpenStores {
    index: Index,
    extents: ExtentStore,
    report: RecoveryReport,
}

/// Reason why the parts did not open.
enum OpenFailure {
    /// The index is damaged.
    Damaged(Error),
    Other(Error),
}

impl OpenFailure {
    fn of(error: Error) -> Self {
        match error.kind() {
            martlet_protocol::ErrorKind::Corrupt => Self::Damaged(error),
            _ => Self::Other(error),
        }
    }
}

impl OpenStores {
    fn open(
        root: &Path,
        shared: &SharedResources,
        with: IndexContext,
        marker: Option<CleanMarker>,
    ) -> Result<Self, OpenFailure> {
        let (reserve_bytes, threads) = (with.ballast.margin_bytes(), with.threads.clone());
        let index = Index::open(&root.join("index"), with).map_err(OpenFailure::of)?;
        let table = index.extent_table();
        let begun = table.as_ref().map(|table| opening_number::begin(root, table, shared.peers()));
        let is_same = begun.unwrap_or(Ok(false)).map_err(OpenFailure::of)?;
        let marker = marker.filter(|_| is_same);
        let saved_space = marker.and_then(|marker| marker.saved_space);
        let clean = marker.is_some();
        let lends = shared.lends;
        let options = ExtentOptions {
            reserve_bytes,
            clean,
            lends,
            rings: shared.rings.clone(),
            saved_space,
            threads,
            ..Default::default()
        };
        let opened = table.and_then(|table| {
            ExtentStore::open(root, shared.disk.clone(), table, shared.clock.clone(), &options)
        });
        match (opened, index.damage()) {
            (Ok((extents, report)), _) => Ok(Self { index, extents, report }),
            (Err(error), Some(_)) => Err(OpenFailure::Damaged(error)),
            (Err(error), None) => Err(OpenFailure::Other(error)),
        }
    }
}

fn surroundings(
    config: &DeviceConfig,
    shared: &SharedResources,
    format: &Format,
    ballast: &Arc<Ballast>,
    counters: &Arc<IndexCounters>,
    threads: &Arc<Pool>,
) -> IndexContext {
    IndexContext {
        name: config.id.to_string(),
        device: format.device,
        votes: !format.unready,
        confirmed: !shared.introduced,
        peers: shared.peers(),
        secret: shared.tree_key,
        caches: shared.caches.clone(),
        ballast: ballast.clone(),
        clock: shared.clock.clone(),
        counters: counters.clone(),
        threads: threads.clone(),
    }
}

/// Opens the folder of a device's file extents, to lend its files. Logs the reason if it has no
/// read-only mount, and if it can't be opened.
fn lent_folder(root: &Path, device: DeviceId) -> Option<Arc<LentFolder>> {
    let opened = LentFolder::open(&ExtentStore::files_folder(root)).inspect_err(|error| {
        tracing::error!(%device, %error, "the device does not lend its extents");
    });
    let folder = opened.ok()?;
    if let Some(reason) = folder.writable() {
        tracing::warn!(
            %device,
            reason,
            "the device has no read-only mount: it lends no extents to root and the server's user"
        );
    }
    Some(Arc::new(folder))
}

/// Waits until the caller is the only user of the parts; `Unavailable` after `patience`.
fn alone(mut opened: Arc<OpenDevice>, patience: Duration) -> Result<OpenDevice> {
    let began = Instant::now();
    loop {
        opened = match Arc::try_unwrap(opened) {
            Ok(opened) => return Ok(opened),
            Err(shared) => shared,
        };
        if began.elapsed() > patience {
            return Err(Error::unavailable("requests still use the device"));
        }
        std::thread::park_timeout(STEP);
    }
}

/// Makes a folder that only this user may access.
fn make_folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Removes other users' permissions from files that earlier versions made on a device. The device's
/// folder may be a mount point, and keeps its permissions.
fn close_to_others(root: &Path) {
    for path in ONCE_OPEN.map(|name| root.join(name)) {
        let Ok(about) = fs::symlink_metadata(&path) else { continue };
        let mode = about.permissions().mode();
        if about.is_symlink() || mode.trailing_zeros() >= 6 || about.uid() != geteuid().as_raw() {
            continue;
        }
        let closed = fs::Permissions::from_mode(mode & 0o7700);
        if let Err(error) = fs::set_permissions(&path, closed) {
            tracing::warn!(path = %path.display(), %error, "could not restrict access to the \
                                                            folder: other users may read it");
        }
    }
}

/// Locks the device for this process.
pub(crate) fn lock(root: &Path) -> Result<File> {
    let path = root.join("lock");
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(&path)
        .map_err(|error| unusable(root, error))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(Errno::WOULDBLOCK) => {
            Err(Error::conflict(format!("{} is in use by another process", root.display())))
        }
        Err(error) => Err(unusable(root, error.into())),
    }
}

/// Loads the format of a device. A folder without one becomes a device, unless the device is known
/// by its formattings: then the folder is a mount point, and a new device in it would vote as if the
/// device had forgotten everything.
fn load_or_make(config: &DeviceConfig, shared: &SharedResources, known: &[Uuid]) -> Result<Format> {
    let root = &config.path;
    let Some(format) = Format::load(root, shared.level.newest().into())? else {
        if !known.is_empty() {
            return Err(unmounted(root));
        }
        let cluster = shared.cluster.unwrap_or_else(Uuid::random);
        let mut format = Format::new(cluster, shared.clock.now_ms(), !shared.votes_when_new);
        if shared.introduced {
            format = format.bound(config.id, &config.place);
        }
        format.store(root)?;
        return Ok(format);
    };
    if !known.is_empty() && !known.contains(&format.device) {
        return Err(Error::unavailable(format!(
            "{} holds another device, {}: mount its own disk",
            root.display(),
            format.device
        )));
    }
    match shared.cluster {
        Some(cluster) if cluster != format.cluster => Err(Error::invalid(format!(
            "{} belongs to cluster {}, not {cluster}",
            root.display(),
            format.cluster
        ))),
        _ => {
            if shared.introduced {
                format.check_id(root, config.id, &config.place)?;
            }
            Ok(format)
        }
    }
}

/// Raises the format of a device to the level of its node, before the device is used. A device above
/// the node's level raises that level: the cluster was finalized.
fn at_level(format: Format, root: &Path, shared: &SharedResources) -> Result<Format> {
    let own = u16::try_from(format.level()).unwrap_or(u16::MAX);
    shared.level.raise(own);
    let level = u32::from(shared.level.get());
    if format.level() >= level {
        return Ok(format);
    }
    let raised = format.raised(level, env!("CARGO_PKG_VERSION"));
    raised.store(root)?;
    Ok(raised)
}

/// Begins the opening: stores its generation on disk, if the device must be introduced to peers.
fn begin_opening(
    format: Format,
    config: &DeviceConfig,
    shared: &SharedResources,
) -> Result<Format> {
    if !shared.introduced {
        return Ok(format);
    }
    let opened = format.opened(shared.clock.now_ms());
    if opened != format {
        opened.store(&config.path)?;
    }
    Ok(opened)
}

/// Returns the marker if the device was closed in good order, and removes it, durably. `sync` makes
/// the names in a folder durable.
///
/// A process may have removed the marker and died before the sync. So a marker that is not there may
/// still return with a power cut, after this opening has changed the device.
fn take_clean_marker(
    root: &Path,
    device: Uuid,
    sync: impl FnOnce(&Path) -> io::Result<()>,
) -> Result<Option<CleanMarker>> {
    let path = root.join(CLEAN);
    let marker = match fs::read_to_string(&path) {
        Ok(text) => CleanMarker::parse(&text, device),
        // Other bytes than text, or no marker.
        Err(error) if matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::NotFound) => None,
        Err(error) => return Err(unusable(root, error)),
    };
    let removed = match fs::remove_file(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    };
    removed.and_then(|()| sync(root)).map_err(|error| unusable(root, error))?;
    Ok(marker)
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Returns the error of a known device whose folder holds none.
fn unmounted(root: &Path) -> Error {
    Error::unavailable(format!("{} holds no device: mount its disk", root.display()))
}

fn unusable(root: &Path, error: io::Error) -> Error {
    let sentence = match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => "can't be written",
        ErrorKind::StorageFull => {
            return Error::full(format!("{} is full", root.display())).with_source(error);
        }
        _ => "can't be used as a device",
    };
    Error::unavailable(format!("{} {sentence}", root.display())).with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process may remove the marker and die before the sync.
    #[test]
    fn a_marker_that_is_gone_is_durably_gone_before_the_device_changes() {
        let folder = tempfile::tempdir().unwrap();
        let device = Uuid([7; 16]);
        for text in [None, Some("no marker".as_bytes()), Some(&[0xff, 0xfe][..])] {
            if let Some(text) = text {
                fs::write(folder.path().join(CLEAN), text).unwrap();
            }
            let mut synced = Vec::new();
            let sync = |at: &Path| {
                assert!(!at.join(CLEAN).exists());
                synced.push(at.to_path_buf());
                Ok(())
            };
            assert!(take_clean_marker(folder.path(), device, sync).unwrap().is_none());
            assert_eq!(synced, [folder.path()], "{text:?}");
        }
        let failed = |_: &Path| Err(io::Error::from(ErrorKind::Other));
        assert!(take_clean_marker(folder.path(), device, failed).is_err());
    }
}

//! Leases on file extents whose descriptors other processes may hold.
//!
//! A delete removes the file's name at once, with leases as without them: a descriptor keeps the
//! bytes of a file without a name. After a crash the kernel frees them with the last descriptor. So
//! a lease leaves nothing on disk that recovery must find.
//!
//! The store keeps a descriptor of a deleted file of its own. Once the last lease of the file has
//! ended, the store truncates the file. So a process that keeps a descriptor beyond its lease keeps
//! no space. Readers of this process hold leases too: their bytes stay until they end.
//!
//! Invariants:
//! * a file that has a name is never truncated;
//! * a lease is taken before its extent's row is checked, so a delete after the check finds it;
//! * a lease counts only if it is current after that check: an extent that was set aside and repaired
//!   has an equal row, and another file.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};

use martlet_protocol::{ExtentId, Result};
use tokio::sync::watch;

use crate::device::pool::Pool;
use crate::disk::DiskFile;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Reason for which a device takes a lease back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revocation {
    /// The extent was found corrupt.
    Corrupt,
    /// The device was closed, or is opened again after a failure.
    DeviceClosed,
    /// The extent is deleted, and the device is short of space.
    Space,
}

/// Leases on the file extents of a store. Revokes them when dropped.
pub(super) struct FileLeases(Arc<LeaseTable>);

struct LeaseTable {
    live: Mutex<HashMap<ExtentId, Weak<FileLease>>>,
    /// Bytes of deleted files that leases keep.
    withheld_bytes: AtomicU64,
    threads: Arc<Pool>,
}

/// A lease on the file of an extent, shared by its holders. The file of a deleted extent is
/// truncated when the last holder drops the lease.
pub struct FileLease {
    id: ExtentId,
    bytes: u64,
    /// The extent's file, once the extent is deleted.
    deleted: Mutex<Option<Arc<dyn DiskFile>>>,
    revoked: watch::Sender<Option<Revocation>>,
    table: Arc<LeaseTable>,
}

impl FileLeases {
    /// Creates a table without leases. Files are truncated on `threads`.
    pub(super) fn new(threads: Arc<Pool>) -> Self {
        let (live, withheld_bytes) = (Mutex::default(), AtomicU64::new(0));
        Self(Arc::new(LeaseTable { live, withheld_bytes, threads }))
    }

    /// Returns the lease on an extent of `bytes`. An extent that was deleted or quarantined, and
    /// written again, has another lease.
    pub(super) fn hold(&self, id: ExtentId, bytes: u64) -> Arc<FileLease> {
        // Declared before the lock, because a lease takes the lock when it is dropped.
        let held;
        let mut live = self.0.live.lock();
        held = live.get(&id).and_then(Weak::upgrade);
        if let Some(lease) = held.as_ref().filter(|lease| lease.is_current()) {
            return lease.clone();
        }
        let lease = Arc::new(FileLease {
            id,
            bytes,
            deleted: Mutex::default(),
            revoked: watch::Sender::new(None),
            table: self.0.clone(),
        });
        live.insert(id, Arc::downgrade(&lease));
        lease
    }

    /// Takes the file of a deleted extent, whose name was removed. Truncates the file when its last
    /// lease has ended.
    pub(super) fn delete(&self, id: ExtentId, bytes: u64, file: Arc<dyn DiskFile>) {
        let lease = self.hold(id, bytes);
        self.0.withheld_bytes.fetch_add(lease.bytes, Ordering::Relaxed);
        *lease.deleted.lock() = Some(file);
    }

    /// Revokes the lease on an extent.
    pub(super) fn revoke(&self, id: ExtentId, why: Revocation) {
        let held = self.0.live.lock().get(&id).and_then(Weak::upgrade);
        if let Some(lease) = held {
            lease.revoke(why);
        }
    }

    /// Revokes the leases on all deleted extents.
    pub(super) fn revoke_deleted(&self) {
        for lease in self.held() {
            if lease.deleted.lock().is_some() {
                lease.revoke(Revocation::Space);
            }
        }
    }

    /// Revokes all leases.
    pub(super) fn revoke_all(&self, why: Revocation) {
        self.held().iter().for_each(|lease| lease.revoke(why));
    }

    fn held(&self) -> Vec<Arc<FileLease>> {
        self.0.live.lock().values().filter_map(Weak::upgrade).collect()
    }

    /// Returns the bytes of deleted files that leases keep.
    pub(super) fn withheld_bytes(&self) -> u64 {
        self.0.withheld_bytes.load(Ordering::Relaxed)
    }
}

impl Drop for FileLeases {
    fn drop(&mut self) {
        self.revoke_all(Revocation::DeviceClosed);
    }
}

impl FileLease {
    /// Returns a receiver of the lease's revocation.
    pub(crate) fn revocation(&self) -> watch::Receiver<Option<Revocation>> {
        self.revoked.subscribe()
    }

    /// Returns true if the lease is on the file that has the extent's name.
    pub(super) fn is_current(&self) -> bool {
        self.deleted.lock().is_none() && self.revoked.borrow().is_none()
    }

    fn revoke(&self, why: Revocation) {
        self.revoked.send_if_modified(|revoked| {
            let is_first = revoked.is_none();
            revoked.get_or_insert(why);
            is_first
        });
    }
}

impl fmt::Debug for FileLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FileLease").field(&self.id).finish()
    }
}

impl Drop for FileLease {
    fn drop(&mut self) {
        let mut live = self.table.live.lock();
        // Another lease may have replaced this one.
        if live.get(&self.id).is_some_and(|held| held.as_ptr() == std::ptr::from_ref(self)) {
            live.remove(&self.id);
        }
        drop(live);
        let Some(file) = self.deleted.get_mut().take() else { return };
        self.table.withheld_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        let id = self.id;
        self.table.threads.run_detached(move || {
            if let Err(error) = truncate(file.as_ref()) {
                tracing::warn!(extent = %id, %error, "could not free a deleted extent: its space \
                                                      is free once no process has it open");
            }
        });
    }
}

/// Frees the space of a file without a name.
fn truncate(file: &dyn DiskFile) -> Result<()> {
    if file.is_named()? { Ok(()) } else { file.truncate(0) }
}

#[cfg(all(test, feature = "interleavings"))]
mod interleavings;

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::{Duration, Instant};

    use crate::device::pulse::STALL_AFTER;
    use crate::disk::{Caching, Disk, FaultyDisk};

    use super::*;

    const ID: ExtentId = ExtentId([7; 16]);

    fn leases() -> FileLeases {
        FileLeases::new(Arc::new(Pool::new("d1".into(), STALL_AFTER)))
    }

    fn file(named: bool) -> Arc<dyn DiskFile> {
        let (disk, path) = (FaultyDisk::new(1), Path::new("/device/file"));
        disk.create_dir(Path::new("/device")).unwrap();
        let file = disk.create(path, Caching::Cached).unwrap();
        file.allocate(0, 4096).unwrap();
        if !named {
            disk.unlink(path).unwrap();
        }
        file
    }

    fn wait_for_length(file: &dyn DiskFile, length: u64) {
        let began = Instant::now();
        while file.length().unwrap() != length {
            assert!(began.elapsed() < Duration::from_secs(10), "the file keeps its length");
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_deleted_file_is_truncated_when_its_last_lease_ends() {
        let (leases, file) = (leases(), file(false));
        let (one, other) = (leases.hold(ID, 4096), leases.hold(ID, 4096));
        leases.delete(ID, 4096, file.clone());
        assert_eq!(leases.withheld_bytes(), 4096);
        drop(one);
        assert_eq!((file.length().unwrap(), leases.withheld_bytes()), (4096, 4096));
        drop(other);
        assert_eq!(leases.withheld_bytes(), 0);
        wait_for_length(file.as_ref(), 0);
    }

    #[test]
    fn a_file_without_leases_is_truncated_when_it_is_deleted() {
        let (leases, file) = (leases(), file(false));
        leases.delete(ID, 4096, file.clone());
        wait_for_length(file.as_ref(), 0);
        assert_eq!(leases.withheld_bytes(), 0);
        assert!(leases.0.live.lock().is_empty());
    }

    #[test]
    fn a_file_with_a_name_is_never_truncated() {
        let (leases, named, unnamed) = (leases(), file(true), file(false));
        leases.delete(ID, 4096, named.clone());
        leases.delete(ExtentId([8; 16]), 4096, unnamed.clone());
        wait_for_length(unnamed.as_ref(), 0);
        assert!(truncate(named.as_ref()).is_ok());
        assert_eq!(named.length().unwrap(), 4096);
    }

    #[test]
    fn an_extent_that_is_written_again_has_another_lease() {
        let (leases, file) = (leases(), file(false));
        let old = leases.hold(ID, 4096);
        leases.delete(ID, 4096, file.clone());
        let new = leases.hold(ID, 4096);
        assert!(!Arc::ptr_eq(&old, &new));
        drop(old);
        wait_for_length(file.as_ref(), 0);
        assert!(
            Arc::ptr_eq(&new, &leases.hold(ID, 4096)),
            "the old lease did not remove the new one"
        );
    }

    #[test]
    fn the_first_revocation_stays() {
        let leases = leases();
        let (kept, deleted) = (leases.hold(ID, 1), leases.hold(ExtentId([8; 16]), 1));
        leases.delete(deleted.id, 1, file(false));
        let (of_kept, of_deleted) = (kept.revocation(), deleted.revocation());
        leases.revoke_deleted();
        assert_eq!((*of_kept.borrow(), *of_deleted.borrow()), (None, Some(Revocation::Space)));
        leases.revoke(ID, Revocation::Corrupt);
        drop(leases);
        assert_eq!(*of_kept.borrow(), Some(Revocation::Corrupt));
        assert_eq!(*of_deleted.borrow(), Some(Revocation::Space));
    }
}

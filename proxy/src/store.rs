//! The object store. Its operations are defined in the modules of their subjects.
//!
//! [`Shared`] is the store's permanent state. [`Inner`] is the state of one operation, or of a
//! [`Session`]'s operations: the rings of its start, the request's options, and the consistency of
//! its replies.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use martlet_protocol::entry::Bucket;
use martlet_protocol::stamp::StampSource;
use martlet_protocol::{Clock, Given, Level, Term, limits};
use parking_lot::{Mutex, RwLock};
use tokio::sync::Semaphore;

use crate::accounts::{Owners, Vault};
use crate::bucket::BucketCache;
use crate::cluster::Cluster;
use crate::encryption::Told;
use crate::error::{Error, Result};
use crate::extents::{Extents, Health};
use crate::guard::Guard;
use crate::index::Contended;
use crate::latch::Turns;
use crate::manifests::Manifests;
use crate::options::StoreOptions;
use crate::quota::Quotas;
use crate::session::{Ask, Session};

/// Completed uploads whose parts one proxy frees concurrently.
const FREEING_MAX: usize = 8;

/// Objects in buckets, on the nodes of a cluster. Cheap to clone.
#[derive(Clone)]
pub struct ObjectStore {
    shared: Arc<Shared>,
    /// State of a session, shared by its operations.
    bound: Option<Arc<Inner>>,
}

/// State shared by all operations.
pub(crate) struct Shared {
    rings: RwLock<Arc<Cluster>>,
    /// Highest known term.
    term: AtomicU64,
    pub(crate) options: StoreOptions,
    pub(crate) stamps: StampSource,
    pub(crate) buckets: BucketCache,
    /// Cache of bucket owners' names.
    pub(crate) owners: Owners,
    pub(crate) manifests: Manifests,
    /// Keys with recent write conflicts.
    pub(crate) contended: Contended,
    /// Health of devices in calls to registers.
    pub(crate) silent: Health,
    /// Counter of reads, to rotate replicas.
    pub(crate) turn: AtomicUsize,
    /// Turns at ballots on a register.
    pub(crate) ballots: Turns,
    /// Turns at the end of an upload, which contain ballots.
    pub(crate) uploads: Turns,
    /// Permits for completed uploads whose parts are being freed.
    pub(crate) freeing: Arc<Semaphore>,
    /// Body bytes that all writes may still hold.
    pub(crate) buffer: Arc<Semaphore>,
    /// Permits for hashing threads.
    pub(crate) hashers: Arc<Semaphore>,
    pub(crate) extents: Extents,
    /// Cache of quotas and usage of bucket owners.
    pub(crate) quotas: Quotas,
    /// Master keys that wrap the data keys of objects.
    pub(crate) vault: Vault,
}

/// State of one operation.
pub(crate) struct Inner {
    shared: Arc<Shared>,
    /// The rings of its start.
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) ask: Ask,
    /// Access check of the objects that it reads.
    pub(crate) guard: Option<Arc<dyn Guard>>,
    /// Encryption keys of the request, and the encryption to report.
    pub(crate) told: Arc<Told>,
    given: Arc<Mutex<Given>>,
}

impl Deref for Inner {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

impl Shared {
    /// The current rings.
    pub(crate) fn cluster(&self) -> Arc<Cluster> {
        self.rings.read().clone()
    }

    /// Highest known term.
    pub(crate) fn term(&self) -> Term {
        Term(self.term.load(Ordering::Acquire))
    }

    /// Raises the highest known term; it never falls.
    pub(crate) fn raise_term(&self, term: Term) {
        if term != Term::ANY {
            self.term.fetch_max(term.0, Ordering::AcqRel);
        }
    }
}

impl Inner {
    fn new(shared: Arc<Shared>, ask: Ask) -> Self {
        let cluster = shared.cluster();
        let given = Arc::new(Mutex::new(Given::Quorum));
        Self { shared, cluster, ask, guard: None, told: Arc::default(), given }
    }

    /// The store, for work after the end of the operation.
    pub(crate) fn store(&self) -> ObjectStore {
        ObjectStore { shared: self.shared.clone(), bound: None }
    }

    /// Level of an operation in a bucket.
    pub(crate) fn level(&self, bucket: &Bucket) -> Level {
        self.ask.level.unwrap_or(bucket.consistency)
    }

    /// Records the consistency of a part of the operation: the weakest part counts.
    pub(crate) fn note(&self, given: Given) {
        if given > Given::Quorum {
            let mut worst = self.given.lock();
            *worst = given.max(*worst);
        }
    }

    pub(crate) fn given(&self) -> Given {
        *self.given.lock()
    }
}

impl ObjectStore {
    /// A store on `cluster`, without master keys.
    pub fn new(cluster: Cluster, clock: Arc<dyn Clock>, options: StoreOptions) -> Self {
        Self::with_vault(cluster, clock, options, Vault::default())
    }

    /// A store on `cluster` that can encrypt objects by the master keys of `vault`.
    pub fn with_vault(
        cluster: Cluster,
        clock: Arc<dyn Clock>,
        options: StoreOptions,
        vault: Vault,
    ) -> Self {
        let buffer = options.buffer_bytes_max.clamp(1, Semaphore::MAX_PERMITS);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let shared = Shared {
            rings: RwLock::new(Arc::new(cluster)),
            term: AtomicU64::new(Term::NONE.0),
            options,
            stamps: StampSource::new(clock),
            buckets: BucketCache::new(options.bucket_cache_ms),
            owners: Owners::default(),
            manifests: Manifests::default(),
            contended: Contended::new(),
            silent: Health::default(),
            turn: AtomicUsize::new(0),
            ballots: Turns::new(),
            uploads: Turns::new(),
            freeing: Arc::new(Semaphore::new(FREEING_MAX)),
            buffer: Arc::new(Semaphore::new(buffer)),
            hashers: Arc::new(Semaphore::new(cores)),
            extents: Extents::new(buffer),
            quotas: Quotas::default(),
            vault,
        };
        Self { shared: Arc::new(shared), bound: None }
    }

    /// A bucket from the cache, of any age, without a lookup.
    pub fn remembered_bucket(&self, name: &str) -> Option<Arc<Bucket>> {
        self.shared.buckets.get_old(name)
    }

    /// Returns true if a master key for encryption exists.
    pub fn can_encrypt(&self) -> bool {
        self.shared.vault.seals()
    }

    /// Replaces the rings. Running operations keep those of their start.
    pub fn set_cluster(&self, cluster: Cluster) {
        *self.shared.rings.write() = Arc::new(cluster);
    }

    /// Raises the highest known term to that of a device (rule P1). It never falls.
    pub fn set_term(&self, term: Term) {
        self.shared.raise_term(term);
    }

    /// Highest known term.
    pub fn term(&self) -> Term {
        self.shared.term()
    }

    /// The current rings.
    pub fn cluster(&self) -> Arc<Cluster> {
        self.shared.cluster()
    }

    /// The store for one request, with options of its own and a record of the consistency of its
    /// replies.
    pub fn session(&self, ask: Ask) -> Session {
        let inner = Arc::new(Inner::new(self.shared.clone(), ask));
        Session(Self { shared: self.shared.clone(), bound: Some(inner) })
    }

    /// This store or session, with a guard on the objects that it reads.
    pub(crate) fn guarded(&self, guard: Arc<dyn Guard>) -> Self {
        let inner = self.inner();
        let inner = Inner {
            shared: inner.shared.clone(),
            cluster: inner.cluster.clone(),
            ask: inner.ask,
            guard: Some(guard),
            told: inner.told.clone(),
            given: inner.given.clone(),
        };
        Self { shared: self.shared.clone(), bound: Some(Arc::new(inner)) }
    }

    /// State of a new operation, or that of the session.
    pub(crate) fn inner(&self) -> Arc<Inner> {
        match &self.bound {
            Some(inner) => inner.clone(),
            None => Arc::new(Inner::new(self.shared.clone(), Ask::default())),
        }
    }
}

impl fmt::Debug for ObjectStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectStore").finish_non_exhaustive()
    }
}

/// Refuses invalid keys. NUL would make the end of a key ambiguous in an upload's register name.
pub(crate) fn check_key(key: &str) -> Result<()> {
    if key.is_empty() || key.len() > limits::KEY_BYTES_MAX || key.contains('\0') {
        let max = limits::KEY_BYTES_MAX;
        return Err(Error::InvalidRequest(format!("a key must have 1 to {max} bytes without NUL")));
    }
    Ok(())
}

//! The object store: one type, whose operations stand in the modules of their subjects.
//!
//! What is the store's for good stands in [`Shared`]; what belongs to one operation, or to the few
//! that a [`Session`] makes, stands in [`Inner`]: the rings as they were when it began, what its
//! client asked for, and what it could be given.

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

/// Completed uploads whose parts one proxy frees at a time.
const FREEING_MAX: usize = 8;

/// Objects in buckets, over the nodes of a cluster. Cheap to clone.
#[derive(Clone)]
pub struct ObjectStore {
    shared: Arc<Shared>,
    /// Of a session: its operations are one.
    bound: Option<Arc<Inner>>,
}

/// What all operations share.
pub(crate) struct Shared {
    rings: RwLock<Arc<Cluster>>,
    /// The highest term that was heard of.
    term: AtomicU64,
    pub(crate) options: StoreOptions,
    pub(crate) stamps: StampSource,
    pub(crate) buckets: BucketCache,
    /// What owners of buckets are called.
    pub(crate) owners: Owners,
    pub(crate) manifests: Manifests,
    /// Keys where writers met lately.
    pub(crate) contended: Contended,
    /// Whose registers did not answer lately.
    pub(crate) silent: Health,
    /// Counts reads, so that replicas take turns.
    pub(crate) turn: AtomicUsize,
    /// Turns at ballots on a register.
    pub(crate) ballots: Turns,
    /// Turns at the end of an upload, with ballots inside.
    pub(crate) uploads: Turns,
    /// Completed uploads whose parts may be freed at a time.
    pub(crate) freeing: Arc<Semaphore>,
    /// Bytes of bodies that may still be taken in, over all writes.
    pub(crate) buffer: Arc<Semaphore>,
    /// Threads that may hash at a time.
    pub(crate) hashers: Arc<Semaphore>,
    pub(crate) extents: Extents,
    /// How much owners of buckets hold and may hold, of whom that was asked lately.
    pub(crate) quotas: Quotas,
    /// The master keys that wrap the data keys of objects.
    pub(crate) vault: Vault,
}

/// One operation.
pub(crate) struct Inner {
    shared: Arc<Shared>,
    /// The rings as they were when it began.
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) ask: Ask,
    /// Asked about the objects that are read.
    pub(crate) guard: Option<Arc<dyn Guard>>,
    /// What it says of keys, and is told of them.
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
    /// The rings as they are now.
    pub(crate) fn cluster(&self) -> Arc<Cluster> {
        self.rings.read().clone()
    }

    /// The highest term that was heard of.
    pub(crate) fn term(&self) -> Term {
        Term(self.term.load(Ordering::Acquire))
    }

    /// A term was heard of; it never falls.
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

    /// The store, for what goes on when the operation is over.
    pub(crate) fn store(&self) -> ObjectStore {
        ObjectStore { shared: self.shared.clone(), bound: None }
    }

    /// What is asked of an operation in a bucket.
    pub(crate) fn level(&self, bucket: &Bucket) -> Level {
        self.ask.level.unwrap_or(bucket.consistency)
    }

    /// Notes what a part of the operation rests on: its worst part counts.
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
    /// A store over `cluster`.
    pub fn new(cluster: Cluster, clock: Arc<dyn Clock>, options: StoreOptions) -> Self {
        Self::with_vault(cluster, clock, options, Vault::default())
    }

    /// The same with master keys, so that it can encrypt objects by keys of its own.
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

    /// A bucket as it was found last, if it is remembered. Nobody is asked.
    pub fn remembered_bucket(&self, name: &str) -> Option<Arc<Bucket>> {
        self.shared.buckets.get_old(name)
    }

    /// Whether there is a master key to encrypt objects by.
    pub fn can_encrypt(&self) -> bool {
        self.shared.vault.seals()
    }

    /// Puts other rings in place. Operations that have begun end by those that they began with.
    pub fn set_cluster(&self, cluster: Cluster) {
        *self.shared.rings.write() = Arc::new(cluster);
    }

    /// Tells of a term that a device was told (rule P1). It never falls.
    pub fn set_term(&self, term: Term) {
        self.shared.raise_term(term);
    }

    /// The highest term that was heard of.
    pub fn term(&self) -> Term {
        self.shared.term()
    }

    /// The rings as they are now.
    pub fn cluster(&self) -> Arc<Cluster> {
        self.shared.cluster()
    }

    /// The same store for one request: at a level of its own, and with an account of what it was
    /// given.
    pub fn session(&self, ask: Ask) -> Session {
        let inner = Arc::new(Inner::new(self.shared.clone(), ask));
        Session(Self { shared: self.shared.clone(), bound: Some(inner) })
    }

    /// The same with a guard before the objects that are read.
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

    /// The operation that begins here, or that of the session.
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

/// Refuses keys that no object can have. NUL would blur where a key ends in an upload's name.
pub(crate) fn check_key(key: &str) -> Result<()> {
    if key.is_empty() || key.len() > limits::KEY_BYTES_MAX || key.contains('\0') {
        let max = limits::KEY_BYTES_MAX;
        return Err(Error::InvalidRequest(format!("a key has 1 to {max} bytes, none of them NUL")));
    }
    Ok(())
}

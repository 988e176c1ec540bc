//! The object store: objects, and the parts of the store for buckets, uploads, versions and
//! accounts.
//!
//! [`Services`] is built once; a [`RequestContext`] is the state of one operation, or of a
//! [`Session`](crate::Session)'s operations.

mod objects;

use std::fmt;
use std::sync::Arc;

use martlet_protocol::Clock;
use martlet_protocol::stamp::StampSource;
use martlet_topology::Topology;
use tokio::sync::Semaphore;

use crate::accounts::directory::Directory;
use crate::accounts::documents::Documents;
use crate::bodies::BodyReader;
use crate::bucket::{BucketCatalog, Buckets};
use crate::checkpoints::{Checkpoints, Committer, SetStore};
use crate::context::{ContextSource, RequestContext};
use crate::copy::Copier;
use crate::delete::ObjectRemover;
use crate::extents::ExtentClient;
use crate::hashing::HashPool;
use crate::index::{RegisterClient, ReplicaClient};
use crate::keyring::Vault;
use crate::listing::Listings;
use crate::multipart::{Multipart, Uploads};
use crate::options::StoreOptions;
use crate::put::ObjectWriter;
use crate::quota::Quotas;
use crate::read::ObjectReader;
use crate::upload::BodyWriter;
use crate::versions::{Reviser, VersionStore, Versions};
use crate::windows::WindowFigures;

/// Objects in buckets, on the nodes of a cluster. Cheap to clone.
#[derive(Clone)]
pub struct ObjectStore {
    pub(crate) services: Arc<Services>,
    /// Context of a session, shared by its operations.
    context: Option<Arc<RequestContext>>,
}

/// Clients and services that all operations share.
pub(crate) struct Services {
    topology: Topology,
    pub(crate) options: StoreOptions,
    pub(crate) registers: Arc<RegisterClient>,
    #[cfg(test)]
    pub(crate) extents: Arc<ExtentClient>,
    pub(crate) bodies: Arc<BodyReader>,
    pub(crate) body_writer: Arc<BodyWriter>,
    pub(crate) directory: Arc<Directory>,
    quotas: Arc<Quotas>,
    pub(crate) buckets: Arc<BucketCatalog>,
    pub(crate) versions: Arc<VersionStore>,
    pub(crate) reviser: Reviser,
    pub(crate) listings: Listings,
    pub(crate) reader: Arc<ObjectReader>,
    objects: Arc<ObjectWriter>,
    copier: Copier,
    remover: ObjectRemover,
    pub(crate) multipart: Multipart,
    pub(crate) checkpoints: Arc<Committer>,
    /// Master keys that wrap the data keys of objects.
    pub(crate) vault: Arc<Vault>,
}

impl Services {
    fn new(topology: Topology, clock: Arc<dyn Clock>, options: StoreOptions, vault: Vault) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let replicas = Arc::new(ReplicaClient::new(topology.clone(), options));
        let registers = RegisterClient::new(replicas, Arc::new(StampSource::new(clock)));
        let registers = Arc::new(registers);
        let extents = ExtentClient::new(topology.clone(), options.buffer_bytes_max);
        let (extents, hashers) = (Arc::new(extents), Arc::new(Semaphore::new(cores)));
        let bodies = BodyReader::new(extents.clone(), options.window_bytes_max, hashers.clone());
        let bodies = Arc::new(bodies);
        let hash_pool = Arc::new(HashPool::new(hashers));
        let body_writer = Arc::new(BodyWriter::new(extents.clone(), hash_pool));
        let directory = Arc::new(Directory::new(Documents::new(registers.clone())));
        let (stamps, kept_ms) = (registers.stamps.clone(), options.account_cache_ms);
        let quotas = Quotas::new(directory.clone(), stamps, kept_ms);
        let buckets = Arc::new(BucketCatalog::new(registers.clone(), options.bucket_cache_ms));
        let versions = Arc::new(VersionStore::new(registers.clone()));
        let vault = Arc::new(vault);
        let objects = Arc::new(ObjectWriter {
            registers: registers.clone(),
            catalog: buckets.clone(),
            quotas: quotas.clone(),
            versions: versions.clone(),
            writer: body_writer.clone(),
            vault: vault.clone(),
        });
        let reader = Arc::new(ObjectReader {
            registers: registers.clone(),
            catalog: buckets.clone(),
            versions: versions.clone(),
            bodies: bodies.clone(),
            vault: vault.clone(),
        });
        let remover = || ObjectRemover {
            registers: registers.clone(),
            catalog: buckets.clone(),
            quotas: quotas.clone(),
            versions: versions.clone(),
        };
        let reviser = || Reviser {
            registers: registers.clone(),
            catalog: buckets.clone(),
            quotas: quotas.clone(),
            versions: versions.clone(),
        };
        let listings = || Listings { registers: registers.clone(), catalog: buckets.clone() };
        let sets = SetStore::new(objects.clone(), reader.clone(), remover(), listings());
        Self {
            topology,
            options,
            #[cfg(test)]
            extents,
            bodies,
            body_writer,
            directory,
            checkpoints: Arc::new(Committer::new(sets, reviser())),
            reviser: reviser(),
            listings: listings(),
            remover: remover(),
            copier: Copier { reader: reader.clone(), writer: objects.clone() },
            multipart: Multipart::new(reader.clone(), &objects, options),
            registers,
            quotas,
            buckets,
            versions,
            reader,
            objects,
            vault,
        }
    }
}

impl ObjectStore {
    /// A store on a cluster, without master keys.
    pub fn new(
        topology: impl Into<Topology>,
        clock: Arc<dyn Clock>,
        options: StoreOptions,
    ) -> Self {
        Self::with_vault(topology, clock, options, Vault::default())
    }

    /// A store on a cluster that can encrypt objects by the master keys of `vault`.
    pub fn with_vault(
        topology: impl Into<Topology>,
        clock: Arc<dyn Clock>,
        options: StoreOptions,
        vault: Vault,
    ) -> Self {
        let services = Services::new(topology.into(), clock, options, vault);
        Self { services: Arc::new(services), context: None }
    }

    /// Returns true if a master key for encryption exists.
    pub fn can_encrypt(&self) -> bool {
        self.services.vault.seals()
    }

    /// The topology of the process. Running operations keep the rings of their start.
    pub fn topology(&self) -> &Topology {
        &self.services.topology
    }

    /// Buckets, and their settings.
    pub fn buckets(&self) -> Buckets<'_> {
        let Services { registers, buckets: catalog, quotas, .. } = &*self.services;
        Buckets { registers, catalog, quotas, contexts: self.contexts() }
    }

    /// Multipart uploads, and their parts.
    pub fn uploads(&self) -> Uploads<'_> {
        let Services { multipart, listings, checkpoints, .. } = &*self.services;
        Uploads { multipart, listings, checkpoints, contexts: self.contexts() }
    }

    /// Checkpoint sets, and the view of them.
    pub fn checkpoints(&self) -> Checkpoints<'_> {
        Checkpoints { committer: &self.services.checkpoints, buckets: self.buckets() }
    }

    /// Versions of objects, their metadata and their locks.
    pub fn versions(&self) -> Versions<'_> {
        let Services { registers, buckets: catalog, listings, .. } = &*self.services;
        let Services { reviser, remover, .. } = &*self.services;
        Versions { registers, catalog, listings, reviser, remover, contexts: self.contexts() }
    }

    /// Accounts by name or id, and usage of their buckets.
    pub fn directory(&self) -> &Directory {
        &self.services.directory
    }

    /// This store with a context that its operations share.
    pub(crate) fn in_context(&self, context: RequestContext) -> Self {
        Self { services: self.services.clone(), context: Some(Arc::new(context)) }
    }

    /// Context of a new operation, or that of the session.
    pub(crate) fn context(&self) -> Arc<RequestContext> {
        self.contexts().context()
    }

    fn contexts(&self) -> ContextSource<'_> {
        ContextSource { topology: &self.services.topology, session: self.context.as_ref() }
    }
}

impl WindowFigures {
    /// Counters of the windows that readers of a store share.
    pub fn of(store: &ObjectStore) -> Self {
        store.services.bodies.windows.figures()
    }
}

impl fmt::Debug for ObjectStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectStore").finish_non_exhaustive()
    }
}

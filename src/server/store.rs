//! Store of a server: devices, rings, object layer, S3 service and background workers.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use martlet_protocol::tree::TreeKey;
use martlet_protocol::{Backend, Clock, DeviceId};
use martlet_proxy::{Accounts, Cluster, ObjectStore};
use martlet_replicator::{Foreground, KnownTerm, Runner, Scope, Spread, Standard};
use martlet_ring::Ring;
use martlet_s3compat::S3Service;
use martlet_storage_node::{DeviceConfig, NodeOptions, Reserve, StorageNode};

use super::absent::Absent;
use super::credentials::Credentials;
use super::devices::{self, ClusterFile, KnownDevice, Missing, Present};
use super::operator::{Nodes, Voice};
use super::rings::{self, Rings};
use super::settings::Settings;
use crate::failure::Failure;
use crate::policies::check_cpu;
use crate::process::clock::SteadyClock;
use crate::process::door::DoorSecrets;
use crate::process::folder::DataFolder;
use crate::process::hearers::Audience;
use crate::process::metrics::{AskDevices, AskWorkers};
use crate::process::operator::Operator;
use crate::process::{accounts, token_key, vault, workers};
use crate::units::Size;

/// Bytes of cached index blocks and of buffered index writes. With bodies in flight and the
/// allocator's overhead, a loaded server stays under 250 MiB.
const BLOCK_CACHE_BYTES: usize = 32 << 20;
const WRITE_BUFFER_BYTES: usize = 40 << 20;

/// Derivation context of the key of hash trees (rule H1).
const TREE_KEY: &str = "martlet 2026 hash trees of an embedded server";

/// Open parts of a running server.
pub(crate) struct Store {
    pub(crate) objects: ObjectStore,
    pub(crate) door: S3Service,
    /// Admin routes of tenants, users, roles, keys and quotas.
    pub(crate) accounts: Router,
    /// Observers of requests and of lifecycle rules.
    pub(crate) audience: Audience,
    node: Arc<StorageNode>,
    absent: Arc<Absent>,
    index: Arc<Ring>,
    /// Rings of extents, by the number of their policy, from 0.
    data: Vec<Arc<Ring>>,
    by_device: HashMap<DeviceId, Arc<dyn Backend>>,
    clock: Arc<dyn Clock>,
    started_ms: u64,
}

impl Store {
    /// Opens the devices and assembles the store.
    pub(crate) async fn open(
        settings: &Settings,
        folder: &DataFolder,
        credentials: &Credentials,
    ) -> Result<Self, Failure> {
        let clock: Arc<dyn Clock> = Arc::new(SteadyClock::system());
        let started_ms = clock.now_ms();
        let Devices { node, missing, file } =
            Devices::open(settings, folder, clock.clone()).await?;
        let unfit = |error: &dyn std::fmt::Display| {
            Failure::refused(format!("the devices don't form a cluster: {error}"))
        };
        let Rings { index, data } = Rings::settle(folder, &file, &settings.policies()?)?;
        check_cpu(&data)?;
        tell_of_entries(&index, &data);
        let data: Vec<Arc<Ring>> = data.into_iter().map(Arc::new).collect();
        let index = Arc::new(index);
        let absent = Arc::new(Absent::new(missing.clone()));
        let by_device = by_device(&data[0], &node, &absent, &missing);
        let cluster = Cluster::new(index.clone(), data.clone(), by_device.clone())
            .map_err(|error| unfit(&error))?;
        let cluster = settings.door.with_default_policy(cluster)?;
        let vault = match settings.door.sse_vault()? {
            Some(given) => given,
            None => vault::find_or_make(folder, vault::SSE_FILE)?,
        };
        let sealing = match settings.door.vault()? {
            Some(given) => given,
            None => vault::find_or_make(folder, vault::FILE)?,
        };
        let tokens = token_key::find_or_make(folder)?;
        let options = settings.door.store_options()?;
        let objects = ObjectStore::with_vault(cluster, clock.clone(), options, vault);
        for device in node.devices().await.unwrap_or_default() {
            objects.set_term(device.term);
        }
        let accounts = Accounts::new(objects.clone(), sealing);
        // Only this process has to open the secrets, so sealing needs no setting.
        tokio::spawn(accounts::seal_secrets(accounts.clone()));
        let secrets = DoorSecrets {
            access_key: &credentials.access_key,
            secret_key: &credentials.secret_key,
            tokens: &tokens,
        };
        let door = settings.door.open(
            objects.clone(),
            clock.clone(),
            secrets,
            accounts.clone(),
            settings.common.body_idle_timeout,
        );
        let audience = Audience::open(&settings.door, &settings.events, folder, &objects, &clock)?;
        let door = door.hearing(audience.hearers.clone());
        let accounts = accounts::routes(accounts, objects.clone(), &credentials.access_key);
        Ok(Self {
            objects,
            door,
            accounts,
            audience,
            node,
            absent,
            index,
            data,
            by_device,
            clock,
            started_ms,
        })
    }

    /// Returns the backends of all devices, including the missing ones.
    pub(crate) fn nodes(&self) -> Nodes {
        Nodes(vec![self.node.clone(), self.absent.clone()])
    }

    /// Returns the source of the server's status.
    pub(crate) fn voice(
        &self,
        operator: &Arc<Operator>,
        settings: &Settings,
        workers: AskWorkers,
    ) -> Voice {
        Voice {
            operator: Arc::downgrade(operator),
            nodes: self.nodes(),
            workers,
            reserve: reserve(settings),
            index: self.index.clone(),
            data: self.data.clone(),
            cluster: self.cluster(),
        }
    }

    /// Returns the cluster as the background workers see it.
    fn cluster(&self) -> martlet_replicator::Cluster {
        martlet_replicator::Cluster {
            index: self.index.clone(),
            data: self.data.iter().map(|ring| (ring.identity().policy, ring.clone())).collect(),
            nodes: self.by_device.clone(),
            term: KnownTerm::default(),
            spread: Spread::default(),
        }
    }

    /// Returns the source of the devices' metrics.
    pub(crate) fn ask_devices(&self) -> AskDevices {
        let node = self.node.clone();
        Arc::new(move || node.metrics().devices)
    }

    /// Starts the background workers.
    pub(crate) fn start_workers(
        &self,
        settings: &Settings,
        folder: &DataFolder,
        foreground: Arc<Foreground>,
    ) -> Result<Runner, Failure> {
        let hurry = workers::hurry()?;
        let standard = Standard {
            cluster: self.cluster().into(),
            clock: self.clock.clone(),
            scope: Scope::All,
            reclaim: workers::reclaim(settings.reclaim_grace, hurry),
            alone_since_ms: Some(self.started_ms),
            upkeep: settings.upkeep.options(folder, hurry)?,
            objects: Some(self.audience.expiry(self.objects.clone())),
            usage: Some(Arc::new(self.objects.clone())),
        };
        let mut runner = Runner::new(workers::pace(hurry), foreground);
        standard.start(&mut runner);
        Ok(runner)
    }

    /// Writes the remaining events and log lines, and closes the devices in good order.
    pub(crate) async fn close(self) -> Result<(), Failure> {
        self.audience.stop().await;
        self.node.shutdown().await.map_err(|error| {
            Failure::refused(format!("a device could not be closed cleanly: {error}"))
        })
    }
}

/// Open devices of this start.
struct Devices {
    node: Arc<StorageNode>,
    missing: Vec<Missing>,
    file: ClusterFile,
}

impl Devices {
    async fn open(
        settings: &Settings,
        folder: &DataFolder,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, Failure> {
        let mut file = ClusterFile::load(folder)?;
        let before = file.clone();
        let asked: Vec<PathBuf> = settings
            .devices
            .iter()
            .map(|path| devices::absolute(path))
            .collect::<Result<_, _>>()?;
        let present = file.settle(&asked, folder.join("device0"), devices::identify)?;
        report_missing(&present);
        rings::check_devices(&settings.policies()?, file.data_devices().len())?;
        // Stored before any device is made, because a device carries the cluster's id for ever.
        file.store(folder)?;
        let reserve = reserve(settings);
        let config =
            |it: &KnownDevice| DeviceConfig { reserve, ..DeviceConfig::new(it.id, &it.path) };
        let configs = present.devices.iter().map(config).collect();
        let options = NodeOptions {
            clock,
            tree_key: TreeKey(blake3::derive_key(TREE_KEY, &file.cluster.0)),
            cluster: Some(file.cluster),
            block_cache_bytes: BLOCK_CACHE_BYTES,
            write_buffer_bytes: WRITE_BUFFER_BYTES,
            ..NodeOptions::default()
        };
        let node = match open_node(configs, options).await {
            Ok(node) => node,
            Err(failure) => {
                let _ = file.learn(devices::identify);
                if file != before {
                    file.store(folder)?;
                }
                return Err(failure);
            }
        };
        for path in file.learn(devices::identify)? {
            tracing::error!(path = %path.display(), "could not create a device, leaving it out");
        }
        file.store(folder)?;
        Ok(Self { node: Arc::new(node), missing: present.missing, file })
    }
}

/// Warns if entries have one copy although fragments survive more losses.
fn tell_of_entries(index: &Ring, data: &[Ring]) {
    if data.len() > 1 && index.replicas() == 1 {
        tracing::warn!(
            "index entries have one copy: losing a device loses the objects whose entries are on \
             it, whatever their policy; to protect entries like fragments, name a policy at the \
             first start of a new data folder"
        );
    }
}

fn reserve(settings: &Settings) -> Reserve {
    settings.reserve.map_or(Reserve::Standard, |Size(bytes)| Reserve::Bytes(bytes))
}

async fn open_node(
    configs: Vec<DeviceConfig>,
    options: NodeOptions,
) -> Result<StorageNode, Failure> {
    if configs.is_empty() {
        return Err(Failure::refused(
            "no device is present: mount the disks, or name their folders with --device",
        ));
    }
    tokio::task::spawn_blocking(move || StorageNode::open(configs, options))
        .await
        .map_err(|error| Failure::refused(format!("opening the devices failed: {error}")))?
        .map_err(|error| Failure::refused(format!("no device could be opened: {error}")))
}

fn report_missing(present: &Present) {
    for missing in &present.missing {
        tracing::error!(
            device = %missing.id,
            path = %missing.path.display(),
            reason = missing.reason,
            "a device is missing and its data can't be read"
        );
    }
}

fn by_device(
    data: &Ring,
    node: &Arc<StorageNode>,
    absent: &Arc<Absent>,
    missing: &[Missing],
) -> HashMap<DeviceId, Arc<dyn Backend>> {
    let ids = data.devices().iter().map(|device| device.id);
    ids.map(|id| {
        let is_missing = missing.iter().any(|missing| missing.id == id);
        let backend: Arc<dyn Backend> = if is_missing { absent.clone() } else { node.clone() };
        (id, backend)
    })
    .collect()
}

//! Store of a server: devices, rings, object layer, S3 service and background workers.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use martlet_admin_server::accounts::seal_secrets;
use martlet_protocol::extent_token::ExtentTokenKey;
use martlet_protocol::http::SpannedBackend;
use martlet_protocol::id::random_bytes;
use martlet_protocol::tree::TreeKey;
use martlet_protocol::{Backend, Clock, DeviceId};
use martlet_proxy::{Accounts, ObjectStore, Vault};
use martlet_replicator::{DeviceScope, Foreground, Runner, StandardWorkers};
use martlet_ring::Ring;
use martlet_s3compat::{InPlaceConfig, S3Service};
use martlet_serving::access::AdminAccess;
use martlet_serving::api::ApiRoutes;
use martlet_serving::folder::DataFolder;
use martlet_serving::operator::Operator;
use martlet_serving::{Failure, Size};
use martlet_storage_node::{
    DeviceConfig, DirectListener, DirectServer, NodeOptions, Reserve, StorageNode,
};
use martlet_topology::{Cluster, Topology};

use super::absent_device::AbsentDevice;
use super::credentials::Credentials;
use super::devices::{self, ClusterFile, KnownDevice, MissingDevice, StartDevices};
use super::operator::{ServerBackends, ServerHealth, ServerStatusSource};
use super::rings::{self, ServerRings};
use super::settings::ServerSettings;
use super::steady_clock::SteadyClock;
use super::token_key;
use crate::policies::check_cpu;
use crate::process::admin_access::{self, AccountProcess};
use crate::process::checkpoint_counts::{CheckpointCounts, CountedSets};
use crate::process::data_port::{OpenDataPort, ReadyDataPort};
use crate::process::memory::{MachineShare, MemorySplit};
use crate::process::observers::ObserverTasks;
use crate::process::s3_port::S3Secrets;
use crate::process::sources::{DeviceSource, WorkerSource};
use crate::process::{master_keys, workers};

/// Folder of the only device, within the data folder, of a server that names none.
pub(super) const DEFAULT_DEVICE: &str = "device0";

/// Derivation context of the key of hash trees (rule H1).
const TREE_KEY: &str = "martlet 2026 hash trees of an embedded server";

/// Open parts of a running server.
pub(crate) struct Store {
    pub(crate) objects: ObjectStore,
    pub(crate) service: S3Service,
    /// Counts of checkpoint sets, as the worker meets them.
    pub(crate) checkpoint_counts: CheckpointCounts,
    /// Admin routes of tenants, users, roles, keys, quotas and admin keys.
    pub(crate) accounts: ApiRoutes,
    /// Means to admit requests to admin routes.
    pub(crate) access: Arc<AdminAccess>,
    /// Observers of requests and of lifecycle rules.
    pub(crate) observers: ObserverTasks,
    node: Arc<StorageNode>,
    absent: Arc<AbsentDevice>,
    index: Arc<Ring>,
    /// Rings of extents, by the number of their policy, from 0.
    data: Vec<Arc<Ring>>,
    /// Cluster of the object layer and the workers.
    topology: Topology,
    clock: Arc<dyn Clock>,
    /// Key of the tokens of extents.
    extent_key: ExtentTokenKey,
    memory: MemorySplit,
    started_ms: u64,
}

/// Returns the master keys of objects and of accounts. Keys that no setting names are made once.
fn vaults(settings: &ServerSettings, folder: &DataFolder) -> Result<(Vault, Vault), Failure> {
    let of_objects = match settings.s3.sse_vault()? {
        Some(given) => given,
        None => master_keys::find_or_make(folder, master_keys::SSE_FILE)?,
    };
    let of_accounts = match settings.s3.vault()? {
        Some(given) => given,
        None => master_keys::find_or_make(folder, master_keys::FILE)?,
    };
    Ok((of_objects, of_accounts))
}

fn account_process<'a>(
    settings: &'a ServerSettings,
    credentials: &'a Credentials,
    random: &'a [u8; 32],
    clock: Arc<dyn Clock>,
) -> AccountProcess<'a> {
    AccountProcess {
        common: &settings.common,
        data_dir: &settings.data_dir,
        name: "server",
        random,
        clock,
        root_key: &credentials.access_key,
    }
}

impl Store {
    /// Opens the devices and assembles the store.
    pub(crate) async fn open(
        settings: &ServerSettings,
        folder: &DataFolder,
        credentials: &Credentials,
    ) -> Result<Self, Failure> {
        let clock: Arc<dyn Clock> = Arc::new(SteadyClock::system());
        let started_ms = clock.now_ms();
        let Devices { node, missing, file, memory } =
            Devices::open(settings, folder, clock.clone()).await?;
        let unfit = |error: &dyn std::fmt::Display| {
            Failure::refused(format!("the devices don't form a cluster: {error}"))
        };
        let ServerRings { index, data } =
            ServerRings::settle(folder, &file, &settings.policies()?)?;
        check_cpu(&data)?;
        log_index_copies(&index, &data);
        let data: Vec<Arc<Ring>> = data.into_iter().map(Arc::new).collect();
        let index = Arc::new(index);
        let absent = Arc::new(AbsentDevice::new(missing.clone()));
        let by_device = by_device(&data[0], &backend_of(&node, settings), &absent, &missing);
        let cluster =
            Cluster::new(index.clone(), data.clone(), by_device).map_err(|error| unfit(&error))?;
        let topology = Topology::new(settings.s3.with_default_policy(cluster)?);
        let (vault, sealing) = vaults(settings, folder)?;
        let tokens = token_key::find_or_make(folder)?;
        let options = settings.s3.store_options()?;
        for device in node.devices().await.unwrap_or_default() {
            topology.raise_term(device.term);
        }
        let objects = ObjectStore::with_vault(topology.clone(), clock.clone(), options, vault);
        let accounts = Accounts::new(objects.clone(), sealing);
        // Only this process has to open the secrets, so sealing needs no setting.
        tokio::spawn(seal_secrets(accounts.clone()));
        let secrets = S3Secrets {
            access_key: &credentials.access_key,
            secret_key: &credentials.secret_key,
            tokens: &tokens,
        };
        let service = settings.s3.open(
            objects.clone(),
            clock.clone(),
            secrets,
            accounts.clone(),
            &settings.common,
        )?;
        let observers =
            ObserverTasks::open(&settings.s3, &settings.events, folder, &objects, &clock)?;
        let service = service.observed_by(observers.requests.clone());
        let process = account_process(settings, credentials, &tokens, clock.clone());
        let (accounts, access) = process.open(accounts, objects.clone()).await;
        let service = admin_access::recording(service, &access);
        Ok(Self {
            objects,
            service,
            checkpoint_counts: CheckpointCounts::default(),
            accounts,
            access,
            observers,
            node,
            absent,
            index,
            data,
            topology,
            clock,
            // Tokens need not survive a restart: clients locate again.
            extent_key: ExtentTokenKey::derive(&random_bytes::<32>()),
            memory,
            started_ms,
        })
    }

    /// Returns the backends of all devices, including the missing ones.
    fn nodes(&self) -> ServerBackends {
        ServerBackends(vec![self.node.clone(), self.absent.clone()])
    }

    /// Returns the source of the server's condition.
    pub(crate) fn health(&self) -> ServerHealth {
        ServerHealth { nodes: self.nodes(), node: self.node.clone() }
    }

    /// Makes the server of a direct socket.
    pub(crate) fn direct_server(
        &self,
        settings: &ServerSettings,
        listener: DirectListener,
    ) -> DirectServer {
        let key = self.extent_key.clone();
        settings.direct.server(listener, &self.node, key, self.clock.clone())
    }

    /// Returns the source of the server's status.
    pub(crate) fn status_source(
        &self,
        operator: &Arc<Operator>,
        settings: &ServerSettings,
        workers: WorkerSource,
    ) -> ServerStatusSource {
        ServerStatusSource {
            operator: Arc::downgrade(operator),
            nodes: self.nodes(),
            node: self.node.clone(),
            workers,
            reserve: reserve(settings),
            memory: self.memory,
            index: self.index.clone(),
            data: self.data.clone(),
        }
    }

    /// Returns the clock of the stamps.
    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    /// Puts the devices behind a data port, and makes the port known to clients that locate objects.
    pub(crate) fn read_in_place(
        &mut self,
        port: OpenDataPort,
        settings: &ServerSettings,
    ) -> ReadyDataPort {
        let key = self.extent_key.clone();
        let known_as = port.known_as.clone();
        self.topology.set_data_ports(Arc::new(move |_| Some(known_as.clone())));
        let grace_ms = u64::try_from(settings.reclaim_grace.as_millis()).unwrap_or(u64::MAX);
        let config = InPlaceConfig::new(key.clone(), grace_ms);
        self.service = self.service.clone().reading_in_place(config);
        port.ready(self.node.clone(), key, self.clock.clone(), settings.common.min_body_rate)
    }

    /// Returns the source of the devices' metrics.
    pub(crate) fn device_source(&self) -> DeviceSource {
        let node = self.node.clone();
        Arc::new(move || node.metrics().devices)
    }

    /// Starts the background workers.
    pub(crate) fn start_workers(
        &self,
        settings: &ServerSettings,
        folder: &DataFolder,
        foreground: Arc<Foreground>,
    ) -> Result<Runner, Failure> {
        let hurry = workers::test_grace()?;
        let standard = StandardWorkers {
            topology: self.topology.clone(),
            clock: self.clock.clone(),
            scope: DeviceScope::All,
            reclaim: workers::reclaim(settings.reclaim_grace, hurry),
            alone_since_ms: Some(self.started_ms),
            upkeep: settings.upkeep.options(folder, hurry)?,
            objects: Some(self.observers.expiry(self.objects.clone())),
            usage: Some(Arc::new(self.objects.clone())),
            checkpoints: Some(Arc::new(CountedSets::new(
                Arc::new(self.objects.clone()),
                self.checkpoint_counts.clone(),
            ))),
        };
        let mut runner = Runner::new(workers::pace(hurry), foreground);
        standard.start(&mut runner);
        Ok(runner)
    }

    /// Writes the remaining events and log lines, and closes the devices in good order.
    pub(crate) async fn close(self) -> Result<(), Failure> {
        self.observers.stop().await;
        self.node.shutdown().await.map_err(|error| {
            Failure::refused(format!("a device could not be closed cleanly: {error}"))
        })
    }
}

/// Open devices of this start.
struct Devices {
    node: Arc<StorageNode>,
    missing: Vec<MissingDevice>,
    file: ClusterFile,
    memory: MemorySplit,
}

impl Devices {
    async fn open(
        settings: &ServerSettings,
        folder: &DataFolder,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, Failure> {
        let mut file = ClusterFile::load(folder)?;
        let before = file.clone();
        let configured: Vec<PathBuf> = settings
            .devices
            .iter()
            .map(|path| devices::absolute(path))
            .collect::<Result<_, _>>()?;
        let present = file.settle(&configured, folder.join(DEFAULT_DEVICE), devices::identify)?;
        report_missing(&present);
        rings::check_devices(&settings.policies()?, file.data_devices().len())?;
        // Stored before any device is made, because a device carries the cluster's id for ever.
        file.store(folder)?;
        let reserve = reserve(settings);
        let config = |it: &KnownDevice| DeviceConfig {
            reserve,
            formatting: it.formatting(),
            ..DeviceConfig::new(it.id, &it.path)
        };
        let configs = present.devices.iter().map(config).collect();
        let memory = memory(settings, present.devices.len());
        let options = NodeOptions {
            clock,
            tree_key: TreeKey(blake3::derive_key(TREE_KEY, &file.cluster.0)),
            cluster: Some(file.cluster),
            lends: settings.direct.lends(),
            ..memory.node_options()
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
        Ok(Self { node: Arc::new(node), missing: present.missing, file, memory })
    }
}

/// Warns if entries have one copy although fragments survive more losses.
fn log_index_copies(index: &Ring, data: &[Ring]) {
    if data.len() > 1 && index.replicas() == 1 {
        tracing::warn!(
            "index entries have one copy: losing a device loses the objects whose entries are on \
             it, whatever their policy; to protect entries like fragments, name a policy at the \
             first start of a new data folder"
        );
    }
}

fn memory(settings: &ServerSettings, devices: usize) -> MemorySplit {
    let Size(bodies) = settings.s3.write_buffer;
    MemorySplit::new(settings.memory, MachineShare::Eighth, bodies, devices)
}

fn reserve(settings: &ServerSettings) -> Reserve {
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

fn report_missing(present: &StartDevices) {
    for missing in &present.missing {
        tracing::error!(
            device = %missing.id,
            path = %missing.path.display(),
            reason = missing.reason,
            "a device is missing and its data can't be read"
        );
    }
}

/// Returns the backend of a node, which records spans if traces are on.
fn backend_of(node: &Arc<StorageNode>, settings: &ServerSettings) -> Arc<dyn Backend> {
    match settings.common.traces.otlp_endpoint {
        Some(_) => Arc::new(SpannedBackend::within(node.clone())),
        None => node.clone(),
    }
}

fn by_device(
    data: &Ring,
    node: &Arc<dyn Backend>,
    absent: &Arc<AbsentDevice>,
    missing: &[MissingDevice],
) -> HashMap<DeviceId, Arc<dyn Backend>> {
    let ids = data.devices().iter().map(|device| device.id);
    ids.map(|id| {
        let is_missing = missing.iter().any(|missing| missing.id == id);
        let backend: Arc<dyn Backend> = if is_missing { absent.clone() } else { node.clone() };
        (id, backend)
    })
    .collect()
}

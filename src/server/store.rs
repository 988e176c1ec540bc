//! The store itself: devices, rings, the object layer over them, the door in front, and the workers
//! behind.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use martlet_protocol::{Backend, Clock, DeviceId};
use martlet_proxy::{Cluster, ObjectStore, StoreOptions};
use martlet_replicator::{Foreground, Pace, Reclaim, ReclaimOptions, Runner, Sweep, SweepOptions};
use martlet_ring::Ring;
use martlet_s3compat::auth::{Keys, Secret};
use martlet_s3compat::door::DoorConfig;
use martlet_s3compat::{S3Service, TokenKey};
use martlet_storage_node::{DeviceConfig, NodeOptions, Reserve, StorageNode};

use super::HEAD_BYTES_MAX;
use super::absent::Absent;
use super::clock::SteadyClock;
use super::credentials::Credentials;
use super::devices::{self, ClusterFile, KnownDevice, Missing, POLICY, Present};
use super::folder::DataFolder;
use super::metrics::AskDevices;
use super::rings::Rings;
use super::settings::Settings;
use crate::failure::Failure;
use crate::units::Size;

/// Index blocks kept in memory, and index writes gathered there: with what bodies on their way and
/// the allocator need, a loaded server stays under 250 MiB.
const BLOCK_CACHE_BYTES: usize = 32 << 20;
const WRITE_BUFFER_BYTES: usize = 40 << 20;
/// For tests only: parts of an upload may be as small as this.
const TEST_PART_BYTES_MIN: &str = "MARTLET_TEST_PART_BYTES_MIN";
/// For tests only: garbage is due after so many milliseconds, and workers look again as often.
const TEST_RECLAIM_GRACE_MS: &str = "MARTLET_TEST_RECLAIM_GRACE_MS";

/// Everything that is open while the server serves.
pub(crate) struct Store {
    pub(crate) objects: ObjectStore,
    pub(crate) door: S3Service,
    node: Arc<StorageNode>,
    absent: Arc<Absent>,
    index: Arc<Ring>,
    data: Arc<Ring>,
    by_device: HashMap<DeviceId, Arc<dyn Backend>>,
    clock: Arc<dyn Clock>,
    started_ms: u64,
}

impl Store {
    /// Opens the devices and puts everything over them together.
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
            Failure::refused(format!("the devices make no cluster: {error}"))
        };
        let Rings { index, data } = Rings::settle(folder, &file)?;
        let (index, data) = (Arc::new(index), Arc::new(data));
        let absent = Arc::new(Absent::new(missing.clone()));
        let by_device = by_device(&data, &node, &absent, &missing);
        let cluster = Cluster::new(index.clone(), vec![data.clone()], by_device.clone())
            .map_err(|error| unfit(&error))?;
        let objects = ObjectStore::new(cluster, clock.clone(), store_options()?);
        let door = door(settings, credentials, clock.clone(), objects.clone());
        Ok(Self { objects, door, node, absent, index, data, by_device, clock, started_ms })
    }

    /// Who answers for the devices, those that are missing included.
    pub(crate) fn nodes(&self) -> Vec<Arc<dyn Backend>> {
        vec![self.node.clone(), self.absent.clone()]
    }

    /// How to ask for the devices' figures.
    pub(crate) fn ask_devices(&self) -> AskDevices {
        let node = self.node.clone();
        Arc::new(move || node.metrics().devices)
    }

    /// Starts reclaim and sweep.
    pub(crate) fn start_workers(&self, settings: &Settings, foreground: Arc<Foreground>) -> Runner {
        let hurry = number_from(TEST_RECLAIM_GRACE_MS).ok().flatten();
        let grace = hurry.map_or(settings.reclaim_grace, Duration::from_millis);
        let mut pace = Pace::default();
        if hurry.is_some() {
            pace.idle_pause = grace.max(Duration::from_millis(50));
        }
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        let cluster = martlet_replicator::Cluster {
            index: self.index.clone(),
            data: HashMap::from([(POLICY, self.data.clone())]),
            nodes: self.by_device.clone(),
        };
        let sweep = SweepOptions { grace_ms, writers_gone_before_ms: self.started_ms };
        let mut runner = Runner::new(pace, foreground);
        let reclaim = ReclaimOptions { grace_ms };
        runner.start(Reclaim::new(cluster.clone(), self.clock.clone(), reclaim));
        runner.start(Sweep::new(cluster, self.clock.clone(), sweep));
        runner
    }

    /// Closes the devices in good order.
    pub(crate) async fn close(self) -> Result<(), Failure> {
        self.node.shutdown().await.map_err(|error| {
            Failure::refused(format!("a device could not be closed in good order: {error}"))
        })
    }
}

/// The devices of this start, open.
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
        // Before any device is made: it carries the cluster's name for ever.
        file.store(folder)?;
        let reserve =
            settings.reserve.map_or(Reserve::Standard, |Size(bytes)| Reserve::Bytes(bytes));
        let config =
            |it: &KnownDevice| DeviceConfig { reserve, ..DeviceConfig::new(it.id, &it.path) };
        let configs = present.devices.iter().map(config).collect();
        let options = NodeOptions {
            clock,
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
            tracing::error!(path = %path.display(), "no device could be made there: it is left out");
        }
        file.store(folder)?;
        Ok(Self { node: Arc::new(node), missing: present.missing, file })
    }
}

async fn open_node(
    configs: Vec<DeviceConfig>,
    options: NodeOptions,
) -> Result<StorageNode, Failure> {
    if configs.is_empty() {
        return Err(Failure::refused(
            "none of the devices is there: mount their disks, or name where they are with --device",
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
            "a device is missing: what lies on it can't be read"
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

fn door(
    settings: &Settings,
    credentials: &Credentials,
    clock: Arc<dyn Clock>,
    objects: ObjectStore,
) -> S3Service {
    let secret = &credentials.secret_key.0;
    let config = DoorConfig {
        domains: settings.domains.clone(),
        header_bytes_max: HEAD_BYTES_MAX,
        body_idle: settings.body_idle_timeout,
        requests_max: settings.max_requests,
        ..DoorConfig::default()
    };
    let keys = Keys::root(&credentials.access_key, Secret::new(secret));
    S3Service::new(objects, config, clock, keys, TokenKey::derive(secret.as_bytes()))
}

fn store_options() -> Result<StoreOptions, Failure> {
    let mut options = StoreOptions::default();
    if let Some(bytes) = number_from(TEST_PART_BYTES_MIN)? {
        options.part_bytes_min = bytes;
    }
    Ok(options)
}

fn number_from(variable: &str) -> Result<Option<u64>, Failure> {
    let Ok(text) = std::env::var(variable) else {
        return Ok(None);
    };
    let number = text.parse().map_err(|_| {
        Failure::usage(format!("{variable} is \"{text}\", and should be a whole number"))
    })?;
    Ok(Some(number))
}

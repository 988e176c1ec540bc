//! `martlet server`: every role of the store in one process.
//!
//! ```text
//! S3 clients ─▶ listen ─▶ measure ─▶ s3compat ─▶ proxy ─▶ Backend ─▶ storage-node
//!                                               replicator ──┘           ▲
//! clients with tokens ─▶ data port ──────────────────────────────────────┘
//! ```
//!
//! * [`settings`], [`credentials`]: settings and root credentials.
//! * [`devices`], [`rings`], [`absent_device`]: devices, rings, and the backend of missing devices.
//! * [`store`]: all parts together; [`operator`]: their status for operators.
//!
//! The start does cheap checks before expensive work: settings, folder, credentials, sockets,
//! devices. Clients are accepted last. The stop goes in the reverse order: no new connections,
//! requests finish, workers finish their step, devices are closed in good order.

mod absent_device;
pub(crate) mod credentials;
mod devices;
mod operator;
mod rings;
pub(crate) mod settings;
mod steady_clock;
mod store;
mod token_key;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use martlet_admin_server::{buckets, jobs, objects, policies, quarantine, ring_builder};
use martlet_console::S3Slot;
use martlet_notifications::{LogCollector, TargetCollector};
use martlet_proxy::ObjectStore;
use martlet_replicator::Foreground;
use martlet_serving::api::ApiRoutes;
use martlet_serving::audit::AuditCollector;
use martlet_serving::folder::DataFolder;
use martlet_serving::listen::{self, Port};
use martlet_serving::metrics::Metrics;
use martlet_serving::operator::{self as admin, AdminParts, Operator};
use martlet_serving::traces::{TracedProcess, Traces};
use martlet_serving::{AdminToken, Failure, Signals, logging, runtime};
use martlet_storage_node::DirectListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::credentials::Credentials;
pub(crate) use self::settings::ServerArgs;
use self::settings::ServerSettings;
use self::store::Store;
use crate::process::console::{self, ConsoleHost, SERVER_CONSOLE};
use crate::process::data_port::{OpenDataPort, ReadyDataPort};
use crate::process::direct::DirectSource;
use crate::process::measure::MeasuredService;
use crate::process::metrics::{
    CheckpointCollector, DeviceCollector, DirectCollector, QueueCollector, Requests,
    WindowCollector, WorkerCollector,
};
use crate::process::sources::WorkerSource;
use crate::process::{admin_status, event_routes, master_keys};
use crate::support;

/// Returns the device folders of a server that names none: those of its last start, or the default.
pub(crate) fn known_device_folders(data_dir: &Path) -> Vec<PathBuf> {
    let known = devices::ClusterFile::known_folders(data_dir);
    if known.is_empty() { vec![data_dir.join(store::DEFAULT_DEVICE)] } else { known }
}

/// Runs a server until a signal stops it.
pub(crate) fn run(args: &ServerArgs) -> Result<(), Failure> {
    let settings = ServerSettings::load(args)?;
    logging::start(&settings.common)?;
    runtime::run(settings.common.max_threads, serve(settings))
}

async fn serve(settings: ServerSettings) -> Result<(), Failure> {
    let mut signals = Signals::take()?;
    let folder = DataFolder::open(&settings.data_dir)?;
    let (credentials, new) = Credentials::find_or_make(&settings.s3, &folder)?;
    let s3 = settings.s3.listen().await?;
    let data_port = settings.data_port.listen(settings.s3.certificate_files(), None).await?;
    let admin = admin::bind(settings.admin_address, &settings.common).await?;
    let direct = settings.direct.bind()?;
    let operator = Arc::new(Operator::new(vec![credentials.admin_token()]));
    let answering = operator.clone().serve(admin, &settings.common);
    let slot = S3Slot::default();
    let host = ConsoleHost {
        default: Some(SERVER_CONSOLE),
        operator: &operator,
        root_key: &credentials.access_key,
        slot: &slot,
        s3: &settings.s3,
        common: &settings.common,
    };
    let console = settings.console.serve(host).await?;

    let opened = tokio::select! {
        opened = Store::open(&settings, &folder, &credentials) => opened?,
        signal = signals.next() => {
            tracing::info!(signal, "stopped before the devices were open");
            return Ok(());
        }
    };
    let process = TracedProcess { role: "server", name: "server", zone: None };
    let traces = Traces::open(&settings.common.traces, &process)?;
    let (settings, folder, store) = (&settings, &folder, opened);
    let token = credentials.admin_token();
    let running =
        RunningServer { settings, folder, operator, token, store, direct, signals, slot, traces };
    let url = data_port.as_ref().map(|port| port.known_as.url.clone());
    let outcome = running
        .run(s3, data_port, |address| {
            announce(address, settings, new.then_some(&credentials), folder);
            if let Some(url) = url {
                println!("Clients read in place at {url}");
            }
            if let Some(url) = &console.url {
                println!("Console for browsers: {url}");
            }
        })
        .await;
    console.end().await;
    answering.end().await;
    outcome
}

/// Prints the endpoint, the place of the credentials and, at the first start, the credentials
/// themselves, unless a log keeps the output.
fn announce(
    address: SocketAddr,
    settings: &ServerSettings,
    new: Option<&Credentials>,
    folder: &DataFolder,
) {
    let path = folder.join(credentials::FILE);
    let endpoint = settings.s3.announce(address);
    match new {
        Some(_) if logging::keeps_output() => println!("{}", credentials::notice(&path)),
        Some(credentials) => println!("\n{}", credentials.introduction(&endpoint, &path)),
        None if settings.s3.root_access_key.is_some() => {}
        None => println!("Credentials are in {}", path.display()),
    }
    let given = [&settings.s3.master_key_file, &settings.s3.sse_master_key_file];
    let set = [&settings.s3.master_keys, &settings.s3.sse_master_key];
    for (at, file) in [master_keys::FILE, master_keys::SSE_FILE].into_iter().enumerate() {
        if given[at].is_none() && set[at].is_none() {
            println!("{}", master_keys::reminder(&folder.join(file)));
        }
    }
}

/// Server whose store is open.
struct RunningServer<'a> {
    settings: &'a ServerSettings,
    folder: &'a DataFolder,
    operator: Arc<Operator>,
    /// Token of the root secret.
    token: AdminToken,
    store: Store,
    direct: Option<DirectListener>,
    signals: Signals,
    /// Place of the S3 service for the console.
    slot: S3Slot,
    traces: Traces,
}

impl RunningServer<'_> {
    async fn run(
        self,
        port: Port,
        data_port: Option<OpenDataPort>,
        announce: impl FnOnce(SocketAddr),
    ) -> Result<(), Failure> {
        let Self { settings, folder, operator, token, store, direct, .. } = self;
        let (mut store, mut signals, slot, traces) = (store, self.signals, self.slot, self.traces);
        let data_port = data_port.map(|port| store.read_in_place(port, settings));
        let data_figures = data_port.as_ref().map(ReadyDataPort::figures);
        let address = listen::address_of(&port.listener)?;
        let foreground = Arc::new(Foreground::default());
        let workers = store.start_workers(settings, folder, foreground.clone())?;
        let direct = direct.map(|listener| store.direct_server(settings, listener));
        let of_direct = direct.as_ref().map(|direct| Arc::new(direct.figures()) as DirectSource);
        let requests = Arc::new(Requests::new());
        let worker_source: WorkerSource = Arc::new(workers.statuses());
        let status = store.status_source(&operator, settings, worker_source.clone());
        let support = support::route::routes(&operator, token, &settings.common);
        operator.open(AdminParts {
            health: Arc::new(store.health()),
            metrics: metrics_of(&store)
                .with_registered(|registry| {
                    requests.register(registry);
                    if let Some(figures) = &data_figures {
                        figures.register(registry);
                    }
                })
                .with(DirectCollector(of_direct))
                .with(traces.collector())
                .with(WorkerCollector(worker_source.clone())),
            access: store.access.clone(),
            routes: admin_status::workers("server", worker_source)
                .merge(status.routes())
                .merge(event_routes::routes(store.observers.figures(), &settings.data_dir))
                .merge(store_routes(&store.objects))
                .merge(jobs::routes(store.objects.clone(), foreground.clone(), store.clock(), None))
                .merge(ring_builder::routes(store.clock()))
                .merge(store.accounts.clone())
                .merge(support),
        });
        let service =
            MeasuredService::new(store.service.clone(), requests, foreground, traces.tracer());
        slot.open(console::s3_parts(&service, address, port.certificate.is_some(), &store.access));
        let (stop, stopped) = watch::channel(false);
        let (drain, limits) = (settings.common.drain_timeout, settings.common.limits());
        let direct = direct.into_iter().map(|direct| direct.run(stopped.clone()));
        let mut tasks: JoinSet<()> = direct.collect();
        if let Some(port) = data_port {
            tasks.spawn(port.serve(limits, stopped.clone(), drain));
        }
        let serving = listen::serve(port, service, limits, stopped, drain);
        tasks.spawn(async move {
            serving.await;
        });
        announce(address);
        let signal = signals.next().await;
        tracing::info!(signal, "stopping after running requests finish");
        operator.drain();
        stop.send_replace(true);
        let close = async {
            while tasks.join_next().await.is_some() {}
            workers.stop().await;
            traces.stop().await;
            store.close().await
        };
        end(close, signals).await
    }
}

/// Returns the admin routes of buckets, objects and devices.
fn store_routes(objects: &ObjectStore) -> ApiRoutes {
    objects::extents_of(objects.clone())
        .merge(policies::routes(objects.clone()))
        .merge(quarantine::routes(objects.clone()))
        .merge(buckets::routes(objects.clone()))
}

/// Returns the metrics of a store.
fn metrics_of(store: &Store) -> Metrics {
    Metrics::default()
        .with(LogCollector(store.observers.figures()))
        .with(TargetCollector(store.observers.figures()))
        .with(QueueCollector(store.service.clone()))
        .with(WindowCollector(store.objects.clone()))
        .with(CheckpointCollector(store.checkpoint_counts.clone()))
        .with(DeviceCollector(store.device_source()))
        .with(AuditCollector(store.access.audit_logs()))
}

/// Waits for an orderly end. A second signal ends the process at once.
async fn end(
    close: impl Future<Output = Result<(), Failure>>,
    mut signals: Signals,
) -> Result<(), Failure> {
    tokio::select! {
        closed = close => closed,
        signal = signals.next() => {
            tracing::warn!(signal, "stopping immediately");
            std::process::exit(1);
        }
    }
}

//! `martlet server`: every role of the store in one process.
//!
//! ```text
//! settings ─ flags, environment, file     folder, credentials, devices, rings ─ remembered
//! listen, patient, linger ─ connections   measure, metrics, operator ─ what is told
//! clock, absent ─ stand-ins               logging, signals
//!
//! S3 clients ─▶ listen ─▶ measure ─▶ s3compat ─▶ proxy ─▶ Backend ─▶ storage-node
//!                                               replicator ──┘
//! ```
//!
//! Opening goes from the cheap refusals to the expensive work: settings, folder, credentials,
//! sockets, devices. Clients are let in last. Stopping goes the other way: no new connections,
//! requests finish, workers finish their step, devices are closed in good order.

mod absent;
mod clock;
pub(crate) mod credentials;
mod devices;
mod folder;
mod linger;
mod listen;
mod logging;
mod measure;
mod metrics;
mod operator;
mod patient;
mod rings;
pub(crate) mod settings;
mod signals;
mod store;

use std::sync::Arc;

use hyper_util::service::TowerToHyperService;
use martlet_replicator::Foreground;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use self::credentials::Credentials;
use self::folder::DataFolder;
use self::listen::Limits;
use self::measure::Measured;
use self::metrics::{Metrics, Requests};
use self::operator::{Operator, Parts};
pub(crate) use self::settings::ServerArgs;
use self::settings::Settings;
use self::signals::Signals;
use self::store::Store;
use crate::failure::Failure;

/// Bytes of all headers of a request, and of its first line.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Calls of the disk and the index under way at a time: enough to keep any disk's queue full, few
/// enough that what each of them holds stays small together. None of them waits for another.
const BLOCKING_THREADS_MAX: usize = 64;
/// Operators, and whatever scrapes metrics.
const ADMIN_CONNECTIONS: usize = 64;

/// Runs a server until it is told to stop.
pub(crate) fn run(args: &ServerArgs) -> Result<(), Failure> {
    let settings = Settings::load(args)?;
    logging::start(&settings)?;
    raise_file_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("martlet")
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .build()
        .map_err(|error| Failure::refused(format!("no runtime could be started: {error}")))?;
    runtime.block_on(serve(settings))
}

/// Connections and extents are files: take as many as are allowed.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!(%error, "the limit of open files stays as it is");
    }
}

async fn serve(settings: Settings) -> Result<(), Failure> {
    let mut signals = Signals::take()
        .map_err(|error| Failure::refused(format!("signals can't be taken: {error}")))?;
    let folder = DataFolder::open(&settings.data_dir)?;
    let (credentials, new) = Credentials::find_or_make(&settings, &folder)?;
    let s3 = listen::bind(settings.s3_address, "--s3-address").await?;
    let admin = listen::bind(settings.admin_address, "--admin-address").await?;
    let operator = Arc::new(Operator::new(credentials.admin_token()));
    let (stop_admin, stopped) = watch::channel(false);
    let admin_task = serve_admin(admin, operator.clone(), &settings, stopped)?;

    let opened = tokio::select! {
        opened = Store::open(&settings, &folder, &credentials) => opened?,
        signal = signals.next() => {
            tracing::info!(signal, "stopped before the devices were open");
            return Ok(());
        }
    };
    let outcome = Running { settings: &settings, operator, store: opened, signals }
        .run(s3, |address| {
            announce(address, &settings, new.then_some(&credentials), &folder);
        })
        .await;
    stop_admin.send_replace(true);
    let _ = admin_task.await;
    outcome
}

fn serve_admin(
    listener: TcpListener,
    operator: Arc<Operator>,
    settings: &Settings,
    stop: watch::Receiver<bool>,
) -> Result<JoinHandle<bool>, Failure> {
    let address = address_of(&listener)?;
    tracing::info!(%address, "operators connect here: /healthz, /readyz, /metrics");
    let limits = Limits { connections: ADMIN_CONNECTIONS, ..limits(settings) };
    let service = TowerToHyperService::new(operator.router());
    let drain = settings.drain_timeout;
    Ok(tokio::spawn(listen::serve(listener, service, limits, stop, drain)))
}

fn limits(settings: &Settings) -> Limits {
    Limits {
        connections: settings.max_connections,
        header_timeout: settings.header_timeout,
        write_idle: settings.body_idle_timeout,
        head_bytes: HEAD_BYTES_MAX,
    }
}

fn address_of(listener: &TcpListener) -> Result<std::net::SocketAddr, Failure> {
    listener
        .local_addr()
        .map_err(|error| Failure::refused(format!("a socket does not know its address: {error}")))
}

/// Says on standard output where the server is and, once, who may come in.
fn announce(
    address: std::net::SocketAddr,
    settings: &Settings,
    new: Option<&Credentials>,
    folder: &DataFolder,
) {
    let path = folder.join(credentials::FILE);
    println!("Martlet serves S3 at http://{address}");
    match new {
        Some(credentials) => println!("\n{}", credentials.introduction(address, &path)),
        None if settings.root_access_key.is_some() => {}
        None => println!("Credentials are in {}", path.display()),
    }
    if !address.ip().is_loopback() {
        tracing::warn!(%address, "other machines can connect, and what they send is not encrypted");
    }
}

/// A server whose store is open.
struct Running<'a> {
    settings: &'a Settings,
    operator: Arc<Operator>,
    store: Store,
    signals: Signals,
}

impl Running<'_> {
    async fn run(
        self,
        listener: TcpListener,
        announce: impl FnOnce(std::net::SocketAddr),
    ) -> Result<(), Failure> {
        let Self { settings, operator, store, mut signals } = self;
        let address = address_of(&listener)?;
        let foreground = Arc::new(Foreground::default());
        let workers = store.start_workers(settings, foreground.clone());
        let requests = Arc::new(Requests::new());
        let ask_workers: metrics::AskWorkers = Arc::new(workers.statuses());
        operator.open(Parts {
            store: store.objects.clone(),
            nodes: store.nodes(),
            metrics: Metrics::new(&requests, store.ask_devices(), ask_workers.clone()),
            workers: ask_workers,
        });
        let service = Measured::new(store.door.clone(), requests, foreground);
        let (stop, stopped) = watch::channel(false);
        let drain = settings.drain_timeout;
        let task = tokio::spawn(listen::serve(listener, service, limits(settings), stopped, drain));
        announce(address);

        let signal = signals.next().await;
        tracing::info!(signal, "stopping: requests under way may finish");
        operator.drain();
        stop.send_replace(true);
        let close = async {
            let _ = task.await;
            workers.stop().await;
            store.close().await
        };
        tokio::select! {
            closed = close => closed,
            signal = signals.next() => {
                tracing::warn!(signal, "stopping at once");
                std::process::exit(1);
            }
        }
    }
}

//! `martlet storage-node`: the devices of one machine, served to the other members of a cluster.
//!
//! ```text
//! proxies, replicators ─▶ guarded ─┬─ router ─▶ Backend ─▶ storage-node
//! other storage nodes ──▶          └─ routes: rings, introductions  ▲
//! clients with tokens ─▶ data port ─────────────────────────────────┤
//! processes of the machine ─▶ direct socket ────────────────────────┘
//! ```
//!
//! The start does cheap checks before expensive work: settings, key, folder, rings, sockets, the
//! cluster time, devices. Once the node serves, its devices are introduced to the other nodes. New
//! devices get their votes then (rule G1).

mod configured_devices;
mod devices;
mod introduced;
mod operator;
mod requests;
mod settings;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use axum::middleware::from_fn_with_state;
use futures::FutureExt;
use martlet_data_port::DataPortFigures;
use martlet_membership::routes::{self, Host};
use martlet_membership::{
    ClusterSecret, Introducer, Member, MemberRole, NodeCollector, Peers, RingCollector,
    StatusSource,
};
use martlet_protocol::http::{
    DataPortTag, ServeOptions, ServerOptions, Tls, guarded, router, serve as serve_members,
};
use martlet_protocol::tree::TreeKey;
use martlet_protocol::{Backend, DeviceId};
use martlet_serving::folder::DataFolder;
use martlet_serving::metrics::Metrics;
use martlet_serving::operator::{AdminParts, Operator};
use martlet_serving::traces::{TracedProcess, Traces};
use martlet_serving::{Failure, Signals, Size, listen, logging, runtime, wait_for_stop};
use martlet_storage_node::{DeviceConfig, DirectListener, NodeOptions, Reserve, StorageNode, Uuid};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::configured_devices::ConfiguredDevices;
use self::introduced::IntroducedNode;
use self::operator::OpenNode;
pub(crate) use self::settings::{
    ADMIN_PORT, DATA_DIR, DeviceArgs, StorageNodeArgs, StorageNodeSettings,
};
use crate::policies::check_cpu;
use crate::process::admin_access;
use crate::process::data_port::OpenDataPort;
use crate::process::direct::DirectSource;
use crate::process::host::RoleHost;
use crate::process::memory::{MachineShare, MemorySplit, NODE_BODY_BYTES};
use crate::process::metrics::{DeviceCollector, DirectCollector};

/// Runs a storage node until a signal stops it.
pub(crate) fn run(args: &StorageNodeArgs) -> Result<(), Failure> {
    let settings = StorageNodeSettings::load(args)?;
    logging::start(&settings.common)?;
    let threads = settings.common.max_threads;
    runtime::run(threads, async { serve(settings, RoleHost::own_process()?).await })
}

/// Runs a storage node in this process until a signal stops it.
pub(crate) async fn serve(settings: StorageNodeSettings, host: RoleHost) -> Result<(), Failure> {
    let RoleHost { mut signals, admin, .. } = host;
    let name: Arc<str> = settings.member.name()?.into();
    let secret = settings.member.secret()?;
    let folder = Arc::new(DataFolder::open(&settings.member.data_dir(DATA_DIR))?);
    let member = Member::open(&settings.member, &secret, folder.clone(), MemberRole::Node(&name))?;
    check_cpu(member.keeper.rings().data().map(|(_, ring)| &**ring))?;
    let devices = Arc::new(devices::by_id(&member.keeper.rings(), &name, &settings.devices)?);
    let peers = Arc::new(Peers::load(&folder)?);
    let internal = listen::bind(settings.internal_address, "--internal-address").await?;
    let host =
        member.keeper.rings().addresses().get(&*name).and_then(|it| host_of(it).map(str::to_owned));
    let data_port = settings.data_port.listen(None, host.as_deref()).await?;
    let direct = settings.direct.bind()?;
    let address = settings.member.admin_address(ADMIN_PORT);
    let (operator, answering) = admin.serve(address, vec![secret.token], &settings.common).await?;
    let opening = async {
        // Opening devices needs the cluster time.
        member.round().await;
        member.check_level()?;
        open(&settings, &member, &devices, secret.tree).await
    };
    let node = tokio::select! {
        opened = opening => opened?,
        signal = signals.next() => {
            tracing::info!(signal, "stopped before the devices were open");
            return Ok(());
        }
    };
    // Read before any reply is sent: a term that a device has stored is never forgotten (rule P3).
    for device in node.devices().await.unwrap_or_default() {
        member.keeper.receive_term(device.term);
    }
    follow_level(&member, &node).await?;
    let reserve = reserve(&settings);
    let opened = OpenNode {
        name: name.clone(),
        member: member.clone(),
        node,
        devices,
        reserve,
        opened: Instant::now(),
    };
    let status = StatusSource::new(&format!("storage node {name}"), &operator, &member);
    let status = status.with_devices(opened.device_source()).with_memory(memory(&settings).line());
    let host = Host { name, member, peers, folder, report: status.report_source() };
    let settings = &settings;
    let traced = TracedProcess { role: "storage-node", name: &opened.name, zone: opened.zone() };
    let traces = Traces::open(&settings.common.traces, &traced)?;
    let running = RunningNode {
        settings,
        secret,
        opened,
        direct,
        host,
        status,
        operator,
        signals,
        traces: &traces,
    };
    let outcome = running.run(internal, data_port).await;
    traces.stop().await;
    answering.end().await;
    outcome
}

async fn open(
    settings: &StorageNodeSettings,
    member: &Member,
    devices: &BTreeMap<DeviceId, PathBuf>,
    tree_key: TreeKey,
) -> Result<Arc<StorageNode>, Failure> {
    let (reserve, rings) = (reserve(settings), member.keeper.rings());
    let config = |(id, path): (&DeviceId, &PathBuf)| {
        tracing::info!(device = %id, path = %path.display(), "opening a device");
        let place = rings.places().get(id);
        let place = place.map(|it| format!("{}/{}", it.node, it.device)).unwrap_or_default();
        DeviceConfig { reserve, place, ..DeviceConfig::new(*id, path) }
    };
    let configs = devices.iter().map(config).collect();
    // Devices of another cluster are refused: all index rings of a cluster share a lineage.
    let cluster = member.keeper.rings().index().map(|ring| Uuid(ring.identity().lineage));
    let options = NodeOptions {
        clock: member.clock.clone(),
        cluster,
        votes_when_new: false,
        introduced: true,
        format_level: member.level.get(),
        tree_key,
        lends: settings.direct.lends(),
        rings: Some(member.keeper.data_epochs()),
        ..memory(settings).node_options()
    };
    tokio::task::spawn_blocking(move || StorageNode::open(configs, options))
        .await
        .map_err(|error| Failure::refused(format!("opening the devices failed: {error}")))?
        .map(Arc::new)
        .map_err(|error| Failure::refused(format!("no device could be opened: {error}")))
}

fn memory(settings: &StorageNodeSettings) -> MemorySplit {
    let (share, devices) = (MachineShare::Quarter, settings.devices.len());
    MemorySplit::new(settings.memory, share, NODE_BODY_BYTES, devices)
}

fn reserve(settings: &StorageNodeSettings) -> Reserve {
    settings.reserve.map_or(Reserve::Standard, |Size(bytes)| Reserve::Bytes(bytes))
}

/// Storage node whose devices are open.
struct RunningNode<'a> {
    settings: &'a StorageNodeSettings,
    secret: ClusterSecret,
    opened: OpenNode,
    direct: Option<DirectListener>,
    host: Host,
    status: StatusSource,
    operator: Arc<Operator>,
    signals: Signals,
    traces: &'a Traces,
}

impl RunningNode<'_> {
    async fn run(
        mut self,
        internal: TcpListener,
        data_port: Option<OpenDataPort>,
    ) -> Result<(), Failure> {
        let address = listen::address_of(&internal)?;
        let (stop, stopped) = watch::channel(false);
        let tls = self.settings.member.tls()?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = data_port.as_ref().map(|port| port.known_as.url.clone());
        let mut tasks = self.start(internal, data_port, tls, &stopped);
        let Self { opened, operator, mut signals, .. } = self;
        println!("Martlet storage node {} listens at {scheme}://{address}", opened.name);
        if let Some(url) = url {
            println!("Clients read in place at {url}");
        }

        let signal = signals.next().await;
        tracing::info!(signal, "stopping after running requests finish");
        operator.drain();
        stop.send_replace(true);
        let close = async {
            while tasks.join_next().await.is_some() {}
            opened.node.shutdown().await.map_err(|error| {
                Failure::refused(format!("a device could not be closed cleanly: {error}"))
            })
        };
        tokio::select! {
            closed = close => closed,
            signal = signals.next() => {
                tracing::warn!(signal, "stopping immediately");
                std::process::exit(1);
            }
        }
    }

    /// Starts the server of the direct socket, if one is set; returns the source of its figures.
    fn start_direct(
        &mut self,
        tasks: &mut JoinSet<()>,
        stopped: &watch::Receiver<bool>,
    ) -> Option<DirectSource> {
        let listener = self.direct.take()?;
        let OpenNode { member, node, .. } = &self.opened;
        let key = self.secret.extents.clone();
        let server = self.settings.direct.server(listener, node, key, member.clock.clone());
        let figures: DirectSource = Arc::new(server.figures());
        tasks.spawn(server.run(stopped.clone()));
        Some(figures)
    }

    /// Starts all tasks that run until `stopped`.
    fn start(
        &mut self,
        internal: TcpListener,
        data_port: Option<OpenDataPort>,
        tls: Option<Tls>,
        stopped: &watch::Receiver<bool>,
    ) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        let of_direct = self.start_direct(&mut tasks, stopped);
        let OpenNode { member, node, .. } = &self.opened;
        let options = ServerOptions {
            in_flight_max: self.settings.max_requests,
            call_observer: Some(Arc::new(requests::log_call)),
            spans: self.traces.sink(),
            ..ServerOptions::default()
        };
        let announcing = member.clone();
        let tag = data_port.as_ref().map(|port| DataPortTag::new(&port.known_as));
        let given = ConfiguredDevices::new(node.clone(), self.opened.devices.clone());
        let app = guarded(
            router(Arc::new(given), options)
                .layer(from_fn_with_state(self.traces.sink(), requests::with_request_id))
                .merge(routes::router(self.host.clone())),
            self.secret.key.clone(),
            member.own_clock.clone(),
            Arc::new(move || announcing.announcement().with_data_port(tag.clone())),
        );
        let drain = self.settings.common.drain_timeout;
        let serving = ServeOptions { drain, tls, ..ServeOptions::default() };
        let mut stop = stopped.clone();
        let until = async move { wait_for_stop(&mut stop).await };
        tasks.spawn(serve_members(internal, app, serving, until));
        tasks.spawn(member.clone().keep_up(stopped.clone()));
        let role = format!("storage node {}", self.opened.name);
        let introduced = Arc::new(IntroducedNode(node.clone()));
        tasks.spawn(Introducer::new(self.host.clone(), introduced).run(stopped.clone()));
        tasks.spawn(watch_rings(self.opened.clone(), stopped.clone()));
        let figures = self.serve_data_port(data_port, stopped, &mut tasks);
        self.operator.open(AdminParts {
            health: Arc::new(self.opened.clone()),
            metrics: self.metrics(figures.as_deref()).with(DirectCollector(of_direct)),
            routes: self.status.clone().routes(),
            access: admin_access::of_member(&role, &self.secret.tokens, member.clock.clone()),
        });
        tasks
    }

    /// Starts the data port, if there is one, and returns its counters.
    fn serve_data_port(
        &self,
        data_port: Option<OpenDataPort>,
        stopped: &watch::Receiver<bool>,
        tasks: &mut JoinSet<()>,
    ) -> Option<Arc<DataPortFigures>> {
        let OpenNode { member, node, .. } = &self.opened;
        let common = &self.settings.common;
        let key = self.secret.extents.clone();
        let port = data_port?.ready(node.clone(), key, member.clock.clone(), common.min_body_rate);
        let figures = port.figures();
        tasks.spawn(port.serve(common.limits(), stopped.clone(), common.drain_timeout));
        Some(figures)
    }

    fn metrics(&self, data_port: Option<&DataPortFigures>) -> Metrics {
        let OpenNode { member, node, .. } = &self.opened;
        let traces = self.traces.collector();
        let (node, nodes, rings) = (node.clone(), member.clone(), member.clone());
        Metrics::default()
            .with_registered(|registry| {
                if let Some(figures) = data_port {
                    figures.register(registry);
                }
            })
            .with(DeviceCollector(Arc::new(move || node.metrics().devices)))
            .with(traces)
            .with(RingCollector(Arc::new(move || rings.ring_lines())))
            .with(NodeCollector(Arc::new(move || nodes.nodes.figures())))
    }
}

/// Raises the devices with the format level of the cluster, and the level to that of the devices.
async fn follow_level(member: &Member, node: &Arc<StorageNode>) -> Result<(), Failure> {
    let raised = node.clone();
    member.level.set_devices(Arc::new(move |level| {
        let node = raised.clone();
        async move { node.raise_format_level(level).await.map_err(|error| error.to_string()) }
            .boxed()
    }));
    let raised = member.level.raise(node.format_level()).await;
    raised.map(|_| ()).map_err(Failure::refused)
}

/// Host in the address of a node, `HOST:PORT`.
fn host_of(address: &str) -> Option<&str> {
    address.rsplit_once(':').map(|(host, _)| host)
}

/// Logs the devices that the rings assign to this node but that have no configured folder.
async fn watch_rings(opened: OpenNode, mut stop: watch::Receiver<bool>) {
    let mut changes = opened.member.keeper.changes();
    loop {
        let rings = opened.member.keeper.rings();
        for device in devices::missing(&rings, &opened.name, &opened.devices) {
            tracing::error!(
                device,
                "a device of this node in the rings is not configured: name it in [devices] and \
                 restart"
            );
        }
        tokio::select! {
            () = wait_for_stop(&mut stop) => return,
            changed = changes.changed() => if changed.is_err() { return },
        }
    }
}

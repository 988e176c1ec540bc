//! `martlet proxy`: the S3 port of a cluster, over remote storage nodes.
//!
//! ```text
//! S3 clients ─▶ listen ─▶ measure ─▶ s3compat ─▶ proxy ─▶ HttpBackend ─▶ storage nodes
//!                                                  ▲
//!                              newer rings ── membership
//! ```
//!
//! It stores only rings, spooled events and logs. Any number of proxies may run side by side.

mod cluster;
mod first;
mod operator;
mod settings;

use std::sync::Arc;

use martlet_admin_server::jobs::{self, JobsCluster};
use martlet_admin_server::{accounts, buckets, objects, policies, quarantine, ring_builder};
use martlet_console::S3Slot;
use martlet_membership::{
    ClusterSecret, Member, MemberRole, NodeCollector, RingCollector, StatusSource,
};
use martlet_notifications::{LogCollector, ObserverSource, TargetCollector};
use martlet_protocol::Clock;
use martlet_proxy::{Accounts, ObjectStore};
use martlet_replicator::Foreground;
use martlet_s3compat::{InPlaceConfig, S3Service};
use martlet_serving::access::AdminAccess;
use martlet_serving::api::ApiRoutes;
use martlet_serving::audit::AuditCollector;
use martlet_serving::folder::DataFolder;
use martlet_serving::listen::{self, Port};
use martlet_serving::metrics::Metrics;
use martlet_serving::operator::{AdminParts, Operator};
use martlet_serving::traces::{TracedProcess, Traces};
use martlet_serving::{AdminToken, Failure, Signals, logging, runtime};
use martlet_topology::{Cluster, Topology};
use tokio::sync::watch;
use tokio::task::JoinSet;

pub(crate) use self::first::FirstArgs;
use self::first::NewCluster;
use self::operator::ProxyHealth;
pub(crate) use self::settings::{ADMIN_PORT, DATA_DIR, ProxyArgs, ProxySettings};
use crate::process::admin_access::{self, AccountProcess};
use crate::process::console;
use crate::process::event_routes;
use crate::process::host::{RoleAdmin, RoleHost};
use crate::process::measure::MeasuredService;
use crate::process::metrics::{QueueCollector, Requests, WindowCollector};
use crate::process::observers::ObserverTasks;
use crate::process::s3_port::S3Secrets;
use crate::support;

/// Runs a proxy until a signal stops it.
pub(crate) fn run(args: &ProxyArgs) -> Result<(), Failure> {
    let settings = ProxySettings::load(args)?;
    logging::start(&settings.common)?;
    let threads = settings.common.max_threads;
    runtime::run(threads, async { serve(settings, RoleHost::own_process()?).await })
}

/// Runs a proxy in this process until a signal stops it.
pub(crate) async fn serve(settings: ProxySettings, host: RoleHost) -> Result<(), Failure> {
    let RoleHost { mut signals, admin, s3: slot } = host;
    let has_address = matches!(admin, RoleAdmin::Own);
    let name = settings.member.name()?.to_owned();
    let secret = settings.member.secret()?;
    let (access_key, root_secret) = settings.root()?;
    let folder = Arc::new(DataFolder::open(&settings.member.data_dir(DATA_DIR))?);
    let member = Member::open(&settings.member, &secret, folder.clone(), MemberRole::Proxy)?;
    let changes = member.keeper.changes();
    let cluster = cluster::of(&member, &member.keeper.rings(), &settings.s3)?;
    let s3 = settings.s3.listen().await?;
    let address = settings.member.admin_address(ADMIN_PORT);
    let tokens = vec![AdminToken::of(root_secret.0.as_bytes()), secret.token];
    let (operator, answering) = admin.serve(address, tokens, &settings.common).await?;
    let console = settings.serve_console(&operator, &slot, &settings.common).await?;
    // Stamps need the cluster time, which the first round provides.
    tokio::select! {
        () = member.round() => {}
        signal = signals.next() => {
            tracing::info!(signal, "stopped before contacting a node");
            return Ok(());
        }
    }
    member.check_level()?;
    let store = store_of(&settings, &member, cluster)?;
    let secrets = S3Secrets { access_key, secret_key: root_secret, tokens: &secret.tokens };
    let accounts = Accounts::new(store.clone(), settings.s3.vault()?.unwrap_or_default());
    let clock: Arc<dyn Clock> = member.clock.clone();
    let observers = ObserverTasks::open(&settings.s3, &settings.events, &folder, &store, &clock)?;
    let service =
        settings.s3.open(store.clone(), clock, secrets, accounts.clone(), &settings.common)?;
    let in_place = in_place_of(&store, &member, &secret);
    let service = service.observed_by(observers.requests.clone()).reading_in_place(in_place);
    let ((stop, stopped), mut tasks) = (watch::channel(false), JoinSet::new());
    tasks.spawn(member.clone().keep_up(stopped.clone()));
    let following = settings.s3.clone();
    tasks.spawn(cluster::follow_rings(store.clone(), member.clone(), following, changes, stopped));
    seal_secrets(&settings, &accounts);
    let new_cluster = NewCluster { accounts: accounts.clone(), store: store.clone(), folder };
    if let Some(first) = settings.first.open()? {
        tokio::spawn(new_cluster.fill(first));
    }
    let (routes, access) = open_accounts(&settings, &secret, &member, accounts, &store).await?;
    let archive = archive_route(has_address, &operator, &secret, &settings);
    let traced = TracedProcess { role: "proxy", name: &name, zone: None };
    let traces = Traces::open(&settings.common.traces, &traced)?;
    let running = RunningProxy {
        settings: &settings,
        traces: &traces,
        name,
        member,
        store,
        service: admin_access::recording(service, &access),
        routes: routes.merge(archive),
        access,
        figures: observers.figures(),
        operator,
        signals,
        slot,
    };
    let outcome = running.run(s3).await;
    traces.stop().await;
    observers.stop().await;
    stop.send_replace(true);
    while tasks.join_next().await.is_some() {}
    tokio::join!(console.end(), answering.end());
    outcome
}

fn store_of(
    settings: &ProxySettings,
    member: &Member,
    cluster: Cluster,
) -> Result<ObjectStore, Failure> {
    let vault = settings.s3.sse_vault()?.unwrap_or_default();
    let options = settings.s3.store_options()?;
    let topology = Topology::with_term(cluster, member.keeper.known_term());
    Ok(ObjectStore::with_vault(topology, member.clock.clone(), options, vault))
}

/// Opens the accounts of the admin API, with the audit log of the proxy.
async fn open_accounts(
    settings: &ProxySettings,
    secret: &ClusterSecret,
    member: &Member,
    accounts: Accounts,
    store: &ObjectStore,
) -> Result<(ApiRoutes, Arc<AdminAccess>), Failure> {
    let process = AccountProcess {
        common: &settings.common,
        data_dir: &settings.member.data_dir(DATA_DIR),
        name: &format!("proxy {}", settings.member.name()?),
        random: &secret.tokens,
        clock: member.clock.clone(),
        root_key: settings.root()?.0,
    };
    Ok(process.open(accounts, store.clone()).await)
}

/// Returns the route of archives for support. A process with several roles has one for all of them.
fn archive_route(
    has_address: bool,
    operator: &Arc<Operator>,
    secret: &ClusterSecret,
    settings: &ProxySettings,
) -> ApiRoutes {
    if has_address {
        support::route::routes(operator, secret.token, &settings.common)
    } else {
        ApiRoutes::new()
    }
}

/// Seals the secrets of access keys that were stored in clear, if the settings permit it.
fn seal_secrets(settings: &ProxySettings, accounts: &Accounts) {
    if settings.s3.seal_secrets {
        tokio::spawn(accounts::seal_secrets(accounts.clone()));
    }
}

/// Makes the data ports that nodes announce known to the object layer, and returns the
/// configuration of reads through them.
fn in_place_of(store: &ObjectStore, member: &Arc<Member>, secret: &ClusterSecret) -> InPlaceConfig {
    let nodes = member.clone();
    let data_ports = move |node: &str| nodes.nodes.get(node)?.history.data_port();
    store.topology().set_data_ports(Arc::new(data_ports));
    InPlaceConfig::new(secret.extents.clone(), u64::MAX)
}

/// Proxy with an open member and object layer.
struct RunningProxy<'a> {
    settings: &'a ProxySettings,
    traces: &'a Traces,
    name: String,
    member: Arc<Member>,
    store: ObjectStore,
    service: S3Service,
    /// Admin routes of tenants, users, roles, keys, quotas and admin keys.
    routes: ApiRoutes,
    /// Means to admit requests to admin routes.
    access: Arc<AdminAccess>,
    /// Source of the observers' metrics.
    figures: ObserverSource,
    operator: Arc<Operator>,
    signals: Signals,
    /// Place of the S3 service for the console.
    slot: S3Slot,
}

impl RunningProxy<'_> {
    async fn run(self, port: Port) -> Result<(), Failure> {
        let Self { settings, traces, name, member, store, service, routes, .. } = self;
        let (access, figures) = (self.access, self.figures);
        let (operator, mut signals, slot) = (self.operator, self.signals, self.slot);
        let of_console = access.clone();
        let address = listen::address_of(&port.listener)?;
        let requests = Arc::new(Requests::new());
        let foreground = Arc::new(Foreground::default());
        let [nodes, rings] = [(); 2].map(|()| member.clone());
        let clock: Arc<dyn Clock> = member.clock.clone();
        let status = StatusSource::new(&format!("proxy {name}"), &operator, &member);
        member.introduce_itself(status.report_source());
        let of_jobs = JobsCluster { member: member.clone(), obstacles: status.hold_obstacles() };
        operator.open(AdminParts {
            health: Arc::new(ProxyHealth(member.clone())),
            metrics: Metrics::default()
                .with_registered(|registry| requests.register(registry))
                .with(LogCollector(figures.clone()))
                .with(TargetCollector(figures.clone()))
                .with(QueueCollector(service.clone()))
                .with(WindowCollector(store.clone()))
                .with(AuditCollector(access.audit_logs()))
                .with(traces.collector())
                .with(RingCollector(Arc::new(move || rings.ring_lines())))
                .with(NodeCollector(Arc::new(move || nodes.nodes.figures()))),
            access,
            routes: status
                .routes()
                .merge(event_routes::routes(figures, &settings.member.data_dir(DATA_DIR)))
                .merge(objects::extents_of(store.clone()))
                .merge(policies::routes(store.clone()))
                .merge(quarantine::routes(store.clone()))
                .merge(buckets::routes(store.clone()))
                .merge(jobs::routes(store, foreground.clone(), clock.clone(), Some(of_jobs)))
                .merge(ring_builder::routes(clock))
                .merge(routes),
        });
        let service = MeasuredService::new(service, requests, foreground, traces.tracer());
        slot.open(console::s3_parts(&service, address, port.certificate.is_some(), &of_console));
        let (stop, stopped) = watch::channel(false);
        let drain = settings.common.drain_timeout;
        let serving = listen::serve(port, service, settings.common.limits(), stopped, drain);
        let task = tokio::spawn(serving);
        settings.s3.announce(address);

        let signal = signals.next().await;
        tracing::info!(signal, "stopping after running requests finish");
        operator.drain();
        stop.send_replace(true);
        tokio::select! {
            _ = task => Ok(()),
            signal = signals.next() => {
                tracing::warn!(signal, "stopping immediately");
                std::process::exit(1);
            }
        }
    }
}

//! `martlet node`: all roles of a machine in one process.
//!
//! ```text
//!              ┌─▶ storage node ◀─┐ stops last
//! signals ──▶ node ─▶ proxy       ├─ health, metrics, routes ─▶ one admin address
//!              └─▶ replicator ────┘
//! ```
//!
//! Each role is what it is in a process of its own, with its own state, rings and connections. So a
//! proxy reaches the storage node beside it over the network like any other.

mod settings;

use std::sync::Arc;

use async_trait::async_trait;
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use martlet_console::S3Slot;
use martlet_deploy::NodeRole;
use martlet_serving::access::AdminAccess;
use martlet_serving::api::ApiRoutes;
use martlet_serving::metrics::Metrics;
use martlet_serving::operator::{self as admin, AdminParts, Health, Operator, RoleCondition};
use martlet_serving::{AdminToken, Failure, Signals, logging, runtime};
use tokio::sync::mpsc;

pub(crate) use self::settings::{DATA_DIR, NodeArgs, NodeSettings};
use crate::process::console::{ConsoleSettings, RunningConsole};
use crate::process::host::{RoleAdmin, RoleHost};
use crate::{proxy, replicator, storage_node, support};

/// Returns the names of all settings of `martlet node`.
pub(crate) fn setting_names() -> Vec<&'static str> {
    let mut names = NodeSettings::names();
    names.extend(martlet_serving::settings::CommonSettings::NAMES);
    names
}

/// Runs all roles of a machine until a signal stops them.
pub(crate) fn run(args: &NodeArgs) -> Result<(), Failure> {
    let settings = NodeSettings::load(args)?;
    logging::start(&settings.common)?;
    runtime::run(settings.common.max_threads, serve(settings))
}

/// Outcome of a role.
type RoleEnd = (NodeRole, Result<(), Failure>);

/// A role of this process.
struct RunningRole {
    role: NodeRole,
    operator: Arc<Operator>,
    /// Signals to the role.
    signals: mpsc::UnboundedSender<&'static str>,
}

/// All roles of this process.
#[derive(Default)]
struct RoleSet {
    roles: Vec<RunningRole>,
    futures: FuturesUnordered<LocalBoxFuture<'static, RoleEnd>>,
}

impl RoleSet {
    /// Adds a role, whose admin address is the process's.
    fn add<F>(&mut self, role: NodeRole, address: std::net::SocketAddr, serve: F)
    where
        F: FnOnce(RoleHost) -> LocalBoxFuture<'static, Result<(), Failure>>,
    {
        let operator = Arc::new(Operator::of_role(address));
        let (signals, relay) = mpsc::unbounded_channel();
        let admin = RoleAdmin::Shared(operator.clone());
        let signals_of_role = Signals::relayed(relay);
        let running = serve(RoleHost { signals: signals_of_role, admin, s3: S3Slot::default() });
        self.futures.push(running.map(move |outcome| (role, outcome)).boxed_local());
        self.roles.push(RunningRole { role, operator, signals });
    }

    /// Sends a signal to the roles that `which` accepts.
    fn send(&self, signal: &'static str, which: impl Fn(NodeRole) -> bool) {
        for running in self.roles.iter().filter(|running| which(running.role)) {
            // A role that has ended takes no signal.
            let _ = running.signals.send(signal);
        }
    }

    /// Names and states of the roles.
    fn operators(&self) -> Vec<(NodeRole, Arc<Operator>)> {
        self.roles.iter().map(|running| (running.role, running.operator.clone())).collect()
    }
}

async fn serve(mut settings: NodeSettings) -> Result<(), Failure> {
    let signals = Signals::take()?;
    let address = settings.admin_address();
    let token = settings.member.secret()?.token;
    let mut tokens = vec![token];
    if let Some(proxy) = &settings.proxy {
        tokens.push(AdminToken::of(proxy.root()?.1.0.as_bytes()));
    }
    let port = admin::bind(address, &settings.common).await?;
    let operator = Arc::new(Operator::new(tokens));
    let answering = operator.clone().serve(port, &settings.common);
    let slot = S3Slot::default();
    let console = match &mut settings.proxy {
        // The console needs the gate of the whole process, so that the proxy has none of its own.
        Some(proxy) => {
            let running = proxy.serve_console(&operator, &slot, &settings.common).await?;
            proxy.console = ConsoleSettings::default();
            running
        }
        None => RunningConsole::default(),
    };
    let mut set = RoleSet::default();
    if let Some(proxy) = settings.proxy {
        set.add(NodeRole::Proxy, address, |host| {
            proxy::serve(proxy, RoleHost { s3: slot, ..host }).boxed_local()
        });
    }
    if let Some(node) = settings.storage_node {
        set.add(NodeRole::StorageNode, address, |host| {
            storage_node::serve(node, host).boxed_local()
        });
    }
    if let Some(workers) = settings.replicator {
        set.add(NodeRole::Replicator, address, |host| {
            replicator::serve(workers, host).boxed_local()
        });
    }
    let support = support::route::routes(&operator, token, &settings.common);
    tokio::spawn(open(operator.clone(), set.operators(), support));
    let outcome = run_roles(set, signals, &operator).await;
    console.end().await;
    answering.end().await;
    outcome
}

/// Opens the admin address once all roles are open.
async fn open(operator: Arc<Operator>, roles: Vec<(NodeRole, Arc<Operator>)>, support: ApiRoutes) {
    let mut metrics = Metrics::default();
    for (role, of_role) in &roles {
        of_role.wait_open().await;
        let of_role = of_role.clone();
        metrics = metrics.with_role(role.name(), Box::new(move || of_role.metrics_text()));
    }
    // The proxy comes first: it has the routes of all other roles, and more.
    let routes = roles.iter().find_map(|(_, of_role)| of_role.protected_routes());
    let (routes, access) = routes.unwrap_or_default();
    let of_roles = roles.iter().filter_map(|(_, of_role)| of_role.protected_routes());
    let names = of_roles.flat_map(|(_, access)| access.roles.clone()).collect();
    let access = Arc::new(AdminAccess { roles: names, ..AdminAccess::clone(&access) });
    let routes = routes.merge(support);
    operator.open(AdminParts { health: Arc::new(MachineHealth(roles)), metrics, routes, access });
}

/// Runs all roles to their ends. The first signal, or the end of a role, stops the proxy and the
/// replicator, and then the storage node.
async fn run_roles(
    mut set: RoleSet,
    mut signals: Signals,
    operator: &Operator,
) -> Result<(), Failure> {
    let is_last = |role: NodeRole| role == NodeRole::StorageNode;
    let mut stopping = None;
    let mut outcome = Ok(());
    while !set.futures.is_empty() {
        let cause = tokio::select! {
            signal = signals.next() => {
                if stopping.is_some() {
                    tracing::warn!(signal, "stopping immediately");
                    std::process::exit(1);
                }
                signal
            }
            Some((role, ended)) = set.futures.next() => {
                if let Err(failure) = ended {
                    tracing::error!(role = role.name(), error = %failure, "a role has ended");
                    outcome = outcome.and(Err(failure));
                }
                set.roles.retain(|running| running.role != role);
                "the end of another role"
            }
        };
        if stopping.is_none() {
            operator.drain();
            set.send(cause, |role| !is_last(role));
            stopping = Some(cause);
        }
        if set.roles.iter().all(|running| is_last(running.role)) {
            set.send(cause, is_last);
            // Another signal to a role that is stopping would end the process at once.
            set.roles.clear();
        }
    }
    outcome
}

/// Source of a machine's condition: it serves while all its roles do.
struct MachineHealth(Vec<(NodeRole, Arc<Operator>)>);

#[async_trait]
impl Health for MachineHealth {
    async fn condition(&self) -> RoleCondition {
        let mut all = RoleCondition { serves: true, reasons: Vec::new() };
        for (role, operator) in &self.0 {
            let readiness = operator.readiness().await;
            all.serves &= readiness.ready;
            let reasons = readiness.reasons.into_iter();
            all.reasons.extend(reasons.map(|reason| format!("{}: {reason}", role.name())));
        }
        all
    }
}

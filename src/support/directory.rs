//! Processes of a cluster by the reports of a status: their roles, and an address or the reason for none.
//!
//! A report has the address on which its process listens. Each machine has a loopback interface, and any
//! process can listen on all addresses of its machine. So such an address is one of the machine from
//! which the report came, and roles share a process only on one machine.
//!
//! Invariants:
//! * Each report is in the list. A process that can't be reached has a reason, with its remedy.
//! * A loopback address is in the list only for processes on the machine of the requester.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use martlet_admin_api::{ProcessReport, ServerStatus};

use crate::admin::address::AdminAddress;

/// Most other processes that are read.
pub(super) const OTHERS_MAX: usize = 255;
const PREFIXES: [&str; 3] = ["storage node ", "proxy ", "replicator "];
const NO_REPORT: &str = "the process does not answer: its report is missing";
const NO_ADDRESS: &str =
    "its report has no admin address: upgrade the process, or wait for its start";
const LOOPBACK: &str = "it listens on the loopback interface of its machine alone: set admin_address to an \
                        address of the machine, with admin_tls_certificate and admin_tls_key (tls.admin in \
                        cluster.toml)";
const UNKNOWN: &str = "it listens on all addresses of its machine, and no node reports from which of them \
                       it comes: set admin_address to one of them, or upgrade the storage nodes";

/// Process of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListedProcess {
    /// Name that no other process of the list has: the first role and name.
    pub(crate) name: String,
    /// Roles and names at the address, that with the most routes first.
    pub(crate) roles: Vec<String>,
    /// Admin address, or the reason for which the process can't be read.
    pub(crate) address: Result<AdminAddress, String>,
    /// True if the process is on another machine, and by its settings can be read there alone.
    pub(crate) is_private: bool,
    /// True for the process that returned the status.
    pub(crate) own: bool,
}

/// Process that returned a status.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replier<'a> {
    pub(crate) address: &'a AdminAddress,
    /// True if the requester is on the machine of the process.
    pub(crate) is_here: bool,
}

/// Returns true for roles with an S3 port, which have accounts, an audit log and jobs.
pub(crate) fn has_s3(role: &str) -> bool {
    role == "server" || role.starts_with("proxy ")
}

/// Returns true for roles that send events to targets.
pub(super) fn has_targets(role: &str) -> bool {
    has_s3(role) || role.starts_with("replicator ")
}

/// Position of a role in the order of the number of routes.
fn rank(role: &str) -> usize {
    [has_s3(role), has_targets(role)].into_iter().position(|is_it| is_it).unwrap_or(2)
}

/// Lists the processes that a status names: that which returned it first, the others by their names. Beyond
/// [`OTHERS_MAX`] others one entry has the number of the rest.
pub(crate) fn processes(status: &ServerStatus, replier: Replier<'_>) -> Vec<ListedProcess> {
    let mut groups = Groups::new(status);
    for node in &status.nodes {
        match &node.report {
            Some(report) => groups.add(report, host_of(&node.address)),
            None => groups.add_silent(format!("storage node {}", node.name)),
        }
    }
    for member in &status.members {
        let host = member.sender.map(|sender| sender.to_canonical().to_string());
        groups.add(&member.report, host);
    }
    let mut all = groups.all.into_iter().map(|group| group.listed(replier));
    let mut list: Vec<ListedProcess> = all.next().into_iter().collect();
    let mut others: Vec<ListedProcess> = all.collect();
    // Those with the most routes are read.
    others
        .sort_by(|one, other| (rank(&one.name), &one.name).cmp(&(rank(&other.name), &other.name)));
    let further = cut(&mut others);
    others.sort_by(|one, other| one.name.cmp(&other.name));
    list.extend(others);
    list.extend(further);
    distinguish_equal_names(&mut list);
    list
}

/// Removes the processes beyond [`OTHERS_MAX`] that have an address, and returns one entry for them.
fn cut(others: &mut Vec<ListedProcess>) -> Option<ListedProcess> {
    let (mut kept, mut cut, mut kinds) = (0, 0, BTreeMap::new());
    others.retain(|process| {
        kept += usize::from(process.address.is_ok());
        let is_kept = kept <= OTHERS_MAX || process.address.is_err();
        if !is_kept {
            cut += 1;
            for role in &process.roles {
                kinds.entry(rank(role)).or_insert_with(|| role.clone());
            }
        }
        is_kept
    });
    let reason = format!(
        "one process reads {OTHERS_MAX} others at most: open the console of these, or name them to a \
         command with --admin-address"
    );
    (cut > 0).then(|| ListedProcess {
        name: format!("{cut} further processes"),
        roles: kinds.into_values().collect(),
        address: Err(reason),
        is_private: false,
        own: false,
    })
}

/// Adds addresses to equal names.
fn distinguish_equal_names(list: &mut [ListedProcess]) {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for process in list.iter() {
        *counts.entry(process.name.clone()).or_default() += 1;
    }
    let mut taken: BTreeSet<String> = BTreeSet::new();
    for process in list {
        if counts[&process.name] > 1 && !process.own {
            let address = process
                .address
                .as_ref()
                .map_or("an unknown address".to_owned(), ToString::to_string);
            process.name = format!("{} at {address}", process.name);
        }
        let (name, mut number) = (process.name.clone(), 1);
        while !taken.insert(process.name.clone()) {
            number += 1;
            process.name = format!("{name} ({number})");
        }
    }
}

/// Machine of a process, as far as the status shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Machine {
    /// That of the process that returned the status.
    Own,
    /// Another one, by an IP address or a host name.
    Host(String),
    Unknown,
}

/// Reports of one process.
struct Group {
    roles: Vec<String>,
    admin: Option<SocketAddr>,
    machine: Machine,
    own: bool,
    /// Reason for a process without a report.
    silent: Option<&'static str>,
}

/// Reports by process. The first group is that of the process that returned the status.
struct Groups<'a> {
    own_role: &'a str,
    own_hosts: Vec<String>,
    all: Vec<Group>,
    /// Positions of the groups with an admin address.
    by_admin: BTreeMap<SocketAddr, Vec<usize>>,
}

impl<'a> Groups<'a> {
    fn new(status: &'a ServerStatus) -> Self {
        let own = &status.own;
        let is_own = |report: &ProcessReport| report.role == own.role;
        let of_nodes = status.nodes.iter().filter(|node| node.report.as_ref().is_some_and(is_own));
        let of_nodes = of_nodes.filter_map(|node| host_of(&node.address));
        let of_members = status.members.iter().filter(|member| is_own(&member.report));
        let senders = of_members.filter_map(|member| member.sender);
        let senders = senders.map(|sender| sender.to_canonical().to_string());
        let group = Group {
            roles: vec![own.role.clone()],
            admin: own.admin_address,
            machine: Machine::Own,
            own: true,
            silent: None,
        };
        let by_admin = own.admin_address.map(|admin| (admin, vec![0])).into_iter().collect();
        let own_hosts = of_nodes.chain(senders).collect();
        Self { own_role: &own.role, own_hosts, all: vec![group], by_admin }
    }

    fn add_silent(&mut self, role: String) {
        let silent = Some(NO_REPORT);
        let group =
            Group { roles: vec![role], admin: None, machine: Machine::Unknown, own: false, silent };
        self.all.push(group);
    }

    /// Adds a report of a process at this host to the group of its process.
    fn add(&mut self, report: &ProcessReport, host: Option<String>) {
        if report.role == self.own_role {
            return;
        }
        let machine = match host {
            Some(host) if is_loopback(&host) || self.own_hosts.contains(&host) => Machine::Own,
            Some(host) => Machine::Host(host),
            None => Machine::Unknown,
        };
        let (role, admin) = (report.role.clone(), report.admin_address);
        let same = admin.and_then(|admin| {
            let groups = self.by_admin.get(&admin)?.iter().copied();
            let mut same = groups.filter(|at| self.is_same(&self.all[*at], admin, &machine, &role));
            same.next()
        });
        if let Some(at) = same {
            let group = &mut self.all[at];
            if !group.roles.contains(&role) {
                group.roles.push(role);
            }
            if group.machine == Machine::Unknown {
                group.machine = machine;
            }
            return;
        }
        if let Some(admin) = admin {
            self.by_admin.entry(admin).or_default().push(self.all.len());
        }
        self.all.push(Group { roles: vec![role], admin, machine, own: false, silent: None });
    }

    /// Returns true if a role with the address of a group is one of its process.
    fn is_same(&self, group: &Group, admin: SocketAddr, machine: &Machine, role: &str) -> bool {
        let ip = admin.ip().to_canonical();
        if !ip.is_unspecified() && !ip.is_loopback() {
            return true;
        }
        let is_ip = |host: &str| host.parse::<IpAddr>().is_ok();
        let alike = |one: &str, other: &str| is_ip(one) == is_ip(other);
        let by_machine = match (&group.machine, machine) {
            (Machine::Own, Machine::Own) => Some(true),
            (Machine::Host(one), Machine::Host(other)) if alike(one, other) => Some(one == other),
            (Machine::Own, Machine::Host(host)) | (Machine::Host(host), Machine::Own)
                if self.own_hosts.iter().any(|own| alike(own, host)) =>
            {
                Some(false)
            }
            _ => None,
        };
        // The roles of `martlet node` have one name.
        by_machine.unwrap_or_else(|| group.roles.iter().any(|one| bare(one) == bare(role)))
    }
}

impl Group {
    fn listed(mut self, replier: Replier<'_>) -> ListedProcess {
        let address = if self.own { Ok(replier.address.clone()) } else { self.address(replier) };
        let first = self.roles[0].clone();
        self.roles.sort_by(|one, other| (rank(one), one).cmp(&(rank(other), other)));
        let name = if self.own { first } else { self.roles[0].clone() };
        let is_loopback = self.admin.is_some_and(|admin| admin.ip().to_canonical().is_loopback());
        let is_private = address.is_err() && self.silent.is_none() && is_loopback;
        ListedProcess { name, roles: self.roles, address, is_private, own: self.own }
    }

    fn address(&self, replier: Replier<'_>) -> Result<AdminAddress, String> {
        if let Some(reason) = self.silent {
            return Err(reason.to_owned());
        }
        let admin = self.admin.ok_or(NO_ADDRESS)?;
        let (ip, port) = (admin.ip().to_canonical(), admin.port());
        if ip.is_loopback() {
            let is_here = self.machine == Machine::Own && replier.is_here;
            return if is_here {
                Ok(replier.address.beside(admin))
            } else {
                Err(LOOPBACK.to_owned())
            };
        }
        if !ip.is_unspecified() {
            return Ok(replier.address.beside(admin));
        }
        match &self.machine {
            Machine::Host(host) => Ok(replier.address.at_host(host, port)),
            Machine::Own if replier.is_here => {
                let loopback: IpAddr = if ip.is_ipv4() {
                    Ipv4Addr::LOCALHOST.into()
                } else {
                    Ipv6Addr::LOCALHOST.into()
                };
                Ok(replier.address.beside((loopback, port).into()))
            }
            Machine::Own => Ok(replier.address.at_host(replier.address.host(), port)),
            Machine::Unknown => Err(UNKNOWN.to_owned()),
        }
    }
}

/// Returns the host of an address of the rings; none for an address of all interfaces.
fn host_of(address: &str) -> Option<String> {
    let host = address.parse::<AdminAddress>().ok()?.host().to_owned();
    match host.parse::<IpAddr>().map(|ip| ip.to_canonical()) {
        Ok(ip) if ip.is_unspecified() => None,
        Ok(ip) => Some(ip.to_string()),
        Err(_) => Some(host),
    }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Returns the name of a process without its role.
fn bare(role: &str) -> &str {
    PREFIXES.iter().find_map(|prefix| role.strip_prefix(prefix)).unwrap_or(role)
}

#[cfg(test)]
mod tests;

//! `martlet admin audit`: records of changes, of all processes with an audit log.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use clap::Args;
use martlet_admin_api::audit::{AUDIT, AuditPage, AuditRecord};
use martlet_admin_api::{self as wire, ServerStatus};
use martlet_protocol::{Clock, SystemClock};
use martlet_serving::{Failure, parse_span};

use super::address::AdminAddress;
use super::client::AdminEndpoint;
use super::connection::AdminConnection;
use super::print::time;
use crate::support::directory::{self, ListedProcess, Replier, has_s3};

/// Interval between two requests of `--follow`.
const TICK: Duration = Duration::from_secs(2);
/// Upper limit on the records that are held to be sorted. Later pages follow in an order of their
/// own.
const SORTED_MAX: usize = 100_000;

/// Arguments of `martlet admin audit`.
#[derive(Args, Debug)]
#[command(after_help = "\
Each process with an S3 port keeps the records of the changes that it made, by the admin API and by \
S3 requests that make, delete or configure buckets. Records of tenants are shown to their admins.

A process of another machine that listens on its loopback interface alone is named and left out. The exit status is 1 if \
another process doesn't answer; with --complete, also if one was left out.

Examples:
  martlet admin audit --since 1d
  martlet admin audit --who MADMAAAAAAAAAAAAAAAA --json
  martlet admin audit --what research --follow")]
pub(super) struct AuditArgs {
    /// Show changes of this last span of time
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    since: Option<Duration>,
    /// Show changes of this key, key's name, role, tenant or client address
    #[arg(long, value_name = "TEXT")]
    who: Option<String>,
    /// Show changes whose operation contains this text, or whose target is named so
    #[arg(long, value_name = "TEXT")]
    what: Option<String>,
    /// Show only records of this process
    #[arg(long = "url", value_name = "URL")]
    url: Option<AdminAddress>,
    /// Wait for further records
    #[arg(long)]
    follow: bool,
    /// Fail if a process was left out, as other machines can't reach its admin address
    #[arg(long, conflicts_with = "follow")]
    complete: bool,
}

/// Process with an audit log, and the place of the next page.
struct Source {
    server: AdminEndpoint,
    after: Option<String>,
    /// True for the records of all but operators.
    of_tenants: bool,
    /// True if the last request failed, and its error was printed.
    is_silent: bool,
}

impl AuditArgs {
    /// Prints the records of all processes in order of time.
    #[expect(clippy::disallowed_methods, reason = "the command's only thread has no other work")]
    pub(super) fn run(&self, connection: &AdminConnection, json: bool) -> Result<(), Failure> {
        let now_ms = SystemClock.now_ms();
        let span_ms = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let since_ms = self.since.map_or(0, |span| now_ms.saturating_sub(span_ms(span)));
        let (mut sources, is_whole) = self.sources(connection)?;
        loop {
            let mut is_more = true;
            while is_more {
                is_more = false;
                let mut records = Vec::new();
                for source in &mut sources {
                    is_more |= self.collect_or_report(source, since_ms, &mut records);
                }
                records.sort_by_key(|record| record.time_ms);
                print_all(&records, json);
            }
            if !self.follow {
                return check_complete(is_whole && sources.iter().all(|source| !source.is_silent));
            }
            thread::sleep(TICK);
        }
    }

    /// Returns the processes with an audit log: those with an S3 port. Prints the reasons for those that
    /// can't be reached. The second value is false if there are any.
    fn sources(&self, connection: &AdminConnection) -> Result<(Vec<Source>, bool), Failure> {
        let (mut addresses, mut is_whole) = (BTreeMap::new(), true);
        let all = match &self.url {
            Some(url) => vec![LogPlace::at(url)],
            None => processes(connection),
        };
        for LogPlace { name, address, is_private } in all {
            match address {
                Ok(address) => {
                    addresses.insert(address.to_string(), address);
                }
                Err(reason) => {
                    eprintln!("martlet: the records of {name} are missing: {reason}");
                    is_whole &= self.may_lack(is_private);
                }
            }
        }
        let mut sources = Vec::new();
        for address in addresses.into_values() {
            let server = connection.account_endpoint_at(&address)?;
            for of_tenants in [false, true] {
                let (server, after) = (server.clone(), None);
                sources.push(Source { server, after, of_tenants, is_silent: false });
            }
        }
        Ok((sources, is_whole))
    }

    /// Returns true if the command succeeds without the records of a process that has no address here.
    fn may_lack(&self, is_private: bool) -> bool {
        is_private && !self.complete
    }

    /// Adds the records of a process. Prints its error once, so that a process that is out hides no
    /// records of others. Returns true if the process has more.
    fn collect_or_report(
        &self,
        source: &mut Source,
        since_ms: u64,
        records: &mut Vec<AuditRecord>,
    ) -> bool {
        let collected = self.collect(source, since_ms, records);
        // Both logs of a process are silent for one reason.
        if let (Err(error), false, false) = (&collected, source.is_silent, source.of_tenants) {
            eprintln!("martlet: the records of {} are missing: {error}", source.server.address());
        }
        source.is_silent = collected.is_err();
        collected.unwrap_or(false)
    }

    /// Adds the records of a process. Returns true if the process has more.
    fn collect(
        &self,
        source: &mut Source,
        since_ms: u64,
        records: &mut Vec<AuditRecord>,
    ) -> Result<bool, Failure> {
        let since = since_ms.to_string();
        loop {
            let mut query = vec![("since_ms", since.as_str())];
            query.extend(self.who.as_deref().map(|who| ("who", who)));
            query.extend(self.what.as_deref().map(|what| ("what", what)));
            query.extend(source.after.as_deref().map(|after| ("after", after)));
            query.extend(source.of_tenants.then_some(("tenants", "true")));
            let page: AuditPage = source.server.request_json(AUDIT, &query)?;
            records.extend(page.items);
            source.after = Some(page.next);
            if !page.more || records.len() >= SORTED_MAX {
                return Ok(page.more);
            }
        }
    }
}

/// Fails if records of a process are missing.
fn check_complete(is_complete: bool) -> Result<(), Failure> {
    if is_complete {
        return Ok(());
    }
    Err(Failure::refused("records of a process are missing"))
}

/// Process with an audit log, and its admin address or the reason for none.
struct LogPlace {
    name: String,
    address: Result<AdminAddress, String>,
    /// True if the process can be read on its own machine alone, by its settings.
    is_private: bool,
}

impl LogPlace {
    fn at(address: &AdminAddress) -> Self {
        Self { name: String::new(), address: Ok(address.clone()), is_private: false }
    }
}

/// Returns all processes with an S3 port. Requesters that may not see the status get the queried process
/// alone.
fn processes(connection: &AdminConnection) -> Vec<LogPlace> {
    let status = connection.endpoint().and_then(|server| server.request_json(wire::STATUS, &[]));
    match status {
        Ok(status) => with_log(&status, connection.replier()),
        Err(_) => vec![LogPlace::at(&connection.address)],
    }
}

fn with_log(status: &ServerStatus, replier: Replier<'_>) -> Vec<LogPlace> {
    let all = directory::processes(status, replier).into_iter();
    let with_log = all.filter(|process| process.roles.iter().any(|role| has_s3(role)));
    let place = |ListedProcess { name, address, is_private, .. }: ListedProcess| LogPlace {
        name,
        address,
        is_private,
    };
    with_log.map(place).collect()
}

fn print_all(records: &[AuditRecord], json: bool) {
    for record in records {
        if json {
            println!("{}", serde_json::to_string(record).expect("plain data can be encoded"));
        } else {
            println!("{}", line(record));
        }
    }
}

/// Formats a record as a line.
fn line(record: &AuditRecord) -> String {
    let AuditRecord { time_ms, who, operation, target, outcome, status, .. } = record;
    let name = who.name.as_deref().filter(|name| !name.is_empty()).or(who.key.as_deref());
    let tenant = who.tenant.as_ref().map(|tenant| format!(" of {tenant}")).unwrap_or_default();
    let target: Vec<String> =
        target.iter().map(|(name, value)| format!("{name}={value}")).collect();
    format!(
        "{}  {}{tenant} ({})  {}  {operation} {}  {}{}  {}",
        time(*time_ms),
        name.unwrap_or(&who.kind),
        if who.role.is_empty() { &who.kind } else { &who.role },
        record.peer.as_deref().unwrap_or("-"),
        target.join(" "),
        outcome.as_deref().unwrap_or("unknown"),
        status.map(|status| format!(" {status}")).unwrap_or_default(),
        record.process,
    )
}

#[cfg(test)]
mod tests {
    use martlet_admin_api::principals::PrincipalLine;
    use martlet_admin_api::{MemberLine, ProcessReport};

    use super::*;

    #[test]
    fn proxies_of_other_machines_are_named_though_they_can_not_be_reached() {
        let report = |role: &str, address: &str| ProcessReport {
            admin_address: address.parse().ok(),
            ..ProcessReport::of(role)
        };
        let member = |role: &str, sender: &str, address: &str| MemberLine {
            heard_ms_ago: 1,
            sender: sender.parse().ok(),
            report: report(role, address),
        };
        let status = ServerStatus {
            own: report("proxy n1", "127.0.0.1:9001"),
            members: vec![
                member("proxy n1", "10.0.0.1", "127.0.0.1:9001"),
                member("proxy n2", "10.0.0.2", "127.0.0.1:9001"),
                member("proxy n3", "10.0.0.3", "10.0.0.3:9001"),
                member("replicator n4", "10.0.0.4", "127.0.0.1:9001"),
            ],
            ..ServerStatus::default()
        };
        let address = "127.0.0.1:9001".parse().unwrap();
        let found = with_log(&status, Replier { address: &address, is_here: true });
        let names: Vec<_> =
            found.iter().map(|it| (it.name.as_str(), it.address.is_ok(), it.is_private)).collect();
        let expected =
            [("proxy n1", true, false), ("proxy n2", false, true), ("proxy n3", true, false)];
        assert_eq!(names, expected, "n2 can be read on its own machine alone");
    }

    #[test]
    fn records_on_machines_that_keep_them_are_no_failure_unless_all_are_required() {
        let args = |complete| AuditArgs {
            since: None,
            who: None,
            what: None,
            url: None,
            follow: false,
            complete,
        };
        let may_lack =
            |complete| [true, false].map(|is_private| args(complete).may_lack(is_private));
        assert_eq!((may_lack(false), may_lack(true)), ([true, false], [false, false]));
    }

    #[test]
    fn a_record_is_one_line() {
        let record = AuditRecord {
            time_ms: 1_795_833_000_000,
            process: "proxy p1".into(),
            peer: Some("10.0.0.7".into()),
            who: PrincipalLine {
                kind: "key".into(),
                key: Some("MADM1".into()),
                name: Some("ops".into()),
                role: "operator".into(),
                ..PrincipalLine::default()
            },
            operation: "PUT /admin/v1/tenant".into(),
            target: [("tenant".to_owned(), "research".to_owned())].into(),
            outcome: Some("refused".into()),
            status: Some(404),
            ..AuditRecord::default()
        };
        let expected = "2026-11-28 02:30:00Z  ops (operator)  10.0.0.7  PUT /admin/v1/tenant \
                        tenant=research  refused 404  proxy p1";
        assert_eq!(line(&record), expected);
    }
}

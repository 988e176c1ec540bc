//! `martlet admin workers`: workers of all processes that the queried processes report.

use std::collections::BTreeMap;
use std::slice;

use clap::Args;
use martlet_admin_api::{self as wire, ProcessWorkers};
use martlet_serving::Failure;

use super::address::AdminAddress;
use super::connection::AdminConnection;

/// Arguments of `martlet admin workers`.
#[derive(Args, Debug)]
pub(super) struct WorkersArgs {
    /// Admin address of a process, such as `<https://n1:6301>`; repeatable [default:
    /// --admin-address]. Each member of a cluster knows all workers
    #[arg(long = "url", value_name = "URL")]
    urls: Vec<AdminAddress>,
}

impl WorkersArgs {
    /// Queries all `--url` addresses, or the usual admin address if `--url` is missing.
    pub(super) fn fetch(
        &self,
        connection: &AdminConnection,
    ) -> Result<Vec<ProcessWorkers>, Failure> {
        let addresses = match self.urls.as_slice() {
            [] => slice::from_ref(&connection.address),
            urls => urls,
        };
        let mut processes: Vec<ProcessWorkers> = Vec::new();
        for address in addresses {
            let server = connection.endpoint_at(address)?;
            processes.extend(server.request_json::<Vec<ProcessWorkers>>(wire::WORKERS, &[])?);
        }
        Ok(merge(processes))
    }
}

/// Keeps the latest report of each process.
fn merge(processes: Vec<ProcessWorkers>) -> Vec<ProcessWorkers> {
    let mut known: BTreeMap<String, ProcessWorkers> = BTreeMap::new();
    for one in processes {
        let older = known.get(&one.process).map(|other| other.heard_ms_ago);
        if older.is_none_or(|older| one.heard_ms_ago < older) {
            known.insert(one.process.clone(), one);
        }
    }
    known.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_in_several_reports_is_printed_once() {
        let word = |process: &str, heard_ms_ago| ProcessWorkers {
            process: process.into(),
            heard_ms_ago,
            workers: Vec::new(),
        };
        let merged = merge(vec![
            word("replicator r1", Some(900)),
            word("replicator r2", Some(3)),
            word("replicator r1", None),
        ]);
        assert_eq!(merged, [word("replicator r1", None), word("replicator r2", Some(3))]);
    }
}

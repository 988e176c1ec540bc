//! `martlet admin workers`: workers of all processes that the queried processes report.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::str::FromStr;

use clap::Args;
use martlet_admin_api::{self as wire, ProcessWorkers};
use martlet_serving::Failure;

use super::client::AdminEndpoint;

/// Arguments of `martlet admin workers`.
#[derive(Args, Debug)]
pub(super) struct WorkersArgs {
    /// Admin address of a process, such as `<http://10.0.0.1:6301>`; repeatable [default:
    /// --admin-address]. Each member of a cluster knows all workers
    #[arg(long = "url", value_name = "URL")]
    urls: Vec<AdminUrl>,
}

/// Admin address, also in the form of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AdminUrl(SocketAddr);

impl FromStr for AdminUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let address = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
        address
            .parse()
            .map(Self)
            .map_err(|_| format!("\"{text}\" is not an admin address: write http://IP:PORT"))
    }
}

impl WorkersArgs {
    /// Queries all `--url` addresses, or the usual admin address if `--url` is missing.
    pub(super) fn fetch(
        &self,
        usual: SocketAddr,
        server: impl Fn(SocketAddr) -> Result<AdminEndpoint, Failure>,
    ) -> Result<Vec<ProcessWorkers>, Failure> {
        let addresses: Vec<SocketAddr> = match self.urls.as_slice() {
            [] => vec![usual],
            urls => urls.iter().map(|url| url.0).collect(),
        };
        let mut processes = Vec::new();
        for address in addresses {
            processes
                .extend(server(address)?.request_json::<Vec<ProcessWorkers>>(wire::WORKERS, &[])?);
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
    fn addresses_are_taken_as_they_are_pasted() {
        let address = AdminUrl(SocketAddr::from(([10, 0, 0, 1], 6301)));
        for text in ["http://10.0.0.1:6301", "10.0.0.1:6301", "http://10.0.0.1:6301/"] {
            assert_eq!(text.parse(), Ok(address));
        }
        for text in ["", "https://10.0.0.1:6301", "n1:6301", "http://10.0.0.1"] {
            assert!(text.parse::<AdminUrl>().unwrap_err().contains("http://IP:PORT"), "{text}");
        }
    }

    #[test]
    fn a_process_that_several_know_of_is_told_once() {
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

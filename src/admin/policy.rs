//! `martlet admin policy`: the storage policies of a server or proxy.

use clap::Subcommand;
use martlet_admin_api::{self as wire, PolicyLine};
use martlet_serving::Failure;

use super::client::AdminEndpoint;
use crate::columns::table;

/// Subcommands of `martlet admin policy`.
#[derive(Debug, Subcommand)]
pub(super) enum PolicyCommand {
    /// List storage policies with their redundancy and the default for new buckets
    #[command(after_help = "\
Only servers and proxies know the default for new buckets: use the admin address of one.

Examples:
  martlet admin policy list
  martlet admin --admin-address 10.0.0.9:9001 --cluster-key-file cluster.key policy list --json")]
    List,
}

impl PolicyCommand {
    /// Fetches the storage policies.
    pub(super) fn fetch(&self, server: &AdminEndpoint) -> Result<Vec<PolicyLine>, Failure> {
        let Self::List = self;
        server.request_json(wire::POLICIES, &[])
    }
}

/// Formats policies as a table.
pub(super) fn lines(policies: &[PolicyLine]) -> String {
    let cells = ["policy", "name", "keeps", "devices", "default"];
    let mut rows = vec![cells.map(str::to_owned).to_vec()];
    rows.extend(policies.iter().map(|policy| {
        let PolicyLine { redundancy, replicas, .. } = policy;
        let keeps = match redundancy.as_str() {
            "replicated" if (*replicas - 1.0).abs() < f64::EPSILON => "1 copy".to_owned(),
            "replicated" => format!("{replicas} copies"),
            code => format!("{code} fragments"),
        };
        let default = if policy.default { "yes" } else { "" };
        let (id, devices) = (policy.id.to_string(), policy.devices.to_string());
        vec![id, policy.name.clone(), keeps, devices, default.to_owned()]
    }));
    table(&rows, &[0, 3])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_listed_with_what_they_keep() {
        let line = |id, name: &str, redundancy: &str, replicas, default| PolicyLine {
            id,
            name: name.into(),
            redundancy: redundancy.into(),
            replicas,
            devices: 8,
            epoch: 1,
            default,
        };
        let text = lines(&[
            line(0, "default", "replicated", 3.0, false),
            line(1, "ec", "4+2", 6.0, true),
            line(2, "one", "replicated", 1.0, false),
        ]);
        for words in ["3 copies", "4+2 fragments", "1 copy", "yes"] {
            assert!(text.contains(words), "{words}\n{text}");
        }
        assert_eq!((text.lines().count(), text.matches("yes").count()), (4, 1));
        let ec = text.lines().find(|line| line.contains("4+2")).unwrap();
        assert!(ec.contains("ec") && ec.contains("yes"), "{text}");
    }
}

//! Text output of `martlet cluster`.

use std::fmt::Write;

use martlet_admin_api::control::{ClusterStatus, ProcessStatus};

use crate::columns::table;

fn place(address: Option<std::net::SocketAddr>) -> String {
    address.map_or_else(|| "-".to_owned(), |address| address.to_string())
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

/// S3 endpoints and the table of processes, printed when all processes are ready.
pub(super) fn endpoints(status: &ClusterStatus) -> String {
    let mut text = String::new();
    for endpoint in &status.endpoints {
        let _ = writeln!(text, "Martlet serves S3 at {endpoint}");
    }
    let mut rows = vec![row(["name", "role", "pid", "address", "admin address", "log"])];
    for process in &status.processes {
        rows.push(vec![
            process.name.clone(),
            process.role.to_string(),
            process.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
            place(process.address),
            process.admin_address.to_string(),
            process.log.display().to_string(),
        ]);
    }
    let _ = write!(text, "\n{}", table(&rows, &[2]));
    text
}

/// Instructions for clients, printed when the credentials are not new.
pub(super) fn how_to(status: &ClusterStatus, credentials: &std::path::Path) -> String {
    let endpoint = status.endpoints.first().map_or("", String::as_str);
    let credentials = credentials.display();
    format!(
        "\
Credentials are in {credentials}. For awscli and boto3, paste:
  set -a; . {credentials}; set +a
  export AWS_ACCESS_KEY_ID=$MARTLET_ROOT_ACCESS_KEY AWS_SECRET_ACCESS_KEY=$MARTLET_ROOT_SECRET_KEY
  export AWS_DEFAULT_REGION=us-east-1 AWS_ENDPOINT_URL={endpoint}
  aws s3 mb s3://first && echo hello | aws s3 cp - s3://first/hello && aws s3 ls first
  python3 -c 'import boto3; print(boto3.client(\"s3\").list_buckets()[\"Buckets\"])'
"
    )
}

/// List of the commands that control the running cluster.
pub(super) fn commands(status: &ClusterStatus) -> String {
    let dir = status.data_dir.display();
    format!(
        "\
From another shell:
  martlet cluster status --data-dir {dir}
  martlet cluster kill 2 --data-dir {dir}       and start, stop, pause, resume, add-node
Ctrl-C stops everything cleanly.
"
    )
}

/// Tables of processes, devices and rings.
pub(super) fn status(status: &ClusterStatus) -> String {
    let mut text = format!("{}  {} copies\n", status.data_dir.display(), status.replicas);
    for endpoint in &status.endpoints {
        let _ = writeln!(text, "S3 at {endpoint}");
    }
    let mut rows =
        vec![row(["name", "role", "pid", "state", "ready", "address", "admin address", "rings"])];
    rows.extend(status.processes.iter().map(process));
    let _ = write!(text, "\n{}", table(&rows, &[2]));
    let mut rows = vec![row(["device", "node", "name", "zone", "entries", "extents", "folder"])];
    for device in &status.devices {
        rows.push(vec![
            format!("d{}", device.id),
            device.node.clone(),
            device.name.clone(),
            device.zone.to_string(),
            device.index_replicas.to_string(),
            device.data_replicas.to_string(),
            device.path.display().to_string(),
        ]);
    }
    let _ = write!(text, "\n{}", table(&rows, &[3, 4, 5]));
    let mut rows = vec![row(["ring", "epoch", "hash", "partitions", "moving"])];
    for ring in &status.rings {
        rows.push(vec![
            ring.name.clone(),
            ring.epoch.to_string(),
            ring.hash.clone(),
            ring.partitions.to_string(),
            ring.moving.to_string(),
        ]);
    }
    let _ = write!(text, "\n{}", table(&rows, &[1, 3, 4]));
    text
}

fn process(process: &ProcessStatus) -> Vec<String> {
    let ready = match (process.pid, process.ready) {
        (None, _) => "-".to_owned(),
        (_, true) => "yes".to_owned(),
        (_, false) => format!("no: {}", process.reason),
    };
    vec![
        process.name.clone(),
        process.role.to_string(),
        process.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
        process.state.to_string(),
        ready,
        place(process.address),
        process.admin_address.to_string(),
        if process.rings.is_empty() { "-".to_owned() } else { process.rings.clone() },
    ]
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use martlet_admin_api::control::{DataDevice, ProcessRole, ProcessState, RingLine};

    use super::super::ports::loopback;
    use super::*;

    fn example() -> ClusterStatus {
        let node = ProcessStatus {
            name: "n1".into(),
            role: ProcessRole::StorageNode,
            node: Some("n1".into()),
            pid: Some(77),
            state: ProcessState::Running,
            ready: false,
            reason: "503 d1: not open".into(),
            address: Some(loopback(7001)),
            admin_address: loopback(7101),
            log: "/c/n1/log".into(),
            rings: "index=1,data-0=2".into(),
        };
        let replicator = ProcessStatus {
            name: "r1".into(),
            role: ProcessRole::Replicator,
            pid: None,
            state: ProcessState::Died("signal 9".into()),
            address: None,
            rings: String::new(),
            ..node.clone()
        };
        ClusterStatus {
            data_dir: "/c".into(),
            replicas: 3,
            endpoints: vec!["http://127.0.0.1:9000".into()],
            processes: vec![node, replicator],
            devices: vec![DataDevice {
                id: 0,
                node: "n1".into(),
                name: "d1".into(),
                zone: 1,
                path: "/c/n1/d1".into(),
                index_replicas: 12,
                data_replicas: 0,
            }],
            rings: vec![RingLine {
                name: "index".into(),
                epoch: 1,
                hash: "0a1b".into(),
                partitions: 4096,
                moving: 0,
            }],
        }
    }

    #[test]
    fn a_status_lists_ready_and_dead_processes() {
        let text = status(&example());
        for words in [
            "S3 at http://127.0.0.1:9000",
            "n1    storage-node   77  running         no: 503 d1: not open",
            "index=1,data-0=2",
            "r1    replicator      -  died: signal 9  -",
            "d0      n1    d1       1       12        0  /c/n1/d1",
            "index      1  0a1b        4096       0",
        ] {
            assert!(text.contains(words), "{words}\n{text}");
        }
    }

    #[test]
    fn endpoints_come_with_what_to_paste() {
        let text = endpoints(&example()) + &how_to(&example(), Path::new("/c/credentials"));
        assert!(text.starts_with("Martlet serves S3 at http://127.0.0.1:9000\n"), "{text}");
        assert!(text.contains("AWS_ENDPOINT_URL=http://127.0.0.1:9000"), "{text}");
        assert!(text.contains(". /c/credentials;"), "{text}");
        assert!(commands(&example()).contains("martlet cluster kill 2 --data-dir /c"));
    }
}

//! Processes that run all roles of a machine, and the list by which one reads another.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use martlet_tests::s3::{Reply, exchange};
use martlet_tests::server::{finished, martlet};
use serde_json::Value;

const ADMIN_PORT: u16 = 9001;
/// Time in which machines become ready, and reports spread.
const PATIENCE: Duration = Duration::from_mins(2);

/// Machine whose process has all roles.
struct Machine {
    admin_address: SocketAddr,
    process: Child,
}

impl Drop for Machine {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Address of a machine: a loopback address that belongs to this test process.
fn host(number: u8) -> Ipv4Addr {
    let [.., a, b] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, a.max(1), b, number)
}

/// File from which `cluster apply` makes the folders of three machines.
fn cluster_file(folder: &Path) -> String {
    let head = "name = \"machines\"\n[tls]\nmembers = false\ns3 = false\n[settings]\nreserve = \"16MiB\"\n\
                memory = \"256MiB\"\nmax_threads = 2\n";
    let node = |number: u8| {
        let (device, host) = (folder.join(format!("d{number}")), host(number));
        fs::create_dir_all(&device).unwrap();
        format!(
            "[[node]]\nname = \"n{number}\"\naddress = \"{host}\"\nzone = {number}\n\
             device = [{{ name = \"d1\", path = \"{}\", size = \"1GB\" }}]\n",
            device.display()
        )
    };
    head.to_owned() + &(1..=3).map(node).collect::<String>()
}

fn start(folder: &Path, number: u8) -> Machine {
    let admin_address = SocketAddr::from((host(number), ADMIN_PORT));
    let log = File::create(folder.join(format!("log{number}"))).unwrap();
    let config = folder.join(format!("out/n{number}"));
    let process = martlet(&["node", "--config", config.to_str().unwrap()])
        .env("MARTLET_DATA_DIR", folder.join(format!("n{number}")))
        .env("MARTLET_ADMIN_ADDRESS", admin_address.to_string())
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap();
    Machine { admin_address, process }
}

/// Sends a GET request; `None` while nothing answers.
async fn get(address: SocketAddr, target: &str, token: &str) -> Option<Reply> {
    let request = Request::get(target)
        .header("host", address.to_string())
        .header("authorization", format!("Bearer {token}"));
    exchange(address, request.body(Full::<Bytes>::default()).unwrap()).await.ok()
}

/// Waits until a reply fulfils a condition, and returns its text.
async fn until(
    address: SocketAddr,
    target: &str,
    token: &str,
    is_it: impl Fn(u16, &str) -> bool,
) -> String {
    let end = Instant::now() + PATIENCE;
    loop {
        let reply = get(address, target, token).await;
        let (status, text) = reply.map_or((0, String::new()), |reply| (reply.status, reply.text()));
        if is_it(status, &text) {
            return text;
        }
        assert!(Instant::now() < end, "{address}{target}: {status} {text}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn named<'a>(list: &'a Value, name: &str) -> &'a Value {
    let found = list.as_array().unwrap().iter().find(|process| process["process"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {list:#}"))
}

/// Returns the roles of a machine, as the list of processes names them.
fn roles_of(number: u32) -> [String; 3] {
    ["proxy", "replicator", "storage node"].map(|role| format!("{role} n{number}"))
}

fn relayed(process: &str, route: &str) -> String {
    let process = process.replace(' ', "%20");
    format!("/admin/v1/processes/reply?process={process}&route={route}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_reads_all_roles_of_the_others() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path();
    let (file, out) = (folder.join("cluster.toml"), folder.join("out"));
    fs::write(&file, cluster_file(folder)).unwrap();
    let apply = ["cluster", "apply", file.to_str().unwrap(), "--out", out.to_str().unwrap()];
    let output = finished(&mut martlet(&apply));
    assert!(output.status.success(), "{output:?}");
    let mut machines: Vec<Machine> = (1..=3).map(|number| start(folder, number)).collect();
    for machine in &machines {
        until(machine.admin_address, "/readyz", "", |status, _| status == 200).await;
    }
    let first = machines[0].admin_address;
    let admin = |at: SocketAddr, credential: &str, file: &Path, arguments: &[&str]| {
        let address = at.to_string();
        let mut command = martlet(&["admin", "--admin-address", &address, credential]);
        let output = finished(command.arg(file).args(arguments));
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let (cluster_key, key) = (out.join("cluster/cluster.key"), folder.join("operator.key"));
    let create = ["key", "create", "--role", "operator", "--name", "o", "--key-file"];
    let create = [&create[..], &[key.to_str().unwrap()]].concat();
    admin(first, "--cluster-key-file", &cluster_key, &create);
    let second = machines[1].admin_address;
    admin(second, "--cluster-key-file", &cluster_key, &["tenant", "create", "made-at-n2"]);
    let token = admin(first, "--admin-key-file", &key, &["session", "begin"]);

    // Processes report their roles one by one, each in its own second.
    let is_whole = |_: u16, text: &str| {
        let is_listed = |number| roles_of(number).iter().all(|role| text.contains(role));
        (1..=3).all(is_listed)
    };
    let list = until(first, "/admin/v1/processes", &token, is_whole).await;
    let list: Value = serde_json::from_str(&list).unwrap();
    let names: Vec<&str> = list
        .as_array()
        .unwrap()
        .iter()
        .map(|process| process["process"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["proxy n1", "proxy n2", "proxy n3"], "{list:#}");
    let roles = |number| Value::from(roles_of(number).to_vec());
    for number in 1..=3 {
        let process = named(&list, &format!("proxy n{number}"));
        assert_eq!(process["roles"], roles(number), "{list:#}");
        assert_eq!(process["routes"].as_array().unwrap().len(), 8, "{list:#}");
        assert_eq!((&process["silent"], &process["own"]), (&Value::Null, &(number == 1).into()));
    }
    for name in ["proxy n2", "storage node n2", "replicator n2"] {
        let target = relayed(name, "/admin/v1/audit");
        let text = until(first, &target, &token, |status, _| status == 200).await;
        assert!(text.contains("made-at-n2"), "{name}: {text}");
        let own = get(first, &relayed("proxy n1", "/admin/v1/audit"), &token).await.unwrap();
        assert!(own.status == 200 && !own.text().contains("made-at-n2"), "{}", own.text());
    }
    let records = admin(first, "--cluster-key-file", &cluster_key, &["audit"]);
    assert!(records.contains("made-at-n2") && records.contains("proxy n2"), "{records}");

    // A machine that is out stays in the list.
    drop(machines.pop());
    let target = relayed("proxy n3", "/admin/v1/settings");
    let text = until(first, &target, &token, |status, _| status == 502).await;
    assert!(text.contains("proxy n3: "), "{text}");
}

//! Files of one machine: settings, unit and install script.
//!
//! Paths in the settings are relative to the settings' folder, so that the folder can lie anywhere.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use martlet_serving::{Failure, nearest};
use toml::{Table, Value};

use crate::files::{FileKind, WantedFile};
use crate::names::{
    AUTHORITY, CLUSTER_DIR, CLUSTER_KEY, FIRST, MASTER_KEY, ROOT, SETTINGS, SSE_MASTER_KEY,
};
use crate::spec::{ClusterSpec, NodeRole, NodeSpec};

/// Unit of a machine.
const UNIT: &str = "martlet-node.service";
const INSTALL: &str = "install.sh";
/// Certificate and key for other members, without their extensions.
pub(crate) const MEMBER_CERTIFICATE: &str = "member";
/// Certificate and key of the S3 port, without their extensions.
pub(crate) const S3_CERTIFICATE: &str = "s3";
/// Certificate and key of the admin port, without their extensions.
pub(crate) const ADMIN_CERTIFICATE: &str = "admin";
const HEADER: &str = "# Written by `martlet cluster apply`. Edit the cluster's file instead: the next \
                      apply replaces this one.\n";
const UNIT_TEXT: &str = include_str!("machine/martlet-node.service");
const INSTALL_TEXT: &str = include_str!("machine/install.sh");

/// Checks the further settings of the file: each must be a setting of `martlet node`, none that
/// apply sets itself, and no secret.
pub(crate) fn check_settings(spec: &ClusterSpec, known: &[&str]) -> Result<(), Failure> {
    let mut own: BTreeSet<String> = OWN.into_iter().map(str::to_owned).collect();
    for node in &spec.nodes {
        own.extend(own_settings(spec, node, true).into_iter().map(|(name, _)| name));
    }
    let all = spec.nodes.iter().map(|node| (node.name(), &node.settings));
    for (place, table) in all.chain([("the cluster", &spec.settings)]) {
        for name in table.keys() {
            if SECRETS.contains(&name.as_str()) {
                return Err(Failure::usage(format!(
                    "the setting {name} of {place} is a secret, and the file has none: remove it. \
                     Keys come from the environment, or are random files in {CLUSTER_DIR}/ of the \
                     output folder"
                )));
            }
            if own.contains(name) {
                return Err(Failure::usage(format!(
                    "the setting {name} of {place} follows from other lines of the file: remove it"
                )));
            }
            if !known.contains(&name.as_str()) {
                let hint = match nearest(name, known.iter().copied()) {
                    Some(right) => format!("did you mean \"{right}\"?"),
                    None => format!("there are: {}", known.join(", ")),
                };
                return Err(Failure::usage(format!(
                    "there is no setting \"{name}\", which {place} has in its settings: {hint}"
                )));
            }
        }
    }
    Ok(())
}

/// Settings that follow from the file, or from the roles, even where apply writes none.
const OWN: [&str; 6] =
    ["devices", "nodes", "default_policy", "first_tenant", "first_key_file", "first_bucket"];
/// Settings that are secrets.
const SECRETS: [&str; 4] = ["root_access_key", "root_secret_key", "master_keys", "sse_master_key"];
/// Settings whose values may have a secret in them, such as the password of a URL.
const HIDDEN: [&str; 1] = ["notifications"];

/// Settings of a file by their names, in the form in which they may be printed: without the values
/// of secrets. `None` if the file has mistakes.
pub(crate) fn printable(settings: &[u8]) -> Option<BTreeMap<String, PrintableSetting>> {
    let table: Table = str::from_utf8(settings).ok()?.parse().ok()?;
    let line = |(name, value): (String, Value)| {
        let is_hidden = SECRETS.iter().chain(&HIDDEN).any(|it| *it == name);
        let shown = if is_hidden { "(not shown)".to_owned() } else { value.to_string() };
        (name.clone(), PrintableSetting { line: format!("{name} = {shown}"), value })
    };
    Some(table.into_iter().map(line).collect())
}

/// Setting with the line that may be printed.
pub(crate) struct PrintableSetting {
    pub(crate) line: String,
    pub(crate) value: Value,
}

fn text(value: &str) -> Value {
    Value::from(value.to_owned())
}

fn names(names: impl IntoIterator<Item = String>) -> Value {
    Value::from(names.into_iter().map(Value::from).collect::<Vec<_>>())
}

/// Settings that follow from the file, without the further ones.
fn own_settings(spec: &ClusterSpec, node: &NodeSpec, makes_first: bool) -> Table {
    let bind = node.bind().unwrap_or(IpAddr::from([127, 0, 0, 1]));
    let address = |port: u16| text(&SocketAddr::new(bind, port).to_string());
    let loopback = || text(&SocketAddr::from(([127, 0, 0, 1], spec.ports.admin)).to_string());
    let admin = if spec.tls.admin { address(spec.ports.admin) } else { loopback() };
    let rings = spec.rings().into_iter().map(|ring| format!("{}.ring", ring.file));
    let roles = node.roles.get_ref().iter().map(|role| role.name().to_owned());
    let mut table = Table::from_iter([
        ("name".to_owned(), text(node.name())),
        ("roles".to_owned(), names(roles)),
        ("data_dir".to_owned(), text(&spec.data_dir.get_ref().display().to_string())),
        ("admin_address".to_owned(), admin),
        ("cluster_key_file".to_owned(), text(CLUSTER_KEY)),
        ("rings".to_owned(), names(rings)),
    ]);
    let mut set = |name: &str, value: Value| table.insert(name.to_owned(), value);
    if spec.tls.members {
        set("tls_certificate", text(&format!("{MEMBER_CERTIFICATE}.crt")));
        set("tls_key", text(&format!("{MEMBER_CERTIFICATE}.key")));
        set("tls_ca", text(AUTHORITY));
    }
    if spec.tls.admin {
        set("admin_tls_certificate", text(&format!("{ADMIN_CERTIFICATE}.crt")));
        set("admin_tls_key", text(&format!("{ADMIN_CERTIFICATE}.key")));
    }
    if node.has(NodeRole::StorageNode) {
        set("internal_address", address(spec.ports.internal));
        let devices = node.devices.iter();
        let devices: Table = devices
            .map(|it| (it.name.get_ref().clone(), text(&it.path.display().to_string())))
            .collect();
        set("devices", Value::from(devices));
    }
    if node.has(NodeRole::Proxy) {
        set("s3_address", address(spec.ports.s3));
        set("master_key_file", text(MASTER_KEY));
        set("sse_master_key_file", text(SSE_MASTER_KEY));
        set("credentials_file", text(ROOT));
        if let Some(policy) = &spec.default_policy {
            set("default_policy", text(policy.get_ref()));
        }
        if spec.tls.s3 {
            set("s3_tls_certificate", text(&format!("{S3_CERTIFICATE}.crt")));
            set("s3_tls_key", text(&format!("{S3_CERTIFICATE}.key")));
        }
        if let Some(first) = spec.first.as_ref().filter(|_| makes_first) {
            set("first_tenant", text(first.tenant.get_ref()));
            set("first_key_file", text(FIRST));
            if let Some(bucket) = &first.bucket {
                set("first_bucket", text(bucket.get_ref()));
            }
        }
    }
    table
}

/// Settings of a machine.
fn settings(spec: &ClusterSpec, node: &NodeSpec, makes_first: bool) -> String {
    let mut table = own_settings(spec, node, makes_first);
    let further = spec.settings.iter().chain(&node.settings);
    table.extend(further.map(|(name, value)| (name.clone(), value.clone())));
    format!("{HEADER}{table}")
}

/// Settings, unit and install script of a machine. One machine makes the first tenant.
pub(crate) fn files(spec: &ClusterSpec, node: &NodeSpec, makes_first: bool) -> Vec<WantedFile> {
    let folder = Path::new(node.name());
    let paths: BTreeSet<&Path> = node.devices.iter().map(|it| it.path.as_path()).collect();
    let quoted: Vec<String> = paths.iter().map(|path| shell_word(path)).collect();
    let state = spec.data_dir.get_ref();
    let all = paths.iter().copied().chain([state.as_path()]);
    let writable = all.map(unit_line).collect::<String>();
    let unit = UNIT_TEXT.replace("@WRITABLE@\n", &writable);
    let install = INSTALL_TEXT.replace("@DEVICES@", &quoted.join(" "));
    let install = install.replace("@STATE@", &shell_word(state));
    vec![
        WantedFile::new(
            folder.join(SETTINGS),
            FileKind::Settings,
            settings(spec, node, makes_first),
        ),
        WantedFile::new(folder.join(UNIT), FileKind::Unit, unit),
        WantedFile::new(folder.join(INSTALL), FileKind::Unit, install),
    ]
}

/// Path as one word of a shell.
fn shell_word(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', "'\\''"))
}

/// Line of a unit that opens a folder for writing. `%` is special there; the checks of the file
/// refuse quotes, backslashes and control characters.
fn unit_line(path: &Path) -> String {
    let escaped = path.display().to_string().replace('%', "%%");
    format!("ReadWritePaths=\"-{escaped}\"\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::tests::THREE;

    fn file(text: &str, at: usize) -> String {
        let spec = ClusterSpec::parse(text).unwrap();
        let file = files(&spec, &spec.nodes[0], true).remove(at);
        String::from_utf8(file.bytes).unwrap()
    }

    #[test]
    fn a_machine_gets_settings_for_all_its_roles() {
        let table: Table = file(THREE, 0).parse().unwrap();
        assert_eq!(table["name"].as_str(), Some("n1"));
        assert_eq!(table["internal_address"].as_str(), Some("10.0.0.1:6200"));
        assert_eq!(table["s3_address"].as_str(), Some("10.0.0.1:9000"));
        assert_eq!(table["admin_address"].as_str(), Some("127.0.0.1:9001"));
        assert_eq!(table["devices"]["d2"].as_str(), Some("/srv/martlet/d2"));
        assert_eq!(table["rings"].as_array().unwrap().len(), 2);
        assert!(!table.contains_key("first_tenant"));
    }

    #[test]
    fn an_admin_port_for_other_machines_has_a_certificate() {
        let table: Table = file(&format!("{THREE}\n[tls]\nadmin = true\n"), 0).parse().unwrap();
        assert_eq!(table["admin_address"].as_str(), Some("10.0.0.1:9001"));
        assert_eq!(table["admin_tls_certificate"].as_str(), Some("admin.crt"));
        assert_eq!(table["admin_tls_key"].as_str(), Some("admin.key"));
    }

    #[test]
    fn further_settings_are_added_and_those_of_the_machine_win() {
        let text = format!("{THREE}\n[settings]\nlog = \"warn\"\nmemory = \"2GiB\"\n").replacen(
            "zone = 1",
            "zone = 1\nsettings = { log = \"debug\" }",
            1,
        );
        let table: Table = file(&text, 0).parse().unwrap();
        assert_eq!(table["log"].as_str(), Some("debug"));
        assert_eq!(table["memory"].as_str(), Some("2GiB"));
    }

    #[test]
    fn unknown_and_doubled_settings_are_refused() {
        let refusal = |line: &str| {
            let spec = ClusterSpec::parse(&format!("{THREE}\n[settings]\n{line}\n")).unwrap();
            check_settings(&spec, &["log", "memory"]).unwrap_err().to_string()
        };
        assert!(refusal("lag = 1").contains("there is no setting \"lag\""));
        assert!(refusal("memroy = 1").ends_with("did you mean \"memory\"?"));
        assert!(refusal("port = 1").ends_with("there are: log, memory"));
        assert!(refusal("s3_address = \"0.0.0.0:1\"").contains("follows from other lines"));
        assert!(refusal("tls_ca = \"x\"").contains("follows from other lines"));
        assert!(refusal("first_bucket = \"x\"").contains("follows from other lines"));
        let secret = refusal("root_secret_key = \"0123456789abcdef\"");
        assert!(secret.contains("is a secret") && !secret.contains("0123456789"), "{secret}");
    }

    #[test]
    fn values_of_secrets_are_not_printable() {
        let text = "log = \"warn\"\nmaster_keys = [\n\"s3cret\",\n]\nroot_secret_key = \"s3cret\"\n\
                    [notifications.hook]\nurl = \"https://me:s3cret@example.org\"\n";
        let lines: Vec<String> =
            printable(text.as_bytes()).unwrap().into_values().map(|it| it.line).collect();
        assert_eq!(lines[0], "log = \"warn\"");
        assert_eq!(lines.len(), 4);
        assert!(!lines.concat().contains("s3cret"), "{lines:?}");
    }

    #[test]
    fn one_machine_makes_the_first_tenant() {
        let text = format!("{THREE}\n[first]\ntenant = \"t\"\nbucket = \"bbb\"\n");
        let spec = ClusterSpec::parse(&text).unwrap();
        let has_first =
            |makes: bool| own_settings(&spec, &spec.nodes[0], makes).contains_key("first_tenant");
        assert!(has_first(true) && !has_first(false));
    }

    #[test]
    fn units_and_scripts_name_the_devices_and_no_placeholder_stays() {
        let odd = THREE.replacen("/srv/martlet/d1", "/srv/it's 100%", 1);
        let (unit, script) = (file(&odd, 1), file(&odd, 2));
        assert!(unit.contains("ReadWritePaths=\"-/srv/it's 100%%\"\n"), "{unit}");
        assert!(script.contains(r"'/srv/it'\''s 100%' '/srv/martlet/d2'"), "{script}");
        assert!(!unit.contains("@WRITABLE@") && !script.contains("@DEVICES@"));
    }
}

//! Check of the environment: a process that serves refuses `MARTLET_` variables that no command
//! reads.
//!
//! The known names are those of the command line: each flag of a role is a setting, and so has a
//! variable; the flags of other commands name theirs. [`READ_ELSEWHERE`] has the few others.
//!
//! A variable of another role is accepted without effect, so that one file of variables may serve
//! all roles. Kubernetes sets variables for each service of a namespace, and a service may be named
//! `martlet`: these are accepted by their form.

use std::collections::BTreeSet;

use clap::Command;
use martlet_serving::{Failure, nearest};

use crate::process::s3_port::S3Settings;

const PREFIX: &str = "MARTLET_";
/// Commands whose flags are settings.
const ROLES: [&str; 5] = ["server", "storage-node", "proxy", "replicator", "node"];
/// Flags of roles that have no variable.
const NOT_SETTINGS: [&str; 3] = ["help", "version", "once"];
/// Variables that no flag names: keys of a new cluster, and switches of tests.
const READ_ELSEWHERE: [&str; 6] = [
    "MARTLET_FIRST_ACCESS_KEY",
    "MARTLET_FIRST_SECRET_KEY",
    "MARTLET_TEST_CLOCK_OFFSET_MS",
    "MARTLET_TEST_PART_BYTES_MIN",
    "MARTLET_TEST_RECLAIM_AGE_MS",
    "MARTLET_TEST_RECLAIM_GRACE_MS",
];
/// Variables of clients, tests and scripts of this repository, which start servers.
const OF_TOOLS: [&str; 21] = [
    "MARTLET_BIN",
    "MARTLET_BUCKET",
    "MARTLET_BUCKETS",
    "MARTLET_CACHE",
    "MARTLET_CLIENTS",
    "MARTLET_CROWD_MIB",
    "MARTLET_DIST_INSIDE",
    "MARTLET_ENDPOINT",
    "MARTLET_ENTRIES",
    "MARTLET_FAULTS",
    "MARTLET_GPU_FACTS",
    "MARTLET_HOST",
    "MARTLET_ODD_KEYS",
    "MARTLET_PROMTOOL",
    "MARTLET_ROUNDS",
    "MARTLET_SCALE_BIN",
    "MARTLET_SEED",
    "MARTLET_SOAK_SECONDS",
    "MARTLET_TEST_DEVICES",
    "MARTLET_TEST_HANG_SECONDS",
    "MARTLET_VENV",
];
/// Unknown variables that one refusal names at most.
const NAMED_MAX: usize = 8;

/// Returns the names of all variables that a command of this program reads.
pub(crate) fn known_names(program: &Command) -> BTreeSet<String> {
    let mut names: BTreeSet<String> = READ_ELSEWHERE.into_iter().map(str::to_owned).collect();
    names.extend(S3Settings::SECRETS.map(variable));
    for role in program.get_subcommands().filter(|it| ROLES.contains(&it.get_name())) {
        let flags = role.get_arguments().map(|flag| flag.get_id().as_str());
        names.extend(flags.filter(|id| !NOT_SETTINGS.contains(id)).map(variable));
    }
    add_named(program, &mut names);
    names
}

/// Adds the variables that flags of a command and of its subcommands name.
fn add_named(command: &Command, names: &mut BTreeSet<String>) {
    let variables = command.get_arguments().filter_map(|flag| flag.get_env());
    names.extend(variables.map(|name| name.to_string_lossy().into_owned()));
    for below in command.get_subcommands() {
        add_named(below, names);
    }
}

fn variable(setting: &str) -> String {
    format!("{PREFIX}{}", setting.to_uppercase())
}

/// Refuses `MARTLET_` variables of this process that no command reads.
pub(crate) fn check(program: &Command) -> Result<(), Failure> {
    let set = std::env::vars_os();
    let set = set.map(|(name, value)| Variable {
        name: name.to_string_lossy().into_owned(),
        value: value.to_string_lossy().into_owned(),
    });
    check_all(&known_names(program), set)
}

/// A variable of the environment.
struct Variable {
    name: String,
    value: String,
}

impl Variable {
    /// Returns true for the variables of a Kubernetes service `martlet` or `martlet-…`.
    fn is_of_kubernetes(&self) -> bool {
        let is_url = ["tcp://", "udp://", "sctp://"].iter().any(|it| self.value.starts_with(it));
        let is_service =
            ["_SERVICE_HOST", "_SERVICE_PORT"].iter().any(|end| self.name.ends_with(end))
                || self.name.contains("_SERVICE_PORT_");
        let is_part = ["_ADDR", "_PORT", "_PROTO"].iter().any(|end| self.name.ends_with(end))
            && ["_TCP_", "_UDP_", "_SCTP_"].iter().any(|it| self.name.contains(it));
        is_url || is_service || is_part
    }
}

fn check_all(known: &BTreeSet<String>, set: impl Iterator<Item = Variable>) -> Result<(), Failure> {
    let is_known = |it: &Variable| known.contains(&it.name) || OF_TOOLS.contains(&&*it.name);
    let mut unknown: Vec<String> = set
        .filter(|it| it.name.starts_with(PREFIX) && !is_known(it) && !it.is_of_kubernetes())
        .map(|it| it.name)
        .collect();
    if unknown.is_empty() {
        return Ok(());
    }
    unknown.sort_unstable();
    let left_out = unknown.len().saturating_sub(NAMED_MAX);
    let mut sentences: Vec<String> =
        unknown.iter().take(NAMED_MAX).map(|name| sentence(known, name)).collect();
    if left_out > 0 {
        sentences.push(format!("and {left_out} more"));
    }
    Err(Failure::usage(sentences.join("\n")))
}

/// Returns a variable without its prefix, which would let short names look alike.
fn short(name: &str) -> &str {
    name.strip_prefix(PREFIX).unwrap_or(name)
}

fn sentence(known: &BTreeSet<String>, name: &str) -> String {
    match nearest(short(name), known.iter().map(|name| short(name.as_str()))) {
        Some(right) => {
            format!("there is no variable {name}: did you mean {PREFIX}{right}?")
        }
        None => format!(
            "there is no variable {name}: unset it. `martlet server --help` names the settings, \
             which are variables in capitals after {PREFIX}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use martlet_serving::settings::CommonSettings;

    use super::*;
    use crate::cli::Cli;
    use crate::{node, proxy, replicator, server, storage_node};

    fn refusal(set: &[&str]) -> String {
        let split = |text: &&str| {
            let (name, value) = text.split_once('=').unwrap();
            Variable { name: name.to_owned(), value: value.to_owned() }
        };
        let checked = check_all(&known_names(&Cli::command()), set.iter().map(split));
        checked.err().map(|failure| failure.to_string()).unwrap_or_default()
    }

    #[test]
    fn a_misspelt_variable_is_refused_with_the_nearest_name() {
        assert_eq!(
            refusal(&["MARTLET_S3_ADRESS=127.0.0.1:9000", "MARTLET_S3_ADDRESS=x"]),
            "there is no variable MARTLET_S3_ADRESS: did you mean MARTLET_S3_ADDRESS?"
        );
        assert!(refusal(&["MARTLET_MASTER_KEY=x"]).contains("MARTLET_MASTER_KEYS?"));
        assert!(refusal(&["MARTLET_ROOT_SECRET=x"]).contains("MARTLET_ROOT_SECRET_KEY?"));
        assert!(refusal(&["MARTLET_CLUSTER_KEY=x"]).contains("MARTLET_CLUSTER_KEY_FILE?"));
        assert!(refusal(&["MARTLET_FROBNICATION=x"]).contains("unset it"));
        assert!(refusal(&["MARTLET_TEST_CLOCK_OFFSET=x"]).contains("_OFFSET_MS?"));
        let many: Vec<String> = (0..12).map(|n| format!("MARTLET_UNHEARD_OF_{n}=1")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(refusal(&many).ends_with("\nand 4 more"));
    }

    #[test]
    fn known_variables_and_those_of_other_programs_are_accepted() {
        for set in [
            "MARTLET_CONFIG=/etc/x",
            "MARTLET_INTERNAL_ADDRESS=1",
            "MARTLET_ROOT_SECRET_KEY=x",
            "MARTLET_CLUSTER_DIR=/x",
            "MARTLET_FIRST_SECRET_KEY=x",
            "MARTLET_BIN=/x",
            "MARTLET_LOG=",
            "HOME=/x",
            "MARTLET_PORT=tcp://10.0.0.1:9000",
            "MARTLET_SERVICE_HOST=10.0.0.1",
            "MARTLET_PROXY_SERVICE_PORT_S3=9000",
            "MARTLET_PORT_9000_TCP=tcp://10.0.0.1:9000",
            "MARTLET_PORT_9000_TCP_ADDR=10.0.0.1",
        ] {
            assert_eq!(refusal(&[set]), "", "{set}");
        }
        assert!(!refusal(&["MARTLET_PORT=9000"]).is_empty(), "no address of a service");
    }

    /// Settings of each role besides the common ones.
    fn settings_of(role: &str) -> Vec<&'static str> {
        match role {
            "server" => server::settings::names(),
            "storage-node" => storage_node::StorageNodeSettings::names(),
            "proxy" => proxy::ProxySettings::names(),
            "replicator" => replicator::ReplicatorSettings::names(),
            "node" => node::setting_names(),
            other => panic!("{other} is no role"),
        }
    }

    #[test]
    fn each_setting_is_a_flag_a_variable_and_a_name_in_the_file() {
        let program = Cli::command();
        let known = known_names(&program);
        for role in ROLES {
            let command = program.find_subcommand(role).unwrap();
            let flags: BTreeSet<&str> =
                command.get_arguments().map(|flag| flag.get_id().as_str()).collect();
            let mut names: BTreeSet<&str> = settings_of(role).into_iter().collect();
            names.extend(CommonSettings::NAMES);
            for name in &names {
                let has_flag = flags.contains(name) != S3Settings::SECRETS.contains(name);
                assert!(has_flag, "{role}: {name} needs a flag unless it is a secret");
                assert!(known.contains(&variable(name)), "{role}: {name} has no variable");
            }
            for flag in flags.iter().filter(|flag| !NOT_SETTINGS.contains(flag)) {
                let is_setting = names.contains(flag) || *flag == "config";
                assert!(is_setting, "{role}: the flag {flag} is no setting");
            }
        }
    }

    #[test]
    fn each_setting_is_plain_or_secret_or_has_an_origin() {
        use martlet_serving::disclosure::{ORIGINS, PLAIN, SECRET};
        let listed: BTreeSet<&str> = [&PLAIN[..], &ORIGINS, &SECRET].concat().into_iter().collect();
        let mut all: BTreeSet<&str> = CommonSettings::NAMES.into_iter().collect();
        all.extend(ROLES.into_iter().flat_map(settings_of));
        assert_eq!(listed, all, "lists of disclosure and names of settings");
        assert!(S3Settings::SECRETS.iter().all(|name| SECRET.contains(name)));
    }

    #[test]
    fn a_flag_is_named_as_its_setting_or_as_one_item_of_it() {
        let program = Cli::command();
        for role in ROLES {
            for flag in program.find_subcommand(role).unwrap().get_arguments() {
                let id = flag.get_id().as_str().replace('_', "-");
                let long = flag.get_long().unwrap();
                let one = id.strip_suffix("ies").map_or_else(
                    || id.strip_suffix('s').unwrap_or(&id).to_owned(),
                    |stem| format!("{stem}y"),
                );
                assert!(long == id || long == one, "{role}: --{long} sets {id}");
            }
        }
    }
}

//! Machines in namespaces of their own, and the operator's machine, which is this process's.
//!
//! * A machine has a network namespace, and a mount namespace with its own `/etc`, `/srv`,
//!   `/var/lib` and `/usr/bin`: layers in memory over this machine's, and folders for its disks.
//! * `ssh` on the operator's machine enters the namespaces. `systemctl` on a machine starts the
//!   command line of the unit that the guide installs, as the unit's user.
//! * Addresses of the guide are replaced by those of the namespaces.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use martlet_tests::network::BridgeNetwork;
use martlet_tests::server;

/// Bound on a block of commands.
const COMMANDS_MAX: Duration = Duration::from_mins(3);
const EDIT_FIRST: &str = "# cluster.toml\n";
const EDIT_APPEND: &str = "# cluster.toml, at its end\n";
const EDIT_REPLACE: &str = "# cluster.toml, the node ";
/// Settings that the guide lacks: all disks of these machines are folders of one.
const SMALL_DISKS: &str =
    "[settings]\nreserve = \"64MiB\"\nmemory = \"256MiB\"\nmax_threads = 2\n\n";

const SSH: &str = r#"#!/bin/sh
# ssh root@ADDRESS COMMAND: enters the namespaces of a machine.
set -eu
pid=$(cat "$(dirname "$0")/../hosts/${1#root@}")
shift
exec nsenter -t "$pid" --net --mount --wd=/ env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin sh -c "$*"
"#;

const SYSTEMCTL: &str = r#"#!/bin/sh
# Starts and stops the unit of this machine as the service manager would.
set -eu
unit=/etc/systemd/system/martlet-node.service
pidfile=/srv/unit.pid
case "$1" in
daemon-reload | enable) ;;
restart)
    if [ -e $pidfile ]; then
        pid=$(cat $pidfile)
        kill -TERM "$pid" 2> /dev/null || true
        while kill -0 "$pid" 2> /dev/null; do sleep 0.1; done
    fi
    user=$(sed -n 's/^User=//p' $unit)
    install -d -o "$user" -g "$user" -m 0700 "/var/lib/$(sed -n 's/^StateDirectory=//p' $unit)"
    line=$(sed -n 's/^ExecStart=//p' $unit)
    setsid setpriv --reuid="$user" --regid="$user" --clear-groups sh -c "umask 077; exec $line" \
        < /dev/null >> /srv/log 2>&1 &
    echo $! > $pidfile
    ;;
*)
    echo "systemctl $1 is not known here" >&2
    exit 1
    ;;
esac
"#;

/// Layers of a machine. `$1` is its folder, `$2` the binary, `$3` the folder of tools.
const SETUP: &str = r#"
set -eu
mount -t tmpfs -o size=64m layers "$1/layers"
for dir in etc srv var/lib usr/bin; do
    name=$(echo $dir | tr / -)
    mkdir -p "$1/layers/$name/upper" "$1/layers/$name/work"
    mount -t overlay layer \
        -o "lowerdir=/$dir,upperdir=$1/layers/$name/upper,workdir=$1/layers/$name/work" "/$dir"
done
grep -v ^martlet: /etc/passwd > /etc/passwd.new || true
echo martlet:x:990:990::/var/lib/martlet:/usr/sbin/nologin >> /etc/passwd.new
mv /etc/passwd.new /etc/passwd
grep -v ^martlet: /etc/group > /etc/group.new || true
echo martlet:x:990: >> /etc/group.new
mv /etc/group.new /etc/group
chmod 0644 /etc/passwd /etc/group
rm -rf /etc/martlet /var/lib/martlet /srv/martlet
mkdir -p /etc/systemd/system
rm -f /usr/bin/martlet /usr/bin/systemctl
touch /usr/bin/martlet
mount --bind "$2" /usr/bin/martlet
cp "$3/systemctl" /usr/bin/systemctl
for disk in d1 d2; do
    mkdir -p "/srv/martlet/$disk" "$1/$disk"
    mount --bind "$1/$disk" "/srv/martlet/$disk"
done
chmod 0755 /srv/martlet
mkdir -p /var/lib/martlet-setup-done
touch "$1/ready"
exec sleep infinity
"#;

/// A machine.
struct Machine {
    /// Process that keeps the mount namespace.
    anchor: Child,
    folder: PathBuf,
}

impl Machine {
    /// The whole log of the machine's unit; empty before its first start.
    fn log(&self) -> String {
        let process = Path::new("/proc").join(self.anchor.id().to_string());
        let log = fs::read(process.join("root").join("srv").join("log"));
        String::from_utf8_lossy(&log.unwrap_or_default()).into_owned()
    }
}

/// The operator's machine, and the cluster's machines on its network.
pub(super) struct Workshop {
    network: BridgeNetwork,
    place: tempfile::TempDir,
    machines: Vec<Machine>,
    /// Addresses of the guide, and those that stand for them.
    addresses: Vec<(String, String)>,
    /// All that commands have printed.
    printed: String,
}

impl Workshop {
    /// Makes a network without machines. Prints that the test is skipped and returns `None` where
    /// that is impossible.
    pub(super) fn new(test: &str) -> Option<Self> {
        for program in ["curl", "setpriv", "nsenter", "unshare", "tar", "install"] {
            if Command::new(program).arg("--version").output().is_err() {
                println!("SKIPPED {test}: it needs {program}");
                return None;
            }
        }
        let network = BridgeNetwork::new(test)?;
        let place = tempfile::tempdir().unwrap();
        let tools = place.path().join("tools");
        for folder in ["tools", "hosts", "work"] {
            fs::create_dir(place.path().join(folder)).unwrap();
        }
        for (name, text) in [("ssh", SSH), ("systemctl", SYSTEMCTL)] {
            write_program(&tools.join(name), text);
        }
        // The operator's machine has no service manager to reach by mistake.
        fs::create_dir(tools.join("bin")).unwrap();
        fs::rename(tools.join("ssh"), tools.join("bin/ssh")).unwrap();
        fs::create_dir(tools.join("hosts")).unwrap();
        std::os::unix::fs::symlink(server::binary(), tools.join("bin/martlet")).unwrap();
        let (machines, addresses) = (Vec::new(), Vec::new());
        Some(Self { network, place, machines, addresses, printed: String::new() })
    }

    /// Adds a machine under an address of the guide. Prints that the test is skipped and returns
    /// false where its namespaces can't be made.
    pub(super) fn add_machine(&mut self, test: &str, name: &str, address: &str) -> bool {
        let host = self.network.add(name);
        let folder = self.place.path().join(name);
        fs::create_dir_all(folder.join("layers")).unwrap();
        let log = fs::File::create(folder.join("setup.log")).unwrap();
        let mut command = host.command(Path::new("unshare"));
        command.args(["--mount", "--propagation", "private", "sh", "-c", SETUP, "sh"]);
        command.arg(&folder).arg(server::binary()).arg(self.place.path().join("tools"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let mut anchor = command.spawn().unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        while !folder.join("ready").exists() {
            let ended = anchor.try_wait().unwrap();
            if ended.is_some() || Instant::now() > until {
                drop(anchor.kill());
                let why = fs::read_to_string(folder.join("setup.log")).unwrap();
                println!("SKIPPED {test}: a mount namespace can't be made: {}", why.trim());
                return false;
            }
            wait(Duration::from_millis(20));
        }
        let hosts = self.place.path().join("tools/hosts");
        fs::write(hosts.join(host.address.to_string()), anchor.id().to_string()).unwrap();
        self.machines.push(Machine { anchor, folder });
        self.addresses.push((address.to_owned(), host.address.to_string()));
        true
    }

    /// Path in the operator's working folder.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.place.path().join("work").join(name)
    }

    fn with_addresses(&self, text: &str) -> String {
        let replace = |text: String, (guide, own): &(String, String)| text.replace(guide, own);
        self.addresses.iter().fold(text.to_owned(), replace)
    }

    /// Does an edit of the guide: the whole file, an addition to it, or another node of a name.
    pub(super) fn edit(&self, block: &str) {
        let path = self.path("cluster.toml");
        let block = self.with_addresses(block);
        if let Some(added) = block.strip_prefix(EDIT_APPEND) {
            let text = fs::read_to_string(&path).unwrap();
            fs::write(&path, format!("{text}\n{added}")).unwrap();
        } else if let Some(rest) = block.strip_prefix(EDIT_REPLACE) {
            let (name, node) = rest.split_once('\n').unwrap();
            let text = fs::read_to_string(&path).unwrap();
            let mark = format!("name = \"{name}\"");
            let parts: Vec<&str> = text
                .split("[[node]]\n")
                .map(|part| {
                    if part.contains(&mark) {
                        node.strip_prefix("[[node]]\n").unwrap()
                    } else {
                        part
                    }
                })
                .collect();
            fs::write(&path, parts.join("[[node]]\n")).unwrap();
        } else {
            assert!(block.starts_with(EDIT_FIRST), "{block}");
            let text = block.replacen("[[node]]", &format!("{SMALL_DISKS}[[node]]"), 1);
            fs::write(&path, text).unwrap();
        }
    }

    /// Runs commands on the operator's machine, and returns what they print.
    pub(super) fn run(&mut self, commands: &str) -> String {
        self.run_for(commands, COMMANDS_MAX)
    }

    /// Runs commands that may take up to `longest`.
    pub(super) fn run_for(&mut self, commands: &str, longest: Duration) -> String {
        let (is_success, text) = self.execute(commands, longest);
        assert!(is_success, "{commands}\nfailed:\n{text}\n{}", self.logs());
        text
    }

    /// Runs commands until they succeed. They may fail for the reason `why` alone: the rings are
    /// still on their way to some nodes.
    pub(super) fn run_until(&mut self, commands: &str, why: &str) -> String {
        let until = Instant::now() + COMMANDS_MAX;
        loop {
            let (is_success, text) = self.execute(commands, COMMANDS_MAX);
            if is_success {
                return text;
            }
            let waits = text.contains(why) && Instant::now() < until;
            assert!(waits, "{commands}\nfailed:\n{text}\n{}", self.logs());
            wait(Duration::from_secs(1));
        }
    }

    /// Runs commands that must fail, and returns what they print.
    pub(super) fn refused(&mut self, commands: &str) -> String {
        let (is_success, text) = self.execute(commands, COMMANDS_MAX);
        assert!(!is_success, "{commands}\nsucceeded:\n{text}");
        text
    }

    fn execute(&mut self, commands: &str, longest: Duration) -> (bool, String) {
        let commands = self.with_addresses(commands);
        let log = self.place.path().join("printed");
        let output = fs::File::create(&log).unwrap();
        let path = format!(
            "{}:{}",
            self.place.path().join("tools/bin").display(),
            std::env::var("PATH").unwrap()
        );
        let mut child = Command::new("sh")
            .args(["-e", "-c", &commands])
            .current_dir(self.place.path().join("work"))
            .env("PATH", path)
            .env_remove("MARTLET_ROOT_ACCESS_KEY")
            .env_remove("MARTLET_ROOT_SECRET_KEY")
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .process_group(0)
            .spawn()
            .unwrap();
        let until = Instant::now() + longest;
        let mut status = child.try_wait().unwrap();
        while status.is_none() && Instant::now() < until {
            wait(Duration::from_millis(20));
            status = child.try_wait().unwrap();
        }
        if status.is_none() {
            kill(&format!("-{}", child.id()));
            child.wait().unwrap();
        }
        let text = fs::read_to_string(&log).unwrap();
        println!("$ {}\n{text}", commands.trim_end());
        self.printed += &text;
        (status.is_some_and(|status| status.success()), text)
    }

    /// Checks that no key of the output folder was printed, and none is in a log.
    pub(super) fn check_that_no_secret_is_printed(&self) {
        let logs: String = self.machines.iter().map(Machine::log).collect();
        assert!(!logs.is_empty(), "the machines that run have logs");
        for name in ["cluster.key", "master.key", "sse-master.key", "credentials", "first-key"] {
            let text = fs::read_to_string(self.path("out/cluster").join(name)).unwrap();
            for secret in text.lines().map(|line| line.rsplit('=').next().unwrap_or(line)) {
                let is_access_key = secret.len() == 20;
                assert!(is_access_key || secret.len() >= 40, "{name} is short");
                assert!(is_access_key || !self.printed.contains(secret), "{name} is printed");
                assert!(is_access_key || !logs.contains(secret), "{name} is logged");
            }
        }
    }

    /// Last lines of the machines' logs.
    fn logs(&self) -> String {
        let log = |machine: &Machine| {
            let text = machine.log();
            let from = text.len().saturating_sub(6000);
            let last = text.get(text.ceil_char_boundary(from)..).unwrap_or_default();
            format!("--- {}\n{last}", machine.folder.display())
        };
        self.machines.iter().map(log).collect()
    }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        for machine in &mut self.machines {
            let process = Path::new("/proc").join(machine.anchor.id().to_string());
            let pidfile = process.join("root").join("srv").join("unit.pid");
            if let Ok(pid) = fs::read_to_string(pidfile) {
                kill(pid.trim());
            }
            drop(machine.anchor.kill());
            drop(machine.anchor.wait());
        }
    }
}

/// Kills a process or, with `-`, a group of processes that this test has started.
fn kill(target: &str) {
    drop(Command::new("kill").args(["-KILL", "--", target]).output());
}

fn write_program(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Waits between two looks at a process or a file.
#[expect(clippy::disallowed_methods, reason = "commands of the guide run without a runtime")]
fn wait(time: Duration) {
    std::thread::sleep(time);
}

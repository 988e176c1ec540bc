//! `martlet doctor` on one machine: a fault for each check, beside a server and before its start.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use martlet_tests::Setup;
use martlet_tests::doctor::DoctorReport;
use martlet_tests::server::martlet;
use rcgen::{CertificateParams, KeyPair};
use time::{Duration, OffsetDateTime};

/// Returns the command for a data folder, with ports that the kernel chooses.
fn doctor(data_dir: &Path) -> Command {
    let mut command = martlet(&["doctor", "--json", "--data-dir", data_dir.to_str().unwrap()]);
    command.env("MARTLET_S3_ADDRESS", "127.0.0.1:0").env("MARTLET_ADMIN_ADDRESS", "127.0.0.1:0");
    command
}

/// Names and lengths of all files below a folder.
fn listing(folder: &Path) -> Vec<(PathBuf, u64)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        match entry.path() {
            path if path.is_dir() => all.extend(listing(&path)),
            path => all.push((path, entry.metadata().unwrap().len())),
        }
    }
    all.sort();
    all
}

#[tokio::test]
async fn a_running_server_is_examined_and_left_alone() {
    let setup = Setup::new();
    let mut server = setup.start().await;
    server.client().make_bucket("box").await;
    let data = setup.data_dir();
    let mut command = doctor(&data);
    command.env("MARTLET_S3_ADDRESS", server.s3_address.to_string());
    command.env("MARTLET_ADMIN_ADDRESS", server.admin_address.to_string());
    let report = DoctorReport::of(&mut command);
    report.assert_one("settings", "environment", "ok: ");
    report.assert_one("settings", "process", "ok: ");
    let held = format!("ok: held by martlet, process {}", server.pid());
    report.assert_one("port", &server.s3_address.to_string(), &held);
    report.assert_one("port", &server.admin_address.to_string(), &held);
    report.assert_one("format", "device0", "ok: version 2 of 2");
    assert!(report.of_check("syncs", "device0")[0].contains("writes of 4 KiB with fdatasync"));
    report.assert_one("secret file", "token.key", "ok: ");
    report.assert_one("version", "martlet", "ok: ");
    assert!(server.stop().await.success());
    let before = listing(&data);
    DoctorReport::of(&mut doctor(&data));
    assert_eq!(listing(&data), before, "nothing is changed");
}

#[test]
fn a_machine_before_the_first_start() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("later");
    let report = DoctorReport::of(&mut doctor(&data));
    report.assert_one("format", "device0", "ok: no device yet");
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0, "nothing is made");
}

#[test]
fn names_that_no_process_knows() {
    let place = tempfile::tempdir().unwrap();
    let report = DoctorReport::of(doctor(place.path()).env("MARTLET_S3_ADRESS", "x"));
    let refusal = "fail: there is no variable MARTLET_S3_ADRESS: did you mean MARTLET_S3_ADDRESS?";
    report.assert_one("settings", "environment", refusal);
    assert_eq!(report.code, 2);
    let report = DoctorReport::of(doctor(place.path()).env("MARTLET_MAX_REQUESTS", "0"));
    report.assert_one("settings", "process", "fail: max_requests must be at least 1");
}

#[test]
fn a_port_that_another_program_holds() {
    let place = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let report = DoctorReport::of(doctor(place.path()).env("MARTLET_S3_ADDRESS", &address));
    let [found] = report.of_check("port", &address).try_into().unwrap();
    let pid = format!("process {} → stop that process", std::process::id());
    assert!(found.starts_with("fail: held by") && found.contains(&pid), "{found}");
    let report = DoctorReport::of(doctor(place.path()).env("MARTLET_S3_ADDRESS", "192.0.2.1:9000"));
    report.assert_one("port", "192.0.2.1:9000", "fail: no interface of this machine");
}

#[test]
fn few_open_files() {
    let place = tempfile::tempdir().unwrap();
    let inner = doctor(place.path());
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 256; exec \"$@\"", "sh"]).arg(inner.get_program());
    limited.args(inner.get_args());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    let report = DoctorReport::of(&mut limited);
    report.assert_one("open files", "nofile", "fail: at most 256");
    let wide = DoctorReport::of(&mut doctor(place.path()));
    assert!(!wide.of_check("open files", "nofile")[0].contains("at most 256"));
}

#[test]
fn an_expired_certificate_and_a_readable_key() {
    let place = tempfile::tempdir().unwrap();
    let pair = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let now = OffsetDateTime::now_utc();
    params.not_before = now - Duration::days(100);
    params.not_after = now - Duration::days(2);
    let (certificate, key) = (place.path().join("c.pem"), place.path().join("k.pem"));
    fs::write(&certificate, params.self_signed(&pair).unwrap().pem()).unwrap();
    fs::write(&key, pair.serialize_pem()).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let mut command = doctor(&place.path().join("data"));
    command.env("MARTLET_S3_TLS_CERTIFICATE", &certificate).env("MARTLET_S3_TLS_KEY", &key);
    let report = DoctorReport::of(&mut command);
    report.assert_one("certificate", "s3_tls_certificate", "fail: ended 2 days ago");
    report.assert_one("secret file", "k.pem", "fail: other users can read it");
    let other = KeyPair::generate().unwrap();
    fs::write(&key, other.serialize_pem()).unwrap();
    let report = DoctorReport::of(&mut command);
    let [found] = report.of_check("certificate", "s3_tls").try_into().unwrap();
    assert!(found.contains("does not belong to it"), "{found}");
}

/// A tmpfs that is mounted while this value lives.
struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    fn new(size: &str) -> Option<Self> {
        let place = tempfile::tempdir().unwrap();
        let size = format!("size={size}");
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &size, "martlet-test"]).arg(place.path());
        let mounted = command.output().is_ok_and(|output| output.status.success());
        mounted.then(|| Self(place))
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_tmpfs_as_a_device_and_two_devices_on_one_disk() {
    let Some(tmpfs) = Tmpfs::new("1m") else {
        println!("SKIPPED a_full_tmpfs_as_a_device: it needs root to mount");
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let disk = tmpfs.0.path();
    // Writing ends with the space.
    let _ = fs::write(disk.join("full"), vec![0; 2 << 20]);
    let (one, two) = (disk.join("one"), disk.join("two"));
    let mut command = doctor(place.path());
    command.args(["--device", one.to_str().unwrap(), "--device", two.to_str().unwrap()]);
    let report = DoctorReport::of(&mut command);
    assert_eq!(report.code, 2);
    report.assert_one("file system", "one", "fail: tmpfs on martlet-test");
    report.assert_one("space", "one", "fail: 0 B of");
    report.assert_one("syncs", "one", "fail: ");
    report.assert_one("disks", "2 devices", "warn: ");
    let names: Vec<_> = fs::read_dir(disk).unwrap().flatten().map(|it| it.file_name()).collect();
    assert_eq!(names, ["full"], "the probe leaves nothing behind");
    let mut quiet = command;
    assert!(DoctorReport::of(quiet.arg("--no-probe")).of_check("syncs", "").is_empty());
}

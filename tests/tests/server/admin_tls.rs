//! TLS at the admin address: host names, authorities by flag, variable and file, renewal, and errors
//! where one side has TLS and the other has none.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

use martlet_tests::Setup;
use martlet_tests::s3::SECRET_KEY;
use martlet_tests::server::{Server, finished, martlet};
use rcgen::generate_simple_self_signed;
use tokio::time::sleep;

const PATIENCE: Duration = Duration::from_mins(1);
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Certificate for `localhost` and its key, in two files of a setup.
struct CertificateFiles {
    chain: PathBuf,
    key: PathBuf,
}

impl CertificateFiles {
    fn new(setup: &Setup) -> Self {
        let files = Self { chain: setup.join("admin.crt"), key: setup.join("admin.key") };
        files.renew();
        files
    }

    fn renew(&self) {
        write_certificate(&self.chain, &self.key);
    }
}

fn write_certificate(chain: &Path, key: &Path) {
    let made = generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(chain, made.cert.pem()).unwrap();
    std::fs::write(key, made.signing_key.serialize_pem()).unwrap();
}

fn secured(setup: Setup, files: &CertificateFiles) -> Setup {
    let [chain, key] = [&files.chain, &files.key].map(|path| path.to_str().unwrap());
    setup.flags(&["--admin-tls-certificate", chain, "--admin-tls-key", key])
}

/// Runs `martlet admin … status` with these arguments and variables.
fn asked(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = martlet(&["admin"]);
    command.env("MARTLET_ROOT_SECRET_KEY", SECRET_KEY).envs(variables.iter().copied());
    finished(command.args(arguments).arg("status"))
}

fn refusal(arguments: &[&str]) -> String {
    let output = asked(arguments, &[]);
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn address(server: &Server, host: &str) -> String {
    format!("{host}:{}", server.admin_address.port())
}

#[tokio::test]
async fn the_host_name_is_verified_by_an_authority_from_flag_variable_or_file() {
    let setup = Setup::new();
    let files = CertificateFiles::new(&setup);
    let setup = secured(setup, &files);
    let server = setup.start_and_announce().await;
    let (named, authority) = (address(&server, "localhost"), files.chain.to_str().unwrap());

    let by_flag = asked(&["--admin-address", &named, "--admin-ca", authority], &[]);
    let by_variable =
        asked(&[], &[("MARTLET_ADMIN_ADDRESS", &named), ("MARTLET_ADMIN_CA", authority)]);
    let config = setup.join("admin.toml");
    std::fs::write(&config, format!("admin_address = '{named}'\nadmin_ca = 'admin.crt'")).unwrap();
    let by_file = asked(&["--admin-config", config.to_str().unwrap()], &[]);
    for output in [by_flag, by_variable, by_file] {
        assert!(output.status.success(), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("(server) is ready"));
    }

    let other_name = address(&server, "127.0.0.1");
    let refused = refusal(&["--admin-address", &other_name, "--admin-ca", authority]);
    assert!(refused.contains("is not for the name 127.0.0.1"), "{refused}");
    let [other, key] = ["other.crt", "other.key"].map(|name| setup.join(name));
    write_certificate(&other, &key);
    let refused = refusal(&["--admin-address", &named, "--admin-ca", other.to_str().unwrap()]);
    assert!(refused.contains("--admin-ca"), "{refused}");
}

#[tokio::test]
async fn a_renewed_certificate_is_taken_up() {
    let setup = Setup::new();
    let files = CertificateFiles::new(&setup);
    let server = secured(setup, &files).start_and_announce().await;
    let (named, authority) = (address(&server, "localhost"), files.chain.to_str().unwrap());
    let asks = || asked(&["--admin-address", &named, "--admin-ca", authority], &[]);
    assert!(asks().status.success());
    files.renew();
    assert!(!asks().status.success(), "the process can't have the new certificate at once");
    let begun = Instant::now();
    while !asks().status.success() {
        assert!(begun.elapsed() < PATIENCE, "the new certificate is not used");
        sleep(LOOK_EVERY).await;
    }
}

#[tokio::test]
async fn clear_and_tls_point_to_each_other() {
    let setup = Setup::new();
    let files = CertificateFiles::new(&setup);
    let setup = secured(setup, &files);
    let server = setup.start_and_announce().await;
    let in_clear = format!("http://{}", address(&server, "localhost"));
    let refused = refusal(&["--admin-address", &in_clear]);
    assert!(refused.contains("write https:// instead of http://"), "{refused}");
    drop(server);

    let server = Setup::new().start().await;
    let named = format!("https://{}", address(&server, "localhost"));
    let authority = files.chain.to_str().unwrap();
    let refused = refusal(&["--admin-address", &named, "--admin-ca", authority]);
    assert!(refused.contains("answers in clear"), "{refused}");
}

#[test]
fn other_machines_reach_no_admin_address_in_clear() {
    let (code, sentence) = Setup::new().flags(&["--admin-address", "0.0.0.0:0"]).refusal();
    assert_eq!(code, 2);
    assert!(sentence.contains("admin_allow_clear"), "{sentence}");
}

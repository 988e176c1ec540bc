//! `martlet doctor`: checks of this machine and its cluster, before and while processes run.
//!
//! The settings of a process name the things to examine. They are read as the process reads them,
//! from its file and the environment.

mod examined;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::OnceLock;

use clap::{Args, Command, ValueEnum};
use martlet_admin_api as wire;
use martlet_doctor::{ExamineStage, Finding, PeerView, Report, Verdict, examine};
use martlet_serving::Failure;

use self::examined::{ExaminedSettings, ReadSettings};
use crate::admin::{AdminAddress, AdminConnection};
use crate::environment;
use crate::progress::CountedWork;

/// Check of the settings themselves.
const SETTINGS: &str = "settings";

/// Arguments of `martlet doctor`.
#[derive(Args, Clone, Debug, Default)]
#[command(after_help = "\
Each line is a finding: ok, WARN or FAIL, with what was seen and what to do. The exit code is 0 if \
all is well, 1 with warnings, 2 with failures.

Nothing is changed, but for a file that the probe of syncs writes beside each device's data and \
removes. Run it as the server's user, with the variables of its unit.

Examples:
  martlet doctor                                    a server with its data in ./martlet-data
  martlet doctor --device /mnt/d1 --device /mnt/d2  disks before the first start
  martlet doctor --role node --config /etc/martlet
  martlet doctor --role node --config /etc/martlet --peer 10.0.0.2:9001 --json")]
pub(crate) struct DoctorArgs {
    /// Role whose settings are read [default: node for a folder, else server]
    #[arg(long, value_enum, value_name = "ROLE")]
    role: Option<ExaminedRole>,
    /// Settings file of the process, or the folder of `martlet node`
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Data folder, in place of the settings'
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Folder of a device, with its name in the rings, in place of the settings'; repeatable
    #[arg(long = "device", value_name = "[NAME=]DIR")]
    devices: Vec<String>,
    /// File with the cluster's key, in place of the settings'
    #[arg(long, value_name = "FILE")]
    cluster_key_file: Option<PathBuf>,
    /// Admin address of another process, whose view of this node is examined; repeatable
    #[arg(long = "peer", value_name = "HOST:PORT")]
    peers: Vec<AdminAddress>,
    /// Certificates of the authority that signed the certificates of these addresses (PEM)
    #[arg(long, value_name = "FILE", env = "MARTLET_ADMIN_CA")]
    admin_ca: Option<PathBuf>,
    /// Leave out the probe of syncs, which writes a file
    #[arg(long)]
    no_probe: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Role whose settings are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExaminedRole {
    /// `martlet server`
    Server,
    /// `martlet storage-node`
    StorageNode,
    /// `martlet proxy`
    Proxy,
    /// `martlet replicator`
    Replicator,
    /// `martlet node`
    Node,
}

/// Runs the checks and prints the report. Returns the exit code of its verdict.
pub(crate) fn run(args: &DoctorArgs, program: &Command) -> Result<ExitCode, Failure> {
    let mut work = CountedWork::begin("doctor", args.json);
    let mut observe = |ExamineStage { done, total, running }: ExamineStage| {
        let text = format!("{done} of {total} groups of checks done, now {running}");
        work.show(&text, "groups", done, Some(total));
    };
    let report = report(args, program, &mut observe)?;
    drop(work);
    if args.json {
        println!("{:#}", to_json(&report));
    } else {
        print!("{}", report.to_text());
    }
    Ok(ExitCode::from(report.exit_code()))
}

/// Runs the checks.
fn report(
    args: &DoctorArgs,
    program: &Command,
    observe: &mut dyn FnMut(ExamineStage),
) -> Result<Report, Failure> {
    let ReadSettings { settings, problem } = examined::read(args)?;
    let mut findings: Vec<Finding> = Vec::new();
    findings.push(match environment::check(program) {
        Err(failure) => Finding::ok(SETTINGS, "environment", failure.to_string())
            .fail("correct or unset the variables: no process starts with them"),
        Ok(()) => Finding::ok(SETTINGS, "environment", "all MARTLET_ variables are known"),
    });
    findings.push(match problem {
        Some(failure) => Finding::ok(SETTINGS, "process", failure.to_string()).fail(
            "correct the setting; if it comes from the environment of the unit, run doctor with \
             those variables",
        ),
        None => Finding::ok(SETTINGS, "process", "a process would start with them"),
    });
    let mut target = settings.target(!args.no_probe);
    target.views = views(args, &settings);
    findings.extend(examine(&target, observe).findings);
    Ok(Report { findings })
}

/// Queries other processes at their admin addresses.
fn views(args: &DoctorArgs, settings: &ExaminedSettings) -> Vec<PeerView> {
    let (folder, key) = (settings.data_dir(), settings.cluster_key_file());
    let status = |address: &AdminAddress| {
        let connection = AdminConnection {
            address: address.clone(),
            authority: args.admin_ca.clone(),
            data_dir: folder.clone(),
            cluster_key_file: key.map(Path::to_owned),
            admin_key_file: None,
            session: OnceLock::new(),
        };
        connection.endpoint()?.request_json(wire::STATUS, &[])
    };
    let peers = args.peers.iter();
    peers
        .map(|address| PeerView {
            address: address.to_string(),
            status: status(address).map_err(|failure: Failure| failure.to_string()),
        })
        .collect()
}

/// Runs the checks for a settings file, or for a server with this data folder. The report is for
/// other readers than this machine's operator: it doesn't quote settings.
pub(crate) fn shareable_report(
    config: Option<&Path>,
    role: Option<ExaminedRole>,
    data_dir: &Path,
    program: &Command,
) -> serde_json::Value {
    let data_dir = config.is_none().then(|| data_dir.to_owned());
    let args =
        DoctorArgs { config: config.map(Path::to_owned), role, data_dir, ..DoctorArgs::default() };
    let unusable = "the settings can't be used: martlet doctor names the mistake";
    let Ok(mut report) = report(&args, program, &mut |_| ()) else {
        return serde_json::json!({ "verdict": "fail", "findings": [], "error": unusable });
    };
    let of_settings = report.findings.iter_mut().filter(|finding| finding.check == SETTINGS);
    for finding in of_settings.filter(|finding| finding.verdict != Verdict::Ok) {
        unusable.clone_into(&mut finding.seen);
    }
    to_json(&report)
}

fn to_json(report: &Report) -> serde_json::Value {
    serde_json::json!({ "verdict": report.verdict(), "findings": report.findings })
}

//! The plan: every file of the output folder that differs from the file's cluster, and the rings to
//! push.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use martlet_admin_api::RingLine;
use martlet_protocol::{Clock, SystemClock};
use martlet_ring::{MovePace, RebalancePlan, Report, Ring};
use martlet_serving::{Failure, Size};
use serde::Serialize;
use time::OffsetDateTime;

use crate::certificates::{Authority, Wanted};
use crate::files::{self, FileChange, FileKind, LockedOutput, WantedFile};
use crate::machine;
use crate::made::{self, MadeBefore};
use crate::names::{AUTHORITY, AUTHORITY_FILE, CLUSTER_DIR, OPERATOR};
use crate::reach::{NodeSurvey, usage};
use crate::rings::{self, RingContext, RingOutcome};
use crate::secrets::Secrets;
use crate::spec::{ClusterSpec, NodeRole, NodeSpec};

/// Options of a plan.
#[derive(Clone, Debug)]
pub struct PlanOptions {
    /// True if a clean census has shown that all moves are complete.
    pub settle: bool,
    /// True if the last device of a zone may leave, and the last holders of a partition.
    pub force: bool,
    /// Bytes per second of moves at each device.
    pub bandwidth: Size,
    /// Share of a device's capacity above which the plan warns.
    pub high_water: f64,
    /// Names of the settings of `martlet node`.
    pub settings: Vec<&'static str>,
}

/// Change of a ring.
#[derive(Clone, Debug, Serialize)]
pub struct RingStep {
    /// Name of the ring.
    pub name: String,
    /// Epoch of the ring.
    pub epoch: u64,
    /// Partitions of the ring, as a power of two.
    pub part_power: u8,
    /// Replicas of each partition.
    pub replicas: f64,
    /// Devices of the ring.
    pub devices: usize,
    /// True if the ring is new or another than before.
    pub changes: bool,
    /// Edits of the devices, in sentences.
    pub edits: Vec<String>,
    /// Result of the rebalance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<Report>,
    /// Partitions, bytes, hours and fill levels of the moves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<RebalancePlan>,
}

/// Certificate of a plan.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CertificateStep {
    pub(crate) path: PathBuf,
    /// Reason for a new certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// Last day of the certificate.
    pub(crate) ends: String,
}

/// All changes that follow from a file.
pub struct ClusterPlan {
    pub(crate) name: String,
    pub(crate) nodes: Vec<String>,
    pub(crate) changes: Vec<FileChange>,
    pub(crate) certificates: Vec<CertificateStep>,
    pub(crate) steps: Vec<RingStep>,
    pub(crate) waits: Option<String>,
    /// Folders of machines that the file no longer names.
    pub(crate) left_over: Vec<PathBuf>,
    pub(crate) survey: Vec<NodeSurvey>,
    pub(crate) bandwidth: Size,
    outcomes: Vec<RingOutcome>,
}

impl ClusterPlan {
    /// Computes the plan of a file for an output folder. Touches nothing.
    pub fn make(
        spec: &ClusterSpec,
        out: &Path,
        survey: Vec<NodeSurvey>,
        options: &PlanOptions,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Failure> {
        machine::check_settings(spec, &options.settings)?;
        if options.settle && survey.is_empty() {
            return Err(Failure::usage(format!(
                "--settle needs the running nodes, and none was asked: name with --out the folder \
                 whose {CLUSTER_DIR}/ has the keys of the cluster"
            )));
        }
        let (now, now_ms) = (OffsetDateTime::now_utc(), SystemClock.now_ms());
        let used = usage(&survey);
        let context = RingContext {
            now_ms,
            settle: options.settle,
            force: options.force,
            usage: &used,
            pace: MovePace {
                bytes_per_second: options.bandwidth.0,
                high_water: options.high_water,
            },
            survey: &survey,
        };
        let traces = MadeBefore::find(spec, out);
        let rings = rings::follow(spec, &traces, &context)?;
        let secrets = Secrets::find_or_make(spec, &traces, environment)?;
        let mut wanted: Vec<WantedFile> = secrets.kept().collect();
        let certificates = certificates(spec, &traces, now, &mut wanted)?;
        let maker = traces.maker_of_first(spec).map(NodeSpec::name);
        for node in &spec.nodes {
            let makes_first = maker == Some(node.name());
            wanted.extend(secrets.of_machine(node, makes_first));
            wanted.extend(machine::files(spec, node, makes_first));
            wanted.extend(ring_files(node.name(), &rings.rings));
        }
        wanted.extend(ring_files(CLUSTER_DIR, &rings.rings));
        let changes = wanted.into_iter().map(|file| FileChange::of(out, file));
        let changes = changes.filter_map(Result::transpose).collect::<Result<_, _>>()?;
        Ok(Self {
            name: spec.name.get_ref().clone(),
            nodes: spec.nodes.iter().map(|node| node.name().to_owned()).collect(),
            changes,
            certificates,
            steps: rings.rings.iter().map(step).collect(),
            waits: rings.waits,
            left_over: made::left_over(spec, out),
            survey,
            bandwidth: options.bandwidth,
            outcomes: rings.rings,
        })
    }

    /// True if the output folder and all nodes that answer are as the file asks.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && !self.changes_rings() && self.stale_rings().is_empty()
    }

    fn changes_rings(&self) -> bool {
        self.outcomes.iter().any(|ring| ring.is_changed)
    }

    /// Reason for which the rings don't change yet.
    pub fn waits(&self) -> Option<&str> {
        self.waits.as_deref()
    }

    /// Rings that a node that answers lacks, in the order of their push: rings of extents first, so
    /// that the extents of new entries can be found.
    pub fn stale_rings(&self) -> Vec<(&str, &Ring)> {
        let outcomes = self.outcomes.iter().skip(1).chain(self.outcomes.first());
        outcomes
            .filter(|ring| self.survey.iter().any(|node| lacks(node, ring)))
            .map(|ring| (ring.name.as_str(), &ring.ring))
            .collect()
    }

    /// State of the storage nodes, as the plan found them.
    pub fn survey(&self) -> &[NodeSurvey] {
        &self.survey
    }

    /// Writes all changes to the output folder, which the caller has locked since before the plan.
    ///
    /// Keys and the authority come first, then builders, then the files of machines: after a crash
    /// the next apply continues from the builders.
    ///
    /// # Errors
    /// The rings wait: settings may name rings that don't exist yet.
    pub fn write(&self, out: &LockedOutput) -> Result<(), Failure> {
        if let Some(why) = &self.waits {
            return Err(Failure::refused(format!(
                "nothing is written while the rings wait: {why}"
            )));
        }
        self.writes().into_iter().try_for_each(|write| write.run(out.path()))
    }

    /// All writes in their order. A crash may come between any two of them.
    fn writes(&self) -> Vec<PlannedWrite<'_>> {
        let is_first = |change: &&FileChange| {
            change.wanted.kind == FileKind::Secret || change.wanted.path == authority_path()
        };
        let keys = self.changes.iter().filter(is_first).map(PlannedWrite::File);
        let changed = self.outcomes.iter().filter(|ring| ring.is_changed);
        let others = self.changes.iter().filter(|change| !is_first(change));
        keys.chain(changed.map(PlannedWrite::Builder))
            .chain(others.map(PlannedWrite::File))
            .collect()
    }

    /// Machines whose folder must be copied to them. Newer rings alone reach machines by a push.
    pub fn machines_to_copy(&self) -> Vec<&str> {
        let must_copy =
            |change: &&FileChange| change.wanted.kind != FileKind::Ring || change.before.is_none();
        let changes = self.changes.iter().filter(must_copy);
        let changed: BTreeSet<&str> =
            changes.filter_map(|change| folder(&change.wanted.path)).collect();
        let names = self.nodes.iter().map(String::as_str);
        names.filter(|name| changed.contains(name)).collect()
    }

    /// Changes by their first folder.
    pub(crate) fn by_folder(&self) -> BTreeMap<&str, Vec<&FileChange>> {
        let mut folders: BTreeMap<&str, Vec<&FileChange>> = BTreeMap::new();
        for change in &self.changes {
            if let Some(name) = folder(&change.wanted.path) {
                folders.entry(name).or_default().push(change);
            }
        }
        folders
    }
}

/// A write of a plan.
enum PlannedWrite<'a> {
    File(&'a FileChange),
    Builder(&'a RingOutcome),
}

impl PlannedWrite<'_> {
    fn run(&self, out: &Path) -> Result<(), Failure> {
        match self {
            Self::File(change) => change.write(out),
            Self::Builder(ring) => {
                let path = out.join(&ring.path);
                ring.builder.save(&path)?;
                files::close(&path)
            }
        }
    }
}

fn authority_path() -> PathBuf {
    Path::new(CLUSTER_DIR).join(AUTHORITY_FILE)
}

fn folder(path: &Path) -> Option<&str> {
    path.components().next()?.as_os_str().to_str()
}

/// True if a node answers and has no ring of this name, or an older one.
fn lacks(node: &NodeSurvey, outcome: &RingOutcome) -> bool {
    let is_known =
        |line: &RingLine| line.name == outcome.name && line.epoch >= outcome.ring.epoch();
    node.report.is_ok() && !node.rings().iter().any(is_known)
}

fn step(outcome: &RingOutcome) -> RingStep {
    RingStep {
        name: outcome.name.clone(),
        epoch: outcome.ring.epoch(),
        part_power: outcome.ring.part_power(),
        replicas: outcome.ring.replicas_exact(),
        devices: outcome.ring.devices().len(),
        changes: outcome.is_changed,
        edits: outcome.edits.clone(),
        report: outcome.report.clone(),
        cost: outcome.cost.clone(),
    }
}

fn ring_files<'a>(
    folder: &'a str,
    rings: &'a [RingOutcome],
) -> impl Iterator<Item = WantedFile> + 'a {
    rings.iter().map(move |ring| {
        let path = Path::new(folder).join(format!("{}.ring", ring.name));
        WantedFile::new(path, FileKind::Ring, ring.ring.encode())
    })
}

/// Adds the files of all certificates to `wanted`.
fn certificates(
    spec: &ClusterSpec,
    made: &MadeBefore,
    now: OffsetDateTime,
    wanted: &mut Vec<WantedFile>,
) -> Result<Vec<CertificateStep>, Failure> {
    if !spec.tls.members && !spec.tls.s3 && !spec.tls.admin {
        return Ok(Vec::new());
    }
    let mut authority = Authority::find_or_make(spec.name.get_ref(), made, now)?;
    let mut asked =
        vec![(Path::new(CLUSTER_DIR).join(OPERATOR), BTreeSet::from(["operator".into()]))];
    for node in &spec.nodes {
        let folder = Path::new(node.name());
        if spec.tls.members {
            asked.push((folder.join(machine::MEMBER_CERTIFICATE), member_names(node)));
        }
        if spec.tls.s3 && node.has(NodeRole::Proxy) {
            asked.push((folder.join(machine::S3_CERTIFICATE), client_names(spec, node)));
        }
        if spec.tls.admin {
            asked.push((folder.join(machine::ADMIN_CERTIFICATE), client_names(spec, node)));
        }
        let path = folder.join(AUTHORITY);
        wanted.push(WantedFile::new(path, FileKind::Certificate, authority.certificate()));
    }
    authority.keep_only(&asked.iter().map(|(path, _)| path.display().to_string()).collect());
    let mut steps = Vec::new();
    for (path, names) in asked {
        let issued =
            authority.issue(made.out, &Wanted { path: &path, names, days: spec.tls.days }, now)?;
        let ends = issued.ends.date().to_string();
        steps.push(CertificateStep { path, reason: issued.reason, ends });
        wanted.extend(issued.files);
    }
    wanted.extend(authority.kept());
    Ok(steps)
}

fn member_names(node: &NodeSpec) -> BTreeSet<String> {
    BTreeSet::from([node.address().to_owned(), node.name().to_owned()])
}

/// Names in certificates of ports for clients and operators.
fn client_names(spec: &ClusterSpec, node: &NodeSpec) -> BTreeSet<String> {
    let more = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    member_names(node).into_iter().chain(more).chain(spec.tls.names.iter().cloned()).collect()
}

#[cfg(test)]
mod tests;

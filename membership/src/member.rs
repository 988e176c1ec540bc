//! Process that belongs to a cluster.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use martlet_protocol::http::Announcement;
use martlet_protocol::opening::Uuid;
use martlet_protocol::{Backend, Clock, DeviceId, Release};
use martlet_serving::Failure;
use martlet_serving::folder::DataFolder;
use tokio::sync::mpsc;

use crate::clock::{ClusterClock, Ticks};
use crate::collected_reports::CollectedReports;
use crate::format_level::FormatLevel;
use crate::keeper::RingKeeper;
use crate::key::ClusterSecret;
use crate::nodes::{MemberRole, NodeChange, PeerCredentials, PeerNodes};
use crate::report::{ReceivedReports, ReportSource};
use crate::rings::{NodeDevice, RingSet};
use crate::settings::MemberSettings;
use crate::shared_view::SharedView;
use crate::visits::VisitOrder;

/// Process that belongs to a cluster.
pub struct Member {
    /// Rings of the process.
    pub keeper: RingKeeper,
    /// Format level of the cluster.
    pub level: FormatLevel,
    /// Cluster time.
    pub clock: Arc<ClusterClock>,
    /// Clock of this machine, which replies carry to other members.
    pub own_clock: Arc<dyn Clock>,
    /// Other nodes of the cluster.
    pub nodes: PeerNodes,
    /// Order in which rounds visit the nodes.
    pub(crate) visits: VisitOrder,
    /// Reports of other processes.
    pub(crate) reports: ReceivedReports,
    /// Reports of all nodes, collected lately for requests that display them.
    pub(crate) views: SharedView<CollectedReports>,
    /// Source of this process's own report, once it is set.
    pub(crate) report: OnceLock<ReportSource>,
    pub(crate) changes: tokio::sync::Mutex<mpsc::UnboundedReceiver<NodeChange>>,
}

impl Member {
    /// Opens a member with its configured or stored rings. A storage node is not in its own list of
    /// nodes, and its clock votes.
    pub fn open(
        settings: &MemberSettings,
        secret: &ClusterSecret,
        folder: Arc<DataFolder>,
        role: MemberRole<'_>,
    ) -> Result<Arc<Self>, Failure> {
        let level = FormatLevel::open(folder.clone(), Release::own(0))?;
        let keeper = RingKeeper::open(folder, &settings.rings)?;
        if keeper.rings().index().is_none() {
            return Err(Failure::usage(
                "no index ring is known: name the ring files, as in rings = \
                 [\"/etc/martlet/index.ring\", \"/etc/martlet/data-0.ring\"]",
            ));
        }
        let own_clock = MemberSettings::own_clock()?;
        let ticks = Arc::new(Ticks::new());
        let clock = Arc::new(ClusterClock::new(ticks, own_clock.clone(), role.node().is_some()));
        let (sender, changes) = mpsc::unbounded_channel();
        let credentials = PeerCredentials { key: secret.key.clone(), tls: settings.tls()? };
        let nodes = PeerNodes::new(role, credentials, clock.clone(), sender);
        nodes.follow(&keeper.rings());
        let changes = tokio::sync::Mutex::new(changes);
        let (reports, report) = (ReceivedReports::default(), OnceLock::new());
        let (views, visits) = (SharedView::default(), VisitOrder::new(Uuid::random()));
        Ok(Arc::new(Self {
            keeper,
            level,
            clock,
            own_clock,
            nodes,
            visits,
            reports,
            views,
            report,
            changes,
        }))
    }

    /// Sets the report that rounds send to the storage nodes.
    pub fn introduce_itself(&self, report: ReportSource) {
        // The report is set once; a second call has no effect.
        let _ = self.report.set(report);
    }

    /// Returns the announcement for replies: rings, highest known term, release, and cluster time once it is known.
    pub fn announcement(&self) -> Announcement {
        let announcement = self.keeper.announcement().with_release(self.level.tag());
        announcement.with_cluster_time(self.clock.settled_ms())
    }

    /// Returns a sentence for each problem of versions: nodes without a common version of the
    /// internal protocol, and a format level that this release doesn't know.
    pub fn version_problems(&self) -> Vec<String> {
        let nodes = self.nodes.all().into_iter();
        let refused = nodes.filter_map(|node| node.history.version_problem(&node.name));
        refused.chain(self.level.refusal()).collect()
    }

    /// Checks after the first round that this release runs at the level of the cluster.
    pub fn check_level(&self) -> Result<(), Failure> {
        self.level.refusal().map_or(Ok(()), |refusal| Err(Failure::refused(refusal)))
    }

    /// Returns the backend of each device of these rings.
    pub fn backends(&self, rings: &RingSet) -> HashMap<DeviceId, Arc<dyn Backend>> {
        let backend = |(id, place): (&DeviceId, &NodeDevice)| {
            let node = self.nodes.get(&place.node)?;
            Some((*id, node.backend.clone() as Arc<dyn Backend>))
        };
        rings.places().iter().filter_map(backend).collect()
    }
}

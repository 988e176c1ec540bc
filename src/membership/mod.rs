//! Membership of a cluster: rings, nodes, time and the devices' votes, as one process sees them.
//!
//! ```text
//!             every reply of a node
//!                │ clock    │ ring tags
//!                ▼          ▼
//! clock ◀── nodes ──▶ rounds ──▶ keeper ──▶ rings ──▶ the role (proxy, replicator)
//!                        │                    ▲
//!                        └── GET /v1/rings ───┘ routes of the other nodes
//! ```
//!
//! * [`rings`]: all rings, and the nodes that they name. [`keeper`]: stores rings and accepts newer
//!   ones (rule P3), and shares the highest known term with the role; [`waiting_rings`]: rings that
//!   wait for an earlier change.
//! * [`nodes`]: an [`HttpBackend`](martlet_protocol::http::HttpBackend) for each node, and its
//!   history.
//! * [`clock`]: cluster time (rule C1).
//! * [`rounds`]: periodic requests to every node, so that rings and time spread without client
//!   traffic.
//! * [`routes`]: routes of a storage node besides its [`Backend`].
//! * [`peers`], [`introduce`]: records of devices, which show that a device kept its promises (rule
//!   G1).
//! * [`report`]: reports of processes about themselves; [`view`]: all reports that this process
//!   has.
//! * [`key`], [`settings`]: configuration of every member; [`status`]: its status for operators.

pub(crate) mod clock;
pub(crate) mod introduce;
pub(crate) mod keeper;
pub(crate) mod key;
pub(crate) mod nodes;
pub(crate) mod peers;
pub(crate) mod report;
pub(crate) mod rings;
pub(crate) mod rounds;
pub(crate) mod routes;
pub(crate) mod settings;
pub(crate) mod status;
pub(crate) mod view;
mod waiting_rings;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use martlet_protocol::{Backend, Clock, DeviceId};
use tokio::sync::mpsc;

use self::clock::{ClusterClock, Ticks};
use self::keeper::RingKeeper;
use self::key::ClusterSecret;
use self::nodes::{MemberRole, NodeChange, PeerNodes};
use self::report::{ReceivedReports, ReportSource};
use self::rings::RingSet;
use self::settings::MemberSettings;
use crate::failure::Failure;
use crate::process::folder::DataFolder;

/// Process that belongs to a cluster.
pub(crate) struct Member {
    pub(crate) keeper: RingKeeper,
    pub(crate) clock: Arc<ClusterClock>,
    /// Clock of this machine, which replies carry to other members.
    pub(crate) own_clock: Arc<dyn Clock>,
    pub(crate) nodes: PeerNodes,
    /// Reports of other processes.
    pub(crate) reports: ReceivedReports,
    /// Source of this process's own report, once it is set.
    report: OnceLock<ReportSource>,
    news: tokio::sync::Mutex<mpsc::UnboundedReceiver<NodeChange>>,
}

impl Member {
    /// Opens a member with its configured or stored rings. A storage node is not in its own list of
    /// nodes, and its clock votes.
    pub(crate) fn open(
        settings: &MemberSettings,
        secret: &ClusterSecret,
        folder: Arc<DataFolder>,
        role: MemberRole<'_>,
    ) -> Result<Arc<Self>, Failure> {
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
        let (tell, news) = mpsc::unbounded_channel();
        let proof = (secret.key.clone(), settings.tls()?);
        let nodes = PeerNodes::new(role, proof, clock.clone(), tell);
        nodes.follow(&keeper.rings());
        let news = tokio::sync::Mutex::new(news);
        let (reports, report) = (ReceivedReports::default(), OnceLock::new());
        Ok(Arc::new(Self { keeper, clock, own_clock, nodes, reports, report, news }))
    }

    /// Sets the report that is sent to the storage nodes in every round.
    pub(crate) fn introduce_itself(&self, report: ReportSource) {
        // The report is set once; a second call has no effect.
        let _ = self.report.set(report);
    }

    /// Returns the backend of each device of these rings.
    pub(crate) fn backends(&self, rings: &RingSet) -> HashMap<DeviceId, Arc<dyn Backend>> {
        let backend = |(id, place): (&DeviceId, &rings::NodeDevice)| {
            let node = self.nodes.get(&place.node)?;
            Some((*id, node.backend.clone() as Arc<dyn Backend>))
        };
        rings.places().iter().filter_map(backend).collect()
    }
}

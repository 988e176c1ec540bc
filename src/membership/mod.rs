//! What a member of a cluster knows of the others: rings, nodes, time, and whom to believe.
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
//! * [`rings`]: the rings together, and the nodes that they name. [`keeper`]: keeps them, and lets
//!   newer ones in (rule P3); [`waiting`]: the one whose time has not come.
//! * [`nodes`]: an [`HttpBackend`](martlet_protocol::http::HttpBackend) for each node, and what was
//!   heard of it.
//! * [`clock`]: cluster time (rule C1).
//! * [`rounds`]: asks every node now and then, so that rings and time spread without requests.
//! * [`routes`]: what a storage node answers besides its [`Backend`].
//! * [`peers`], [`introduce`]: which devices remember what they promised (rule G1).
//! * [`report`]: what processes say of themselves; [`view`]: what this one knows of all of them.
//! * [`key`], [`settings`]: what every member is told; [`status`]: what it tells operators.

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
mod waiting;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use martlet_protocol::{Backend, Clock, DeviceId};
use tokio::sync::mpsc;

use self::clock::{ClusterClock, Ticks};
use self::keeper::RingKeeper;
use self::key::ClusterSecret;
use self::nodes::{News, Nodes, Role};
use self::report::{AskReport, Reports};
use self::rings::Rings;
use self::settings::MemberSettings;
use crate::failure::Failure;
use crate::process::folder::DataFolder;

/// A process that belongs to a cluster.
pub(crate) struct Member {
    pub(crate) keeper: RingKeeper,
    pub(crate) clock: Arc<ClusterClock>,
    /// What this machine's clock shows: what others are told.
    pub(crate) own_clock: Arc<dyn Clock>,
    pub(crate) nodes: Nodes,
    /// What other processes said of themselves.
    pub(crate) reports: Reports,
    /// What this process says of itself, once it can.
    report: OnceLock<AskReport>,
    news: tokio::sync::Mutex<mpsc::UnboundedReceiver<News>>,
}

impl Member {
    /// A member with the rings that it was given or has kept. A storage node is not one of the
    /// others, and its clock has a vote.
    pub(crate) fn open(
        settings: &MemberSettings,
        secret: &ClusterSecret,
        folder: Arc<DataFolder>,
        role: Role<'_>,
    ) -> Result<Arc<Self>, Failure> {
        let keeper = RingKeeper::open(folder, &settings.rings)?;
        if keeper.rings().index().is_none() {
            return Err(Failure::usage(
                "no index ring is known: name the rings that martlet ring wrote, as in \
                 rings = [\"/etc/martlet/index.ring\", \"/etc/martlet/data-0.ring\"]",
            ));
        }
        let own_clock = MemberSettings::own_clock()?;
        let ticks = Arc::new(Ticks::new());
        let clock = Arc::new(ClusterClock::new(ticks, own_clock.clone(), role.node().is_some()));
        let (tell, news) = mpsc::unbounded_channel();
        let proof = (secret.key.clone(), settings.tls()?);
        let nodes = Nodes::new(role, proof, clock.clone(), tell);
        nodes.follow(&keeper.rings());
        let news = tokio::sync::Mutex::new(news);
        let (reports, report) = (Reports::default(), OnceLock::new());
        Ok(Arc::new(Self { keeper, clock, own_clock, nodes, reports, report, news }))
    }

    /// From now on storage nodes are told of this process in every round.
    pub(crate) fn introduce_itself(&self, report: AskReport) {
        // A process has one voice; a second would say the same.
        let _ = self.report.set(report);
    }

    /// Who answers for each device of these rings.
    pub(crate) fn backends(&self, rings: &Rings) -> HashMap<DeviceId, Arc<dyn Backend>> {
        let backend = |(id, place): (&DeviceId, &rings::Place)| {
            let node = self.nodes.get(&place.node)?;
            Some((*id, node.backend.clone() as Arc<dyn Backend>))
        };
        rings.places().iter().filter_map(backend).collect()
    }
}

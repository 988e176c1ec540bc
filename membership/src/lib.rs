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
//! A [`Member`] opens with the rings that it stored or that its settings name. From then on rings
//! and time reach it with the replies of storage nodes; no process is configured twice.
//!
//! * `rings`: [`RingSet`], all rings and the nodes that they name. `keeper`: stores rings and
//!   accepts newer ones (rule P3), and shares the highest known term. `waiting_rings`: rings that
//!   wait for an earlier change.
//! * `nodes`: an [`HttpBackend`](martlet_protocol::http::HttpBackend) for each node, and its
//!   history; `metrics`: metrics of calls to nodes.
//! * `clock`: cluster time (rule C1).
//! * [`FormatLevel`]: the formats that the cluster writes; `finalize`: their rise after an upgrade.
//! * `ring_push`: [`RingPush`], which sends rings to all nodes.
//! * `rounds`: periodic requests to nodes, so that rings and time spread without client traffic;
//!   `visits`: the nodes of each round, 64 of a large cluster.
//! * [`routes`]: routes of a storage node besides its [`Backend`](martlet_protocol::Backend).
//! * `peers`, `introduce`: records of devices, which show that a device kept its promises (rule G1).
//!   [`Introducer`] acts on a node's devices through [`IntroducedDevices`].
//! * `report`: reports of processes about themselves. `view`: all reports that this process has;
//!   `collected_reports`: their collection; `shared_view`: one collection for many requests.
//! * `key`, `settings`: configuration of every member. `status`: its status for operators.
//! * [`forecast`]: fullness, balance and moves of a cluster, from rings and device reports.
//!
//! Rings move by pure rules: `outcome` decides about an introduced device, `keeper` about an offered
//! ring, `clock` about a set of samples. Tasks around these rules do the I/O.
//!
//! The crate depends on no disks and no S3. A role reads [`Member`] for its topology, and gives
//! reports about itself to [`StatusSource`].

mod clock;
mod collected_reports;
mod finalize;
pub mod forecast;
mod format_level;
mod introduce;
mod keeper;
mod key;
mod member;
mod metrics;
mod nodes;
mod peers;
mod report;
mod ring_push;
mod rings;
mod rounds;
pub mod routes;
mod settings;
mod shared_view;
mod status;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod view;
mod visits;
mod waiting_rings;

pub use clock::ClusterClock;
pub use finalize::release_line;
pub use format_level::{DeviceRaiser, FormatLevel};
pub use introduce::{IntroducedDevices, Introducer};
pub use keeper::{RingKeeper, read_ring_file};
pub use key::ClusterSecret;
pub use member::Member;
pub use metrics::{NodeCollector, NodeFigures, NodeSource, RingCollector, RingSource};
pub use nodes::{MemberRole, PeerNode, PeerNodes, ReplyHistory, client_options, push_options};
pub use peers::Peers;
pub use report::ReportSource;
pub use ring_push::{NamedRing, PushProgress, RingPush, node_addresses};
pub use rings::{NodeDevice, RingName, RingSet, ring_tag};
pub use settings::{MemberArgs, MemberSettings, TlsArgs};
pub use status::{DeviceLineSource, HoldObstacles, StatusSource, WorkerLineSource};

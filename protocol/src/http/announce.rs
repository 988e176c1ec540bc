//! Headers of every reply of a node: its clock, its cluster time, its rings, the highest term of its devices (rule
//! P3), its data port and its [release](super::release_tag).
//!
//! ```text
//! x-martlet-now: 1795262400000
//! x-martlet-cluster-now: 1795262400012
//! x-martlet-rings: index=7-0a1b2c3d4e5f6071,data-0=9-66778899aabbccdd
//! x-martlet-highest-term: 14
//! x-martlet-data-port: http://10.0.0.5:9002 5f0c3b0e9d6a4a1c8f7b2e1d0c9b8a76
//! x-martlet-clients-wait-us: 12500
//! ```
//!
//! The last header is only sent in replies to background work: the current duration of client
//! requests at the node.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};

use super::channel::message::Announced;
use super::release_tag::{AnnouncedRelease, ReleaseTag};
use crate::data_port::DataPort;
use crate::term::Term;

/// Milliseconds since 1970 by the replying node's clock.
pub(super) const NOW: HeaderName = HeaderName::from_static("x-martlet-now");
/// Milliseconds since 1970 by cluster time as the replying node has it; absent until it knows most clocks. Not in
/// frames of channels.
const CLUSTER_NOW: HeaderName = HeaderName::from_static("x-martlet-cluster-now");
/// Rings of the replying node.
pub(super) const RINGS: HeaderName = HeaderName::from_static("x-martlet-rings");
/// Highest term of the replying node's devices; absent if there is none.
const TERM: HeaderName = HeaderName::from_static("x-martlet-highest-term");
/// Data port of the replying node; absent if it has none.
const DATA_PORT: HeaderName = HeaderName::from_static("x-martlet-data-port");

/// Current duration of client requests at the replying node, in microseconds.
const CLIENTS_WAIT: HeaderName = HeaderName::from_static("x-martlet-clients-wait-us");

/// Edition of a ring: name, epoch and hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingTag {
    /// `index` or `data-<policy id>`.
    pub name: String,
    /// Epoch of the ring.
    pub epoch: u64,
    /// First eight bytes of the ring's hash.
    pub hash: [u8; 8],
}

/// Ring tags of a node in header format. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingTags(HeaderValue);

/// Rings, highest term, data port and release that a node sends in every reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    rings: RingTags,
    term: Term,
    data_port: Option<DataPortTag>,
    release: ReleaseTag,
    /// Cluster time, in milliseconds since 1970.
    cluster_ms: Option<u64>,
}

/// Data port of a node in header format. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataPortTag(HeaderValue);

impl DataPortTag {
    /// Creates the tag of a data port.
    ///
    /// # Panics
    /// Never: URLs and ids of data ports are plain ASCII.
    pub fn new(port: &DataPort) -> Self {
        let value = HeaderValue::from_str(&port.to_string());
        Self(value.expect("data ports are plain ASCII"))
    }

    /// Returns the data port. None if it is not readable: it comes from a later version.
    pub fn port(&self) -> Option<DataPort> {
        self.0.to_str().ok()?.parse().ok()
    }
}

/// State of a node that a client received in a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeReport {
    /// Milliseconds since 1970 by the node's clock.
    pub now_ms: u64,
    /// Milliseconds since 1970 by cluster time as the node has it; none in frames of channels, and from nodes that
    /// don't know it.
    pub cluster_ms: Option<u64>,
    /// Time from the request's first byte to the reply's head.
    pub round_trip: Duration,
    /// The node's rings.
    pub rings: RingTags,
    /// Highest term of the node's devices.
    pub term: Term,
    /// Current duration of client requests at the node; none in replies to client requests.
    pub clients_wait: Option<Duration>,
    /// The node's data port, if it has one.
    pub data_port: Option<DataPortTag>,
    /// The node's release; none in frames of channels, which don't repeat it.
    pub release: Option<AnnouncedRelease>,
    /// True if a report of a moment ago was the same but for the times. Receivers need only count
    /// the reply.
    pub is_repeated: bool,
}

/// Receiver of a node's state; clients call the receiver for each reply.
pub(super) type ReportObserver = Arc<dyn Fn(NodeReport) + Send + Sync>;

impl Announcement {
    /// Creates an announcement of these rings. Ring names consist of letters, digits and dashes.
    ///
    /// # Panics
    /// When a ring's name is not valid in a header.
    pub fn new(rings: &[RingTag]) -> Self {
        let mut text = String::new();
        for RingTag { name, epoch, hash } in rings {
            let comma = if text.is_empty() { "" } else { "," };
            write!(text, "{comma}{name}={epoch}-{}", hex::encode(hash))
                .expect("writing to a String can't fail");
        }
        let value = HeaderValue::from_str(&text).expect("ring names are plain ASCII");
        let release = ReleaseTag::own();
        let (term, data_port, cluster_ms) = (Term::NONE, None, None);
        Self { rings: RingTags(value), term, data_port, release, cluster_ms }
    }

    /// Sets the highest term of the node's devices.
    #[must_use]
    pub fn at(self, term: Term) -> Self {
        Self { term, ..self }
    }

    /// Sets the node's data port.
    #[must_use]
    pub fn with_data_port(self, data_port: Option<DataPortTag>) -> Self {
        Self { data_port, ..self }
    }

    /// Sets the node's release.
    #[must_use]
    pub fn with_release(self, release: ReleaseTag) -> Self {
        Self { release, ..self }
    }

    /// Sets the node's cluster time, in milliseconds since 1970.
    #[must_use]
    pub fn with_cluster_time(self, cluster_ms: Option<u64>) -> Self {
        Self { cluster_ms, ..self }
    }

    /// The node's release.
    pub(super) fn release(&self) -> &ReleaseTag {
        &self.release
    }

    /// The rings.
    pub fn rings(&self) -> &RingTags {
        &self.rings
    }

    /// Fields of the announcement, for a frame of a channel.
    pub(super) fn fields(&self) -> Announced<'_> {
        let rings = self.rings.0.as_bytes();
        let data_port = self.data_port.as_ref().map(|tag| tag.0.as_bytes());
        Announced { rings, term: self.term.0, data_port }
    }

    /// Reads the fields of a frame; none if they aren't valid in headers. Frames have no release: the
    /// result has that of this process.
    pub(super) fn of_fields(fields: &Announced<'_>) -> Option<Self> {
        let rings = RingTags(HeaderValue::from_bytes(fields.rings).ok()?);
        let data_port = match fields.data_port {
            Some(port) => Some(DataPortTag(HeaderValue::from_bytes(port).ok()?)),
            None => None,
        };
        let release = ReleaseTag::own();
        Some(Self { rings, term: Term(fields.term), data_port, release, cluster_ms: None })
    }

    pub(super) fn put_on(self, headers: &mut HeaderMap, now_ms: u64) {
        headers.insert(NOW, HeaderValue::from(now_ms));
        if let Some(cluster_ms) = self.cluster_ms {
            headers.insert(CLUSTER_NOW, HeaderValue::from(cluster_ms));
        }
        headers.insert(RINGS, self.rings.0);
        self.release.put_on(headers);
        if self.term != Term::NONE {
            headers.insert(TERM, HeaderValue::from(self.term.0));
        }
        if let Some(DataPortTag(port)) = self.data_port {
            headers.insert(DATA_PORT, port);
        }
    }
}

impl RingTags {
    /// The tags. Unreadable tags are skipped: they come from a later version.
    pub fn iter(&self) -> impl Iterator<Item = RingTag> + '_ {
        self.0.to_str().unwrap_or_default().split(',').filter_map(tag)
    }
}

fn tag(text: &str) -> Option<RingTag> {
    let (name, edition) = text.split_once('=')?;
    let (epoch, hash) = edition.split_once('-')?;
    let mut bytes = [0; 8];
    hex::decode_to_slice(hash, &mut bytes).ok()?;
    Some(RingTag { name: name.to_owned(), epoch: epoch.parse().ok()?, hash: bytes })
}

impl NodeReport {
    /// State of a node that announced itself in an earlier reply of its channel.
    pub(super) fn announced(
        announced: &Announcement,
        now_ms: u64,
        round_trip: Duration,
        clients_wait: Option<Duration>,
    ) -> Self {
        let Announcement { rings, term, data_port, .. } = announced.clone();
        Self {
            now_ms,
            cluster_ms: None,
            round_trip,
            rings,
            term,
            clients_wait,
            data_port,
            release: None,
            is_repeated: false,
        }
    }

    /// Reads a reply's headers; none if the clock or ring header is missing.
    pub(super) fn of(headers: &HeaderMap, round_trip: Duration) -> Option<Self> {
        let now_ms = headers.get(NOW)?.to_str().ok()?.parse().ok()?;
        let rings = RingTags(headers.get(RINGS)?.clone());
        let number = |name| headers.get(name).and_then(|it| it.to_str().ok()?.parse::<u64>().ok());
        let term = number(TERM).map_or(Term::NONE, Term);
        let cluster_ms = number(CLUSTER_NOW);
        let clients_wait = number(CLIENTS_WAIT).map(Duration::from_micros);
        let data_port = headers.get(DATA_PORT).cloned().map(DataPortTag);
        Some(Self {
            now_ms,
            cluster_ms,
            round_trip,
            rings,
            term,
            clients_wait,
            data_port,
            release: Some(AnnouncedRelease::of(headers)),
            is_repeated: false,
        })
    }
}

pub(super) fn put_clients_wait(headers: &mut HeaderMap, wait: Duration) {
    let wait_us = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
    headers.insert(CLIENTS_WAIT, HeaderValue::from(wait_us));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags() -> Vec<RingTag> {
        let hash = [0x0a, 0x1b, 0x2c, 0x3d, 0x4e, 0x5f, 0x60, 0x71];
        vec![
            RingTag { name: "index".into(), epoch: 7, hash },
            RingTag { name: "data-0".into(), epoch: 9, hash: [0xff; 8] },
        ]
    }

    #[test]
    fn announcements_are_read_as_sent() {
        let mut headers = HeaderMap::new();
        Announcement::new(&tags()).put_on(&mut headers, 1234);
        assert_eq!(headers[RINGS], "index=7-0a1b2c3d4e5f6071,data-0=9-ffffffffffffffff");
        let report = NodeReport::of(&headers, Duration::from_millis(3)).unwrap();
        assert_eq!((report.now_ms, report.round_trip), (1234, Duration::from_millis(3)));
        assert_eq!(report.rings.iter().collect::<Vec<_>>(), tags());
        assert_eq!(report.term, Term::NONE);
        Announcement::new(&tags()).at(Term(14)).put_on(&mut headers, 1234);
        assert_eq!(NodeReport::of(&headers, Duration::ZERO).unwrap().term, Term(14));
        assert_eq!((report.clients_wait, report.data_port), (None, None));
        assert_eq!(report.cluster_ms, None);
        Announcement::new(&tags()).with_cluster_time(Some(5678)).put_on(&mut headers, 1234);
        let report = NodeReport::of(&headers, Duration::ZERO).unwrap();
        assert_eq!((report.now_ms, report.cluster_ms), (1234, Some(5678)));
        let port = DataPort::new("http://n1:9002", "0f").unwrap();
        let announced = Announcement::new(&tags()).with_data_port(Some(DataPortTag::new(&port)));
        announced.put_on(&mut headers, 1234);
        let report = NodeReport::of(&headers, Duration::ZERO).unwrap();
        assert_eq!(report.data_port.as_ref().unwrap().port(), Some(port));
        let announced = Announcement::new(&tags()).at(Term(14)).with_data_port(report.data_port);
        assert_eq!(Announcement::of_fields(&announced.fields()), Some(announced));
        let odd = Announced { rings: b"\n", term: 1, data_port: None };
        assert_eq!(Announcement::of_fields(&odd), None);
        put_clients_wait(&mut headers, Duration::from_millis(7));
        let report = NodeReport::of(&headers, Duration::ZERO).unwrap();
        assert_eq!(report.clients_wait, Some(Duration::from_millis(7)));
    }

    #[test]
    fn a_reply_without_tags_or_with_odd_ones_is_bearable() {
        assert_eq!(NodeReport::of(&HeaderMap::new(), Duration::ZERO), None);
        assert_eq!(Announcement::new(&[]).rings().iter().count(), 0);
        let odd =
            RingTags(HeaderValue::from_static("index,data-0=x-00,=1-0011223344556677,a=1-zz"));
        assert_eq!(odd.iter().map(|tag| tag.name).collect::<Vec<_>>(), [""]);
    }
}

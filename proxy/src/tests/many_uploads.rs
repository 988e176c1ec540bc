//! Listings of the open uploads of a bucket with millions of ended ones, counted in entries.
//!
//! The uploads are computed: three devices answer alike, as replicas that agree.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use martlet_protocol::backend::{ListReply, ListRequest, ListStart};
use martlet_protocol::entry::{Attributes, Entry, Upload, UploadState, Value};
use martlet_protocol::limits::LIST_EMPTY_ROWS_MAX;
use martlet_protocol::{PolicyId, RegisterKey, RegisterKind, Stamp, UploadId, WriteId};

use super::computed_rows::{ComputedRows, DEVICES};
use super::harness::create;
use crate::walk::SEEN_MAX;
use crate::{ListUploads, ObjectStore};

/// Uploads of the bucket.
const UPLOADS: usize = 3_000_000;
/// Entries that a device may send beyond the bound of a page: it sends whole pages.
const OVERSHOOT: usize = 5_000;

/// Rows of the uploads that have ended.
#[derive(Clone, Copy, Debug)]
enum Ended {
    /// Uploads in their last state, as for some time after their end.
    Kept,
    /// Tombstones.
    Removed,
}

/// A bucket whose uploads have ended, except those at `open`.
struct ManyUploads {
    ended: Ended,
    /// Positions of open uploads, ascending.
    open: Vec<usize>,
    /// Entries sent.
    sent: AtomicUsize,
    /// Rows looked at, entries included.
    looked_at: AtomicUsize,
}

fn key(at: usize) -> String {
    format!("{at:08}")
}

fn id(at: usize) -> UploadId {
    UploadId((at as u128).to_be_bytes())
}

fn name(at: usize) -> Bytes {
    [key(at).as_bytes(), &[0], &id(at).0].concat().into()
}

/// Position of the first upload at or after a start.
fn first(start: &ListStart) -> usize {
    let (name, next) = match start {
        ListStart::First => return 0,
        ListStart::At(name) => (name, 0),
        ListStart::After(name) => (name, 1),
    };
    let digits = name.get(..8).and_then(|digits| std::str::from_utf8(digits).ok());
    let at: usize = digits.and_then(|digits| digits.parse().ok()).unwrap_or(UPLOADS);
    // A key alone, or with the separator above its uploads.
    match RegisterKey::upload_of(name) {
        Some(_) => at + next,
        None => at + usize::from(name.len() > 8),
    }
}

impl ManyUploads {
    fn new(ended: Ended, open: &[usize]) -> Arc<Self> {
        Arc::new(Self {
            ended,
            open: open.to_vec(),
            sent: AtomicUsize::new(0),
            looked_at: AtomicUsize::new(0),
        })
    }

    fn entry(&self, at: usize) -> Entry {
        let is_open = self.open.binary_search(&at).is_ok();
        let value = match self.ended {
            Ended::Removed if !is_open => Value::Tombstone,
            _ => Value::Upload(Box::new(Upload {
                key: key(at),
                id: id(at),
                initiated_ms: 1,
                attributes: Attributes::default(),
                checksum: None,
                policy: PolicyId(0),
                state: if is_open { UploadState::Open } else { UploadState::Aborted },
            })),
        };
        Entry { order: Stamp::at_ms(1), write_id: WriteId([1; 16]), value }
    }

    /// Answers as a device does: it passes over tombstones, at most so many for a page.
    fn uploads(&self, request: &ListRequest) -> ListReply {
        let mut reply = ListReply::default();
        let mut passed = 0;
        for at in first(&request.start)..UPLOADS {
            if reply.entries.len() == request.limit {
                reply.truncated = true;
                break;
            }
            self.looked_at.fetch_add(1, Ordering::SeqCst);
            let entry = self.entry(at);
            if entry.value.is_tombstone() {
                passed += 1;
                if passed == LIST_EMPTY_ROWS_MAX {
                    reply.end_at(name(at));
                    break;
                }
                continue;
            }
            reply.entries.push((name(at), entry));
        }
        self.sent.fetch_add(reply.entries.len(), Ordering::SeqCst);
        reply
    }
}

#[async_trait]
impl ComputedRows for ManyUploads {
    async fn page(&self, request: &ListRequest) -> Option<ListReply> {
        (request.kind == RegisterKind::Upload).then(|| self.uploads(request))
    }
}

/// Lists all open uploads, and checks the rows of each page. Returns the keys and the number of pages.
async fn listed(uploads: &ManyUploads, store: &ObjectStore) -> (Vec<String>, usize) {
    let (mut keys, mut pages, mut after) = (Vec::new(), 0, (None, None));
    let mut start = 0;
    loop {
        let before = uploads.looked_at.load(Ordering::SeqCst);
        let (after_key, after_id) = after;
        let list = ListUploads { after_key, after_id, limit: 1000, ..ListUploads::default() };
        let page = store.uploads().list("b", list).await.unwrap();
        let rows = uploads.looked_at.load(Ordering::SeqCst) - before;
        let most = rows_max(start, page.uploads.first().map(|upload| position(&upload.key)));
        assert!(rows <= most, "page {pages} from {start}: {rows} rows of {most}");
        keys.extend(page.uploads.into_iter().map(|upload| upload.key));
        pages += 1;
        let Some((key, id)) = page.next else { return (keys, pages) };
        start = position(&key);
        after = (Some(key), id);
    }
}

fn position(key: &str) -> usize {
    key.parse().unwrap()
}

/// Maximum number of rows that all devices look at for a page, ADR 94: a million without an upload,
/// and [`SEEN_MAX`] with one, or the rows up to the first upload where these are more.
fn rows_max(start: usize, first: Option<usize>) -> usize {
    let most = first.map_or(1_000_000, |first| SEEN_MAX.max(DEVICES * (first + 1 - start)));
    most + DEVICES * OVERSHOOT
}

#[tokio::test]
async fn a_page_of_uploads_reads_a_bounded_number_of_ended_ones() {
    let open = [0, 1, 70_000, 1_200_000, UPLOADS - 1];
    let expected: Vec<_> = open.iter().map(|at| key(*at)).collect();
    for ended in [Ended::Removed, Ended::Kept] {
        let uploads = ManyUploads::new(ended, &open);
        let store = uploads.clone().store();
        create(&store, "b").await;
        let (keys, pages) = listed(&uploads, &store).await;
        assert_eq!(keys, expected, "{ended:?}");
        // Three runs of ended uploads are longer than a page.
        assert!(pages >= 4, "{ended:?}: {pages} pages");
        let sent = uploads.sent.load(Ordering::SeqCst);
        match ended {
            Ended::Removed => assert!(sent < 3000, "{sent} entries for {} uploads", open.len()),
            Ended::Kept => assert!(sent <= DEVICES * (UPLOADS + pages * OVERSHOOT), "{sent}"),
        }
    }
}

#[tokio::test]
async fn a_page_of_uploads_ends_at_its_limit_among_open_ones() {
    let open: Vec<_> = (0..5000).collect();
    let uploads = ManyUploads::new(Ended::Removed, &open);
    let store = uploads.clone().store();
    create(&store, "b").await;
    let list = ListUploads { limit: 1000, ..ListUploads::default() };
    let page = store.uploads().list("b", list).await.unwrap();
    assert_eq!((page.uploads.len(), page.next), (1000, Some((key(999), Some(id(999))))));
    let rows = uploads.looked_at.load(Ordering::SeqCst);
    assert!(rows <= DEVICES * 2 * 1000, "{rows} rows for a thousand uploads");
}

//! Mixed load on a device, and what it acknowledged.
//!
//! Each writer has names of its own. It puts objects of each kind, overwrites and deletes them, and
//! keeps and forgets hints. Meanwhile one task reclaims what was replaced, as `reclaim` does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use martlet_protocol::backend::{Backend, EntryWrite, NewExtent, WriteReply};
use martlet_protocol::entry::{Body, Manifest, Value};
use martlet_protocol::extent::{ExtentRef, Layout, Stripe};
use martlet_protocol::testing::{new_extent, whole_body};
use martlet_protocol::{
    BackendExt, Clock, DeviceId, Error, ErrorKind, ExtentId, PolicyId, Result, Stamp, SystemClock,
};
use martlet_storage_node::StorageNode;

use crate::support::*;

/// A node whose devices lose their power together.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) node: Arc<StorageNode>,
    /// Device of the extents: that of the entries, or another one. Where both are one, a sync of the index
    /// may make files durable that were not synced themselves.
    pub(super) extents_on: DeviceId,
}

pub(super) const WRITERS: u64 = 8;
/// Names of each writer: some are overwritten in each round.
const NAMES: u64 = 12;
const INLINE: usize = 2000;
const PACKED: usize = 70_000;
const FILE: usize = 1_100_000;
const FRAGMENT: usize = 40_000;
/// Data fragments and parity fragments of a coded object, all on this device.
const CODE: (u8, u8) = (2, 1);
const GARBAGE_PAGE: usize = 64;
/// Kinds of changes, some of them often.
const KINDS: u64 = 16;
/// Most changes of a round: what they replace fits into the image until the next round.
const CHANGES_MAX: u64 = 200;
/// One number of each kind.
const EACH_KIND: [u64; 6] = [0, 3, 8, 11, 13, 14];

/// Numbers that look random, the same for each seed.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    /// Returns a number below `bound`.
    pub(super) fn roll(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// Load of one round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    /// Kind of all changes; none for a mix. Where nothing else is written, nothing else is synced.
    kind: Option<u64>,
    /// Changes after which the writers rest until the cut: the last ones depend on their own syncs.
    changes_max: u64,
    /// True if replaced extents are deleted meanwhile, which syncs the index of their device.
    pub(super) reclaims: bool,
}

impl Round {
    /// Draws a round that makes at least `changes_min` changes.
    pub(super) fn of(dice: &mut Dice, changes_min: u64) -> Self {
        let one = usize::try_from(dice.roll(2 * EACH_KIND.len() as u64)).unwrap();
        let kind = EACH_KIND.get(one).copied();
        let rests = dice.roll(2) == 0;
        let changes_max = if rests { changes_min + dice.roll(20) } else { CHANGES_MAX };
        Self { kind, changes_max, reclaims: dice.roll(2) == 0 }
    }
}

/// Contents of a name. Bytes are the [`pattern`] of the name and the version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Contents {
    Absent,
    Inline,
    /// Extents of these lengths: one is a whole PUT, several are a completed upload.
    Extents(Vec<usize>),
    /// An extent of which this device has all fragments.
    Coded,
}

/// State that a name may have.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) version: u64,
    pub(super) contents: Contents,
    /// Time of the acknowledgement in milliseconds since 1970.
    pub(super) acknowledged_ms: Option<u64>,
    /// Extents written for this state.
    pub(super) extents: Vec<ExtentId>,
}

/// States of a name in their order. The first one was found on the device after the last cut.
#[derive(Clone, Debug)]
pub(super) struct History {
    pub(super) name: String,
    pub(super) is_hint: bool,
    pub(super) states: Vec<State>,
    /// Number of the newest version, of writes that were cut off too.
    version: u64,
    last: Stamp,
}

impl History {
    fn new(name: String, is_hint: bool) -> Self {
        let state = State {
            version: 0,
            contents: Contents::Absent,
            acknowledged_ms: Some(0),
            extents: Vec::new(),
        };
        Self { name, is_hint, states: vec![state], version: 0, last: Stamp::ZERO }
    }

    /// Returns the states in which a cut at this time may have left the name.
    pub(super) fn admissible(&self, cut_ms: u64) -> &[State] {
        let is_sure = |state: &State| state.acknowledged_ms.is_some_and(|at| at < cut_ms);
        &self.states[self.states.iter().rposition(is_sure).unwrap_or(0)..]
    }

    /// Keeps the state that was found, as the first of the next round.
    pub(super) fn settle(&mut self, found: State) {
        self.states = vec![State { acknowledged_ms: Some(0), ..found }];
    }

    pub(super) fn bytes_name(&self, version: u64, part: usize) -> String {
        format!("{}#{version}.{part}", self.name)
    }

    /// Returns a stamp above those of earlier writes of the name.
    fn next_stamp(&mut self) -> Stamp {
        let now = Stamp::at_ms(SystemClock.now_ms());
        let above = Stamp { time: self.last.time + 1, ..self.last };
        self.last = now.max(above);
        self.last
    }
}

/// Returns the names of all writers, without contents.
pub(super) fn names() -> Vec<Vec<History>> {
    let of = |writer: u64| {
        let object = |number| History::new(format!("{writer}-{number}"), false);
        let hint = |number| History::new(format!("hint-{writer}-{number}"), true);
        (0..NAMES).map(object).chain((0..NAMES / 4).map(hint)).collect()
    };
    (0..WRITERS).map(of).collect()
}

/// Changes names at random until a change fails, or the round has made its changes. Counts
/// acknowledged changes.
pub(super) async fn write_until_cut(
    target: Target,
    done: Arc<AtomicU64>,
    round: Round,
    mut names: Vec<History>,
    mut dice: Dice,
) -> Vec<History> {
    loop {
        if done.load(Ordering::Relaxed) >= round.changes_max {
            return names;
        }
        let at = usize::try_from(dice.roll(names.len() as u64)).unwrap();
        if !change(&target, &mut names[at], round, &mut dice).await {
            return names;
        }
        done.fetch_add(1, Ordering::Relaxed);
    }
}

/// Changes a name; returns true once the change is acknowledged.
async fn change(target: &Target, history: &mut History, round: Round, dice: &mut Dice) -> bool {
    let contents = match (history.is_hint, round.kind.unwrap_or_else(|| dice.roll(KINDS))) {
        (true, 0..6) | (false, 0..3) => Contents::Absent,
        (true, _) | (false, 3..8) => Contents::Inline,
        (false, 8..11) => {
            Contents::Extents(vec![PACKED + usize::try_from(dice.roll(9000)).unwrap()])
        }
        (false, 11..13) => Contents::Extents(vec![FILE]),
        (false, 13) => Contents::Extents(vec![FILE, PACKED, 5000]),
        (false, _) => Contents::Coded,
    };
    history.version += 1;
    let (version, stamp) = (history.version, history.last);
    history.states.push(State { version, contents, acknowledged_ms: None, extents: Vec::new() });
    let outcome = if history.is_hint {
        change_hint(target, history, stamp).await
    } else {
        change_object(target, history).await
    };
    match outcome {
        Ok(()) => {
            history.states.last_mut().unwrap().acknowledged_ms = Some(SystemClock.now_ms());
            true
        }
        Err(error) => {
            assert_ne!(error.kind(), ErrorKind::Full, "the image is too small: {error}");
            false
        }
    }
}

async fn change_object(target: &Target, history: &mut History) -> Result<()> {
    let State { version, contents, .. } = history.states.last().unwrap().clone();
    let write = match contents {
        Contents::Absent => write(&history.name, Value::Tombstone),
        Contents::Inline => inline_of(history, version),
        Contents::Extents(lengths) => {
            let mut extents = Vec::new();
            for (part, length) in lengths.into_iter().enumerate() {
                let new = new_extent(BUCKET, &history.name, Some(length as u64));
                extents.push(put(target, history, new, part, length).await?);
            }
            of_extents(history, PolicyId(0), extents)
        }
        Contents::Coded => {
            let whole = put_fragments(target, history).await?;
            of_extents(history, PolicyId(1), vec![whole])
        }
    };
    stored(target.node.write(DEVICE, stamped(history, write)).await?)
}

async fn change_hint(target: &Target, history: &mut History, last: Stamp) -> Result<()> {
    let State { version, contents, .. } = history.states.last().unwrap().clone();
    if contents == Contents::Absent {
        return target.node.forget_hint(DEVICE, &key(&history.name), last).await;
    }
    let write = inline_of(history, version);
    stored(target.node.keep_hint(DEVICE, stamped(history, write)).await?)
}

fn inline_of(history: &History, version: u64) -> EntryWrite {
    let mut write = inline(&history.bytes_name(version, 0), INLINE);
    write.key = key(&history.name);
    write
}

fn of_extents(history: &History, policy: PolicyId, extents: Vec<ExtentRef>) -> EntryWrite {
    let size = extents.iter().map(|extent| extent.length as usize).sum();
    let manifest = Manifest { policy, extents, parts: Vec::new(), part_checksums: Vec::new() };
    write(&history.name, object(size, Body::Extents(manifest)))
}

fn stamped(history: &mut History, mut write: EntryWrite) -> EntryWrite {
    write.entry.order = history.next_stamp();
    write
}

fn stored(reply: WriteReply) -> Result<()> {
    match reply {
        WriteReply::Stored => Ok(()),
        other => Err(Error::unavailable(format!("a write was answered with {other:?}"))),
    }
}

/// Stores the pattern of a part in an extent. The extent is noted before it is written.
async fn put(
    target: &Target,
    history: &mut History,
    new: NewExtent,
    part: usize,
    length: usize,
) -> Result<ExtentRef> {
    let state = history.states.last_mut().unwrap();
    state.extents.push(new.id);
    let version = state.version;
    let bytes = pattern(&history.bytes_name(version, part), length);
    target.node.write_extent(target.extents_on, new, whole_body(bytes)).await
}

/// Stores all fragments of an extent. Returns the whole extent.
async fn put_fragments(target: &Target, history: &mut History) -> Result<ExtentRef> {
    let (k, m) = CODE;
    let length = u32::try_from(usize::from(k) * FRAGMENT).unwrap();
    let whole = ExtentId::random().whole();
    let layout = Layout { policy: PolicyId(1), stripe: Some(Stripe { k, m, length }) };
    for number in 0..k + m {
        let new = new_extent(BUCKET, &history.name, Some(FRAGMENT as u64));
        let new = NewExtent { id: whole.fragment(number), layout, ..new };
        put(target, history, new, number.into(), FRAGMENT).await?;
    }
    Ok(ExtentRef { id: whole, length, blake3: [7; 32] })
}

/// Returns the extents on this device of an object's body.
pub(super) fn extents_of(body: &Body) -> Vec<ExtentId> {
    let Body::Extents(manifest) = body else { return Vec::new() };
    let ids = manifest.extents.iter().map(|extent| extent.id);
    if manifest.policy == PolicyId(0) {
        return ids.collect();
    }
    let (k, m) = CODE;
    ids.flat_map(|id| (0..k + m).map(move |number| id.fragment(number))).collect()
}

/// Deletes what was replaced, page by page, until a call fails.
pub(super) async fn reclaim_until_cut(target: Target) -> Error {
    loop {
        match reclaim_page(&target).await {
            Ok(0) => tokio::time::sleep(std::time::Duration::from_millis(5)).await,
            Ok(_) => {}
            Err(error) => return error,
        }
    }
}

pub(super) async fn reclaim_page(Target { node, extents_on }: &Target) -> Result<usize> {
    let garbage = node.garbage(DEVICE, u64::MAX, GARBAGE_PAGE).await?;
    let extents: Vec<_> = garbage.iter().flat_map(|record| extents_of(&record.body)).collect();
    node.delete_extents(*extents_on, &extents).await?;
    let ids: Vec<_> = garbage.into_iter().map(|record| record.id).collect();
    node.forget_garbage(DEVICE, &ids).await?;
    Ok(ids.len())
}

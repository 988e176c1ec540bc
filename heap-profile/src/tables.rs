//! Tables of the open window: stacks with what they allocated, and live samples by address.
//!
//! Both are bounded. Hooks alone and work outside of the hooks take the locks: an allocation of a table is no
//! sample.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::countdown::weight;
use super::samples::{HeapSamples, HeapStack};

/// Maximum depth of a stack: its innermost frames are kept.
pub(super) const STACK_FRAMES_MAX: usize = 128;
/// Maximum number of stacks of a window, with 1 KiB of frames each.
const STACKS_MAX: usize = 16_384;
/// Maximum number of live samples in a shard.
const SHARD_SAMPLES_MAX: usize = 1_024;
/// Number of shards: threads seldom meet at one.
const SHARDS: usize = 64;

/// Number of the window; each has its own.
static WINDOW: AtomicU64 = AtomicU64::new(0);
static STACKS: Mutex<Stacks> = Mutex::new(Stacks::new());
static LIVE: [Mutex<Shard>; SHARDS] = [const { Mutex::new(Shard::new()) }; SHARDS];

/// Sample whose block is allocated.
#[derive(Clone, Copy, Debug)]
pub(super) struct LiveSample {
    /// Position of the stack.
    stack: usize,
    size: u64,
    window: u64,
}

struct Shard {
    samples: HashMap<usize, LiveSample, BuildHasherDefault<MixingHasher>>,
}

impl Shard {
    const fn new() -> Self {
        Self { samples: HashMap::with_hasher(BuildHasherDefault::new()) }
    }
}

/// Stacks by their frames, with totals of the window.
struct Stacks {
    window: u64,
    interval: u64,
    positions: HashMap<Box<[usize]>, usize, BuildHasherDefault<MixingHasher>>,
    totals: Vec<Totals>,
    samples: u64,
    dropped: u64,
}

/// Estimates of what a stack has allocated in the window.
#[derive(Clone, Copy, Default)]
struct Totals {
    objects: f64,
    bytes: f64,
}

impl Stacks {
    const fn new() -> Self {
        let positions = HashMap::with_hasher(BuildHasherDefault::new());
        Self { window: 0, interval: 0, positions, totals: Vec::new(), samples: 0, dropped: 0 }
    }

    /// Counts a sample. Returns the position of its stack, unless there are too many stacks.
    fn count(&mut self, size: u64, frames: &[usize]) -> Option<usize> {
        self.samples += 1;
        let position = match self.positions.get(frames) {
            Some(position) => *position,
            None if self.totals.len() < STACKS_MAX => {
                self.positions.insert(frames.into(), self.totals.len());
                self.totals.push(Totals::default());
                self.totals.len() - 1
            }
            None => {
                self.dropped += 1;
                return None;
            }
        };
        self.totals[position].add(size, self.interval);
        Some(position)
    }
}

impl Totals {
    #[expect(clippy::cast_precision_loss, reason = "sizes of blocks are far below 2^52")]
    fn add(&mut self, size: u64, interval: u64) {
        let objects = weight(size, interval);
        self.objects += objects;
        self.bytes += objects * size as f64;
    }
}

/// Empties the tables for a new window.
pub(super) fn begin(interval: u64) {
    let window = WINDOW.fetch_add(1, Ordering::AcqRel) + 1;
    for shard in &LIVE {
        lock(shard).samples.clear();
    }
    *lock(&STACKS) = Stacks { window, interval, ..Stacks::new() };
}

/// Returns the number of the window.
pub(super) fn window() -> u64 {
    WINDOW.load(Ordering::Acquire)
}

/// Adds a sample of a window. A window that has ended drops it.
pub(super) fn add(window: u64, address: usize, size: u64, frames: &[usize]) {
    let stack = {
        let mut stacks = lock(&STACKS);
        if stacks.window != window {
            return;
        }
        stacks.count(size, frames)
    };
    if let Some(stack) = stack {
        restore(address, LiveSample { stack, size, window });
    }
}

/// Adds a live sample, unless its window has ended or there are too many.
pub(super) fn restore(address: usize, sample: LiveSample) {
    let is_full = {
        let mut shard = lock(&LIVE[shard_of(address)]);
        // Under the lock: the next window empties this shard after it has its number.
        if window() != sample.window {
            return;
        }
        let is_full = shard.samples.len() >= SHARD_SAMPLES_MAX;
        if !is_full {
            shard.samples.insert(address, sample);
        }
        is_full
    };
    if is_full {
        lock(&STACKS).dropped += 1;
    }
}

/// Removes the live sample of an address.
pub(super) fn remove(address: usize) -> Option<LiveSample> {
    lock(&LIVE[shard_of(address)]).samples.remove(&address)
}

/// Takes the samples of the window, and returns the memory of the tables.
pub(super) fn end() -> HeapSamples {
    // Hooks that still run add nothing from here on.
    WINDOW.fetch_add(1, Ordering::AcqRel);
    let stacks = std::mem::replace(&mut *lock(&STACKS), Stacks::new());
    let mut live = vec![Totals::default(); stacks.totals.len()];
    for shard in &LIVE {
        let samples = std::mem::replace(&mut *lock(shard), Shard::new()).samples;
        for sample in samples.values() {
            if let Some(totals) = live.get_mut(sample.stack) {
                totals.add(sample.size, stacks.interval);
            }
        }
    }
    let stack = |(frames, position): (Box<[usize]>, usize)| HeapStack {
        allocated_objects: rounded(stacks.totals[position].objects),
        allocated_bytes: rounded(stacks.totals[position].bytes),
        live_objects: rounded(live[position].objects),
        live_bytes: rounded(live[position].bytes),
        frames: frames.into_vec(),
    };
    let (samples, dropped) = (stacks.samples, stacks.dropped);
    HeapSamples { stacks: stacks.positions.into_iter().map(stack).collect(), samples, dropped }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "estimates are positive, and a cast saturates"
)]
fn rounded(estimate: f64) -> u64 {
    estimate.round() as u64
}

fn lock<T>(table: &Mutex<T>) -> MutexGuard<'_, T> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

fn shard_of(address: usize) -> usize {
    usize::try_from(mixed(0, address as u64) % SHARDS as u64).unwrap_or_default()
}

/// Mixes a number into a state, by a multiplication whose high bits are folded into the low ones.
fn mixed(state: u64, number: u64) -> u64 {
    let product = (state.rotate_left(23) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ (product >> 32)
}

/// Hasher of addresses. Its input is the program's own: no stranger chooses addresses.
#[derive(Debug, Default)]
struct MixingHasher {
    state: u64,
}

impl Hasher for MixingHasher {
    fn finish(&self) -> u64 {
        self.state
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_ne_bytes(word));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.state = mixed(self.state, number);
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }
}

//! Windows and running fetches within a bound of memory: values, without tasks or streams.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use martlet_protocol::limits::CHUNK_BYTES;
use martlet_protocol::{Error, ExtentId, Result};
use tokio::time::Instant;

/// Bytes of a window: what a node reads and verifies at a time.
pub(super) const WINDOW_BYTES: u64 = CHUNK_BYTES as u64;
/// Bytes of one allocation of a window, except the last. A slow connection may keep some.
pub(super) const PIECE_BYTES: usize = 128 * 1024;

/// A window of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct WindowKey {
    pub(super) extent: ExtentId,
    /// Offset in windows.
    pub(super) index: u64,
}

/// Verified bytes of a window in order. Cheap to clone.
pub(super) type Window = Arc<[Bytes]>;

/// Number of a fetch, so that a late end isn't taken for that of its successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FetchNumber(u64);

enum Slot<F> {
    Fetching { number: FetchNumber, bytes: u64, flight: F },
    Kept { window: Window, bytes: u64, tick: u64, used: Instant },
}

/// Windows and fetches. Their bytes together stay within the bound.
pub(super) struct Table<F> {
    bytes_max: u64,
    bytes: u64,
    kept_bytes: u64,
    slots: HashMap<WindowKey, Slot<F>>,
    /// Kept windows by last use.
    order: BTreeMap<u64, WindowKey>,
    ticks: u64,
}

impl WindowKey {
    /// The window at an offset of an extent.
    pub(super) fn at(extent: ExtentId, offset: u64) -> Self {
        Self { extent, index: offset / WINDOW_BYTES }
    }

    /// Bytes of the window, in an extent of `length` bytes.
    pub(super) fn range(self, length: u64) -> Range<u64> {
        let start = self.index * WINDOW_BYTES;
        start..length.min(start + WINDOW_BYTES)
    }
}

impl<F> Table<F> {
    pub(super) fn new(bytes_max: u64) -> Self {
        let (slots, order) = (HashMap::new(), BTreeMap::new());
        Self { bytes_max, bytes: 0, kept_bytes: 0, slots, order, ticks: 0 }
    }

    /// Returns a kept window, which counts as used now.
    pub(super) fn window(&mut self, key: WindowKey, now: Instant) -> Option<Window> {
        let next = self.ticks;
        let Slot::Kept { window, tick, used, .. } = self.slots.get_mut(&key)? else { return None };
        self.order.remove(tick);
        (*tick, *used) = (next, now);
        self.order.insert(next, key);
        self.ticks += 1;
        Some(window.clone())
    }

    /// Returns the running fetch of a window.
    pub(super) fn flight(&self, key: WindowKey) -> Option<&F> {
        match self.slots.get(&key)? {
            Slot::Fetching { flight, .. } => Some(flight),
            Slot::Kept { .. } => None,
        }
    }

    /// Begins a fetch of `bytes`, in place of an abandoned one. Drops the windows whose last use is
    /// longest ago as far as needed; none if that doesn't make room. `make` receives the fetch's
    /// number.
    pub(super) fn begin(
        &mut self,
        key: WindowKey,
        bytes: u64,
        make: impl FnOnce(FetchNumber) -> F,
    ) -> Option<&F> {
        self.remove(key);
        while self.bytes + bytes > self.bytes_max {
            let (_, oldest) = self.order.first_key_value()?;
            self.remove(*oldest);
        }
        self.bytes += bytes;
        let number = FetchNumber(self.ticks);
        self.ticks += 1;
        let slot = Slot::Fetching { number, bytes, flight: make(number) };
        self.slots.insert(key, slot);
        self.flight(key)
    }

    /// Ends a fetch: keeps its window, or nothing. Returns false if the fetch was abandoned before.
    pub(super) fn end(
        &mut self,
        key: WindowKey,
        number: FetchNumber,
        window: Option<Window>,
        now: Instant,
    ) -> bool {
        let bytes = match self.slots.get(&key) {
            Some(Slot::Fetching { number: current, bytes, .. }) if *current == number => *bytes,
            _ => return false,
        };
        self.remove(key);
        if let Some(window) = window {
            self.bytes += bytes;
            self.kept_bytes += bytes;
            self.order.insert(self.ticks, key);
            self.slots.insert(key, Slot::Kept { window, bytes, tick: self.ticks, used: now });
            self.ticks += 1;
        }
        true
    }

    /// Drops windows that were not used for `idle`. Returns true if none is left.
    pub(super) fn drop_idle(&mut self, idle: Duration, now: Instant) -> bool {
        while let Some((_, &oldest)) = self.order.first_key_value() {
            match self.slots.get(&oldest) {
                Some(Slot::Kept { used, .. }) if now.duration_since(*used) < idle => return false,
                _ => self.remove(oldest),
            }
        }
        true
    }

    /// Bytes of kept windows.
    pub(super) fn kept_bytes(&self) -> u64 {
        self.kept_bytes
    }

    fn remove(&mut self, key: WindowKey) {
        match self.slots.remove(&key) {
            Some(Slot::Fetching { bytes, .. }) => self.bytes -= bytes,
            Some(Slot::Kept { bytes, tick, .. }) => {
                self.order.remove(&tick);
                self.bytes -= bytes;
                self.kept_bytes -= bytes;
            }
            None => {}
        }
    }
}

/// A window that is being filled. It copies what it is given: a slice of a connection's buffer
/// would keep all of that buffer.
pub(super) struct WindowBuilder {
    left: usize,
    piece: BytesMut,
    pieces: Vec<Bytes>,
}

impl WindowBuilder {
    pub(super) fn new(bytes: u64) -> Self {
        let left = usize::try_from(bytes).expect("a window fits in memory");
        Self { left, piece: BytesMut::new(), pieces: Vec::new() }
    }

    /// Adds the next bytes.
    ///
    /// # Errors
    /// Kind `Corrupt` for more bytes than the window has.
    pub(super) fn push(&mut self, mut bytes: &[u8]) -> Result<()> {
        if bytes.len() > self.left {
            return Err(Error::corrupt("a window got more bytes than it has"));
        }
        while !bytes.is_empty() {
            if self.piece.capacity() == 0 {
                self.piece = BytesMut::with_capacity(PIECE_BYTES.min(self.left));
            }
            let room = self.piece.capacity() - self.piece.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.piece.extend_from_slice(now);
            self.left -= now.len();
            bytes = later;
            if now.len() == room || self.left == 0 {
                self.pieces.push(std::mem::take(&mut self.piece).freeze());
            }
        }
        Ok(())
    }

    /// The filled window.
    ///
    /// # Errors
    /// Kind `Corrupt` if bytes are missing.
    pub(super) fn finish(self) -> Result<Window> {
        if self.left > 0 {
            return Err(Error::corrupt("a window ended early"));
        }
        Ok(self.pieces.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(index: u64) -> WindowKey {
        WindowKey { extent: ExtentId([7; 16]), index }
    }

    fn window(bytes: usize) -> Window {
        Arc::new([Bytes::from(vec![1; bytes])])
    }

    /// Begins a fetch of ten bytes; returns its number unless there is no room.
    fn begin(table: &mut Table<FetchNumber>, index: u64) -> Option<FetchNumber> {
        table.begin(key(index), 10, |number| number).copied()
    }

    fn keep(table: &mut Table<FetchNumber>, index: u64, now: Instant) {
        let number = begin(table, index).unwrap();
        assert!(table.end(key(index), number, Some(window(10)), now));
    }

    #[test]
    fn windows_are_aligned_and_the_last_one_is_shorter() {
        let extent = ExtentId([1; 16]);
        assert_eq!(WindowKey::at(extent, WINDOW_BYTES - 1).index, 0);
        let last = WindowKey::at(extent, WINDOW_BYTES + 5);
        assert_eq!(last.range(WINDOW_BYTES + 9), WINDOW_BYTES..WINDOW_BYTES + 9);
        assert_eq!(last.range(5 * WINDOW_BYTES), WINDOW_BYTES..2 * WINDOW_BYTES);
    }

    #[test]
    fn the_least_recently_used_window_is_evicted() {
        let (mut table, now) = (Table::new(30), Instant::now());
        (0..3).for_each(|index| keep(&mut table, index, now));
        assert!(table.window(key(0), now).is_some());
        keep(&mut table, 3, now);
        assert!(table.window(key(1), now).is_none(), "the one that was not used");
        assert!([0, 2, 3].iter().all(|index| table.window(key(*index), now).is_some()));
        assert_eq!((table.bytes, table.kept_bytes()), (30, 30));
    }

    #[test]
    fn fetches_count_and_are_never_dropped_for_room() {
        let (mut table, now) = (Table::new(30), Instant::now());
        let numbers: Vec<_> = (0..3).map(|index| begin(&mut table, index).unwrap()).collect();
        assert!(begin(&mut table, 3).is_none() && table.flight(key(3)).is_none());
        assert!(table.end(key(0), numbers[0], None, now), "a failed one frees its bytes");
        assert!(begin(&mut table, 3).is_some());
        assert_eq!((table.bytes, table.kept_bytes()), (30, 0));
    }

    #[test]
    fn an_abandoned_fetch_changes_nothing_of_its_successor() {
        let (mut table, now) = (Table::new(30), Instant::now());
        let abandoned = begin(&mut table, 0).unwrap();
        let next = begin(&mut table, 0).unwrap();
        assert!(!table.end(key(0), abandoned, Some(window(10)), now));
        assert_eq!(table.flight(key(0)), Some(&next));
        assert!(table.end(key(0), next, Some(window(10)), now));
        assert!(!table.end(key(0), next, None, now), "it has ended");
        assert_eq!((table.bytes, table.window(key(0), now).is_some()), (10, true));
    }

    #[tokio::test(start_paused = true)]
    async fn idle_windows_are_dropped_and_used_ones_are_not() {
        let mut table = Table::new(30);
        (0..2).for_each(|index| keep(&mut table, index, Instant::now()));
        tokio::time::advance(Duration::from_secs(6)).await;
        assert!(table.window(key(0), Instant::now()).is_some());
        tokio::time::advance(Duration::from_secs(6)).await;
        assert!(!table.drop_idle(Duration::from_secs(10), Instant::now()));
        assert_eq!(table.bytes, 10);
        tokio::time::advance(Duration::from_secs(6)).await;
        assert!(table.drop_idle(Duration::from_secs(10), Instant::now()));
        assert_eq!((table.bytes, table.order.len()), (0, 0));
    }

    #[test]
    fn a_window_has_all_its_bytes_in_pieces_or_is_none() {
        let length = 2 * PIECE_BYTES + 5;
        let bytes: Vec<u8> = (0_u8..251).cycle().take(length).collect();
        for step in [1000, PIECE_BYTES, length] {
            let mut builder = WindowBuilder::new(length as u64);
            bytes.chunks(step).for_each(|chunk| builder.push(chunk).unwrap());
            assert!(builder.push(b"x").is_err());
            let window = builder.finish().unwrap();
            assert_eq!(window.concat(), bytes);
            assert!(window.len() == 3 && window.iter().all(|piece| piece.len() <= PIECE_BYTES));
        }
        let mut short = WindowBuilder::new(5);
        short.push(b"four").unwrap();
        assert!(short.finish().is_err());
    }
}

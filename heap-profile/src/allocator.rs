//! Allocator that samples allocations of its inner allocator while a window is open.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::countdown::Countdown;
use super::tables::{self, LiveSample, STACK_FRAMES_MAX};

/// Mean number of bytes between two samples; 0 while no window is open. Its value is read at each
/// allocation. A thread that receives a block has read or can read no older value than the thread that
/// allocated it, so relaxed loads suffice.
static INTERVAL: AtomicU64 = AtomicU64::new(0);
/// True once an allocation was examined: the program's allocator is a [`SampledAllocator`].
static IS_INSTALLED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// State of the thread. It needs no destructor, so that it is there until the thread's end.
    static THREAD: ThreadState =
        const { ThreadState { is_within: Cell::new(false), countdown: Countdown::new() } };
}

struct ThreadState {
    /// True within a hook.
    is_within: Cell<bool>,
    countdown: Countdown,
}

/// Wrapper of an allocator. Without a window an allocation costs a load and a branch more.
#[derive(Debug)]
pub struct SampledAllocator<A> {
    inner: A,
}

impl<A> SampledAllocator<A> {
    /// Wraps an allocator.
    pub const fn new(inner: A) -> Self {
        Self { inner }
    }
}

// SAFETY: each call goes to the inner allocator with the caller's parameters, and its result is returned.
// The records beside these calls use addresses as numbers, touch no block, and don't unwind.
#[expect(unsafe_code, reason = "an allocator is unsafe to implement")]
unsafe impl<A: GlobalAlloc> GlobalAlloc for SampledAllocator<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are those that the inner allocator needs.
        let block = unsafe { self.inner.alloc(layout) };
        if is_on() {
            allocated(block, layout.size());
        }
        block
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as in `alloc`.
        let block = unsafe { self.inner.alloc_zeroed(layout) };
        if is_on() {
            allocated(block, layout.size());
        }
        block
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if is_on() {
            forget(block);
        }
        // SAFETY: as in `alloc`; the block came from the inner allocator.
        unsafe { self.inner.dealloc(block, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let before = if is_on() { forget(block) } else { None };
        // SAFETY: as in `dealloc`.
        let moved = unsafe { self.inner.realloc(block, layout, size) };
        if is_on() {
            reallocated(block, before, moved, size);
        }
        moved
    }
}

/// Opens the hooks.
pub(super) fn turn_on(interval: u64) {
    INTERVAL.store(interval, Ordering::Release);
}

/// Closes the hooks. Those that run end later.
pub(super) fn turn_off() {
    INTERVAL.store(0, Ordering::Release);
}

/// True if the program's allocator has hooks. They must be on.
pub(super) fn is_installed() -> bool {
    drop(std::hint::black_box(Box::new(0_u64)));
    IS_INSTALLED.load(Ordering::Relaxed)
}

/// Runs work outside of the hooks of this thread: its allocations are no samples.
pub(super) fn unsampled<T>(work: impl FnOnce() -> T) -> T {
    let was_within = THREAD.with(|thread| thread.is_within.replace(true));
    let result = work();
    THREAD.with(|thread| thread.is_within.set(was_within));
    result
}

#[inline]
fn is_on() -> bool {
    INTERVAL.load(Ordering::Relaxed) != 0
}

/// Runs a hook, unless the thread is within one.
fn hook<T>(work: impl FnOnce(&ThreadState) -> Option<T>) -> Option<T> {
    THREAD.with(|thread| {
        if thread.is_within.replace(true) {
            return None;
        }
        let result = work(thread);
        thread.is_within.set(false);
        result
    })
}

/// Counts an allocation, and records it if it is a sample.
#[cold]
#[inline(never)]
fn allocated(block: *mut u8, size: usize) {
    hook(|thread| {
        IS_INSTALLED.store(true, Ordering::Relaxed);
        let interval = INTERVAL.load(Ordering::Relaxed);
        if block.is_null() || !thread.countdown.reaches_sample(size as u64, interval) {
            return None;
        }
        let window = tables::window();
        let mut frames = [0; STACK_FRAMES_MAX];
        let depth = walk(&mut frames);
        tables::add(window, block.addr(), size as u64, &frames[..depth]);
        Some(())
    });
}

/// Removes a block from the live samples.
#[cold]
#[inline(never)]
fn forget(block: *mut u8) -> Option<LiveSample> {
    hook(|_| tables::remove(block.addr()))
}

/// Records the result of a reallocation: another block, or the old one where the inner allocator had no memory.
#[cold]
#[inline(never)]
fn reallocated(block: *mut u8, before: Option<LiveSample>, moved: *mut u8, size: usize) {
    if !moved.is_null() {
        allocated(moved, size);
    } else if let Some(sample) = before {
        hook(|_| {
            tables::restore(block.addr(), sample);
            Some(())
        });
    }
}

/// Walks the stack of this thread, from the innermost frame on. Returns the number of frames.
#[expect(unsafe_code, reason = "the safe function shares a lock with the names of functions")]
fn walk(frames: &mut [usize; STACK_FRAMES_MAX]) -> usize {
    let mut depth = 0;
    let each = |frame: &backtrace::Frame| {
        frames[depth] = frame.ip().addr();
        depth += 1;
        depth < STACK_FRAMES_MAX
    };
    // SAFETY: only Windows needs the lock of the safe function. Elsewhere a walk is a call of the unwinder,
    // which threads may call at once.
    unsafe { backtrace::trace_unsynchronized(each) };
    depth
}

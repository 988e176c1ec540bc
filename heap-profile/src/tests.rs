//! Windows over the allocator of this test program.

use std::alloc::System;
use std::hint::black_box;
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;

use super::*;

#[global_allocator]
static ALLOCATOR: SampledAllocator<System> = SampledAllocator::new(System);

/// Windows of tests open one after the other.
static ALONE: Mutex<()> = Mutex::new(());

const MIB: u64 = 1 << 20;
const INTERVAL: u64 = 16 << 10;

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Allocates blocks of 4,000 bytes.
#[inline(never)]
fn blocks_that_a_profile_finds(bytes: u64) -> Vec<Box<[u8]>> {
    let block = || black_box(vec![1_u8; 4000].into_boxed_slice());
    (0..bytes / 4000).map(|_| block()).collect()
}

/// Lets a block grow by reallocation.
#[inline(never)]
fn block_that_a_profile_sees_grow(bytes: usize) -> Vec<u8> {
    let mut block = Vec::with_capacity(1000);
    while block.len() < bytes {
        block.push(black_box(7));
    }
    block.shrink_to_fit();
    block
}

fn has(stack: &HeapStack, function: &str) -> bool {
    stack.frames.iter().any(|ip| {
        let mut is_found = false;
        backtrace::resolve(std::ptr::without_provenance_mut(*ip), |symbol| {
            is_found |= symbol.name().is_some_and(|name| name.to_string().contains(function));
        });
        is_found
    })
}

/// Returns allocated and live bytes of a function.
fn bytes_of(samples: &HeapSamples, function: &str) -> (u64, u64) {
    let stacks: Vec<_> = samples.stacks.iter().filter(|stack| has(stack, function)).collect();
    (
        stacks.iter().map(|stack| stack.allocated_bytes).sum(),
        stacks.iter().map(|stack| stack.live_bytes).sum(),
    )
}

fn is_about(bytes: u64, expected: u64) -> bool {
    (expected * 8 / 10..=expected * 12 / 10).contains(&bytes)
}

#[test]
fn a_thread_that_keeps_memory_is_found_by_name_and_size() {
    let _alone = alone();
    let window = HeapWindow::begin(INTERVAL).unwrap();
    let kept = thread::spawn(|| blocks_that_a_profile_finds(32 * MIB)).join().unwrap();
    let samples = window.end();
    let (allocated, live) = bytes_of(&samples, "blocks_that_a_profile_finds");
    assert!(is_about(allocated, 32 * MIB) && is_about(live, 32 * MIB), "{allocated} {live}");
    let objects: u64 = samples
        .stacks
        .iter()
        .filter(|stack| has(stack, "blocks_that_a_profile_finds"))
        .map(|stack| stack.live_objects)
        .sum();
    assert!(is_about(objects, kept.len() as u64), "{objects} of {}", kept.len());
    assert_eq!(samples.dropped, 0);
}

#[test]
fn freed_memory_was_allocated_and_is_not_in_use() {
    let _alone = alone();
    let window = HeapWindow::begin(INTERVAL).unwrap();
    let blocks = blocks_that_a_profile_finds(16 * MIB);
    // Another thread frees them.
    thread::spawn(move || drop(blocks)).join().unwrap();
    let (allocated, live) = bytes_of(&window.end(), "blocks_that_a_profile_finds");
    assert!(is_about(allocated, 16 * MIB), "{allocated}");
    assert_eq!(live, 0);
}

#[test]
fn a_block_that_grows_is_in_use_once() {
    let _alone = alone();
    let window = HeapWindow::begin(INTERVAL).unwrap();
    let block = block_that_a_profile_sees_grow(8 << 20);
    let (allocated, live) = bytes_of(&window.end(), "block_that_a_profile_sees_grow");
    assert!(is_about(live, block.len() as u64), "{live}");
    assert!(allocated > live, "each growth is an allocation: {allocated}");
}

#[test]
fn memory_from_outside_of_the_window_is_not_recorded() {
    let _alone = alone();
    let before = blocks_that_a_profile_finds(8 * MIB);
    let window = HeapWindow::begin(INTERVAL).unwrap();
    drop(before);
    let samples = window.end();
    assert_eq!(bytes_of(&samples, "blocks_that_a_profile_finds"), (0, 0));
    let after = blocks_that_a_profile_finds(8 * MIB);
    let empty = HeapWindow::begin(1 << 40).unwrap().end();
    assert_eq!(bytes_of(&empty, "blocks_that_a_profile_finds"), (0, 0));
    drop(after);
}

#[test]
fn one_window_is_open_at_a_time_and_a_drop_ends_it() {
    let _alone = alone();
    let window = HeapWindow::begin(INTERVAL).unwrap();
    assert_eq!(HeapWindow::begin(INTERVAL).unwrap_err(), HeapRefusal::Busy);
    drop(window);
    assert!(HeapWindow::begin(INTERVAL).is_ok());
}

#[test]
fn samples_beyond_the_bounds_are_counted() {
    let _alone = alone();
    let window = HeapWindow::begin(1).unwrap();
    let blocks: Vec<Box<u64>> = (0..100_000).map(|number| black_box(Box::new(number))).collect();
    let samples = window.end();
    assert!(samples.dropped > 30_000, "{} of {}", samples.dropped, samples.samples);
    assert_eq!(blocks.len(), 100_000);
}

#[test]
fn threads_that_allocate_and_free_at_once_leave_nothing_in_use() {
    let _alone = alone();
    let window = HeapWindow::begin(1_000).unwrap();
    let (send, receive) = mpsc::channel::<Vec<Box<[u8]>>>();
    let free = thread::spawn(move || receive.into_iter().for_each(drop));
    thread::scope(|scope| {
        for _ in 0..4 {
            let send = send.clone();
            scope.spawn(move || {
                for _ in 0..50 {
                    send.send(blocks_that_a_profile_finds(100_000)).unwrap();
                }
            });
        }
    });
    drop(send);
    free.join().unwrap();
    let (allocated, live) = bytes_of(&window.end(), "blocks_that_a_profile_finds");
    assert!(is_about(allocated, 20_000_000), "{allocated}");
    assert_eq!(live, 0);
}

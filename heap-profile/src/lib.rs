//! Sampled profile of a program's heap: which functions allocated memory in a window of time, and which
//! of it is in use at the end of the window.
//!
//! ```text
//! alloc ──▶ inner allocator ──▶ on? ── no (a load and a branch) ──▶ return
//!                                └─ yes ─▶ countdown of the thread ─▶ stack ─▶ tables
//! dealloc ─▶ on? ── yes ─▶ remove from the table of live samples ─▶ inner allocator
//! ```
//!
//! * [`SampledAllocator`] wraps the program's allocator, which stays what it was.
//! * [`HeapWindow`] turns sampling on, for one window at a time, and returns [`HeapSamples`].
//! * `countdown`: which allocations are samples, and for how many each of them stands.
//! * `tables`: stacks with their totals, and live samples by their address. Both are bounded.
//!
//! **Invariants.**
//! * An address is in the table of live samples only while its block is allocated: it is added before the
//!   allocation returns, and removed before the inner allocator gets the block back.
//! * A hook never runs within a hook on one thread. So what the tables allocate is no sample, and no lock is
//!   taken twice.
//! * A sample of one window is never recorded in another.
//!
//! Memory that was allocated before the window, and that of C and C++ code, is in no profile.
//!
//! This is the one crate with `unsafe` code: an allocator, and the walk of a stack.

mod allocator;
mod countdown;
mod samples;
mod tables;
mod window;

pub use allocator::SampledAllocator;
pub use samples::{HeapSamples, HeapStack};
pub use window::{HeapRefusal, HeapWindow};

#[cfg(test)]
mod tests;

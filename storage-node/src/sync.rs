//! Locks, atomics and threads of the code that explored interleavings concern.
//!
//! These are `parking_lot`'s and the standard library's. With the feature `interleavings` they are
//! those of shuttle, which runs one thread at a time and chooses the next one at each lock, wait
//! and atomic access. Its types work only inside of such a run.

#[cfg(not(feature = "interleavings"))]
mod usual {
    pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
    pub(crate) use std::sync::atomic;
    pub(crate) use std::thread;
}

#[cfg(not(feature = "interleavings"))]
pub(crate) use usual::*;

#[cfg(feature = "interleavings")]
mod explored;

#[cfg(feature = "interleavings")]
pub(crate) use explored::*;

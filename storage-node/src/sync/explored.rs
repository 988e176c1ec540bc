//! Shuttle's locks with the interface of `parking_lot`'s, as far as the crate uses it.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use shuttle::rand::Rng;
pub(crate) use shuttle::sync::atomic;
pub(crate) use shuttle::thread;

/// A lock without poison: a panic fails the run.
#[derive(Default)]
pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

/// Access to a locked value. The inner guard is absent while the lock is given away.
pub(crate) struct MutexGuard<'a, T> {
    lock: &'a shuttle::sync::Mutex<T>,
    guard: Option<shuttle::sync::MutexGuard<'a, T>>,
}

/// A queue of threads that wait.
#[derive(Default)]
pub(crate) struct Condvar(shuttle::sync::Condvar);

/// Outcome of a bounded wait.
#[derive(Clone, Copy)]
pub(crate) struct TimedWait {
    timed_out: bool,
}

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(shuttle::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        let guard = Some(self.0.lock().expect(UNPOISONED));
        MutexGuard { lock: &self.0, guard }
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().expect(UNPOISONED)
    }
}

impl<'a, T> MutexGuard<'a, T> {
    /// Unlocks for the time of a call.
    pub(crate) fn unlocked<R>(guard: &mut Self, call: impl FnOnce() -> R) -> R {
        drop(guard.guard.take());
        let outcome = call();
        guard.guard = Some(guard.lock.lock().expect(UNPOISONED));
        outcome
    }

    fn take(&mut self) -> shuttle::sync::MutexGuard<'a, T> {
        self.guard.take().expect(HELD)
    }
}

impl Condvar {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        guard.guard = Some(self.0.wait(guard.take()).expect(UNPOISONED));
    }

    /// Waits for a notification, or ends without one: by chance, since no run has a clock. A thread
    /// whose time is up has left the queue, and takes no notification from others.
    pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _: Duration) -> TimedWait {
        let timed_out = shuttle::rand::thread_rng().gen_bool(0.5);
        if timed_out {
            MutexGuard::unlocked(guard, thread::yield_now);
        } else {
            self.wait(guard);
        }
        TimedWait { timed_out }
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }
}

impl TimedWait {
    pub(crate) fn timed_out(self) -> bool {
        self.timed_out
    }
}

const UNPOISONED: &str = "a panic has failed the run";
const HELD: &str = "the lock is held";

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.guard.as_ref().expect(HELD)
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.guard.as_mut().expect(HELD)
    }
}

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mutex(…)")
    }
}

/// Runs a check in `MARTLET_INTERLEAVINGS` (10,000) interleavings of each of two schedulers: one draws
/// each next thread, and one changes the threads' priorities at three points. A failure prints the
/// schedule that repeats it.
#[cfg(test)]
pub(crate) fn explore(check: impl Fn() + Copy + Send + Sync + 'static) {
    let runs = std::env::var("MARTLET_INTERLEAVINGS");
    let runs = runs.map_or(10_000, |text| text.parse().expect("a number of interleavings"));
    shuttle::check_random(check, runs);
    shuttle::check_pct(check, runs, 3);
    println!("explored {} interleavings", 2 * runs);
}

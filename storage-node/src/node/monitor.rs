//! Monitor threads, one for each device: each opens its device, tends it, and closes it.
//!
//! No device waits for another. Devices are opened in parallel, [`OPENING_MAX`] at a time; a device
//! that hangs occupies only its own thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use martlet_protocol::{Error, Result};
use parking_lot::{Condvar, Mutex};

use super::patience::Patience;
use crate::device::Device;

/// Interval between two checks of a device.
const TEND_EVERY: Duration = Duration::from_millis(250);
/// Pause after a check that panicked.
const PAUSE_AFTER_PANIC: Duration = Duration::from_secs(10);
/// Number of devices opened at a time: recovery needs memory.
const OPENING_MAX: usize = 8;
/// Polling interval for conditions without a notification.
const STEP: Duration = Duration::from_millis(5);

/// The thread of one device.
pub(super) struct Monitor {
    device: Arc<Device>,
    orders: Arc<Orders>,
    thread: Mutex<Option<JoinHandle<()>>>,
    patience: Duration,
}

/// Next action of a monitor.
#[derive(Default)]
enum MonitorOrder {
    #[default]
    Tend,
    /// Closes the device in good order; the monitor ends.
    Close(SyncSender<Result<()>>),
    /// Leaves the device as it is; the monitor ends.
    Leave,
}

#[derive(Default)]
struct Orders {
    next: Mutex<MonitorOrder>,
    changed: Condvar,
}

impl Orders {
    fn give(&self, order: MonitorOrder) {
        *self.next.lock() = order;
        self.changed.notify_all();
    }

    /// Returns the next order. With `Tend`, waits up to [`TEND_EVERY`] for another order first.
    fn take(&self) -> MonitorOrder {
        let mut next = self.next.lock();
        if matches!(*next, MonitorOrder::Tend) {
            self.changed.wait_for(&mut next, TEND_EVERY);
        }
        std::mem::take(&mut *next)
    }
}

/// Starts a monitor for each device. Returns once each device has opened or failed to open, or once
/// `patience.opening` has passed and one device is open; the rest join the node later. Blocks.
pub(super) fn start(devices: &[Arc<Device>], patience: Patience) -> Result<Vec<Monitor>> {
    let slots = Arc::new(Slots { free: Mutex::new(OPENING_MAX), given_back: Condvar::new() });
    let (tried, outcomes) = channel();
    let monitors = devices
        .iter()
        .map(|device| Monitor::start(device.clone(), &slots, tried.clone(), patience))
        .collect::<Result<Vec<_>>>()?;
    drop(tried);
    let began = Instant::now();
    let mut left = devices.len();
    while left > 0 {
        let time = patience.opening.saturating_sub(began.elapsed());
        match outcomes.recv_timeout(time.max(STEP)) {
            Ok(()) => left -= 1,
            Err(RecvTimeoutError::Timeout) if !devices.iter().any(|it| it.online().is_ok()) => {}
            Err(RecvTimeoutError::Timeout) => {
                tracing::warn!(
                    devices = left,
                    "starting without devices that are still being opened"
                );
                break;
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    Ok(monitors)
}

/// Closes all devices in parallel. Waits for `patience.closing` at most; returns the first error.
/// Blocks.
pub(super) fn close(monitors: &[Monitor]) -> Result<()> {
    let closings: Vec<_> = monitors.iter().filter_map(Monitor::begin_close).collect();
    let began = Instant::now();
    let mut outcome = Ok(());
    for closing in closings {
        outcome = outcome.and(closing.wait(began));
    }
    outcome
}

impl Monitor {
    fn start(
        device: Arc<Device>,
        slots: &Arc<Slots>,
        tried: Sender<()>,
        patience: Patience,
    ) -> Result<Self> {
        let orders = Arc::new(Orders::default());
        // Opening an extent store may need the runtime of the thread that opened the node.
        let runtime = tokio::runtime::Handle::try_current().ok();
        let (own, given, slots) = (device.clone(), orders.clone(), slots.clone());
        let attend = move || {
            let _entered = runtime.as_ref().map(tokio::runtime::Handle::enter);
            let slot = slots.take(patience.opening);
            own.open();
            drop(slot);
            // The receiver may be gone.
            let _ = tried.send(());
            drop(tried);
            run_monitor(&own, &given);
        };
        let thread = std::thread::Builder::new()
            .name(format!("monitor-{}", device.id()))
            .spawn(attend)
            .map_err(|error| {
                Error::internal("the monitor's thread can't be started").with_source(error)
            })?;
        let thread = Mutex::new(Some(thread));
        Ok(Self { device, orders, thread, patience: patience.closing })
    }

    /// Orders the device to close. Returns none if the monitor has already been stopped.
    fn begin_close(&self) -> Option<ClosingDevice> {
        let thread = self.thread.lock().take()?;
        let (reply, outcome) = sync_channel(1);
        self.orders.give(MonitorOrder::Close(reply));
        let (device, patience) = (self.device.id().to_string(), self.patience);
        Some(ClosingDevice { device, outcome, thread, patience })
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        let Some(thread) = self.thread.lock().take() else { return };
        self.orders.give(MonitorOrder::Leave);
        let began = Instant::now();
        // The next opening must find the device unlocked, unless this thread hangs.
        while !thread.is_finished() {
            if began.elapsed() > self.patience {
                tracing::error!(device = %self.device.id(), "the device hangs: not closing it");
                return;
            }
            std::thread::park_timeout(STEP);
        }
    }
}

/// A device that is being closed.
struct ClosingDevice {
    device: String,
    outcome: Receiver<Result<()>>,
    thread: JoinHandle<()>,
    patience: Duration,
}

impl ClosingDevice {
    fn wait(self, began: Instant) -> Result<()> {
        let Self { device, outcome, thread, patience } = self;
        match outcome.recv_timeout(patience.saturating_sub(began.elapsed())) {
            Ok(closed) => {
                // The thread has no work left after this reply, so joining it cannot fail or block.
                let _ = thread.join();
                closed
            }
            Err(RecvTimeoutError::Timeout) => {
                let seconds = patience.as_secs();
                Err(Error::unavailable(format!("device {device} did not close within {seconds} s")))
            }
            Err(RecvTimeoutError::Disconnected) => {
                Err(Error::internal(format!("the monitor of device {device} panicked")))
            }
        }
    }
}

fn run_monitor(device: &Device, orders: &Orders) {
    let mut resume = Instant::now();
    loop {
        match orders.take() {
            MonitorOrder::Tend if Instant::now() < resume => {}
            MonitorOrder::Tend => {
                if catch_unwind(AssertUnwindSafe(|| device.tend())).is_err() {
                    tracing::error!(device = %device.id(), "a check of the device panicked");
                    resume = Instant::now() + PAUSE_AFTER_PANIC;
                }
            }
            MonitorOrder::Close(reply) => {
                // The caller may have timed out.
                let _ = reply.send(device.close());
                return;
            }
            MonitorOrder::Leave => {
                device.leave();
                return;
            }
        }
    }
}

/// Counts the devices that may be opened now.
struct Slots {
    free: Mutex<usize>,
    given_back: Condvar,
}

impl Slots {
    /// Waits for a slot. Returns none after `patience`: the opening then proceeds without a slot,
    /// because the devices that hold the slots may hang.
    fn take(self: &Arc<Self>, patience: Duration) -> Option<MonitorSlot> {
        let mut free = self.free.lock();
        let began = Instant::now();
        while *free == 0 {
            if self.given_back.wait_until(&mut free, began + patience).timed_out() {
                return None;
            }
        }
        *free -= 1;
        Some(MonitorSlot(self.clone()))
    }
}

struct MonitorSlot(Arc<Slots>);

impl Drop for MonitorSlot {
    fn drop(&mut self) {
        *self.0.free.lock() += 1;
        self.0.given_back.notify_one();
    }
}

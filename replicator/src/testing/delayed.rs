//! Nodes in memory whose chosen calls are delayed: the caller gets no reply, and the test delivers the
//! calls later.

use std::sync::Arc;

use martlet_protocol::backend::{Call, Reply};
use martlet_protocol::testing::{CallHook, FaultyBackend};
use martlet_protocol::{Backend, DeviceId, Error, ManualClock, Result};
use parking_lot::Mutex;

use super::multi_node::MultiNodeWorld;

/// Calls that are on their way.
#[derive(Clone, Default)]
pub(crate) struct DelayedCalls {
    /// First letters of the names of calls that are delayed from now on; none: no call.
    delayed: Arc<Mutex<Option<&'static str>>>,
    calls: Arc<Mutex<Vec<(DeviceId, Call<'static>)>>>,
}

impl DelayedCalls {
    /// Returns a world of `count` nodes, and the calls that are delayed there.
    pub(crate) fn world(count: u32) -> (MultiNodeWorld, Self) {
        let calls = Self::default();
        let delayed = calls.clone();
        let clock = Arc::new(ManualClock::at(1_000_000_000));
        let world = MultiNodeWorld::wrapped(count, clock, move |_, inner| {
            Arc::new(FaultyBackend::hooked(inner, delayed.clone()))
        });
        (world, calls)
    }

    /// Delays the calls whose names begin with `name`; none: no further call.
    pub(crate) fn delay(&self, name: Option<&'static str>) {
        *self.delayed.lock() = name;
    }

    /// Delivers the delayed calls to the nodes that are in their place now. Returns the outcomes.
    pub(crate) async fn deliver(&self, world: &MultiNodeWorld) -> Vec<Result<Reply>> {
        let calls = std::mem::take(&mut *self.calls.lock());
        let mut outcomes = Vec::new();
        for (device, call) in calls {
            outcomes.push(world.memory(device).call(device, call).await);
        }
        outcomes
    }
}

impl CallHook for DelayedCalls {
    fn before<'a>(&self, device: DeviceId, call: Call<'a>) -> Result<Call<'a>> {
        let delayed = *self.delayed.lock();
        if delayed.is_some_and(|name| call.kind().name().starts_with(name)) {
            self.calls.lock().push((device, call.into_owned()));
            return Err(Error::unavailable("the call is on its way"));
        }
        Ok(call)
    }
}

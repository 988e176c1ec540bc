//! Nodes in memory that record the requests to them.

use std::sync::Arc;

use martlet_protocol::backend::{Call, CallKind, Reply};
use martlet_protocol::testing::{CallHook, FaultyBackend};
use martlet_protocol::{DeviceId, ManualClock, Result};
use parking_lot::Mutex;

use super::multi_node::MultiNodeWorld;

/// Requests to nodes, by device: a call, or none for the state of the node.
pub(crate) type NodeRequests = Arc<Mutex<Vec<(DeviceId, Option<CallKind>)>>>;

/// Recorder of the requests to a node of one device, which may alter replies.
struct RequestRecorder {
    device: DeviceId,
    requests: NodeRequests,
    alter: fn(Reply) -> Reply,
}

impl CallHook for RequestRecorder {
    fn before<'a>(&self, device: DeviceId, call: Call<'a>) -> Result<Call<'a>> {
        self.requests.lock().push((device, Some(call.kind())));
        Ok(call)
    }

    fn after(&self, reply: Reply) -> Reply {
        (self.alter)(reply)
    }

    fn note_devices(&self) {
        self.requests.lock().push((self.device, None));
    }
}

/// Returns a world of `count` nodes whose replies to calls are altered, and the requests to them.
pub(crate) fn recorded(count: u32, alter: fn(Reply) -> Reply) -> (MultiNodeWorld, NodeRequests) {
    let requests = NodeRequests::default();
    let seen = requests.clone();
    let clock = Arc::new(ManualClock::at(1_000_000_000));
    let world = MultiNodeWorld::wrapped(count, clock, move |device, inner| {
        let recorder = RequestRecorder { device, requests: seen.clone(), alter };
        Arc::new(FaultyBackend::hooked(inner, recorder))
    });
    (world, requests)
}

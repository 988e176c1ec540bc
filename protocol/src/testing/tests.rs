//! Conformance of the reference backend, and tests of injected faults.

use crate::term::Term;
use std::sync::Arc;

use super::*;
use crate::backend::{BackendExt, CallKind, Want};
use crate::clock::SystemClock;
use crate::error::ErrorKind;
use crate::id::{BucketId, DeviceId};
use crate::key::RegisterKey;

const DEVICE: DeviceId = DeviceId(3);

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime can be made").block_on(future)
}

fn memory() -> Arc<MemoryBackend> {
    Arc::new(MemoryBackend::new(Arc::new(SystemClock), [DEVICE]))
}

#[test]
fn the_memory_backend_conforms() {
    block_on(conformance::all(&*memory(), DEVICE));
}

#[test]
fn a_faultless_wrapper_conforms() {
    block_on(async {
        let faulty = FaultyBackend::new(memory(), |_| Fault::None);
        conformance::all(&faulty, DEVICE).await;
    });
}

#[test]
fn a_refused_call_has_no_effect_and_a_lost_reply_has_one() {
    block_on(async {
        let memory = memory();
        let key = RegisterKey::object(BucketId::random(), 1, "key");
        for (fault, held) in [
            (Fault::Refuse(ErrorKind::Unavailable), false),
            (Fault::LoseReply(ErrorKind::Unavailable), true),
        ] {
            let faulty = FaultyBackend::new(memory.clone(), move |call| {
                if call.op == CallKind::Promise { fault } else { Fault::None }
            });
            let ballot = crate::Stamp { time: 9, ..crate::Stamp::ZERO };
            let error = faulty.promise(DEVICE, &key, ballot, Term::ANY).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            let view = faulty.read(DEVICE, &key, Want::Entry, Term::ANY).await.unwrap();
            assert_eq!(view.promise == ballot, held);
        }
    });
}

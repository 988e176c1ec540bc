//! Checks of terms and joined changes (rules P1 to P3).

use super::listing::request;
use super::{plain, register, stamp};
use crate::backend::{
    Backend, BackendExt, DeviceStatus, EntryWrite, Holding, ListStart, Want, WriteReply,
};
use crate::error::{Error, ErrorKind};
use crate::id::{BucketId, DeviceId};
use crate::register::WriteMode;
use crate::term::Term;

pub(super) async fn all(backend: &dyn Backend, device: DeviceId) {
    a_lower_term_is_refused_before_anything_happens(backend, device).await;
    the_joined_term_never_falls(backend, device).await;
}

async fn status(backend: &dyn Backend, device: DeviceId) -> DeviceStatus {
    let all = backend.devices().await.unwrap();
    all.into_iter().find(|status| status.device == device).expect("the device is listed")
}

fn refused(outcome: Option<Error>, term: Term) {
    let error = outcome.expect("a lower term is refused");
    assert_eq!((error.kind(), error.newer_term()), (ErrorKind::Unavailable, Some(term)));
    assert!(error.had_no_effect(), "{error}");
}

async fn a_lower_term_is_refused_before_anything_happens(backend: &dyn Backend, device: DeviceId) {
    let bucket = BucketId::random();
    let key = register(bucket, "termed");
    let before = status(backend, device).await.term;
    let term = Term(before.0 + 3);
    let lower = Term(before.0 + 2);
    backend.raise_term(device, term).await.unwrap();
    backend.raise_term(device, lower).await.unwrap();
    assert_eq!(status(backend, device).await.term, term, "a term never falls");

    for mode in [WriteMode::Fresh, WriteMode::Settled, WriteMode::Accept, WriteMode::Repair] {
        let late = EntryWrite { term: lower, mode, ..plain(&key, stamp(1)) };
        refused(backend.write(device, late).await.err(), term);
    }
    refused(backend.promise(device, &key, stamp(2), lower).await.err(), term);
    refused(backend.read(device, &key, Want::Entry, lower).await.err(), term);
    let mut list = request(bucket, "", ListStart::First);
    list.term = lower;
    refused(backend.list(device, &list).await.err(), term);
    let held = backend.holdings(device, std::slice::from_ref(&key)).await.unwrap();
    assert_eq!(held, [Holding::default()], "nothing came of what was refused");

    for (tick, named) in [(5, term), (6, Term(term.0 + 1)), (7, Term::ANY)] {
        let write = EntryWrite { term: named, ..plain(&key, stamp(tick)) };
        assert_eq!(backend.write(device, write).await.unwrap(), WriteReply::Stored);
        backend.read(device, &key, Want::Entry, named).await.unwrap();
        list.term = named;
        assert_eq!(backend.list(device, &list).await.unwrap().entries.len(), 1);
    }
    assert_eq!(status(backend, device).await.term, term, "a request raises no term");
    backend.promise(device, &key, stamp(9), term).await.unwrap();
    backend.keep_hint(device, EntryWrite { term: lower, ..plain(&key, stamp(8)) }).await.unwrap();
    backend.forget_hint(device, &key, stamp(8)).await.unwrap();
}

async fn the_joined_term_never_falls(backend: &dyn Backend, device: DeviceId) {
    let before = status(backend, device).await.joined;
    backend.set_joined(device, before + 2).await.unwrap();
    backend.set_joined(device, before + 1).await.unwrap();
    assert_eq!(status(backend, device).await.joined, before + 2);
}

//! Terms and joined changes (rules P1 to P3), over crashes and concurrent writers.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

#[tokio::test]
async fn a_term_outlives_a_crash_and_never_falls() {
    let folder = tempfile::tempdir().unwrap();
    {
        let bed = bed(folder.path());
        assert_eq!(bed.index.voting_snapshot().term, Term::NONE);
        bed.index.write(EntryWrite { term: Term::NONE, ..dead("a", 1) }).await.unwrap();
        bed.index.raise_term(Term(8)).await.unwrap();
        bed.index.raise_term(Term(7)).await.unwrap();
        bed.index.set_joined(3).await.unwrap();
        bed.index.set_joined(2).await.unwrap();
    }
    let bed = bed(folder.path());
    let snapshot = bed.index.voting_snapshot();
    assert_eq!((snapshot.term, snapshot.joined), (Term(8), 3));
    let late = bed.index.write(EntryWrite { term: Term(7), ..dead("a", 2) }).await.unwrap_err();
    assert!(late.newer_term() == Some(Term(8)) && late.had_no_effect(), "{late}");
    let view = bed.index.read(&key("a"), Want::Entry, Term(8)).await.unwrap();
    assert_eq!(view.entry.unwrap().order, stamp(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_term_that_was_answered_is_in_force_for_every_write_after_it() {
    let folder = tempfile::tempdir().unwrap();
    let index = Arc::new(bed(folder.path()).index);
    for term in 1..20 {
        let raised = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..8)
            .map(|writer| {
                let (index, raised) = (index.clone(), raised.clone());
                tokio::spawn(async move {
                    for round in 0..1000 {
                        let after = raised.load(Ordering::SeqCst);
                        let name = format!("{term}-{writer}-{round}");
                        let write = EntryWrite { term: Term(term - 1), ..dead(&name, 1) };
                        match index.write(write).await {
                            Ok(_) => assert!(!after, "a write of a term that is over was taken"),
                            Err(error) => {
                                assert_eq!(error.newer_term(), Some(Term(term)));
                                return;
                            }
                        }
                    }
                })
            })
            .collect();
        tokio::task::yield_now().await;
        index.raise_term(Term(term)).await.unwrap();
        raised.store(true, Ordering::SeqCst);
        for writer in writers {
            writer.await.unwrap();
        }
    }
}

fn dead(name: &str, ticks: u64) -> EntryWrite {
    write(&key(name), stamp(ticks), Value::Tombstone)
}

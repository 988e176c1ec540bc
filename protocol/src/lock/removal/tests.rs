//! Tests of removal and loosening under locks.

use super::*;
use crate::entry::{Attributes, Body, ETag, Object};

const NOW_MS: u64 = 1000;

fn marks(retention: Option<(RetentionMode, u64)>, legal_hold: Option<bool>) -> Marks {
    let retention = retention.map(|(mode, until_ms)| Retention { mode, until_ms });
    let mut marks = Marks::default();
    Lock { retention, legal_hold }.write(&mut marks);
    marks
}

#[test]
fn a_lock_comes_back_and_another_takes_its_place() {
    let mut marks = marks(Some((RetentionMode::Compliance, 7)), Some(false));
    marks.set(Mark::Acl, vec![1]);
    let held = Lock::of(&marks).unwrap();
    let retention = Retention { mode: RetentionMode::Compliance, until_ms: 7 };
    assert_eq!(held, Lock { retention: Some(retention), legal_hold: Some(false) });
    Lock::default().write(&mut marks);
    assert!(Lock::of(&marks).unwrap().is_empty());
    assert_eq!(marks.get(Mark::Acl), Some(&[1][..]), "what others set stays");
}

#[test]
fn documents_of_format_1_are_read_for_good() {
    let marks = marks(Some((RetentionMode::Compliance, 300)), Some(true));
    assert_eq!(marks.get(Mark::Retention), Some(&[1, 1, 172, 2][..]));
    assert_eq!(marks.get(Mark::LegalHold), Some(&[1, 1][..]));
}

#[test]
fn only_what_is_under_no_lock_is_removed() {
    use RetentionMode::{Compliance, Governance};
    let removal = |marks: &Marks, bypass| check_removal(marks, NOW_MS, bypass);
    let (later, over) = (NOW_MS + 1, NOW_MS);
    for (retention, hold, plain, bypassing) in [
        (None, None, Ok(()), Ok(())),
        (None, Some(false), Ok(()), Ok(())),
        (None, Some(true), Err(LockViolation::LegalHold), Err(LockViolation::LegalHold)),
        (Some((Governance, later)), None, Err(LockViolation::Retention), Ok(())),
        (Some((Governance, over)), None, Ok(()), Ok(())),
        (
            Some((Compliance, later)),
            None,
            Err(LockViolation::Retention),
            Err(LockViolation::Retention),
        ),
        (Some((Compliance, over)), Some(false), Ok(()), Ok(())),
        (
            Some((Governance, later)),
            Some(true),
            Err(LockViolation::LegalHold),
            Err(LockViolation::LegalHold),
        ),
        (
            Some((Governance, over)),
            Some(true),
            Err(LockViolation::LegalHold),
            Err(LockViolation::LegalHold),
        ),
    ] {
        let marks = marks(retention, hold);
        let found = (removal(&marks, Bypass::Nothing), removal(&marks, Bypass::Governance));
        assert_eq!(found, (plain, bypassing), "{retention:?} {hold:?}");
    }
}

#[test]
fn versions_with_unreadable_locks_are_locked() {
    for mark in [Mark::Retention, Mark::LegalHold] {
        for document in [&[][..], &[1], &[2, 0, 0], &[1, 0, 0, 0], &[1, 9, 0], b"\xff"] {
            let mut marks = Marks::default();
            marks.set(mark, document.to_vec());
            let removal = check_removal(&marks, u64::MAX, Bypass::Governance);
            assert_eq!(removal, Err(LockViolation::Unreadable), "{mark:?} {document:?}");
            let loosened = match mark {
                Mark::Retention => set_retention(&mut marks, None, NOW_MS, Bypass::Governance),
                _ => set_legal_hold(&mut marks, false),
            };
            assert_eq!(loosened, Err(LockViolation::Unreadable));
            assert_eq!(marks.get(mark), Some(document), "nothing changed");
        }
    }
}

#[test]
fn retention_is_loosened_in_governance_mode_by_who_may_alone() {
    use RetentionMode::{Compliance, Governance};
    let (shorter, same, longer) = (NOW_MS + 5, NOW_MS + 10, NOW_MS + 15);
    let next = [
        None,
        Some((Governance, shorter)),
        Some((Governance, same)),
        Some((Governance, longer)),
        Some((Compliance, shorter)),
        Some((Compliance, same)),
        Some((Compliance, longer)),
    ];
    let allowed = |held, bypass| {
        let goes = |next: &Option<(RetentionMode, u64)>| {
            let mut marks = marks(Some(held), None);
            let wanted = next.map(|(mode, until_ms)| Retention { mode, until_ms });
            let outcome = set_retention(&mut marks, wanted, NOW_MS, bypass);
            let (mode, until_ms) = held;
            let expected =
                if outcome.is_ok() { wanted } else { Some(Retention { mode, until_ms }) };
            assert_eq!(Lock::of(&marks).unwrap().retention, expected);
            outcome.is_ok()
        };
        next.each_ref().map(goes)
    };
    let (no, yes) = (false, true);
    let plain = Bypass::Nothing;
    assert_eq!(allowed((Governance, same), plain), [no, no, yes, yes, no, no, no]);
    assert_eq!(allowed((Governance, same), Bypass::Governance), [yes; 7]);
    for bypass in [plain, Bypass::Governance] {
        assert_eq!(allowed((Compliance, same), bypass), [no, no, no, no, no, yes, yes]);
        assert_eq!(allowed((Compliance, NOW_MS), bypass), [yes; 7], "its time has come");
    }
}

#[test]
fn a_legal_hold_is_put_on_and_taken_off() {
    let mut marks = marks(Some((RetentionMode::Compliance, 7)), None);
    for is_on in [true, false] {
        set_legal_hold(&mut marks, is_on).unwrap();
        assert_eq!(Lock::of(&marks).unwrap().legal_hold, Some(is_on));
    }
    assert!(Lock::of(&marks).unwrap().retention.is_some(), "retention is another matter");
}

#[test]
fn of_what_registers_hold_only_objects_are_locked() {
    let object = Object {
        size: 0,
        etag: ETag::Md5([0; 16]),
        modified_ms: 0,
        attributes: Attributes { marks: marks(None, Some(true)), ..Attributes::default() },
        checksums: Vec::new(),
        upload: None,
        body: Body::Empty,
        version: None,
    };
    let removal = |value: &Value| check_removal_of(value, NOW_MS, Bypass::Nothing);
    assert_eq!(removal(&Value::Object(Box::new(object))), Err(LockViolation::LegalHold));
    assert_eq!(removal(&Value::Tombstone), Ok(()));
}

//! Tests of records: creation and replacement.

use super::*;

const DEVICE: DeviceId = DeviceId(3);

/// Opening of the formatting `device`, with a nonce made of `nonce`.
fn opening(device: u8, generation: u64, nonce: u8) -> Incarnation {
    Incarnation { device: Uuid([device; 16]), generation, nonce: Uuid([nonce; 16]) }
}

fn voter(current: Incarnation, base: Option<Incarnation>) -> Introduction {
    Introduction {
        device: DEVICE,
        identity: IdentityDocument(DeviceIdentity(current.device.0)),
        voting: true,
        current: Some(current),
        base,
        confirmed: false,
    }
}

fn mute(current: Incarnation, base: Option<Incarnation>) -> Introduction {
    Introduction { voting: false, ..voter(current, base) }
}

struct Memory {
    place: tempfile::TempDir,
}

impl Memory {
    fn new() -> Self {
        Self { place: tempfile::tempdir().unwrap() }
    }

    /// Records a device after a restart. Returns the record before.
    fn meet(&self, introduction: Introduction) -> FormerRecord {
        let folder = DataFolder::open(self.place.path()).unwrap();
        Peers::load(&folder).unwrap().record_introduction(&folder, introduction).unwrap()
    }

    fn met(&self, introduction: Introduction) -> Option<Incarnation> {
        self.meet(introduction).record().map(|record| record.what)
    }
}

#[test]
fn g1_a_device_without_votes_never_takes_the_place_of_one_that_is_remembered() {
    let memory = Memory::new();
    let (a, b) = (opening(1, 10, 1), opening(2, 20, 2));
    assert_eq!(memory.met(mute(a, None)), None);
    assert_eq!(memory.met(voter(a, None)), Some(a));
    for _ in 0..3 {
        assert_eq!(memory.met(mute(b, None)), Some(a));
        assert_eq!(memory.met(voter(b, None)), Some(a), "it doesn't know whose place it takes");
    }
    assert_eq!(memory.met(voter(b, Some(a))), Some(a));
    assert_eq!(memory.met(voter(b, Some(a))), Some(b));
}

#[test]
fn g1_each_opening_follows_the_one_before_and_older_ones_are_found_out() {
    let memory = Memory::new();
    let (first, second, third) = (opening(1, 10, 1), opening(1, 20, 2), opening(1, 30, 3));
    memory.met(voter(first, None));
    assert_eq!(memory.met(voter(second, Some(first))), Some(first));
    let old = memory.meet(voter(opening(1, 20, 9), Some(first))).record().unwrap();
    assert_eq!(old.what, second, "a copy from before was not taken");
    assert!(!old.is_followed_by(&voter(opening(1, 20, 9), Some(first))));
    assert!(!old.is_followed_by(&voter(opening(1, 99, 9), Some(first))), "however late it is");
    // A node that missed the second opening accepts the third.
    let away = Memory::new();
    away.met(voter(first, None));
    assert_eq!(away.met(voter(third, Some(second))), Some(first));
    assert_eq!(away.met(voter(third, Some(second))), Some(third));
}

#[test]
fn g1_the_old_disk_does_not_follow_the_one_that_took_its_place() {
    let memory = Memory::new();
    let (a, b) = (opening(1, 10, 1), opening(2, 20, 2));
    memory.met(voter(a, None));
    memory.met(voter(b, Some(a)));
    let back = voter(opening(1, 30, 3), Some(a));
    assert_eq!(memory.met(back), Some(b));
    assert_eq!(memory.met(back), Some(b), "nor the second time");
}

#[test]
fn g1_a_copy_from_before_it_had_votes_is_found_out() {
    let memory = Memory::new();
    let a = opening(1, 10, 1);
    memory.met(mute(a, None));
    let record = memory.meet(voter(a, None)).record().unwrap();
    assert!(!record.voted && record.is_followed_by(&mute(a, None)));
    let record = memory.meet(mute(a, None)).record().unwrap();
    assert!(record.voted && !record.is_followed_by(&mute(a, None)));
    let lost_its_votes = Introduction { confirmed: true, ..mute(a, None) };
    assert!(record.is_followed_by(&lost_its_votes), "it knows that it had them");
}

#[test]
fn g1_a_node_that_forgot_does_not_vouch_until_others_confirmed() {
    let memory = Memory::new();
    let (first, second) = (opening(1, 10, 1), opening(1, 20, 2));
    let it = voter(second, Some(first));
    assert_eq!(memory.met(it), None);
    assert!(!memory.meet(it).record().unwrap().vouches);
    memory.meet(Introduction { confirmed: true, ..it });
    assert!(memory.meet(it).record().unwrap().vouches);
}

#[test]
fn g1_a_disk_that_is_known_under_another_id_is_told_so_and_not_remembered() {
    let memory = Memory::new();
    let a = opening(1, 10, 1);
    memory.met(voter(a, None));
    let exchanged = Introduction { device: DeviceId(4), ..voter(opening(1, 20, 2), Some(a)) };
    for _ in 0..2 {
        let answer = memory.meet(exchanged);
        assert_eq!((answer.record(), answer.elsewhere), (None, Some(DEVICE)));
    }
}

#[test]
fn g1_a_memory_from_before_openings_knows_identities() {
    let memory = Memory::new();
    let text = format!("{{\"format\": 1, \"devices\": {{\"3\": \"{}\"}}}}", "01".repeat(16));
    fs::write(memory.place.path().join(FILE), text).unwrap();
    let other = voter(opening(2, 20, 2), Some(opening(2, 10, 1)));
    assert_eq!(memory.met(other), Some(opening(1, 0, 0)));
    assert!(!memory.meet(other).record().unwrap().is_followed_by(&other));
    let same = voter(opening(1, 20, 2), Some(opening(1, 10, 0)));
    assert_eq!(memory.met(same), Some(opening(1, 0, 0)));
    assert_eq!(memory.met(same), same.current);
}

#[test]
fn a_damaged_memory_is_told_and_left_alone() {
    let place = tempfile::tempdir().unwrap();
    let folder = DataFolder::open(place.path()).unwrap();
    for text in ["{", "{\"format\": 3, \"devices\": {}}"] {
        fs::write(folder.join(FILE), text).unwrap();
        let refusal = Peers::load(&folder).unwrap_err().to_string();
        assert!(refusal.contains("restore it from a copy"), "{refusal}");
        assert_eq!(fs::read_to_string(folder.join(FILE)).unwrap(), text);
    }
}

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
fn g1_a_disk_known_under_another_id_is_refused_and_not_recorded() {
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
fn a_damaged_peer_file_is_an_error_and_stays() {
    let place = tempfile::tempdir().unwrap();
    let folder = DataFolder::open(place.path()).unwrap();
    for text in ["{", "{\"format\": 3, \"devices\": {}}"] {
        fs::write(folder.join(FILE), text).unwrap();
        let refusal = Peers::load(&folder).unwrap_err().to_string();
        assert!(refusal.contains("restore it from a copy"), "{refusal}");
        assert_eq!(fs::read_to_string(folder.join(FILE)).unwrap(), text);
    }
}

/// Introduces devices at a time, while a write is under way; returns the outcomes.
fn introduce_many(
    peers: &Peers,
    folder: &DataFolder,
    count: u8,
) -> Vec<Result<FormerRecord, Failure>> {
    peers.state.lock().is_writing = true;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count)
            .map(|number| {
                scope.spawn(move || {
                    let device = DeviceId(number.into());
                    let who = voter(opening(number + 1, 10, 1), None);
                    peers.record_introduction(folder, Introduction { device, ..who })
                })
            })
            .collect();
        while peers.state.lock().changes < u64::from(count) {
            std::thread::yield_now();
        }
        peers.state.lock().is_writing = false;
        peers.written.notify_all();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn introductions_at_a_time_share_a_write_and_are_all_on_disk() {
    let memory = Memory::new();
    let folder = DataFolder::open(memory.place.path()).unwrap();
    let peers = Peers::load(&folder).unwrap();
    let outcomes = introduce_many(&peers, &folder, 100);
    assert!(outcomes.iter().all(|outcome| outcome.as_ref().unwrap().record().is_none()));
    assert_eq!(peers.state.lock().writes, 1, "one write holds all of them");
    let again = Peers::load(&folder).unwrap();
    assert_eq!(again.state.lock().stored, peers.state.lock().records.devices);
    assert_eq!(again.state.lock().stored.len(), 100);
    // A device that is known costs no write.
    let known = Introduction { device: DeviceId(7), ..voter(opening(8, 10, 1), None) };
    let former = again.record_introduction(&folder, known).unwrap();
    assert!(former.record().is_some() && again.state.lock().writes == 0);
    let other_id = Introduction { device: DeviceId(200), ..known };
    let former = again.record_introduction(&folder, other_id).unwrap();
    assert_eq!(former.elsewhere, Some(DeviceId(7)));
}

#[test]
fn a_failed_write_fails_its_caller_and_leaves_no_record() {
    let memory = Memory::new();
    let folder = DataFolder::open(memory.place.path()).unwrap();
    let peers = Peers::load(&folder).unwrap();
    // A folder of the file's name can't be replaced by a file.
    let blocked = folder.join(FILE);
    fs::create_dir_all(blocked.join("in-the-way")).unwrap();
    let outcomes = introduce_many(&peers, &folder, 20);
    assert!(outcomes.iter().all(Result::is_err));
    assert!(peers.state.lock().records.devices.is_empty());
    fs::remove_dir_all(blocked).unwrap();
    let who = voter(opening(1, 10, 1), None);
    let former = peers.record_introduction(&folder, who).unwrap();
    assert!(former.record().is_none(), "an unwritten record is none");
    assert_eq!(Peers::load(&folder).unwrap().state.lock().stored.len(), 1);
}

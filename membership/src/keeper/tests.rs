//! Tests of rings: acceptance, storage, waiting and refusal.

use martlet_protocol::Phase;
use martlet_ring::{Builder, DeviceInfo, RebalanceContext};

use super::*;
use crate::testing::*;

const DATA: RingName = RingName::Data(martlet_protocol::PolicyId(0));

fn keeper(place: &tempfile::TempDir) -> RingKeeper {
    RingKeeper::open(Arc::new(DataFolder::open(place.path()).unwrap()), &[]).unwrap()
}

#[test]
fn p3_newer_rings_are_taken_and_kept_and_older_ones_never() {
    let place = tempfile::tempdir().unwrap();
    let mut builder = builder(0, 3);
    let first = next(&mut builder);
    builder.add(device(4, "d1")).unwrap();
    let second = next(&mut builder);
    let keeper = keeper(&place);
    let mut changes = keeper.changes();
    for name in [RingName::Index, DATA] {
        assert_eq!(keeper.offer(name, &first.encode()), Ok(OfferOutcome::Taken));
    }
    assert_eq!(keeper.offer(RingName::Index, &second.encode()), Ok(OfferOutcome::Taken));
    assert_eq!(keeper.offer(RingName::Index, &second.encode()), Ok(OfferOutcome::Known));
    assert!(keeper.offer(RingName::Index, &first.encode()).unwrap_err().contains("older"));
    assert!(changes.has_changed().unwrap() && *changes.borrow_and_update() == 3);
    drop(keeper);
    let rings = self::keeper(&place).rings();
    assert_eq!(rings.index().unwrap().hash(), second.hash());
    assert_eq!(rings.get(DATA).unwrap().hash(), first.hash());
}

#[test]
fn p3_damaged_and_contradicting_rings_are_refused_and_the_old_one_stays() {
    let place = tempfile::tempdir().unwrap();
    let keeper = keeper(&place);
    let mine = ring(0, 3);
    keeper.offer(RingName::Index, &mine.encode()).unwrap();
    let contradicting = ring(0, 4);
    assert_eq!(contradicting.epoch(), mine.epoch());
    let refusal = keeper.offer(RingName::Index, &contradicting.encode()).unwrap_err();
    assert!(refusal.contains("two rings of epoch"), "{refusal}");
    let mut bytes = mine.encode();
    for at in [0, bytes.len() / 2, bytes.len() - 1] {
        bytes[at] ^= 1;
        assert!(keeper.offer(RingName::Index, &bytes).is_err());
        bytes[at] ^= 1;
    }
    assert!(keeper.offer(RingName::Index, &bytes[..bytes.len() - 1]).is_err());
    assert_eq!(keeper.rings().index().unwrap().hash(), mine.hash());
    assert_eq!(Ring::load(&place.path().join("index.ring")).unwrap().hash(), mine.hash());
}

/// Releases of copies are compared with rings that are on disk (rule X9).
#[test]
fn x9_epochs_of_data_rings_rise_with_the_rings_and_are_there_at_the_start() {
    let place = tempfile::tempdir().unwrap();
    let mut builder = builder(0, 3);
    let first = next(&mut builder);
    builder.add(device(4, "d1")).unwrap();
    let second = next(&mut builder);
    let policy = martlet_protocol::PolicyId(0);
    let by = |ring: &Ring| [RingEpoch::of(policy, ring.epoch(), &ring.hash())];
    let keeper = keeper(&place);
    let epochs = keeper.data_epochs();
    assert!(epochs.check_statement(&by(&first)).is_err(), "no ring is known");
    keeper.offer(DATA, &first.encode()).unwrap();
    assert!(
        epochs.check_release(&by(&first)).is_ok() && epochs.check_statement(&by(&first)).is_ok()
    );
    keeper.offer(DATA, &second.encode()).unwrap();
    drop(keeper);
    for epochs in [epochs, self::keeper(&place).data_epochs()] {
        assert!(epochs.check_release(&by(&first)).is_err());
        assert!(epochs.check_release(&by(&second)).is_ok());
        assert!(epochs.check_statement(&by(&second)).is_ok());
    }
}

#[test]
fn it_knows_who_is_ahead() {
    let place = tempfile::tempdir().unwrap();
    let keeper = keeper(&place);
    let mut builder = builder(0, 3);
    let first = next(&mut builder);
    builder.add(device(4, "d1")).unwrap();
    let second = next(&mut builder);
    keeper.offer(RingName::Index, &first.encode()).unwrap();
    let has = |ring: &Ring| Announcement::new(&[ring_tag(RingName::Index, ring)]).rings().clone();
    assert_eq!(keeper.behind(&has(&first)), []);
    assert_eq!(keeper.behind(&has(&second)), [RingName::Index]);
    keeper.offer(RingName::Index, &second.encode()).unwrap();
    assert_eq!(keeper.behind(&has(&first)), []);
    let unknown = Announcement::new(&[ring_tag(DATA, &first)]);
    assert_eq!(keeper.behind(unknown.rings()), [DATA]);
}

#[test]
fn files_are_taken_where_they_are_newer() {
    let place = tempfile::tempdir().unwrap();
    let files = tempfile::tempdir().unwrap();
    let mut builder = builder(0, 3);
    let first = next(&mut builder);
    builder.add(device(4, "d1")).unwrap();
    let second = next(&mut builder);
    let path = files.path().join("index.ring");
    let open = || {
        RingKeeper::open(
            Arc::new(DataFolder::open(place.path()).unwrap()),
            std::slice::from_ref(&path),
        )
    };
    let epoch = |keeper: RingKeeper| keeper.rings().index().unwrap().epoch();
    second.save(&path).unwrap();
    assert_eq!(epoch(open().unwrap()), second.epoch());
    first.save(&path).unwrap();
    assert_eq!(epoch(open().unwrap()), second.epoch());
    fs::write(&path, b"no ring").unwrap();
    let refusal = open().err().unwrap().to_string();
    assert!(refusal.contains("copy it again"), "{refusal}");
    let misnamed = files.path().join("mine.ring");
    first.save(&misnamed).unwrap();
    assert!(read_ring_file(&misnamed).err().unwrap().to_string().contains("index.ring"));
}

#[test]
fn p3_a_newer_file_waits_for_the_term_query() {
    let (place, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let [first, second, third] = three();
    let path = files.path().join("index.ring");
    let open = |ring: &Ring| {
        ring.save(&path).unwrap();
        let folder = Arc::new(DataFolder::open(place.path()).unwrap());
        RingKeeper::open(folder, std::slice::from_ref(&path)).unwrap()
    };
    drop(open(&first));
    let keeper = open(&second);
    assert_eq!(index_epoch(&keeper), 1);
    keeper.reconsider();
    assert_eq!(index_epoch(&keeper), 2, "nobody knows of a term");
    drop(keeper);
    let keeper = open(&third);
    keeper.receive_term(Term::of(second.change(), Phase::Joint));
    keeper.reconsider();
    assert_eq!((index_epoch(&keeper), keeper.waiting().unwrap().epoch()), (2, 3));
}

/// Rings of the index: the first ring, the second with moves, and the third, which settles the
/// moves.
fn three() -> [Arc<Ring>; 3] {
    let mut builder = builder(0, 3);
    let first = next(&mut builder);
    builder.add(device(4, "d1")).unwrap();
    let second = next(&mut builder);
    builder.settle().unwrap();
    [first, second, Arc::new(builder.ring().unwrap())]
}

fn index_epoch(keeper: &RingKeeper) -> u64 {
    keeper.rings().index().unwrap().epoch()
}

#[test]
fn p3_a_ring_waits_until_the_change_before_it_is_over() {
    let place = tempfile::tempdir().unwrap();
    let [first, second, third] = three();
    let keeper = keeper(&place);
    let mut changes = keeper.changes();
    keeper.offer(RingName::Index, &first.encode()).unwrap();
    keeper.receive_term(Term::of(first.change(), Phase::New));
    assert_eq!(keeper.offer(RingName::Index, &second.encode()), Ok(OfferOutcome::Taken));
    for phase in [Phase::Old, Phase::Joint] {
        keeper.receive_term(Term::of(second.change(), phase));
        assert_eq!(keeper.offer(RingName::Index, &third.encode()), Ok(OfferOutcome::Waits));
        keeper.reconsider();
        assert_eq!((index_epoch(&keeper), keeper.waiting().unwrap().epoch()), (2, 3));
    }
    let announced = Announcement::new(&[ring_tag(RingName::Index, &third)]);
    assert_eq!(keeper.behind(announced.rings()), [], "it is here already");
    // A waiting ring survives a restart. The ring before it is in use until the term is known.
    drop(keeper);
    let keeper = self::keeper(&place);
    assert_eq!((index_epoch(&keeper), keeper.waiting().unwrap().epoch()), (2, 3));
    changes.borrow_and_update();
    keeper.receive_term(Term::of(second.change(), Phase::New));
    keeper.reconsider();
    assert_eq!((index_epoch(&keeper), keeper.waiting().is_none()), (3, true));
    assert_eq!(keeper.offer(RingName::Index, &third.encode()), Ok(OfferOutcome::Known));
}

#[test]
fn p3_terms_never_fall_and_travel_with_the_rings() {
    let place = tempfile::tempdir().unwrap();
    let keeper = keeper(&place);
    let mut changes = keeper.changes();
    assert_eq!(keeper.term(), Term::NONE);
    for (heard, known) in [(14, 14), (13, 14), (Term::ANY.0, 14), (15, 15)] {
        keeper.receive_term(Term(heard));
        assert_eq!(keeper.term(), Term(known));
    }
    assert_eq!(*changes.borrow_and_update(), 2);
    assert_eq!(keeper.announcement(), Announcement::new(&[]).at(Term(15)));
    for far in [u64::MAX - 1, 16 + RING_AHEAD_MAX] {
        keeper.receive_term(Term(far));
        assert_eq!(keeper.term(), Term(15), "none could follow {far}");
    }
}

#[test]
fn p3_a_member_without_a_term_accepts_each_ring() {
    let place = tempfile::tempdir().unwrap();
    let keeper = keeper(&place);
    for ring in three() {
        assert_eq!(keeper.offer(RingName::Index, &ring.encode()), Ok(OfferOutcome::Taken));
    }
    assert_eq!(index_epoch(&keeper), 3);
}

#[test]
fn p3_what_waits_gives_way_to_a_later_one_only() {
    let place = tempfile::tempdir().unwrap();
    let [first, second, third] = three();
    let keeper = keeper(&place);
    keeper.offer(RingName::Index, &second.encode()).unwrap();
    keeper.receive_term(Term::of(second.change(), Phase::Joint));
    assert_eq!(keeper.offer(RingName::Index, &third.encode()), Ok(OfferOutcome::Waits));
    assert!(keeper.offer(RingName::Index, &first.encode()).unwrap_err().contains("older"));
    assert_eq!(keeper.waiting().unwrap().hash(), third.hash());
}

/// Four rings of the index, each of which moves replicas or settles the moves before it.
fn four() -> [Arc<Ring>; 4] {
    let mut builder = builder(0, 3);
    let first = next(&mut builder);
    builder.add(device(4, "d1")).unwrap();
    let second = next(&mut builder);
    builder.settle().unwrap();
    builder.add(device(5, "d1")).unwrap();
    let third = next(&mut builder);
    builder.settle().unwrap();
    builder.add(device(6, "d1")).unwrap();
    [first, second, third, next(&mut builder)]
}

#[test]
fn p3_rings_that_wait_come_into_use_one_after_the_other() {
    let [first, second, third, fourth] = four();
    for order in [[&third, &fourth], [&fourth, &third]] {
        let place = tempfile::tempdir().unwrap();
        let keeper = keeper(&place);
        keeper.offer(RingName::Index, &first.encode()).unwrap();
        keeper.receive_term(first.last_term());
        assert_eq!(keeper.offer(RingName::Index, &second.encode()), Ok(OfferOutcome::Taken));
        keeper.receive_term(Term::of(second.change(), Phase::Joint));
        for ring in order {
            assert_eq!(keeper.offer(RingName::Index, &ring.encode()), Ok(OfferOutcome::Waits));
            assert_eq!(
                keeper.offer(RingName::Index, &ring.encode()),
                Ok(OfferOutcome::Waits),
                "again"
            );
        }
        drop(keeper);
        let keeper = self::keeper(&place);
        assert_eq!(keeper.waiting().unwrap().epoch(), third.epoch());
        keeper.receive_term(second.last_term());
        keeper.reconsider();
        assert_eq!(index_epoch(&keeper), third.epoch(), "the change of the third can begin");
        assert_eq!(keeper.waiting().unwrap().epoch(), fourth.epoch());
        keeper.receive_term(third.last_term());
        keeper.reconsider();
        assert_eq!((index_epoch(&keeper), keeper.waiting().is_none()), (fourth.epoch(), true));
    }
}

/// Rings of the index: the second moves replicas to a device, and the third, which removes it
/// before these moves are settled, is refused. The last settles the third, so that it waits for a
/// change that no process runs.
fn stray() -> [Arc<Ring>; 4] {
    let mut builder = builder(0, 4);
    let first = next(&mut builder);
    let joined = builder.add(device(5, "d1")).unwrap();
    let second = next(&mut builder);
    builder.remove(joined, true).unwrap();
    let third = next(&mut builder);
    builder.settle().unwrap();
    [first, second, third, Arc::new(builder.ring().unwrap())]
}

/// Builder of the ring in use, and its next ring, which moves nothing.
fn settled(ring: &Ring) -> (Builder, Arc<Ring>) {
    let mut builder = Builder::from_ring(ring, 1, 0.0, 1).unwrap();
    builder.settle().unwrap();
    let settled = Arc::new(builder.ring().unwrap());
    (builder, settled)
}

#[test]
fn p3_rings_that_would_wait_for_ever_give_way_to_one_that_moves_nothing() {
    let place = tempfile::tempdir().unwrap();
    let [_, second, third, last] = stray();
    let keeper = keeper(&place);
    keeper.offer(RingName::Index, &second.encode()).unwrap();
    keeper.receive_term(second.last_term());
    let refusal = keeper.offer(RingName::Index, &third.encode()).unwrap_err();
    assert!(refusal.contains("on before its last move was settled"), "{refusal}");
    assert_eq!(keeper.offer(RingName::Index, &last.encode()), Ok(OfferOutcome::Waits));
    keeper.reconsider();
    assert_eq!(index_epoch(&keeper), second.epoch(), "no process runs the change of the third");

    let (mut builder, settled) = settled(&second);
    let joined = second.devices().last().unwrap().id;
    let mut hasty = builder.clone();
    hasty.remove(joined, true).unwrap();
    let refusal = keeper.offer(RingName::Index, &next(&mut hasty).encode()).unwrap_err();
    assert!(refusal.contains("two rings of epoch"), "it begins a change: {refusal}");
    assert_eq!(keeper.waiting().unwrap().hash(), last.hash());
    assert_eq!(keeper.offer(RingName::Index, &settled.encode()), Ok(OfferOutcome::Taken));
    assert!(keeper.waiting().is_none());
    builder.remove(joined, true).unwrap();
    let next = next(&mut builder);
    assert_eq!(keeper.offer(RingName::Index, &next.encode()), Ok(OfferOutcome::Taken));
    drop(keeper);
    let keeper = self::keeper(&place);
    assert_eq!((index_epoch(&keeper), keeper.waiting().is_none()), (next.epoch(), true));
}

#[test]
fn p3_rings_that_may_be_in_use_elsewhere_give_way_to_none() {
    let (place, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let [_, second, _, last] = stray();
    // A ring that waits for the change of the ring in use, and one of another builder.
    let (mut builder, _) = settled(&second);
    let mut other = Builder::from_ring(&second, 1, 0.0, 1).unwrap();
    builder.add(device(6, "d1")).unwrap();
    let legal = next(&mut builder);
    let info = DeviceInfo { meta: Some("a copy".into()), ..DeviceInfo::default() };
    other.set_info(second.devices()[0].id, info).unwrap();
    other.settle().unwrap();
    other.rebalance(RebalanceContext::default()).unwrap();
    let other = other.ring().unwrap();
    assert_eq!(other.change(), second.change());
    let keeper = keeper(&place);
    keeper.offer(RingName::Index, &second.encode()).unwrap();
    keeper.receive_term(Term::of(second.change(), Phase::Joint));
    assert_eq!(keeper.offer(RingName::Index, &legal.encode()), Ok(OfferOutcome::Waits));
    let refusal = keeper.offer(RingName::Index, &other.encode()).unwrap_err();
    assert!(refusal.contains("made from another ring"), "{refusal}");
    assert_eq!(keeper.waiting().unwrap().hash(), legal.hash());

    // Before a term is known, a process doesn't know which changes others run.
    let place = tempfile::tempdir().unwrap();
    self::keeper(&place).offer(RingName::Index, &second.encode()).unwrap();
    let path = files.path().join("index.ring");
    last.save(&path).unwrap();
    let folder = Arc::new(DataFolder::open(place.path()).unwrap());
    let keeper = RingKeeper::open(folder, &[path]).unwrap();
    let (_, settled) = settled(&second);
    let refusal = keeper.offer(RingName::Index, &settled.encode()).unwrap_err();
    assert!(refusal.contains("made from another ring"), "{refusal}");
    assert_eq!(keeper.waiting().unwrap().hash(), last.hash());
}

#[test]
fn p3_rings_of_a_change_that_a_process_runs_give_way_to_none() {
    let place = tempfile::tempdir().unwrap();
    let [_, second, _, last] = stray();
    let keeper = keeper(&place);
    keeper.offer(RingName::Index, &second.encode()).unwrap();
    keeper.receive_term(second.last_term());
    assert_eq!(keeper.offer(RingName::Index, &last.encode()), Ok(OfferOutcome::Waits));
    assert!(!keeper.is_overtaken());
    // Another process has the ring of the change, and this one lacks that ring alone.
    keeper.receive_term(Term::of(last.change(), Phase::Joint));
    assert!(keeper.is_overtaken());
    let (_, settled) = settled(&second);
    let refusal = keeper.offer(RingName::Index, &settled.encode()).unwrap_err();
    assert!(refusal.contains("made from another ring"), "{refusal}");
    assert_eq!(keeper.waiting().unwrap().hash(), last.hash());
    keeper.receive_term(last.last_term());
    keeper.reconsider();
    assert_eq!((index_epoch(&keeper), keeper.waiting().is_none()), (last.epoch(), true));
    assert!(!keeper.is_overtaken());
}

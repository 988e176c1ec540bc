//! Tests of the space map against a model of single blocks.

use std::collections::BTreeMap;

use martlet_protocol::limits::ALIGN_BYTES;
use proptest::prelude::*;

use super::*;

fn run(block: u64, blocks: u64) -> BlockRun {
    BlockRun { volume: 0, offset: block * ALIGN_BYTES, bytes: blocks * ALIGN_BYTES }
}

fn allocate(map: &mut SpaceMap, blocks: u64) -> Option<BlockRun> {
    map.allocate(blocks * ALIGN_BYTES, Needs::Any)
}

#[test]
fn neighbours_join_and_the_best_fit_is_taken() {
    let mut map = SpaceMap::default();
    map.release(run(0, 4));
    map.release(run(8, 4));
    map.release(run(4, 4));
    assert_eq!(map.runs(0).len(), 1);
    map.release(run(20, 5));
    assert_eq!(allocate(&mut map, 5), Some(run(20, 5)));
    assert_eq!(allocate(&mut map, 5), Some(run(0, 5)));
    assert_eq!(allocate(&mut map, 8), None);
    assert_eq!(map.free_bytes(), 7 * ALIGN_BYTES);
}

#[test]
fn given_volumes_are_searched_alone_for_the_best_fit() {
    let mut map = SpaceMap::default();
    let of = |volume: u32, block: u64, blocks: u64| BlockRun { volume, ..run(block, blocks) };
    for found in [of(1, 0, 3), of(2, 0, 9), of(2, 20, 6), of(3, 0, 5)] {
        map.release(found);
    }
    map.insert(of(3, 40, 4), Backing::Hole);
    let mut take =
        |volumes: &[u32], blocks: u64, needs| map.allocate_in(volumes, blocks * ALIGN_BYTES, needs);
    assert_eq!(take(&[2], 3, Needs::Any), Some(of(2, 20, 3)), "the shorter run of the volume");
    assert_eq!(take(&[3, 2], 4, Needs::Blocks), Some(of(3, 0, 4)), "a hole has no blocks");
    assert_eq!(take(&[3, 2], 4, Needs::Any), Some(of(3, 40, 4)));
    assert_eq!(take(&[3, 1], 4, Needs::Any), None);
    assert_eq!(take(&[], 1, Needs::Any), None);
}

#[test]
fn runs_longer_than_any_record_are_found_by_length() {
    let mut map = SpaceMap::default();
    let long = u64::from(CLASS_MAX);
    map.release(run(0, long));
    map.release(BlockRun { volume: 1, ..run(7, long + 3) });
    let taken = allocate(&mut map, long + 2).unwrap();
    assert_eq!(taken, BlockRun { volume: 1, ..run(7, long + 2) });
    assert_eq!(allocate(&mut map, 1), Some(BlockRun { volume: 1, ..run(long + 9, 1) }));
    assert_eq!(allocate(&mut map, long), Some(run(0, long)));
}

#[test]
fn stale_space_is_returned_once() {
    let mut map = SpaceMap::default();
    map.insert(run(0, 100), Backing::Fresh);
    let (first, second) = (allocate(&mut map, 10).unwrap(), allocate(&mut map, 10).unwrap());
    assert_eq!(map.take_returnable(1, false, 9), [], "preallocated space is kept for writes");
    map.release(BlockRun { volume: 3, ..first });
    map.release(BlockRun { volume: 3, ..run(20, 5) });
    assert_eq!(map.take_returnable(11 * ALIGN_BYTES, false, 9), []);
    let taken = map.take_returnable(5 * ALIGN_BYTES, false, 9);
    let there = |run: BlockRun| (BlockRun { volume: 3, ..run }, Backing::Stale);
    assert_eq!(taken, [there(first), there(run(20, 5))]);
    for (run, _) in taken {
        map.insert(run, Backing::Hole);
    }
    assert_eq!(map.take_returnable(1, true, 9), [(run(20, 80), Backing::Fresh)]);
    assert_eq!(map.take_returnable(1, true, 9), []);
    assert_eq!(map.free_bytes(), 15 * ALIGN_BYTES);
    map.release(second);
}

#[test]
fn a_run_beside_a_hole_has_blocks_of_its_own() {
    let mut map = SpaceMap::default();
    map.insert(run(0, 10), Backing::Hole);
    assert!(!map.has_blocks_for(ALIGN_BYTES));
    assert_eq!(map.allocate(ALIGN_BYTES, Needs::Blocks), None);
    map.release(run(10, 2));
    assert!(!map.has_blocks_for(ALIGN_BYTES), "the joined run may lack blocks");
    assert_eq!(map.take_returnable(1, false, 9), [(run(0, 12), Backing::Unknown)]);
    map.release(run(20, 2));
    assert!(map.has_blocks_for(2 * ALIGN_BYTES) && !map.has_blocks_for(3 * ALIGN_BYTES));
    assert_eq!(map.allocate(ALIGN_BYTES, Needs::Blocks), Some(run(20, 1)));
}

#[test]
fn a_search_for_returnable_runs_goes_through_all_volumes() {
    let mut map = SpaceMap::default();
    let volumes = u32::try_from(VOLUMES_VISITED_MAX).unwrap() * 3;
    for volume in 0..volumes {
        map.release(BlockRun { volume, ..run(1, 1) });
    }
    let last = BlockRun { volume: volumes - 1, ..run(10, 20) };
    map.release(last);
    let searches = (0..9).map(|_| map.take_returnable(20 * ALIGN_BYTES, false, 9));
    let found: Vec<_> = searches.flatten().collect();
    assert_eq!(found, [(last, Backing::Stale)]);
}

#[test]
fn a_run_takes_eight_bytes() {
    assert_eq!(size_of::<FreeRun>(), 8);
    let all = FreeRun::new(run(7, (1 << 30) - 1), Backing::Hole);
    assert_eq!(FreeRun::decode(all.encode()), all);
    assert_eq!((all.blocks(), all.backing()), ((1 << 30) - 1, Backing::Hole));
}

proptest! {
    #[test]
    fn behaves_as_a_set_of_blocks(
        steps in proptest::collection::vec((0..64_u64, 1..9_u64, 0..6_u8), 1..80),
    ) {
        let (mut map, mut model) = (SpaceMap::default(), BTreeMap::new());
        for (block, blocks, what) in steps {
            let units = block..block + blocks;
            match what {
                0..=2 if units.clone().all(|unit| !model.contains_key(&unit)) => {
                    let backing = Backing::ALL[usize::from(what)];
                    map.insert(run(block, blocks), backing);
                    model.extend(units.map(|unit| (unit, backing)));
                }
                3 => for (taken, _) in map.take_returnable(blocks * ALIGN_BYTES, true, 2) {
                    prop_assert!(taken.bytes >= blocks * ALIGN_BYTES);
                    map.insert(taken, Backing::Hole);
                    for unit in taken.offset / ALIGN_BYTES..taken.end() / ALIGN_BYTES {
                        prop_assert_ne!(model.insert(unit, Backing::Hole), None);
                    }
                },
                _ => {
                    let needs = if what == 4 { Needs::Any } else { Needs::Blocks };
                    let fits = map.has_blocks_for(blocks * ALIGN_BYTES);
                    let taken = map.allocate(blocks * ALIGN_BYTES, needs);
                    prop_assert!(needs == Needs::Any || taken.is_some() == fits);
                    for unit in taken.into_iter().flat_map(|it| {
                        it.offset / ALIGN_BYTES..it.end() / ALIGN_BYTES
                    }) {
                        let held = model.remove(&unit);
                        prop_assert!(held.is_some());
                        prop_assert!(needs == Needs::Any || held.unwrap().has_blocks());
                    }
                }
            }
            prop_assert_eq!(map.free_bytes(), model.len() as u64 * ALIGN_BYTES);
            let held: Vec<u64> = map
                .runs(0)
                .iter()
                .flat_map(|it| u64::from(it.start())..u64::from(it.end()))
                .collect();
            prop_assert_eq!(held, model.keys().copied().collect::<Vec<_>>());
            let apart = map.runs(0).windows(2).all(|pair| pair[0].end() < pair[1].start());
            prop_assert!(apart, "{:?}", map.runs(0));
            let mut counted = Classes::default();
            map.runs(0).iter().for_each(|run| counted.count(0, *run));
            prop_assert_eq!(&counted, &map.classes);
        }
    }
}

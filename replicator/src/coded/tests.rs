//! Homes of fragments, and reads from them.

use martlet_protocol::backend::BackendExt;
use martlet_protocol::extent::ExtentRef;
use martlet_protocol::{ErrorKind, PolicyId};

use super::read::read_coded;
use super::*;
use crate::replicate::testing::extent_id;
use crate::testing::POLICY;
use crate::testing::multi_node::MultiNodeWorld;
use crate::testing::stripes::{CODED, noise};

fn id(n: u16) -> ExtentId {
    extent_id(n).whole()
}

#[tokio::test]
async fn a_fragment_belongs_to_the_replica_of_its_number() {
    let world = MultiNodeWorld::coded(4, 2, 9);
    let cluster = world.step();
    for n in 0..50 {
        let stripe = Stripe { k: 4, m: 2, length: 1_000_000 };
        let coded = CodedExtent::new(&cluster, CODED, id(n), stripe).unwrap();
        let homes: Vec<DeviceId> = coded.fragments().map(|it| coded.place(it).home).collect();
        assert_eq!(homes, world.homes(id(n)));
        assert_eq!(homes.iter().collect::<BTreeSet<_>>().len(), 6, "all on devices of their own");
        assert_eq!(coded.everyone(&cluster).unwrap().len(), 9);
    }
    // Empty fragments are not stored, and later fragments keep their homes.
    let short = CodedExtent::new(&cluster, CODED, id(1), Stripe { k: 4, m: 2, length: 9 }).unwrap();
    assert_eq!(short.fragments().map(|it| it.0).collect::<Vec<_>>(), [0, 4, 5]);
    assert_eq!(short.place(FragmentIndex(4)).home, world.homes(id(1))[4]);
    for (policy, k) in [(CODED, 3), (POLICY, 4), (PolicyId(7), 4)] {
        assert!(CodedExtent::new(&cluster, policy, id(1), Stripe { k, m: 2, length: 9 }).is_err());
    }
}

#[tokio::test]
async fn an_extent_is_stored_as_itself_or_as_all_its_fragments() {
    let world = MultiNodeWorld::coded(2, 1, 3);
    let cluster = world.step();
    let (one, two) = (id(1), id(2));
    assert_eq!(stored_ids(&cluster, POLICY, &[one, two]).unwrap(), [one, two]);
    let all = [one, one.fragment(1), one.fragment(2), two, two.fragment(1), two.fragment(2)];
    assert_eq!(stored_ids(&cluster, CODED, &[one, two]).unwrap(), all);
    let unknown = stored_ids(&cluster, PolicyId(7), &[one]).unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::Unavailable);
}

async fn read(world: &MultiNodeWorld, extent: &ExtentRef) -> Result<Vec<u8>> {
    read_coded(&world.step(), CODED, extent).await
}

#[tokio::test]
async fn any_fragments_that_suffice_give_an_extent_back() {
    for (length, may_be_lost) in [(9_000, 2), (70_000, 2), (1_000_000, 2)] {
        let world = MultiNodeWorld::coded(4, 2, 7);
        let bytes = noise(length, usize::try_from(length).unwrap());
        let extent = world.stripe(id(1), &bytes, "k").await;
        assert_eq!(read(&world, &extent).await.unwrap(), bytes);
        for (lost, number) in [0, 5, 4, 1, 2, 3].into_iter().enumerate() {
            world.lose(extent.id, number).await;
            let read = read(&world, &extent).await;
            if lost < may_be_lost {
                assert_eq!(read.unwrap(), bytes, "{length} bytes without {number}");
            } else if let Ok(read) = read {
                assert_eq!(read, bytes, "{length} bytes without {number}");
            }
        }
        assert_eq!(read(&world, &extent).await.unwrap_err().kind(), ErrorKind::NotFound);
    }
}

#[tokio::test]
async fn a_corrupt_fragment_is_a_lost_one_and_another_extent_is_none() {
    let world = MultiNodeWorld::coded(4, 2, 6);
    let bytes = noise(1, 900_000);
    let extent = world.stripe(id(1), &bytes, "k").await;
    for number in [0, 5] {
        let home = world.homes(extent.id)[usize::from(number)];
        world.memory(home).corrupt(home, extent.id.fragment(number));
        assert_eq!(read(&world, &extent).await.unwrap(), bytes);
    }
    let home = world.homes(extent.id)[2];
    world.memory(home).corrupt(home, extent.id.fragment(2));
    assert_eq!(read(&world, &extent).await.unwrap_err().kind(), ErrorKind::Corrupt);
    let other = world.stripe(id(2), &bytes, "k").await;
    let wrong = ExtentRef { blake3: [1; 32], ..other };
    assert_eq!(read(&world, &wrong).await.unwrap_err().kind(), ErrorKind::Corrupt);
}

#[tokio::test]
async fn only_when_all_have_answered_is_an_extent_not_there() {
    let world = MultiNodeWorld::coded(4, 2, 6);
    let extent = world.stripe(id(1), &noise(1, 900_000), "k").await;
    let homes = world.homes(extent.id);
    for number in [0, 1, 2] {
        world.lose(extent.id, number).await;
    }
    // Three of the four needed are left, and none was deleted: a loss.
    assert_eq!(read(&world, &extent).await.unwrap_err().kind(), ErrorKind::Corrupt);
    world.memory(homes[1]).set_offline(homes[1], true);
    assert_eq!(read(&world, &extent).await.unwrap_err().kind(), ErrorKind::Unavailable);
    world.memory(homes[1]).set_offline(homes[1], false);
    // A delete mark on one device shows a deletion that did not reach all devices.
    world.memory(homes[0]).delete_extents(homes[0], &[extent.id]).await.unwrap();
    assert_eq!(read(&world, &extent).await.unwrap_err().kind(), ErrorKind::NotFound);
}

//! Differences that a comparison alone doesn't settle: beside marked tombstones, and after the members
//! changed.

use super::*;

#[tokio::test]
async fn an_older_copy_beside_marked_tombstones_is_replaced() {
    let world = MultiNodeWorld::new(4);
    let older = world.write(&key("k"));
    let primaries = world.primaries(&older.key);
    let mut gone = world.write(&older.key);
    gone.entry.value = Value::Tombstone;
    world.write_on(&primaries, &gone).await;
    let marks = [(gone.key.clone(), gone.entry.order)];
    for device in &primaries {
        world.memory(*device).mark_collectable(*device, &marks).await.unwrap();
    }
    // A replaced primary got the older copy of a stray.
    for replaced in [primaries[0], primaries[2]] {
        let up_to = gone.entry.order;
        let drop = RegisterDrop { key: gone.key.clone(), up_to, collectable: true };
        world.memory(replaced).drop_registers(replaced, &[drop]).await.unwrap();
        world.write_on(&[replaced], &older).await;
        assert!(run(&world).await.repaired > 0);
        let held = world.held(replaced, &gone.key).await.entry;
        assert_eq!(held.map(|it| it.order), Some(gone.entry.order), "no read was needed");
    }
    for device in &primaries {
        let holding = world.memory(*device).holdings(*device, &[gone.key.clone()]).await.unwrap();
        assert_eq!(holding[0].held.map(|(order, _)| order), Some(gone.entry.order));
    }
}

#[tokio::test]
async fn a_comparison_from_before_a_ring_brings_nothing_to_devices_that_left() {
    let world = MultiNodeWorld::new(6);
    world.edit(|parts| parts.index = Arc::new(ring(0..5)));
    let writes = lost_writes(&world, 40).await;
    let scope = DeviceScope::Nodes((1..5).map(|id| format!("n{id}")).collect());
    let (shared, clock) = (world.shared.clone(), world.clock.clone());
    let mut worker = ReplicateRegisters::new(shared, clock, scope);
    // Partitions are compared, and differences with the first device wait.
    while !worker.tasks.iter().any(|task| task.peer() == Some(DeviceId(0))) {
        worker.step().await.unwrap();
    }
    let held = world.memory(DeviceId(0)).registers(DeviceId(0)).len();
    world.edit(|parts| parts.index = Arc::new(ring(1..6)));
    while !worker.tasks.is_empty() {
        worker.step().await.unwrap();
    }
    let after = world.memory(DeviceId(0)).registers(DeviceId(0)).len();
    assert_eq!(after, held, "the first device is in no set any more");
    run(&world).await;
    run(&world).await;
    for write in &writes {
        assert!(is_everywhere(&world, write).await, "{:?}", write.key);
    }
}

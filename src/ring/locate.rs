//! Lookup of a key, extent or partition: its primaries and handoffs.

use martlet_protocol::key::{index_placement, shard_of};
use martlet_protocol::limits::INDEX_SHARDS_DEFAULT;
use martlet_protocol::{BucketId, DeviceId, ExtentId, Partition};
use martlet_ring::{Builder, Ring};
use martlet_serving::Failure;
use serde_json::json;

use super::args::LocateArgs;
use super::output::CommandOutput;
use super::text::row;
use crate::admin;
use crate::columns::table;

/// Requested key or extent (`what`, empty for a partition) and its partition.
struct LocateTarget {
    what: String,
    partition: Partition,
}

/// Lists the primaries and handoffs of the requested key, extent or partition.
pub(super) fn locate(builder: &Builder, args: &LocateArgs) -> Result<CommandOutput, Failure> {
    let ring = builder.current_ring()?;
    let target = target(&ring, args)?;
    let primaries: Vec<DeviceId> = ring.primaries(target.partition).collect();
    let handoffs: Vec<DeviceId> = ring.handoffs(target.partition).take(args.handoffs).collect();
    let mut rows = vec![row(["", "device", "place", "address", "moving from"])];
    for (at, id) in primaries.iter().enumerate() {
        let previous = ring.previous(target.partition, at).map(|id| id.to_string());
        rows.push(line(&ring, &format!("primary {}", at + 1), *id, previous.unwrap_or_default()));
    }
    for (at, id) in handoffs.iter().enumerate() {
        rows.push(line(&ring, &format!("handoff {}", at + 1), *id, String::new()));
    }
    let head = format!("partition {} of {}", target.partition.0, 1u32 << ring.part_power());
    let head = if target.what.is_empty() { head } else { format!("{} is in {head}", target.what) };
    let text = format!("{head}\n{}", table(&rows, &[]));
    let previous: Vec<Option<DeviceId>> =
        (0..primaries.len()).map(|at| ring.previous(target.partition, at)).collect();
    let json = json!({
        "partition": target.partition,
        "primaries": primaries,
        "previous": previous,
        "handoffs": handoffs,
    });
    Ok(CommandOutput::new(text, &json))
}

fn target(ring: &Ring, args: &LocateArgs) -> Result<LocateTarget, Failure> {
    if let Some(number) = args.partition {
        let count = 1u32 << ring.part_power();
        if number >= count {
            return Err(Failure::refused(format!(
                "there is no partition {number}: this ring has {count}, numbered from 0"
            )));
        }
        return Ok(LocateTarget { what: String::new(), partition: Partition(number) });
    }
    if let Some(extent) = &args.extent {
        let id = ExtentId(sixteen(extent).ok_or_else(|| {
            Failure::refused(format!(
                "`{extent}` is not an extent's id: write 32 hexadecimal digits"
            ))
        })?);
        return Ok(LocateTarget {
            what: format!("extent {extent}"),
            partition: ring.partition(id.placement()),
        });
    }
    let bucket = args.bucket.as_deref().unwrap_or_default();
    match (sixteen(bucket), &args.key) {
        (Some(id), Some(key)) => key_of(ring, id, args.shards, key),
        (Some(_), None) => Err(Failure::usage("name the key after the bucket: locate BUCKET KEY")),
        (None, Some(key)) => {
            let (id, shards) = look_up(bucket, args)?;
            key_of(ring, id, shards, key)
        }
        (None, None) => {
            let shard = shard_of(bucket.as_bytes(), INDEX_SHARDS_DEFAULT);
            let partition = ring.partition(index_placement(BucketId::ROOT, shard));
            Ok(LocateTarget { what: format!("the record of bucket {bucket}"), partition })
        }
    }
}

fn key_of(ring: &Ring, bucket: [u8; 16], shards: u16, key: &str) -> Result<LocateTarget, Failure> {
    if !shards.is_power_of_two() {
        return Err(Failure::usage(format!("--shards must be a power of two, not {shards}")));
    }
    let shard = shard_of(key.as_bytes(), shards);
    let partition = ring.partition(index_placement(BucketId(bucket), shard));
    Ok(LocateTarget {
        what: format!("the entry of {key}, in shard {} of {shards},", shard.0),
        partition,
    })
}

/// Returns id and index shards of a bucket by its name, from the admin API of a running server.
fn look_up(bucket: &str, args: &LocateArgs) -> Result<([u8; 16], u16), Failure> {
    let line = admin::bucket(&args.connection, bucket);
    let line = line.map_err(|failure| {
        Failure::refused(format!(
            "the id of bucket `{bucket}` can't be looked up: {failure}. Pass the id that `martlet \
             admin bucket show {bucket}` prints, or omit the key to locate the bucket's own record"
        ))
    })?;
    let id = sixteen(&line.id);
    let id = id.ok_or_else(|| Failure::refused(format!("`{}` is not a bucket's id", line.id)))?;
    Ok((id, line.index_shards))
}

fn sixteen(digits: &str) -> Option<[u8; 16]> {
    let mut bytes = [0; 16];
    hex::decode_to_slice(digits, &mut bytes).ok().map(|()| bytes)
}

fn line(ring: &Ring, role: &str, id: DeviceId, previous: String) -> Vec<String> {
    let device = ring.device(id);
    vec![
        role.to_owned(),
        id.to_string(),
        device.map(ToString::to_string).unwrap_or_default(),
        device.map(|device| device.node.address.clone()).unwrap_or_default(),
        previous,
    ]
}

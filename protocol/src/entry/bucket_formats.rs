//! Values with buckets of formats 1 and 2.

use serde::Deserialize;

use super::bucket::{Bucket, BucketState};
use super::value::Value;
use crate::consistency::Level;
use crate::id::{BucketId, PolicyId};
use crate::settings::Settings;

/// Index of [`Value::Bucket`] among the variants.
const BUCKET: u8 = 2;

/// A bucket of format 1.
#[derive(Deserialize)]
struct BucketFormat1 {
    id: BucketId,
    created_ms: u64,
    generation: u64,
    state: BucketState,
    index_shards: u16,
    policy: PolicyId,
    owner: String,
}

/// A bucket of format 2.
#[derive(Deserialize)]
struct BucketFormat2(BucketFormat1, Level);

impl From<BucketFormat1> for Bucket {
    fn from(before: BucketFormat1) -> Self {
        BucketFormat2(before, Level::default()).into()
    }
}

impl From<BucketFormat2> for Bucket {
    fn from(BucketFormat2(before, consistency): BucketFormat2) -> Self {
        let BucketFormat1 { id, created_ms, generation, state, index_shards, policy, owner } =
            before;
        let settings = Settings::default();
        Self {
            id,
            created_ms,
            generation,
            state,
            index_shards,
            policy,
            owner,
            consistency,
            settings,
        }
    }
}

/// Decodes a value of format 1.
pub(super) fn decode_before_levels(bytes: &[u8]) -> Result<Value, postcard::Error> {
    decode::<BucketFormat1>(bytes)
}

/// Decodes a value of format 2.
pub(super) fn decode_before_settings(bytes: &[u8]) -> Result<Value, postcard::Error> {
    decode::<BucketFormat2>(bytes)
}

/// Decodes a value whose buckets have the format `B`; all other values have the current format.
fn decode<'a, B: Deserialize<'a> + Into<Bucket>>(
    bytes: &'a [u8],
) -> Result<Value, postcard::Error> {
    match bytes.split_first() {
        Some((&BUCKET, rest)) => {
            let before: B = postcard::from_bytes(rest)?;
            Ok(Value::Bucket(Box::new(before.into())))
        }
        _ => postcard::from_bytes(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Entry, VERSION_BEFORE_LEVELS, VERSION_BEFORE_SETTINGS};
    use crate::id::WriteId;
    use crate::settings::Setting;
    use crate::stamp::{Stamp, WriterId};

    fn entry(consistency: Level, settings: Settings) -> Entry {
        let bucket = Bucket {
            id: BucketId([4; 16]),
            created_ms: 9,
            generation: 3,
            state: BucketState::Closing,
            index_shards: 16,
            policy: PolicyId(1),
            owner: "me".into(),
            consistency,
            settings,
        };
        let order = Stamp { time: 77, writer: WriterId(5) };
        Entry { order, write_id: WriteId([3; 16]), value: Value::Bucket(Box::new(bucket)) }
    }

    #[test]
    fn settings_come_back_as_they_were_set() {
        let mut settings = Settings::default();
        settings.set(Setting::Cors, b"<CORSConfiguration/>".to_vec()).unwrap();
        settings.set(Setting::Policy, vec![0, 255]).unwrap();
        let entry = entry(Level::Strict, settings);
        assert_eq!(Entry::decode(&entry.encode()).unwrap(), entry);
    }

    #[test]
    fn buckets_of_format_2_have_no_settings() {
        let now = entry(Level::Strict, Settings::default());
        let mut before = now.encode();
        assert_eq!(before.pop(), Some(0), "the settings stand last");
        assert!(Entry::decode(&before).is_err());
        before[0] = VERSION_BEFORE_SETTINGS;
        assert_eq!(Entry::decode(&before).unwrap(), now);
    }

    #[test]
    fn buckets_of_format_1_have_the_default_level() {
        let now = entry(Level::Available, Settings::default());
        let mut before = now.encode();
        assert_eq!(before.split_off(before.len() - 2), [0, 0], "level and settings stand last");
        assert!(Entry::decode(&before).is_err());
        before[0] = VERSION_BEFORE_SETTINGS;
        assert!(Entry::decode(&before).is_err());
        before[0] = VERSION_BEFORE_LEVELS;
        assert_eq!(Entry::decode(&before).unwrap(), now);
    }
}

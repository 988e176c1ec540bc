//! Consistency options of a request: its level, and its read-after token.
//!
//! A token names a write that its bearer has read or written: `<stamp>-<q|d>-<8 hex of its key's
//! hash>`. A request with a token never returns an older state (rule A3).

use std::fmt;
use std::str::FromStr;

use martlet_protocol::stamp::WriterId;
use martlet_protocol::{AchievedLevel, Level, Stamp};

use crate::error::Error;

/// Consistency options of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConsistencyOptions {
    /// Level of the request; none for the bucket's.
    pub level: Option<Level>,
    /// Return no older state than this.
    pub read_after: Option<ReadAfter>,
}

impl ConsistencyOptions {
    /// Strict reads, for workers: no stale version is processed, and counts come from a quorum.
    pub(crate) const STRICT: Self = Self { level: Some(Level::Strict), read_after: None };
}

/// Level of reads that decide about access: the stricter of two levels, and never one replica
/// alone. So no header of a client brings back a policy or a list that was revoked (rule A4).
pub(crate) fn deciding_level(of_request: Option<Level>, of_bucket: Level) -> Level {
    match (of_request, of_bucket) {
        (Some(Level::Strict), _) | (_, Level::Strict) => Level::Strict,
        _ => Level::Available,
    }
}

/// A write that the token's bearer has read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadAfter {
    /// Order of the write.
    pub stamp: Stamp,
    /// True if a quorum holds the write.
    pub quorum: bool,
    /// First four bytes of the hash of bucket and key.
    pub key: [u8; 4],
}

impl ReadAfter {
    /// A token of a write at a key.
    pub fn new(bucket: &str, key: &str, stamp: Stamp, given: AchievedLevel) -> Self {
        Self { stamp, quorum: given == AchievedLevel::Quorum, key: key_hash(bucket, key) }
    }

    /// Returns true if the token belongs to this key.
    pub fn is_of(&self, bucket: &str, key: &str) -> bool {
        self.key == key_hash(bucket, key)
    }
}

fn key_hash(bucket: &str, key: &str) -> [u8; 4] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(bucket.as_bytes()).update(&[0]).update(key.as_bytes());
    let mut first = [0; 4];
    first.copy_from_slice(&hasher.finalize().as_bytes()[..4]);
    first
}

impl fmt::Display for ReadAfter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = if self.quorum { "-q-" } else { "-d-" };
        let mut key = [0; 8];
        hex::encode_to_slice(self.key, &mut key).map_err(|_| fmt::Error)?;
        self.stamp.fmt(f)?;
        f.write_str(letter)?;
        f.write_str(str::from_utf8(&key).map_err(|_| fmt::Error)?)
    }
}

impl FromStr for ReadAfter {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        parse(text)
            .ok_or_else(|| Error::InvalidArgument("the read-after token is malformed".into()))
    }
}

fn parse(text: &str) -> Option<ReadAfter> {
    let mut fields = text.split('-');
    let mut hex = |digits: usize| {
        let field = fields.next()?;
        let is_hex = field.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        (field.len() == digits && is_hex).then(|| u64::from_str_radix(field, 16).ok())?
    };
    let stamp = Stamp { time: hex(16)?, writer: WriterId(hex(16)?) };
    let quorum = match fields.next()? {
        "q" => true,
        "d" => false,
        _ => return None,
    };
    let hash = fields.next().filter(|hash| hash.len() == 8)?;
    let parsed =
        ReadAfter { stamp, quorum, key: u32::from_str_radix(hash, 16).ok()?.to_be_bytes() };
    (fields.next().is_none() && parsed.to_string() == text).then_some(parsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a3_tokens_are_read_as_they_are_written_and_name_their_key() {
        for given in [AchievedLevel::Quorum, AchievedLevel::Any, AchievedLevel::Degraded] {
            let stamp = Stamp { time: 0x1234_5678, writer: WriterId(u64::MAX) };
            let token = ReadAfter::new("b", "key", stamp, given);
            assert_eq!(token.quorum, given == AchievedLevel::Quorum);
            assert_eq!(token.to_string().parse::<ReadAfter>().unwrap(), token);
            assert!(
                token.is_of("b", "key") && !token.is_of("b", "kez") && !token.is_of("bk", "ey")
            );
        }
    }

    #[test]
    fn a4_what_decides_about_access_is_read_at_the_stricter_level() {
        use Level::{Any, Available, Strict};
        for (of_request, of_bucket, level) in [
            (None, Any, Available),
            (None, Available, Available),
            (None, Strict, Strict),
            (Some(Any), Any, Available),
            (Some(Any), Available, Available),
            (Some(Any), Strict, Strict),
            (Some(Available), Strict, Strict),
            (Some(Strict), Any, Strict),
        ] {
            assert_eq!(deciding_level(of_request, of_bucket), level, "{of_request:?} {of_bucket}");
        }
    }

    #[test]
    fn a3_malformed_tokens_are_refused() {
        let good = ReadAfter::new("b", "k", Stamp::ZERO, AchievedLevel::Quorum).to_string();
        let bad = ["", "x", "q", &good[1..], &good[..good.len() - 1], &good.to_uppercase()];
        for text in bad.into_iter().map(str::to_owned).chain([
            good.replace("-q-", "-x-"),
            format!("{good}-"),
            format!(" {good}"),
            good.replacen('0', "+", 1),
        ]) {
            assert!(text.parse::<ReadAfter>().is_err(), "{text}");
        }
    }
}

//! Log settings of a bucket, as stored with the bucket.
//!
//! ```text
//! document: format (1) | postcard of the settings
//! ```

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;

use crate::access::Grant;

const FORMAT: u8 = 1;
const MOMENT: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]-[hour]-[minute]-[second]");
const DAY: &[BorrowedFormatItem<'_>] = format_description!("[year]/[month]/[day]");
const MS_PER_DAY: u64 = 86_400_000;

/// Format of the keys of log objects, after the prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum KeyFormat {
    /// The time of delivery.
    Simple,
    /// Owner, region, bucket and day of delivery, then the time of delivery.
    ByDelivery,
    /// Owner, region, bucket and day of the requests, then the start of that day.
    ByEvent,
}

/// Log settings of a bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Logging {
    /// Bucket that logs are delivered to.
    pub(crate) target: String,
    /// Prefix of the keys of log objects.
    pub(crate) prefix: String,
    pub(crate) format: KeyFormat,
    /// Further grants on log objects.
    pub(crate) grants: Vec<Grant>,
}

/// Bucket whose requests are logged, and its log settings.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LoggedBucket {
    pub(crate) bucket: String,
    pub(crate) owner: String,
    pub(crate) logging: Logging,
}

/// Requests of one source bucket, as the key of their log names them.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeySource<'a> {
    pub(super) owner: &'a str,
    pub(super) region: &'a str,
    pub(super) bucket: &'a str,
    pub(super) now_ms: u64,
    /// Day of the requests, for [`KeyFormat::ByEvent`].
    pub(super) day: Option<u64>,
}

impl Logging {
    /// Encodes the settings as a document.
    pub(crate) fn document(&self) -> Vec<u8> {
        postcard::to_extend(self, vec![FORMAT]).expect("settings in memory can be written")
    }

    /// Decodes a document; `None` if it can't be read.
    pub(crate) fn of(document: &[u8]) -> Option<Self> {
        match document.split_first() {
            Some((&FORMAT, rest)) => postcard::from_bytes(rest).ok(),
            _ => None,
        }
    }

    /// Number of the day of a request; requests of other days get other objects. `None` if days
    /// share objects.
    pub(crate) fn day_of(&self, event_ms: u64) -> Option<u64> {
        (self.format == KeyFormat::ByEvent).then_some(event_ms / MS_PER_DAY)
    }

    /// Key of a log object.
    pub(super) fn key(&self, source: &KeySource<'_>, unique: &str) -> String {
        let KeySource { owner, region, bucket, now_ms, day } = *source;
        let moment = moment(day.map_or(now_ms, |day| day * MS_PER_DAY));
        let text = |form| moment.format(form).unwrap_or_default();
        let prefix = &self.prefix;
        match self.format {
            KeyFormat::Simple => format!("{prefix}{}-{unique}", text(MOMENT)),
            KeyFormat::ByDelivery | KeyFormat::ByEvent => {
                let (day, moment) = (text(DAY), text(MOMENT));
                format!("{prefix}{owner}/{region}/{bucket}/{day}/{moment}-{unique}")
            }
        }
    }
}

/// Converts milliseconds since 1970 to a date and time, to the second.
pub(super) fn moment(ms: u64) -> OffsetDateTime {
    let seconds = i64::try_from(ms / 1000).unwrap_or(i64::MAX);
    OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: u64 = 1_700_000_000_123;

    fn logging(format: KeyFormat) -> Logging {
        let grants = vec![Grant::full("alice")];
        Logging { target: "logs".into(), prefix: "p/".into(), format, grants }
    }

    #[test]
    fn it_is_kept_as_it_is() {
        let given = logging(KeyFormat::ByEvent);
        assert_eq!(Logging::of(&given.document()), Some(given));
        assert_eq!(Logging::of(&[]), None);
        assert_eq!(Logging::of(&[9, 0]), None);
    }

    #[test]
    fn keys_are_s3s() {
        let key = |format, day| {
            let (owner, region, bucket, now_ms) = ("owner", "us-east-1", "b", NOW_MS);
            logging(format).key(&KeySource { owner, region, bucket, now_ms, day }, "0A")
        };
        assert_eq!(key(KeyFormat::Simple, None), "p/2023-11-14-22-13-20-0A");
        let by_delivery = "p/owner/us-east-1/b/2023/11/14/2023-11-14-22-13-20-0A";
        assert_eq!(key(KeyFormat::ByDelivery, None), by_delivery);
        let by_event = "p/owner/us-east-1/b/2023/11/13/2023-11-13-00-00-00-0A";
        let yesterday = logging(KeyFormat::ByEvent).day_of(NOW_MS - MS_PER_DAY);
        assert_eq!(key(KeyFormat::ByEvent, yesterday), by_event);
        assert_eq!(logging(KeyFormat::Simple).day_of(NOW_MS), None);
    }
}

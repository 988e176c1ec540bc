//! Ranges of keys that are listed beside each other.
//!
//! The first page of common prefixes divides the keys. Ranges begin after a prefix and end with the
//! next one, so that keys between prefixes belong to a range too.

use crate::client::S3Client;
use crate::client::operations::PageRequest;
use crate::error::Result;
use crate::listing::KeyRange;

/// Maximum number of ranges.
const RANGES_MAX: usize = 64;
/// Maximum number of levels without a choice that are passed.
const LEVELS_MAX: usize = 8;

/// Divides the keys of a bucket that have a prefix. Lists at most [`LEVELS_MAX`] pages.
pub(crate) async fn divide(client: &S3Client, prefix: &str) -> Result<Vec<KeyRange>> {
    let mut prefix = prefix.to_owned();
    for _ in 0..LEVELS_MAX {
        let request =
            PageRequest { prefix: &prefix, delimiter: Some("/"), ..PageRequest::default() };
        let page = client.list(request).await?;
        let prefixes: Vec<String> = page.common_prefixes.into_iter().map(|it| it.prefix).collect();
        match prefixes.as_slice() {
            [only] if page.contents.is_empty() && !page.is_truncated => prefix.clone_from(only),
            _ => return Ok(ranges(prefixes)),
        }
    }
    Ok(ranges(Vec::new()))
}

/// Returns the ranges between prefixes, at most [`RANGES_MAX`].
fn ranges(mut prefixes: Vec<String>) -> Vec<KeyRange> {
    prefixes.sort_unstable();
    prefixes.dedup();
    let step = prefixes.len().div_ceil(RANGES_MAX - 1).max(1);
    // Keys before the first prefix share the range of its keys.
    let bounds = prefixes.into_iter().skip(1).step_by(step);
    let mut ranges = vec![KeyRange::default()];
    for bound in bounds {
        let last = ranges.last_mut().expect("there is a first range");
        last.until = Some(bound.clone());
        ranges.push(KeyRange { after: Some(bound), until: None });
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(range: &KeyRange, key: &str) -> bool {
        range.after.as_deref().is_none_or(|after| key > after)
            && range.until.as_deref().is_none_or(|until| key <= until)
    }

    #[test]
    fn each_key_belongs_to_one_range() {
        for count in [0, 1, 2, 63, 64, 65, 1000] {
            let prefixes: Vec<_> = (0..count).map(|at| format!("{at:04}/")).collect();
            let ranges = ranges(prefixes.clone());
            assert!(ranges.len() <= RANGES_MAX, "{count}: {}", ranges.len());
            assert!(count < 2 || ranges.len() > 1);
            let keys =
                prefixes.iter().flat_map(|it| [it.clone(), format!("{it}x"), format!("{it}~")]);
            for key in keys.chain(["", "0", "~", "0001"].map(String::from)) {
                let owners = ranges.iter().filter(|range| of(range, &key)).count();
                assert_eq!(owners, 1, "{key:?} of {count}");
            }
        }
    }
}

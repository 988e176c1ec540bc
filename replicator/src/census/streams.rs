//! Merge of sorted, paged streams of all devices: one key after another.

use std::collections::{BTreeMap, VecDeque};

use futures::future::join_all;
use martlet_protocol::{DeviceId, Result};

/// Stream of one device, page by page.
struct DeviceStream<K, V> {
    page: VecDeque<(K, V)>,
    after: Option<K>,
    has_ended: bool,
}

/// Streams of all devices.
pub(super) struct MergedStreams<K, V>(BTreeMap<DeviceId, DeviceStream<K, V>>);

impl<K: Ord + Clone, V> MergedStreams<K, V> {
    /// Creates streams that have read nothing yet.
    pub(super) fn of(devices: impl IntoIterator<Item = DeviceId>) -> Self {
        let stream = || DeviceStream { page: VecDeque::new(), after: None, has_ended: false };
        Self(devices.into_iter().map(|device| (device, stream())).collect())
    }

    /// Reads the next page of each exhausted stream. Returns the devices that did not answer, whose
    /// streams are dropped.
    pub(super) async fn fill(
        &mut self,
        read: impl AsyncFn(DeviceId, Option<K>) -> Result<Vec<(K, V)>>,
    ) -> Vec<DeviceId> {
        let read = &read;
        let empty = self.0.iter().filter(|(_, it)| it.page.is_empty() && !it.has_ended);
        let queries = empty.map(|(device, stream)| async move {
            (*device, read(*device, stream.after.clone()).await)
        });
        let answers = join_all(queries.collect::<Vec<_>>()).await;
        let mut silent = Vec::new();
        for (device, answer) in answers {
            let Some(stream) = self.0.get_mut(&device) else { continue };
            match answer {
                Ok(page) => {
                    stream.has_ended = page.is_empty();
                    stream.after = page.last().map(|(key, _)| key.clone());
                    stream.page = page.into();
                }
                Err(error) => {
                    tracing::warn!(%device, %error, "a device stopped answering during a census");
                    self.0.remove(&device);
                    silent.push(device);
                }
            }
        }
        silent
    }

    /// Returns the lowest key and its holders; none if a page must be read first, or at the end.
    pub(super) fn next(&mut self) -> Option<(K, Vec<(DeviceId, V)>)> {
        let must_read = |stream: &DeviceStream<K, V>| stream.page.is_empty() && !stream.has_ended;
        if self.0.values().any(must_read) {
            return None;
        }
        let fronts = self.0.values().filter_map(|stream| stream.page.front());
        let lowest = fronts.map(|(key, _)| key).min()?.clone();
        let mut holders = Vec::new();
        for (device, stream) in &mut self.0 {
            if let Some((_, value)) = stream.page.pop_front_if(|(key, _)| *key == lowest) {
                holders.push((*device, value));
            }
        }
        Some((lowest, holders))
    }

    /// Returns true if everything was read.
    pub(super) fn is_over(&self) -> bool {
        self.0.values().all(|stream| stream.has_ended)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use martlet_protocol::Error;

    use super::*;

    #[tokio::test]
    async fn streams_are_merged_in_order_across_pages_and_without_the_silent() {
        let held = |device: DeviceId| -> Vec<u32> {
            match device.0 {
                0 => (0..20).collect(),
                1 => (0..20).step_by(3).collect(),
                _ => vec![],
            }
        };
        let read = async |device: DeviceId, after: Option<u32>| {
            if device == DeviceId(3) {
                return Err(Error::unavailable("out"));
            }
            let above = held(device).into_iter().filter(|key| Some(*key) > after);
            Ok(above.take(4).map(|key| (key, device)).collect())
        };
        let mut streams = MergedStreams::of((0..4).map(DeviceId));
        let (mut seen, mut silent) = (Vec::new(), Vec::new());
        while !streams.is_over() {
            silent.extend(streams.fill(read).await);
            while let Some(next) = streams.next() {
                seen.push(next);
            }
        }
        assert_eq!(silent, [DeviceId(3)]);
        assert!(seen.is_sorted_by_key(|(key, _)| *key));
        assert_eq!(seen.iter().map(|(key, _)| *key).collect::<BTreeSet<_>>().len(), 20);
        for (key, holders) in seen {
            assert_eq!(holders.len(), if key % 3 == 0 { 2 } else { 1 }, "{key}");
        }
    }
}

//! Listings of both buckets: ranges of keys, pages read ahead, and both merged by key.
//!
//! Both stores must list keys in the order of their bytes, as S3 does. A listing out of order ends
//! the run, for a merge of it would take objects for missing.
//!
//! A listing holds three pages at most: one that is read, one that waits, one that is used.

use std::cmp::Ordering;
use std::sync::Arc;

use tokio::sync::mpsc;

use crate::client::S3Client;
use crate::client::operations::PageRequest;
use crate::client::xml::ListedObject;
use crate::dates::listed_date_ms;
use crate::error::{Error, Result};
use crate::etag::Facts;

/// Range of keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyRange {
    /// Key before the first one; `None` from the beginning.
    pub(crate) after: Option<String>,
    /// Last key; `None` to the end.
    pub(crate) until: Option<String>,
}

/// Object in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) key: Arc<str>,
    pub(crate) size: u64,
    /// ETag without quotes.
    pub(crate) etag: String,
    /// Time of the last write by the store's clock, in milliseconds since 1970.
    pub(crate) modified_ms: Option<u64>,
}

impl Listed {
    pub(crate) fn facts(&self) -> Facts<'_> {
        Facts { size: self.size, etag: &self.etag }
    }
}

impl From<ListedObject> for Listed {
    fn from(object: ListedObject) -> Self {
        Self {
            key: object.key.into(),
            size: object.size,
            etag: object.etag.trim_matches('"').to_owned(),
            modified_ms: listed_date_ms(&object.last_modified),
        }
    }
}

/// Listing of a range of keys.
pub(crate) struct Listing {
    pages: mpsc::Receiver<Result<Vec<Listed>>>,
    page: std::vec::IntoIter<Listed>,
    peeked: Option<Listed>,
}

impl Listing {
    /// Begins to list the keys of a range that have a prefix.
    pub(crate) fn open(client: Arc<S3Client>, prefix: &str, range: KeyRange) -> Self {
        let (sender, pages) = mpsc::channel(1);
        let reader =
            PageReader { client, prefix: prefix.to_owned(), last: range.after.clone(), range };
        tokio::spawn(reader.run(sender));
        Self { pages, page: Vec::new().into_iter(), peeked: None }
    }

    /// Returns the next object without taking it.
    async fn peek(&mut self) -> Result<Option<&Listed>> {
        while self.peeked.is_none() {
            self.peeked = self.page.next();
            if self.peeked.is_none() {
                match self.pages.recv().await {
                    Some(page) => self.page = page?.into_iter(),
                    None => break,
                }
            }
        }
        Ok(self.peeked.as_ref())
    }

    /// Returns the next object.
    pub(crate) async fn next(&mut self) -> Result<Option<Listed>> {
        self.peek().await?;
        Ok(self.peeked.take())
    }
}

struct PageReader {
    client: Arc<S3Client>,
    prefix: String,
    range: KeyRange,
    /// Last key that was listed.
    last: Option<String>,
}

impl PageReader {
    async fn run(mut self, sender: mpsc::Sender<Result<Vec<Listed>>>) {
        let mut token = None;
        loop {
            let request = PageRequest {
                prefix: &self.prefix,
                start_after: self.range.after.as_deref(),
                token: token.as_deref(),
                delimiter: None,
            };
            let page = match self.client.list(request).await {
                Ok(page) => page,
                Err(error) => return drop(sender.send(Err(error)).await),
            };
            let listed: Vec<Listed> = page.contents.into_iter().map(Listed::from).collect();
            let checked = self.within_range(listed);
            let is_last = checked.as_ref().map_or(true, |it| it.is_last);
            if sender.send(checked.map(|it| it.objects)).await.is_err() || is_last {
                return;
            }
            token = page.next_continuation_token.filter(|_| page.is_truncated);
            if token.is_none() {
                return;
            }
        }
    }

    /// Checks the order of a page, and drops the keys behind the range.
    fn within_range(&mut self, mut objects: Vec<Listed>) -> Result<CheckedPage> {
        for object in &objects {
            if self.last.as_deref().is_some_and(|last| *object.key <= *last) {
                return Err(Error::fatal(format!(
                    "a listing has \"{}\" after \"{}\": stores that don't list keys in the order \
                     of their bytes are not supported",
                    object.key,
                    self.last.as_deref().unwrap_or_default()
                )));
            }
            self.last = Some(object.key.to_string());
        }
        let Some(until) = &self.range.until else {
            return Ok(CheckedPage { objects, is_last: false });
        };
        let before = objects.len();
        objects.retain(|object| *object.key <= **until);
        let is_last = objects.len() < before || self.last.as_ref() >= Some(until);
        Ok(CheckedPage { objects, is_last })
    }
}

struct CheckedPage {
    objects: Vec<Listed>,
    is_last: bool,
}

/// Key of either bucket, or of both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pair {
    Source(Listed),
    Target(Listed),
    Both { source: Listed, target: Listed },
}

/// Listings of both buckets, merged by key.
pub(crate) struct PairedListing {
    pub(crate) source: Listing,
    pub(crate) target: Listing,
}

impl PairedListing {
    /// Returns the next key in the order of keys.
    pub(crate) async fn next(&mut self) -> Result<Option<Pair>> {
        let source = self.source.peek().await.map_err(|it| it.within("source"))?;
        let target = self.target.peek().await.map_err(|it| it.within("target"))?;
        let order = match (source, target) {
            (None, None) => return Ok(None),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(source), Some(target)) => source.key.cmp(&target.key),
        };
        let source = if order == Ordering::Greater { None } else { self.source.peeked.take() };
        let target = if order == Ordering::Less { None } else { self.target.peeked.take() };
        Ok(match (source, target) {
            (Some(source), Some(target)) => Some(Pair::Both { source, target }),
            (Some(source), None) => Some(Pair::Source(source)),
            (None, target) => target.map(Pair::Target),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(key: &str) -> Listed {
        Listed { key: key.into(), size: 1, etag: String::new(), modified_ms: None }
    }

    fn listing(pages: &[&[&str]]) -> Listing {
        let (sender, receiver) = mpsc::channel(pages.len() + 1);
        for page in pages {
            sender.try_send(Ok(page.iter().map(|key| listed(key)).collect())).unwrap();
        }
        Listing { pages: receiver, page: Vec::new().into_iter(), peeked: None }
    }

    #[tokio::test]
    async fn both_listings_are_merged_page_by_page() {
        let mut pairs = PairedListing {
            source: listing(&[&["a", "b"], &[], &["d"]]),
            target: listing(&[&["b", "c"], &["e"]]),
        };
        let mut found = String::new();
        while let Some(pair) = pairs.next().await.unwrap() {
            let (key, sign) = match &pair {
                Pair::Source(it) => (&it.key, "< "),
                Pair::Target(it) => (&it.key, "> "),
                Pair::Both { source, .. } => (&source.key, "= "),
            };
            found.push_str(key);
            found.push_str(sign);
        }
        assert_eq!(found, "a< b= c> d< e> ");
    }

    #[tokio::test]
    async fn an_error_of_a_page_is_returned() {
        let (sender, receiver) = mpsc::channel(2);
        sender.try_send(Err(Error::transient("lost"))).unwrap();
        let source = Listing { pages: receiver, page: Vec::new().into_iter(), peeked: None };
        let mut pairs = PairedListing { source, target: listing(&[]) };
        assert_eq!(pairs.next().await.unwrap_err().to_string(), "source: lost");
    }
}

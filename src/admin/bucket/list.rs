//! `martlet admin bucket list`: buckets, printed page by page.

use std::io::{self, Write};

use clap::Args;
use martlet_admin_api::accounts::ListPage;
use martlet_admin_api::buckets::{BUCKETS, BucketSummary, PAGE_DEFAULT};
use martlet_serving::Failure;

use crate::admin::client::AdminEndpoint;
use crate::admin::print::size;
use crate::columns::table;

/// Arguments of `martlet admin bucket list`.
#[derive(Args, Debug)]
pub(in crate::admin) struct ListArgs {
    /// Tenant that owns the buckets, or root
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// Begin of the buckets' names
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,
    /// Begin after the bucket of this name
    #[arg(long, value_name = "NAME")]
    after: Option<String>,
    /// Maximum number of buckets to print [default: all]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
}

impl ListArgs {
    /// Fetches and prints pages until the last one, or until the limit.
    pub(super) fn run(&self, server: &AdminEndpoint, json: bool) -> Result<(), Failure> {
        let mut printer = ListPrinter { out: io::stdout().lock(), json, printed: 0 };
        let outcome = self.print(server, &mut printer);
        match outcome {
            // A reader that has seen enough is no failure.
            Err(PrintError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            Err(PrintError::Output(error)) => {
                Err(Failure::refused(format!("the buckets can't be printed: {error}")))
            }
            Err(PrintError::Request(failure)) => Err(failure),
            Ok(()) => Ok(()),
        }
    }

    fn print(
        &self,
        server: &AdminEndpoint,
        printer: &mut ListPrinter<impl Write>,
    ) -> Result<(), PrintError> {
        let mut after = self.after.clone();
        let mut left = self.limit.unwrap_or(u64::MAX);
        loop {
            let limit = left.min(PAGE_DEFAULT as u64).to_string();
            let mut query = vec![("limit", limit.as_str())];
            query.extend(self.tenant.as_deref().map(|tenant| ("tenant", tenant)));
            query.extend(self.prefix.as_deref().map(|prefix| ("prefix", prefix)));
            query.extend(after.as_deref().map(|after| ("after", after)));
            let page: ListPage<BucketSummary> =
                server.request_json(BUCKETS, &query).map_err(PrintError::Request)?;
            left = left.saturating_sub(page.items.len() as u64);
            let next = page.next.filter(|_| left > 0);
            printer.page(&page.items, next.is_none()).map_err(PrintError::Output)?;
            if next.is_none() {
                return Ok(());
            }
            after = next;
        }
    }
}

enum PrintError {
    Request(Failure),
    Output(io::Error),
}

/// Printer of a list that comes in pages: tables, or one JSON array.
struct ListPrinter<W> {
    out: W,
    json: bool,
    /// Buckets printed so far.
    printed: u64,
}

impl<W: Write> ListPrinter<W> {
    fn page(&mut self, buckets: &[BucketSummary], is_last: bool) -> io::Result<()> {
        if self.json {
            for bucket in buckets {
                let line = serde_json::to_string(bucket)?;
                let before = if self.printed == 0 { "[\n" } else { ",\n" };
                write!(self.out, "{before}{line}")?;
                self.printed += 1;
            }
            let end = if self.printed == 0 { "[]\n" } else { "\n]\n" };
            return if is_last { self.out.write_all(end.as_bytes()) } else { Ok(()) };
        }
        let is_first = self.printed == 0;
        self.printed += buckets.len() as u64;
        if buckets.is_empty() && !(is_first && is_last) {
            return Ok(());
        }
        self.out.write_all(lines(buckets).as_bytes())
    }
}

/// Formats buckets as a table.
fn lines(buckets: &[BucketSummary]) -> String {
    let names = ["bucket", "tenant", "policy", "consistency", "versioning", "objects", "size"];
    let mut rows = vec![names.map(str::to_owned).to_vec()];
    let counted = |count: Option<String>| count.unwrap_or_else(|| "-".to_owned());
    rows.extend(buckets.iter().map(|bucket| {
        vec![
            bucket.bucket.clone(),
            bucket.tenant.clone().unwrap_or_else(|| format!("({})", bucket.canonical_id)),
            bucket.storage_policy.clone(),
            bucket.consistency.clone(),
            bucket.versioning.clone(),
            counted(bucket.objects.map(|objects| objects.to_string())),
            counted(bucket.bytes.map(size)),
        ]
    }));
    table(&rows, &[5, 6])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(name: &str, bytes: Option<u64>) -> BucketSummary {
        BucketSummary {
            bucket: name.into(),
            tenant: Some("research".into()),
            storage_policy: "default".into(),
            consistency: "available".into(),
            versioning: "off".into(),
            bytes,
            objects: bytes.map(|_| 7),
            ..BucketSummary::default()
        }
    }

    fn printed(json: bool, pages: &[&[BucketSummary]]) -> String {
        let mut printer = ListPrinter { out: Vec::new(), json, printed: 0 };
        for (at, page) in pages.iter().enumerate() {
            printer.page(page, at + 1 == pages.len()).unwrap();
        }
        String::from_utf8(printer.out).unwrap()
    }

    #[test]
    fn json_is_one_array_over_all_pages() {
        let (a, b) = ([bucket("a", None)], [bucket("b", Some(1)), bucket("c", None)]);
        let pages: [&[&[BucketSummary]]; 4] = [&[&[]], &[&a, &b], &[&[], &a, &[]], &[&a, &[], &b]];
        for (pages, count) in pages.into_iter().zip([0, 3, 1, 3]) {
            let parsed: Vec<BucketSummary> = serde_json::from_str(&printed(true, pages)).unwrap();
            assert_eq!(parsed.len(), count);
        }
    }

    #[test]
    fn a_bucket_that_is_not_counted_has_no_size() {
        let text = printed(false, &[&[bucket("a", Some(2048)), bucket("b", None)]]);
        assert!(
            text.contains("a       research  default  available    off               7  2.0 KiB"),
            "{text}"
        );
        assert!(
            text.contains("b       research  default  available    off               -        -"),
            "{text}"
        );
        let other = BucketSummary { tenant: None, canonical_id: "c0".into(), ..bucket("d", None) };
        assert!(printed(false, &[&[other]]).contains("(c0)"));
        assert!(printed(false, &[&[]]).starts_with("bucket"));
    }
}

//! `martlet admin device`: the devices of a cluster.

use clap::Subcommand;
use martlet_admin_api::accounts::ListPage;
use martlet_admin_api::quarantine::{PAGE_MAX, QUARANTINE, QuarantineLine};
use martlet_serving::Failure;

use super::client::AdminEndpoint;
use super::print::{show, size, time};
use crate::columns::table;

/// Subcommands of `martlet admin device`.
#[derive(Debug, Subcommand)]
pub(super) enum DeviceCommand {
    /// List the items in quarantine of a device: what contradicted itself, and damaged indexes
    #[command(after_help = "\
The files lie in the folder `quarantine` of the device. Martlet neither reads nor deletes them; the log of the \
node has the reason for each. See docs/OPERATIONS.md.

Examples:
  martlet admin device quarantine 3
  martlet admin device quarantine 3 --limit 100 --after 0f3a --json")]
    Quarantine {
        /// Id of the device, as in `martlet admin status`
        device: u32,
        /// List items with names above this one
        #[arg(long, value_name = "NAME")]
        after: Option<String>,
        /// Largest number of items
        #[arg(long, value_name = "NUMBER", default_value_t = 10_000)]
        limit: usize,
    },
}

impl DeviceCommand {
    /// Sends the command's requests and prints the answer.
    pub(super) fn run(&self, server: &AdminEndpoint, json: bool) -> Result<(), Failure> {
        let Self::Quarantine { device, after, limit } = self;
        let device = device.to_string();
        let mut listed = ListPage { items: Vec::new(), next: after.clone() };
        loop {
            let count = limit.saturating_sub(listed.items.len()).min(PAGE_MAX).to_string();
            let mut query = vec![("device", device.as_str()), ("limit", &count)];
            query.extend(listed.next.as_deref().map(|after| ("after", after)));
            let page: ListPage<QuarantineLine> = server.request_json(QUARANTINE, &query)?;
            listed.items.extend(page.items);
            listed.next = page.next;
            if listed.next.is_none() || listed.items.len() >= *limit {
                break;
            }
        }
        show(&listed, json, lines);
        Ok(())
    }
}

/// Formats items as a table.
fn lines(page: &ListPage<QuarantineLine>) -> String {
    if page.items.is_empty() {
        return "nothing is in quarantine\n".to_owned();
    }
    let heads = ["since", "kind", "bytes", "name"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    rows.extend(page.items.iter().map(|line| {
        let bytes = line.bytes.map_or_else(|| "-".to_owned(), size);
        let since = line.since_ms.map_or_else(|| "-".to_owned(), time);
        vec![since, line.kind.clone(), bytes, line.name.clone()]
    }));
    let more = page.next.as_ref().map(|next| format!("more follow: --after {next}\n"));
    table(&rows, &[2]) + &more.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_rows_and_a_cut_list_names_the_next_request() {
        let item = |name: &str, bytes| QuarantineLine {
            name: name.to_owned(),
            kind: "extent".to_owned(),
            bytes,
            since_ms: Some(1_700_000_000_000),
            ..QuarantineLine::default()
        };
        let items = vec![item("00ff", Some(2 << 20)), item("index-7", None)];
        let text = lines(&ListPage { items, next: Some("index-7".to_owned()) });
        assert!(text.contains("2.0 MiB") && text.contains("2023-11-14"), "{text}");
        assert!(text.ends_with("more follow: --after index-7\n"), "{text}");
        assert!(lines(&ListPage { items: Vec::new(), next: None }).contains("nothing"));
    }
}

//! Lists of the admin API, which come in pages.

use martlet_admin_api::accounts::ListPage;
use martlet_serving::Failure;
use serde::de::DeserializeOwned;

use crate::admin::client::AdminEndpoint;

/// Fetches all pages of a list.
pub(super) fn fetch_all<T: DeserializeOwned>(
    server: &AdminEndpoint,
    path: &str,
    query: &[(&str, &str)],
) -> Result<Vec<T>, Failure> {
    let mut items = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let mut query = query.to_vec();
        query.extend(after.as_deref().map(|after| ("after", after)));
        let page: ListPage<T> = server.request_json(path, &query)?;
        items.extend(page.items);
        match page.next {
            None => return Ok(items),
            next => after = next,
        }
    }
}

//! Request ids: what a client's request is called travels with every internal request that is made
//! for it, so that the log lines of all nodes about it can be found.
//!
//! ```text
//! x-martlet-request: 8D3A66E1B4A0F2C7
//! ```
//!
//! The id belongs to the task that does the work, not to arguments: whatever is asked of nodes while a
//! future of [`with_request`] is polled carries it. What goes on in a task of its own doesn't.

use http::{HeaderName, HeaderValue};

/// What the request is called that an internal request is made for.
pub const REQUEST: HeaderName = HeaderName::from_static("x-martlet-request");

/// Marks a request that is made for no client: background work, which steps back for those that are.
pub(super) const BACKGROUND: HeaderName = HeaderName::from_static("x-martlet-background");

tokio::task_local! {
    static CURRENT: HeaderValue;
}

/// A future whose internal requests are made for the request called `id`.
pub fn with_request<F: Future>(id: HeaderValue, future: F) -> impl Future<Output = F::Output> {
    CURRENT.scope(id, future)
}

/// Does some work whose internal requests are made for the request called `id`.
pub fn in_request<T>(id: &HeaderValue, work: impl FnOnce() -> T) -> T {
    CURRENT.sync_scope(id.clone(), work)
}

/// The request that this task works for.
pub fn current_request() -> Option<HeaderValue> {
    CURRENT.try_with(HeaderValue::clone).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_id_belongs_to_the_work_that_is_done_for_it() {
        assert_eq!(current_request(), None);
        let [a, b] = ["A", "B"].map(HeaderValue::from_static);
        let one = with_request(a.clone(), async {
            tokio::task::yield_now().await;
            current_request()
        });
        let other = with_request(b.clone(), async { current_request() });
        let (one, other) = tokio::join!(one, other);
        assert_eq!((one, other), (Some(a.clone()), Some(b)));
        assert_eq!(in_request(&a, current_request), Some(a));
        assert_eq!(current_request(), None);
    }
}

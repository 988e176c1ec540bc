//! Request ids: the id of a client's request is sent with every internal request made for it, so
//! that the log lines of all nodes can be matched.
//!
//! ```text
//! x-martlet-request: 8D3A66E1B4A0F2C7
//! ```
//!
//! The id is task-local: all calls made while a future of [`with_request`] is polled carry the id.
//! Spawned tasks don't inherit the id.

use http::{HeaderName, HeaderValue};

/// Header with the id of the client's request that an internal request is made for.
pub const REQUEST: HeaderName = HeaderName::from_static("x-martlet-request");

/// Header that marks background work, which yields to client requests.
pub(super) const BACKGROUND: HeaderName = HeaderName::from_static("x-martlet-background");

tokio::task_local! {
    static CURRENT: HeaderValue;
}

/// Wraps a future so that its internal requests carry `id`.
pub fn with_request<F: Future>(id: HeaderValue, future: F) -> impl Future<Output = F::Output> {
    CURRENT.scope(id, future)
}

/// Runs `work` so that its internal requests carry `id`.
pub fn in_request<T>(id: &HeaderValue, work: impl FnOnce() -> T) -> T {
    CURRENT.sync_scope(id.clone(), work)
}

/// Returns the id of the client's request that this task works for.
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

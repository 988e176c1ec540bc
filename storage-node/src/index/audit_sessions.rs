//! Audits that continue over many calls: a thread for each, which keeps its snapshot while it
//! waits.
//!
//! ```text
//! call ── after ──▶ the session at this position, or a new one ── its thread reads ──▶ a page
//!                     └ kept for the next call while its position is in the middle of a run
//! ```
//!
//! A caller that gives up leaves its page with the session, ready or not. The next call from that
//! position receives the page. A call never joins a session whose page another call awaits. A
//! thread ends after five minutes without a call, or when its index is closed.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use martlet_protocol::tree::BinKey;
use martlet_protocol::{Error, Result};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::audit_page::{AuditFindings, is_within};

/// Maximum number of sessions of an index: one for each auditor. One auditor is expected.
const SESSIONS_MAX: usize = 4;
/// Time for which a thread waits for the next call.
const IDLE_MAX: Duration = Duration::from_mins(5);

type PageSender<T> = oneshot::Sender<Result<T>>;
type PageReceiver = oneshot::Receiver<Result<AuditFindings>>;

/// Calls that a thread answers; one of them waits.
#[derive(Debug)]
pub(super) struct WaitingCalls<T> {
    waiting: PageSender<T>,
    more: Receiver<PageSender<T>>,
}

impl<T> WaitingCalls<T> {
    /// Sends a page to the waiting call. Returns the later calls, or none once the session has
    /// ended.
    pub(super) fn send(self, page: Result<T>) -> Option<FutureCalls<T>> {
        self.waiting.send(page).ok()?;
        Some(FutureCalls(self.more))
    }

    /// Waits for the next call; none if no call comes within [`IDLE_MAX`].
    pub(super) fn next(later: FutureCalls<T>) -> Option<Self> {
        let waiting = later.0.recv_timeout(IDLE_MAX).ok()?;
        Some(Self { waiting, more: later.0 })
    }
}

/// Calls that are still to come.
#[derive(Debug)]
pub(super) struct FutureCalls<T>(Receiver<PageSender<T>>);

/// An audit that may continue.
struct AuditSession {
    /// Number of the session in its index.
    number: u64,
    /// Position from which its next call continues.
    at: Option<BinKey>,
    /// Number of repairs of sums at the time of its snapshot.
    mended: u64,
    calls: Sender<PageSender<AuditFindings>>,
    page: PageState,
}

/// Progress of a session's current page.
enum PageState {
    /// No call has requested the page.
    Unrequested,
    /// A call waits for the page.
    Awaited,
    /// A caller gave up. The next call from the session's position receives the page.
    Left(PageReceiver),
}

/// The sessions of an index.
#[derive(Default)]
pub(super) struct AuditSessions(Mutex<SessionTable>);

#[derive(Default)]
struct SessionTable {
    sessions: Vec<AuditSession>,
    begun: u64,
    mended: u64,
}

/// A call that waits for a page of a session. Dropped earlier, it leaves the page with the session.
struct AuditCall<'a> {
    sessions: &'a AuditSessions,
    number: u64,
    mended: u64,
    page: Option<PageReceiver>,
}

impl AuditCall<'_> {
    async fn page(&mut self) -> Result<AuditFindings> {
        let page = match &mut self.page {
            Some(page) => page.await,
            None => return Err(Error::unavailable("the audit was abandoned")),
        };
        self.page = None;
        page.unwrap_or_else(|_| Err(Error::unavailable("the audit was abandoned")))
    }
}

impl Drop for AuditCall<'_> {
    fn drop(&mut self) {
        let Some(page) = self.page.take() else { return };
        let mut kept = self.sessions.0.lock();
        if let Some(session) = kept.numbered(self.number) {
            session.page = PageState::Left(page);
        }
    }
}

impl SessionTable {
    fn numbered(&mut self, number: u64) -> Option<&mut AuditSession> {
        self.sessions.iter_mut().find(|session| session.number == number)
    }

    /// Requests a page from the session at `after`, unless another call waits for its page.
    fn resume(&mut self, after: Option<BinKey>) -> Option<(u64, u64, PageReceiver)> {
        let free = |it: &AuditSession| it.at == after && !matches!(it.page, PageState::Awaited);
        while let Some(at) = self.sessions.iter().position(free) {
            let session = &mut self.sessions[at];
            let page = match std::mem::replace(&mut session.page, PageState::Awaited) {
                PageState::Left(page) => page,
                PageState::Unrequested | PageState::Awaited => {
                    let (answer, page) = oneshot::channel();
                    if session.calls.send(answer).is_err() {
                        // Its thread has ended.
                        self.sessions.remove(at);
                        continue;
                    }
                    page
                }
            };
            return Some((session.number, session.mended, page));
        }
        None
    }
}

impl AuditSessions {
    /// Requests a page from the session at `after`, or from a new one that `begin` starts a thread
    /// for.
    pub(super) async fn page(
        &self,
        after: Option<BinKey>,
        begin: impl Fn(WaitingCalls<AuditFindings>) -> Result<()>,
    ) -> Result<AuditFindings> {
        let mut call = self.request_page(after, begin)?;
        let page = call.page().await;
        let mut found = self.store_session(call.number, page)?;
        if !found.mends.is_empty() && !self.may_mend(&call) {
            // Another audit repaired these sums: a second repair would corrupt them.
            found.mends.clear();
            found.audited.corrupt.clear();
        }
        Ok(found)
    }

    fn request_page(
        &self,
        after: Option<BinKey>,
        begin: impl Fn(WaitingCalls<AuditFindings>) -> Result<()>,
    ) -> Result<AuditCall<'_>> {
        let mut kept = self.0.lock();
        if let Some((number, mended, page)) = kept.resume(after) {
            return Ok(AuditCall { sessions: self, number, mended, page: Some(page) });
        }
        let (waiting, page) = oneshot::channel();
        let (calls, more) = channel();
        begin(WaitingCalls { waiting, more })?;
        kept.begun += 1;
        let (number, mended) = (kept.begun, kept.mended);
        if kept.sessions.len() >= SESSIONS_MAX {
            kept.sessions.remove(0);
        }
        kept.sessions.push(AuditSession {
            number,
            at: after,
            mended,
            calls,
            page: PageState::Awaited,
        });
        Ok(AuditCall { sessions: self, number, mended, page: Some(page) })
    }

    /// Keeps a session at the end of its page, or removes a session that has ended.
    fn store_session(&self, number: u64, page: Result<AuditFindings>) -> Result<AuditFindings> {
        let next = page.as_ref().ok().and_then(|found| found.audited.next);
        let mut kept = self.0.lock();
        if is_within(next) {
            if let Some(session) = kept.numbered(number) {
                session.at = next;
                session.page = PageState::Unrequested;
            }
        } else {
            kept.sessions.retain(|session| session.number != number);
        }
        page
    }

    /// Returns true if no other session repaired sums since this call's snapshot. All other
    /// sessions are outdated from now on.
    fn may_mend(&self, call: &AuditCall<'_>) -> bool {
        let mut kept = self.0.lock();
        if kept.mended != call.mended {
            return false;
        }
        kept.mended += 1;
        let mended = kept.mended;
        // The session's later findings concern other runs.
        if let Some(session) = kept.numbered(call.number) {
            session.mended = mended;
        }
        true
    }
}

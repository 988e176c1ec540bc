//! Multipart uploads of a client: parts are sent again, and a Complete is repeated, also twice at a
//! time, until there is a reply (rule M1).

use std::time::Duration;

use futures::future::join;
use martlet_protocol::{AchievedLevel, UploadId};
use martlet_proxy::{CompleteUpload, Error, NamedPart, NewUpload, Result, WrittenObject};
use martlet_tests::checkers::{Invocation, Response, Value};
use tokio::time::sleep;

use super::client::{BUCKET, ProxyRoute, SimulatedClient, attributes};
use super::payload;

/// Maximum number of times that a client sends a request.
const ATTEMPTS: usize = 4;
/// Bytes of a part.
const PART_BYTES: usize = 9000;

/// An upload with all its parts.
struct SentUpload {
    upload: UploadId,
    parts: Vec<NamedPart>,
    are_firm: bool,
}

/// Outcomes of the attempts to complete an upload.
#[derive(Default)]
struct PartAnswers {
    /// True if a quorum acknowledged every part; other parts may not be visible yet (rule A1).
    parts_are_firm: bool,
    written: Option<(ProxyRoute, WrittenObject)>,
    refused: usize,
    /// Attempts without a reply, or with an ambiguous one.
    open: usize,
}

impl SimulatedClient {
    pub(crate) async fn upload(&self, key: String) {
        let value = self.record.value();
        let call = if self.chance.per_mille(250) {
            Invocation::Create(value)
        } else {
            Invocation::Put(value)
        };
        let Some(sent) = self.send_parts(&key, value).await else { return };
        let SentUpload { upload, parts, are_firm } = sent;
        let mut complete = CompleteUpload { parts, ..CompleteUpload::default() };
        if matches!(call, Invocation::Create(_)) {
            complete.conditions.if_none_match = Some(martlet_proxy::ETagCondition::Any);
        }
        let begun = self.begin(&key, &call);
        let mut answers = PartAnswers { parts_are_firm: are_firm, ..PartAnswers::default() };
        for _ in 0..ATTEMPTS {
            Box::pin(self.complete(&key, upload, &complete, &call, &mut answers)).await;
            if answers.written.is_some() || answers.refused > 0 {
                break;
            }
            sleep(Duration::from_millis(self.chance.below(1000))).await;
        }
        let only_refused = answers.refused > 0 && answers.open == 0;
        let (outcome, given) = match answers.written {
            Some((route, written)) => {
                self.record.tag(value, written.object.etag.to_string());
                self.record.versions.written(&key, value, &written);
                self.note_token(&route, &key, written.stamp);
                (Response::Done, self.given(&route))
            }
            None if only_refused => (Response::Refused, AchievedLevel::Quorum),
            None => (self.give_up(&key, upload).await, AchievedLevel::Quorum),
        };
        let returned_at = self.moment();
        self.record.operation(begun.end(returned_at, outcome, given));
    }

    /// Begins an upload and sends its parts; `None` if a request failed too often.
    async fn send_parts(&self, key: &str, value: Value) -> Option<SentUpload> {
        let route = self.route(None);
        let new = NewUpload { attributes: attributes(value), checksum: None };
        let begun = self.wait(&route, route.session.uploads().create(BUCKET, key, new)).await;
        let upload = begun?.ok()?.id;
        let count = 1 + self.chance.index(3);
        let body = payload::bytes(value, count * PART_BYTES - self.chance.index(100));
        let (mut parts, mut are_firm) = (Vec::new(), true);
        for (number, bytes) in (1..).zip(body.chunks(PART_BYTES)) {
            let bytes = body.slice_ref(bytes);
            let mut etag = None;
            for _ in 0..ATTEMPTS {
                let route = self.route(None);
                let body = payload::incoming(bytes.clone());
                let sent = route.session.uploads().put_part(BUCKET, key, upload, number, body);
                etag = self.wait(&route, sent).await.and_then(Result::ok).map(|part| part.etag);
                if etag.is_some() {
                    are_firm &= self.given(&route) == AchievedLevel::Quorum;
                    break;
                }
            }
            parts.push(NamedPart { number, etag: etag?.to_string(), checksums: Vec::new() });
        }
        Some(SentUpload { upload, parts, are_firm })
    }

    /// Sends one Complete, or two that race through different proxies.
    async fn complete(
        &self,
        key: &str,
        upload: UploadId,
        complete: &CompleteUpload,
        call: &Invocation,
        answers: &mut PartAnswers,
    ) {
        let once = |wait_ms| async move {
            sleep(Duration::from_millis(wait_ms)).await;
            let route = self.route(None);
            let sent = route.session.uploads().complete(BUCKET, key, upload, complete.clone());
            let answer = self.wait(&route, sent).await;
            (route, answer)
        };
        let twice = self.chance.per_mille(300);
        let all = if twice {
            let (one, other) = join(Box::pin(once(0)), Box::pin(once(self.chance.below(50)))).await;
            vec![one, other]
        } else {
            vec![once(0).await]
        };
        for (route, answer) in all {
            match answer {
                Some(Ok(written)) => answers.written = Some((route, written)),
                // The upload ended in another way, or the outcome is unknown.
                Some(Err(Error::NoSuchUpload)) | None => answers.open += 1,
                Some(Err(Error::InvalidPart(_)))
                    if !answers.parts_are_firm || self.given(&route) != AchievedLevel::Quorum =>
                {
                    answers.open += 1;
                }
                Some(Err(error)) => match self.record.failure(&error, call) {
                    Response::Refused => answers.refused += 1,
                    _ => answers.open += 1,
                },
            }
        }
    }

    /// Aborts an upload whose Complete was never answered. An acknowledged abort means that it
    /// never completes.
    async fn give_up(&self, key: &str, upload: UploadId) -> Response {
        let route = self.route(None);
        match self.wait(&route, route.session.uploads().abort(BUCKET, key, upload)).await {
            Some(Ok(())) => Response::Failed,
            _ => Response::Unknown,
        }
    }
}

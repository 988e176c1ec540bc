//! Admin API of event targets: backlog, and parked messages of the process's lanes.
//!
//! The files are those that operators may also rename by hand: `refused.jsonl` of a lane has its parked
//! messages, and lines of `again.jsonl` are taken up by the lane within seconds. Deliveries open
//! `refused.jsonl` for each message, so that it can be renamed at any time.
//!
//! Invariants:
//! * A path is made of the name of a known target and of a checked lane.
//! * No message is dropped: released ones stay in a file until the lane has taken them up.
//! * Each request reads a bounded part of one file, and one folder with a bounded number of lanes.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use martlet_admin_api::accounts::ListPage;
use martlet_admin_api::events::{
    EVENTS, EventTargetLine, MESSAGE_BYTES_MAX, PAGE_BYTES_MAX, PAGE_MAX, PARKED, PARKED_RETRY,
    ParkedLane, ParkedMessage, ParkedPage, ParkedQuery, ParkedReply, ParkedRequest,
};
use martlet_notifications::{ObserverSource, TargetFigures};
use martlet_serving::access::RouteAccess;
use martlet_serving::api::{ApiDoc, ApiRoutes};
use martlet_serving::operator::refuse;
use parking_lot::Mutex;

/// Folder of the targets in the data folder.
const FOLDER: &str = "events";
/// Folder of tenants' lanes in the folder of a target.
const TENANTS: &str = "tenants";
/// Lane of tenants beyond the first ones.
const OTHERS: &str = "others";
/// Lane of the root identity.
const ROOT: &str = "root";
/// Maximum length of a tenant's lane.
const LANE_CHARS_MAX: usize = 64;
/// Maximum number of lanes of a target that a reply shows.
const LANES_MAX: usize = 64;
/// Parked messages of a lane.
const REFUSED: &str = "refused.jsonl";
/// Messages that the lane takes up again.
const AGAIN: &str = "again.jsonl";

/// Refusal, with its HTTP status and its sentence.
#[derive(Debug, PartialEq)]
struct Refusal(StatusCode, String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        refuse(self.0, &self.1)
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        let sentence = format!("the file of parked messages can't be used: {error}");
        Self(StatusCode::SERVICE_UNAVAILABLE, sentence)
    }
}

/// Targets of a process and their folder.
#[derive(Clone)]
struct EventsApi {
    figures: ObserverSource,
    folder: Arc<Path>,
    /// Held while a file is renamed.
    renaming: Arc<Mutex<()>>,
}

/// Routes of event targets. `data_dir` is the data folder of the process.
pub(crate) fn routes(figures: ObserverSource, data_dir: &Path) -> ApiRoutes {
    let list = ApiDoc::reply::<ListPage<EventTargetLine>>(
        RouteAccess::Read,
        "List the event targets of this process, with backlog and parked messages",
    );
    // Messages have keys of all tenants' objects, requesters and their addresses, as records have.
    let show = ApiDoc::reply::<ParkedPage>(
        RouteAccess::Operate,
        "Show the messages that a target refused, in pages",
    );
    let retry = ApiDoc::reply::<ParkedReply>(
        RouteAccess::Operate,
        "Send the parked messages of a lane again",
    );
    ApiRoutes::new()
        .get(EVENTS, list, targets)
        .get(PARKED, show.query::<ParkedQuery>(), parked)
        .post(PARKED_RETRY, retry.body::<ParkedRequest>(), self::retry)
        .with_state(EventsApi {
            figures,
            folder: data_dir.join(FOLDER).into(),
            renaming: Arc::default(),
        })
}

async fn targets(State(api): State<EventsApi>) -> Result<Response, Refusal> {
    let items = off_thread(move || api.lines()).await?;
    Ok(Json(ListPage { items, next: None }).into_response())
}

async fn parked(
    State(api): State<EventsApi>,
    Query(query): Query<ParkedQuery>,
) -> Result<Response, Refusal> {
    let page =
        off_thread(move || page(&api.lane(&query.target, &query.lane)?, query.after)).await?;
    Ok(Json(page).into_response())
}

async fn retry(State(api): State<EventsApi>, body: Bytes) -> Result<Response, Refusal> {
    let request: ParkedRequest = serde_json::from_slice(&body).map_err(|error| {
        let sentence = format!("the request is malformed at column {}", error.column());
        Refusal(StatusCode::BAD_REQUEST, sentence)
    })?;
    let released = off_thread(move || api.release(request)).await?;
    Ok(Json(released).into_response())
}

/// Runs work with files on a thread that may block.
async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| {
        let sentence = "the request failed: see the log of the process";
        Err(Refusal(StatusCode::INTERNAL_SERVER_ERROR, sentence.to_owned()))
    })
}

impl EventsApi {
    fn lines(&self) -> Result<Vec<EventTargetLine>, Refusal> {
        let figures = (self.figures)().targets;
        figures.into_iter().map(|figures| self.line(figures)).collect()
    }

    fn line(&self, figures: TargetFigures) -> Result<EventTargetLine, Refusal> {
        let TargetFigures {
            name, taken, delivered, lost, failures, waiting_bytes, refused, ..
        } = figures;
        let parked = self.parked_lanes(&name)?;
        Ok(EventTargetLine {
            target: name,
            taken,
            delivered,
            lost,
            failures,
            waiting_bytes,
            refused,
            parked,
        })
    }

    /// Returns the lanes of a target with parked messages, at most [`LANES_MAX`].
    fn parked_lanes(&self, target: &str) -> Result<Vec<ParkedLane>, Refusal> {
        // Rules of buckets may name any text as a target that doesn't exist.
        if !is_plain(target) {
            return Ok(Vec::new());
        }
        let mut lanes = vec![ROOT.to_owned(), OTHERS.to_owned()];
        match fs::read_dir(self.folder.join(target).join(TENANTS)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            entries => {
                let names = entries?.take(LANES_MAX).map(|entry| Ok(entry?.file_name()));
                let names: Vec<_> = names.collect::<io::Result<_>>()?;
                lanes.extend(names.into_iter().filter_map(|name| name.into_string().ok()));
            }
        }
        let with_sizes = lanes.into_iter().filter(|lane| is_plain(lane)).map(|lane| {
            let place = self.place(target, &lane);
            let [path, again] = [REFUSED, AGAIN].map(|name| place.join(name));
            let (bytes, again_bytes) = (length(&path)?, length(&again)?);
            Ok(ParkedLane { lane, bytes, again_bytes, path: path.display().to_string() })
        });
        let lanes: Vec<ParkedLane> = with_sizes.collect::<io::Result<_>>()?;
        Ok(lanes.into_iter().filter(|lane| lane.bytes + lane.again_bytes > 0).collect())
    }

    fn place(&self, target: &str, lane: &str) -> PathBuf {
        let folder = self.folder.join(target);
        match lane {
            ROOT => folder,
            OTHERS => folder.join(OTHERS),
            tenant => folder.join(TENANTS).join(tenant),
        }
    }

    /// Returns the folder of a lane that a request names.
    fn lane(&self, target: &str, lane: &str) -> Result<PathBuf, Refusal> {
        let is_known = (self.figures)().targets.iter().any(|figures| figures.name == target);
        if !is_known || !is_plain(target) {
            let sentence = format!("this process has no event target {target:?}");
            return Err(Refusal(StatusCode::NOT_FOUND, sentence));
        }
        let place = self.place(target, lane);
        if !is_plain(lane) || !place.is_dir() {
            let sentence = format!("the target {target} has no lane {lane:?}");
            return Err(Refusal(StatusCode::NOT_FOUND, sentence));
        }
        Ok(place)
    }

    /// Lets the lane take up the parked messages that the request saw.
    fn release(&self, request: ParkedRequest) -> Result<ParkedReply, Refusal> {
        let ParkedRequest { target, lane, bytes: seen } = request;
        let place = self.lane(&target, &lane)?;
        let _alone = self.renaming.lock();
        let conflict = |sentence: String| Refusal(StatusCode::CONFLICT, sentence);
        let bytes = length(&place.join(REFUSED))?;
        if bytes != seen {
            return Err(conflict(format!(
                "{bytes} bytes are parked now, and the request is about {seen}: look at the \
                 messages again"
            )));
        }
        if bytes == 0 {
            return Err(conflict("no message is parked".to_owned()));
        }
        if place.join(AGAIN).exists() {
            return Err(conflict(
                "messages that were released before still wait for room: try again later"
                    .to_owned(),
            ));
        }
        fs::rename(place.join(REFUSED), place.join(AGAIN))?;
        File::open(&place)?.sync_all()?;
        Ok(ParkedReply { target, lane, bytes })
    }
}

/// Returns true if a text can name a folder of a target or lane.
fn is_plain(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    (1..=LANE_CHARS_MAX).contains(&name.len()) && name.chars().all(is_plain)
}

fn length(path: &Path) -> io::Result<u64> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        about => Ok(about?.len()),
    }
}

/// Reads a page of parked messages.
fn page(place: &Path, after: u64) -> Result<ParkedPage, Refusal> {
    let mut file = match File::open(place.join(REFUSED)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(ParkedPage::default()),
        file => file?,
    };
    let bytes = file.metadata()?.len();
    file.seek(SeekFrom::Start(after))?;
    let mut text = Vec::new();
    file.take(PAGE_BYTES_MAX).read_to_end(&mut text)?;
    let (mut items, mut at) = (Vec::new(), 0);
    while at < text.len() && items.len() < PAGE_MAX {
        let rest = &text[at..];
        let end = rest.iter().position(|byte| *byte == b'\n');
        let line = &rest[..end.unwrap_or(rest.len())];
        // A line that the page cuts begins the next page, unless it is longer than a page.
        if end.is_none() && at > 0 && after + text.len() as u64 != bytes {
            break;
        }
        if !line.is_empty() {
            let shown = String::from_utf8_lossy(&line[..line.len().min(MESSAGE_BYTES_MAX)]);
            let (offset, length) = (after + at as u64, line.len() as u64);
            items.push(ParkedMessage { offset, length, text: shown.into_owned() });
        }
        at += line.len() + usize::from(end.is_some());
    }
    let next = after + at as u64;
    Ok(ParkedPage { items, bytes, next: (next < bytes).then_some(next) })
}

#[cfg(test)]
mod tests {
    use martlet_notifications::ObserverFigures;

    use super::*;

    fn api(folder: &Path) -> EventsApi {
        let target = TargetFigures { name: "hook".into(), ..TargetFigures::default() };
        let figures = ObserverFigures { targets: vec![target], ..ObserverFigures::default() };
        let figures: ObserverSource = Arc::new(move || figures.clone());
        EventsApi { figures, folder: folder.into(), renaming: Arc::default() }
    }

    fn request(lane: &str, bytes: u64) -> ParkedRequest {
        ParkedRequest { target: "hook".into(), lane: lane.into(), bytes }
    }

    #[test]
    fn parked_messages_are_released_as_they_were_seen() {
        let folder = tempfile::tempdir().unwrap();
        let api = api(folder.path());
        let place = folder.path().join("hook/tenants/t1");
        fs::create_dir_all(&place).unwrap();
        let read = |name: &str| fs::read_to_string(place.join(name)).unwrap_or_default();
        fs::write(place.join(REFUSED), "{}\n[1]\n").unwrap();
        let lanes = api.parked_lanes("hook").unwrap();
        assert_eq!((lanes.len(), &*lanes[0].lane, lanes[0].bytes), (1, "t1", 7));
        let Refusal(status, sentence) = api.release(request("t1", 3)).unwrap_err();
        assert_eq!(status, StatusCode::CONFLICT);
        assert!(sentence.starts_with("7 bytes are parked now"), "{sentence}");
        assert_eq!(api.release(request("t1", 7)).unwrap().bytes, 7);
        assert_eq!((read(REFUSED).as_str(), read(AGAIN).as_str()), ("", "{}\n[1]\n"));
        fs::write(place.join(REFUSED), "{}\n").unwrap();
        let Refusal(_, sentence) = api.release(request("t1", 3)).unwrap_err();
        assert!(sentence.contains("still wait for room"), "{sentence}");
        assert_eq!((read(REFUSED).as_str(), read(AGAIN).as_str()), ("{}\n", "{}\n[1]\n"));
        fs::remove_file(place.join(AGAIN)).unwrap();
        fs::remove_file(place.join(REFUSED)).unwrap();
        let Refusal(_, sentence) = api.release(request("t1", 0)).unwrap_err();
        assert!(sentence.contains("no message is parked"), "{sentence}");
    }

    #[test]
    fn names_of_requests_leave_the_folder_of_events_never() {
        let folder = tempfile::tempdir().unwrap();
        let events = folder.path().join("events");
        fs::create_dir_all(events.join("hook/tenants")).unwrap();
        fs::create_dir_all(events.join("other")).unwrap();
        let api = api(&events);
        assert!(api.lane("hook", ROOT).is_ok());
        for (target, lane) in [
            ("hook", ".."),
            ("hook", "../../other"),
            ("hook", ""),
            ("hook", "absent"),
            ("other", ROOT),
            ("..", ROOT),
            ("", ROOT),
        ] {
            let Refusal(status, _) = api.lane(target, lane).unwrap_err();
            assert_eq!(status, StatusCode::NOT_FOUND, "{target} {lane}");
        }
        assert!(api.parked_lanes("../x").unwrap().is_empty());
    }

    #[test]
    fn pages_have_each_message_once() {
        let folder = tempfile::tempdir().unwrap();
        let long = usize::try_from(PAGE_BYTES_MAX).unwrap() - 10;
        let messages: Vec<String> = (0..120)
            .map(|at| format!("{{\"at\":{at}}}"))
            .chain(["x".repeat(long), "y".repeat(long + 20), "z".into()])
            .collect();
        let text = messages.join("\n") + "\n";
        fs::write(folder.path().join(REFUSED), &text).unwrap();
        let (mut seen, mut after, mut pages) = (Vec::new(), 0, 0);
        loop {
            let page = page(folder.path(), after).unwrap();
            assert!(page.items.len() <= PAGE_MAX && page.bytes == text.len() as u64);
            seen.extend(page.items);
            pages += 1;
            let Some(next) = page.next else { break };
            assert!(next > after);
            after = next;
        }
        // The line beyond a page's bytes is shown in two parts.
        let shown: Vec<u64> = seen.iter().map(|message| message.length).collect();
        assert_eq!(shown.iter().sum::<u64>(), (text.len() - messages.len()) as u64);
        assert_eq!(seen.len(), messages.len() + 1);
        assert!(seen.iter().all(|message| message.text.len() <= MESSAGE_BYTES_MAX));
        assert!(pages >= 5, "{pages}");
        assert_eq!(page(&folder.path().join("absent"), 0).unwrap(), ParkedPage::default());
    }
}

//! End-to-end tests of targets: offered messages arrive in order, through all failures.

use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::*;

/// Timeout for conditions, ample for a busy machine.
const PATIENCE: Duration = Duration::from_secs(40);

struct EventsFixture {
    events: Events,
    tasks: JoinSet<()>,
    stop: watch::Sender<bool>,
    _folder: DataFolder,
}

impl EventsFixture {
    fn start(place: &Path, settings: &str, room: u64) -> Self {
        let settings = EventSettings {
            notifications: toml::from_str(settings).unwrap(),
            notification_spool: Size(room),
            max_notification_attempts: 3,
            max_notification_refusals: 2,
        };
        let folder = DataFolder::open(place).unwrap();
        let mut tasks = JoinSet::new();
        let (stop, stopped) = watch::channel(false);
        let events = {
            let mut running = TaskSet { tasks: &mut tasks, stopped: &stopped };
            Events::open(&settings, &folder, &mut running).unwrap()
        };
        Self { events, tasks, stop, _folder: folder }
    }

    async fn stop(mut self) {
        self.stop.send_replace(true);
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        tokio::time::timeout(PATIENCE, ended).await.expect("the tasks end when they are told to");
    }

    fn offer(&self, texts: &[&str]) {
        self.offer_of("root", texts);
    }

    fn offer_of(&self, owner: &str, texts: &[&str]) {
        for text in texts {
            self.events.offer("t", owner, Bytes::copy_from_slice(text.as_bytes()));
        }
    }
}

async fn until(mut is_so: impl FnMut() -> bool) {
    let wait = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("it should have come to this by now");
}

#[tokio::test]
async fn a_file_has_every_message_once_across_restarts() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("queue");
    let settings = format!("[t]\nqueue_file = '{}'", path.display());
    let read = || std::fs::read_to_string(&path).unwrap_or_default();
    let running = EventsFixture::start(&place.path().join("data"), &settings, 1 << 20);
    assert!(running.events.admits("t", "root") && !running.events.admits("u", "root"));
    running.offer(&["1", "2"]);
    until(|| read() == "1\n2\n").await;
    running.offer(&["3"]);
    running.stop().await;
    let running = EventsFixture::start(&place.path().join("data"), &settings, 1 << 20);
    running.offer(&["4"]);
    until(|| read().ends_with("4\n")).await;
    assert_eq!(read().lines().filter(|line| *line == "3").count(), 1);
    until(|| running.events.figures()[0].waiting_bytes == 0).await;
    assert_eq!(running.events.figures()[0].lost, 0);
    running.stop().await;
}

/// Answers each request with the next of these statuses. Returns the bodies.
async fn answer(listener: TcpListener, statuses: &[u16]) -> Vec<String> {
    let mut bodies = Vec::new();
    for status in statuses {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        let body = loop {
            let mut piece = [0; 1024];
            let count = stream.read(&mut piece).await.unwrap();
            request.extend_from_slice(&piece[..count]);
            let text = String::from_utf8_lossy(&request).into_owned();
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            assert!(head.starts_with("POST /hook HTTP/1.1\r\n"), "{head}");
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() == length.unwrap().parse::<usize>().unwrap() {
                break body.to_owned();
            }
        };
        bodies.push(body);
        let reply =
            format!("HTTP/1.1 {status} x\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
        stream.write_all(reply.as_bytes()).await.unwrap();
    }
    bodies
}

#[tokio::test]
async fn a_webhook_gets_a_message_until_it_acknowledges() {
    let place = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let settings = format!("[t]\nwebhook = 'http://{}/hook'", listener.local_addr().unwrap());
    let running = EventsFixture::start(place.path(), &settings, 1 << 20);
    running.offer(&["first", "second"]);
    let bodies = tokio::time::timeout(PATIENCE, answer(listener, &[500, 307, 200, 204])).await;
    assert_eq!(bodies.unwrap(), ["first", "first", "first", "second"]);
    until(|| running.events.figures()[0].delivered == 2).await;
    assert_eq!(running.events.figures()[0].failures, 2);
    running.stop().await;
}

#[tokio::test]
async fn undeliverable_messages_are_kept_up_to_the_spools_bound() {
    let place = tempfile::tempdir().unwrap();
    let port = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    };
    let settings = format!("[t]\nwebhook = 'http://{port}/hook'");
    let running = EventsFixture::start(place.path(), &settings, 100);
    for _ in 0..20 {
        running.offer(&["0123456789"]);
    }
    until(|| running.events.figures()[0].lost == 15).await;
    until(|| running.events.figures()[0].waiting_bytes == 100).await;
    until(|| running.events.figures()[0].failures > 3).await;
    assert_eq!(running.events.figures()[0].refused, 0, "nothing was sent to anybody");
    running.stop().await;
    let listener = TcpListener::bind(port).await.unwrap();
    let running = EventsFixture::start(place.path(), &settings, 100);
    let bodies = tokio::time::timeout(PATIENCE, answer(listener, &[200; 5])).await.unwrap();
    assert_eq!(bodies, ["0123456789"; 5]);
    running.stop().await;
}

/// A failed save of the position is no failed delivery: nothing pauses, and the save is repeated.
#[tokio::test]
async fn messages_are_delivered_once_while_their_position_cannot_be_saved() {
    let place = tempfile::tempdir().unwrap();
    let (path, data) = (place.path().join("queue"), place.path().join("data"));
    let settings = format!("[t]\nqueue_file = '{}'", path.display());
    let read = || std::fs::read_to_string(&path).unwrap_or_default();
    let spool = data.join("events/t");
    std::fs::create_dir_all(spool.join("position.new")).unwrap();
    let running = EventsFixture::start(&data, &settings, 1 << 20);
    let mut expected = String::new();
    for number in 0..20 {
        running.offer(&[&number.to_string()]);
        expected.push_str(&number.to_string());
        expected.push('\n');
        until(|| read() == expected).await;
    }
    let figures = running.events.figures().remove(0);
    assert_eq!((figures.delivered, figures.failures, figures.waiting_bytes), (20, 0, 0));
    assert!(!spool.join("position").exists());
    std::fs::remove_dir(spool.join("position.new")).unwrap();
    // No message comes, and the position is saved all the same.
    until(|| spool.join("position").exists()).await;
    running.stop().await;
    let running = EventsFixture::start(&data, &settings, 1 << 20);
    running.offer(&["20"]);
    expected.push_str("20\n");
    until(|| read() == expected).await;
    running.stop().await;
}

#[tokio::test]
async fn a_tenant_that_floods_a_target_drives_out_its_own_messages_alone() {
    let place = tempfile::tempdir().unwrap();
    let port = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    };
    let settings = format!("[t]\nwebhook = 'http://{port}/hook'\ntenants = ['*']");
    let start = || EventsFixture::start(place.path(), &settings, 100);
    let running = start();
    for _ in 0..20 {
        running.offer_of("a", &["0123456789"]);
    }
    until(|| running.events.figures()[0].lost == 15).await;
    running.offer_of("b", &["a message of b"]);
    running.offer_of("root", &["one of root's"]);
    until(|| running.events.figures()[0].waiting_bytes == 100 + 24 + 23).await;
    assert_eq!(running.events.figures()[0].lost, 15);
    running.stop().await;
    let listener = TcpListener::bind(port).await.unwrap();
    let running = start();
    let bodies = tokio::time::timeout(PATIENCE, answer(listener, &[200; 7])).await.unwrap();
    let count = |text: &str| bodies.iter().filter(|body| *body == text).count();
    let counts = [count("0123456789"), count("a message of b"), count("one of root's")];
    assert_eq!(counts, [5, 1, 1]);
    until(|| running.events.figures()[0].waiting_bytes == 0).await;
    running.stop().await;
    let tenants = place.path().join(FOLDER).join("t/tenants");
    assert!(tenants.join("a").exists());
    start().stop().await;
    assert!(!tenants.join("a").exists(), "what is empty makes place");
}

#[tokio::test]
async fn tenants_beyond_a_bound_share_a_lane() {
    let place = tempfile::tempdir().unwrap();
    let file = |name: &str| place.path().join(name);
    let settings = format!("[t]\nqueue_file = '{}'\ntenants = ['*']", file("q").display());
    let running = EventsFixture::start(&file("data"), &settings, 1 << 20);
    let bound = lane_owner::TENANTS_MAX;
    for at in 0..bound + 3 {
        running.offer_of(&format!("tenant{at}"), &[&at.to_string()]);
    }
    running.offer(&["root's"]);
    until(|| running.events.figures()[0].delivered == bound as u64 + 4).await;
    let read = |name: &str| std::fs::read_to_string(file(name)).unwrap();
    assert_eq!((read("q"), read("q-tenant0")), ("root's\n".to_owned(), "0\n".to_owned()));
    let others: Vec<String> = (bound..bound + 3).map(|at| format!("{at}\n")).collect();
    assert_eq!(read("q-others"), others.concat());
    let tenants = std::fs::read_dir(file("data").join(FOLDER).join("t/tenants")).unwrap();
    assert_eq!(tenants.count(), bound);
    running.stop().await;
}

#[tokio::test]
async fn an_unknown_target_is_counted_as_loss() {
    let place = tempfile::tempdir().unwrap();
    let running = EventsFixture::start(place.path(), "", 1 << 20);
    running.offer(&["1", "2"]);
    running.events.offer("u", "root", Bytes::from_static(b"3"));
    let lost: Vec<_> = running.events.figures().into_iter().map(|it| (it.name, it.lost)).collect();
    assert_eq!(lost, [("t".to_owned(), 2), ("u".to_owned(), 1)]);
    running.stop().await;
}

#[tokio::test]
async fn refused_messages_are_parked_and_resent_on_request() {
    let place = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap();
    let settings = format!("[t]\nwebhook = 'http://{port}/hook'");
    let running = EventsFixture::start(place.path(), &settings, 1 << 20);
    running.offer(&["1", "2", "3"]);
    let statuses = [400, 400, 500, 403, 429, 200];
    let bodies = tokio::time::timeout(PATIENCE, answer(listener, &statuses)).await.unwrap();
    assert_eq!(bodies, ["1", "1", "2", "2", "2", "3"]);
    until(|| running.events.figures()[0].delivered == 1).await;
    let TargetFigures { refused, refused_bytes, lost, failures, .. } =
        running.events.figures()[0].clone();
    assert_eq!((refused, refused_bytes, lost, failures), (2, 4, 0, 5));
    let spool = place.path().join(FOLDER).join("t");
    assert_eq!(std::fs::read_to_string(spool.join("refused.jsonl")).unwrap(), "1\n2\n");
    std::fs::rename(spool.join("refused.jsonl"), spool.join("again.jsonl")).unwrap();
    let listener = TcpListener::bind(port).await.unwrap();
    let bodies = tokio::time::timeout(PATIENCE, answer(listener, &[200, 200])).await.unwrap();
    assert_eq!(bodies, ["1", "2"]);
    until(|| running.events.figures()[0].delivered == 3).await;
    until(|| running.events.figures()[0].refused_bytes == 0).await;
    assert!(!spool.join("again.jsonl").exists());
    running.stop().await;
}

#[tokio::test]
async fn nothing_is_given_up_that_there_is_no_room_to_put_aside() {
    let place = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let settings = format!("[t]\nwebhook = 'http://{}/hook'", listener.local_addr().unwrap());
    // Twenty bytes in the spool, and eleven set aside.
    let running = EventsFixture::start(place.path(), &settings, 24);
    let refusing = tokio::spawn(async move { answer(listener, &[400; 1000]).await });
    let refused = || running.events.figures()[0].refused;
    for count in 1..=2 {
        running.offer(&["1234567890"]);
        until(|| refused() == count).await;
        until(|| running.events.figures()[0].waiting_bytes == 0).await;
    }
    running.offer(&["1234567890"]);
    until(|| running.events.figures()[0].failures > 6).await;
    assert_eq!((refused(), running.events.figures()[0].waiting_bytes), (2, 20));
    std::fs::remove_file(place.path().join(FOLDER).join("t/refused.jsonl")).unwrap();
    until(|| refused() == 3).await;
    assert_eq!(running.events.figures()[0].lost, 0);
    refusing.abort();
    running.stop().await;
}

/// Serves NATS until `count` messages have arrived. Returns them.
async fn serve_nats(listener: TcpListener, count: usize) -> Vec<String> {
    let mut messages = Vec::new();
    let (stream, _) = listener.accept().await.unwrap();
    let mut stream = tokio::io::BufReader::new(stream);
    stream.write_all(b"INFO {\"max_payload\":1048576}\r\n").await.unwrap();
    while messages.len() < count {
        let mut line = String::new();
        stream.read_line(&mut line).await.unwrap();
        if line.starts_with("PUB") {
            let mut message = String::new();
            stream.read_line(&mut message).await.unwrap();
            messages.push(message.trim_end().to_owned());
        } else if line.starts_with("PING") {
            stream.write_all(b"PONG\r\n").await.unwrap();
        }
    }
    let mut ping = String::new();
    stream.read_line(&mut ping).await.unwrap();
    stream.write_all(b"PONG\r\n").await.unwrap();
    messages
}

#[tokio::test]
async fn a_broker_that_returns_gets_the_waiting_messages() {
    let place = tempfile::tempdir().unwrap();
    let port = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    };
    let settings = format!("[t]\nbroker = 'nats://{port}/events'");
    let running = EventsFixture::start(place.path(), &settings, 1 << 20);
    running.offer(&["1", "2"]);
    // The limit is three attempts, and a broker that is away uses none of them.
    until(|| running.events.figures()[0].failures > 4).await;
    assert_eq!(running.events.figures()[0].refused, 0);
    running.stop().await;
    let running = EventsFixture::start(place.path(), &settings, 1 << 20);
    running.offer(&["3"]);
    let listener = TcpListener::bind(port).await.unwrap();
    let messages = tokio::time::timeout(PATIENCE, serve_nats(listener, 3)).await.unwrap();
    assert_eq!(messages, ["1", "2", "3"]);
    until(|| running.events.figures()[0].waiting_bytes == 0).await;
    running.stop().await;
}

//! Cluster of the tests: replies of its admin API, and the screen as text.

use martlet_admin_api::forecast::{Capacity, DeviceCapacity, RingSpread};
use martlet_admin_api::jobs::{JobLine, JobProgress};
use martlet_admin_api::{
    ChangeLine, DeviceLine, MemberLine, MovesLine, NodeLine, ProcessReport, ServerStatus,
    WorkerLine,
};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::Size;

use crate::metrics::Reading;
use crate::{Answer, Flow, Part, Reply, View, draw};

/// Sizes of terminals: narrow, usual and large.
pub(super) const SIZES: [Size; 3] = [
    Size { width: 40, height: 10 },
    Size { width: 80, height: 24 },
    Size { width: 200, height: 60 },
];
/// Name that would clear the screen, hide text and name another colour.
pub(super) const HOSTILE: &str = "n\u{1b}[2J\u{9b}31m\u{202e}\r\n";

/// Page of metrics after some seconds of 100 GETs and 3 failed PUTs each.
pub(super) fn page(seconds: u64) -> String {
    format!(
        "martlet_requests_total{{operation=\"GetObject\",status=\"200\"}} {}\n\
         martlet_requests_total{{operation=\"PutObject\",status=\"503\"}} {}\n\
         martlet_request_body_bytes_total {}\nmartlet_reply_body_bytes_total {}\n\
         martlet_request_first_byte_seconds_bucket{{le=\"0.005\"}} {}\n\
         martlet_request_first_byte_seconds_bucket{{le=\"+Inf\"}} {}\n",
        seconds * 100,
        seconds * 3,
        seconds << 20,
        seconds << 23,
        seconds * 100,
        seconds * 103,
    )
}

fn device(id: u32) -> DeviceLine {
    let (health, reason) = match id {
        3 => ("offline", Some(format!("it does not answer{HOSTILE}"))),
        _ => ("ready", None),
    };
    DeviceLine { device: id, health: health.into(), reason, ..DeviceLine::default() }
}

fn node(number: u32) -> NodeLine {
    let name = if number == 2 { HOSTILE.to_owned() } else { format!("n{number}") };
    let devices = vec![device(number * 2), device(number * 2 + 1)];
    let report = ProcessReport {
        ready: true,
        reasons: (number == 1).then(|| "device 3 is offline".to_owned()).into_iter().collect(),
        devices,
        ..ProcessReport::of(format!("storage node {name}"))
    };
    NodeLine {
        name,
        address: format!("10.0.0.{number}:6201"),
        heard_ms_ago: Some(if number == 4 { 95_000 } else { 400 }),
        clock_ahead_ms: Some(-7),
        report: (number != 4).then_some(report),
        ..NodeLine::default()
    }
}

/// Status of five nodes, of which one is silent, a proxy and a replicator.
pub(super) fn status() -> ServerStatus {
    let proxy = ProcessReport { ready: true, ..ProcessReport::of("proxy p1") };
    let worker = |name: &str, error: Option<&str>| WorkerLine {
        worker: name.into(),
        rate: 12.5,
        backlog: 300,
        ahead: 90,
        oldest_age_ms: 240_000,
        eta_s: Some(25),
        error: error.map(str::to_owned),
        ..WorkerLine::default()
    };
    let workers = vec![worker("update", None), worker("sweep", Some("n4 is silent\u{7}"))];
    let replicator = ProcessReport { ready: true, workers, ..ProcessReport::of("replicator r1") };
    let member = |report| MemberLine { heard_ms_ago: 900, sender: None, report };
    let change = ChangeLine { change: 4, phase: "joint".into(), receivers: 3, joined: 1 };
    ServerStatus {
        own: proxy.clone(),
        nodes: (1..=5).map(node).collect(),
        members: vec![member(proxy), member(replicator)],
        moves: vec![MovesLine {
            ring: "index".into(),
            epoch: 2,
            partitions: 4096,
            replicas: 12_288,
            partitions_moving: 7,
            replicas_moving: 7,
            change: Some(change),
        }],
        ..ServerStatus::default()
    }
}

/// Capacity of `count` devices, two of each node, fuller the higher their number.
pub(super) fn capacity(count: u32) -> Capacity {
    let device = |id: u32| {
        let fullness = 0.9 * f64::from(id % 100) / 100.0;
        DeviceCapacity {
            device: id,
            node: if id / 2 == 2 { HOSTILE.to_owned() } else { format!("n{}", id / 2) },
            name: format!("disk{}", id % 2),
            region: Some(1),
            zone: Some(id / 2 % 3),
            total_bytes: 100 << 30,
            used_bytes: u64::from(id % 100) << 30,
            bytes_in: 1 << 30,
            fullness,
            fullness_projected: fullness + 0.01,
            high_water: 0.9,
            ..DeviceCapacity::default()
        }
    };
    Capacity {
        devices: (0..count).map(device).collect(),
        replicas: 3,
        total_bytes: u64::from(count) * (100 << 30),
        used_bytes: u64::from(count) * (45 << 30),
        writable_until_first_full_bytes: 37 << 30,
        warnings: vec!["d9 will be above its mark".into()],
        ..Capacity::default()
    }
}

fn spread() -> Vec<RingSpread> {
    let ring = |name: &str| RingSpread {
        ring: name.into(),
        epoch: 2,
        hash: "0a1b2c3d4e5f6071".into(),
        partitions: 4096,
        replicas: 3.0,
        devices: 10,
        balance: 1.5,
        dispersion: 0.25,
        replicas_moving: 7,
        worst: Vec::new(),
        crowded: Vec::new(),
    };
    vec![ring("index"), ring("data-0")]
}

fn jobs() -> Vec<JobLine> {
    let job = |kind: &str, state: &str, done: u64| JobLine {
        id: "52fdfc07".into(),
        kind: kind.into(),
        subject: HOSTILE.into(),
        state: state.into(),
        progress: JobProgress {
            done,
            total: Some(200),
            unit: "registers".into(),
            text: String::new(),
        },
        eta_s: (state == "running").then_some(185),
        ..JobLine::default()
    };
    vec![job("rewrite", "done", 200), job("census", "running", 50)]
}

/// Makes an answer.
pub(super) fn answer(part: Part, reply: Result<Reply, String>, at_ms: u64) -> Answer {
    Answer { part, reply, at_ms, took_ms: 5 }
}

/// Returns the view of the cluster after two readings of the metrics.
pub(super) fn view(devices: u32, has_colour: bool) -> View {
    let mut view = View::new("n1:6201", 2_000, has_colour);
    for (at_ms, seconds) in [(0, 0), (2_000, 2), (4_000, 4)] {
        let reading = Reading::parse(&page(seconds), at_ms);
        view.apply(answer(Part::Metrics, Ok(Reply::Metrics(reading)), at_ms));
    }
    let replies = [
        (Part::Status, Reply::Status(Box::new(status()))),
        (Part::Capacity, Reply::Capacity(Box::new(capacity(devices)))),
        (Part::Spread, Reply::Spread(spread())),
        (Part::Jobs, Reply::Jobs(jobs())),
    ];
    for (part, reply) in replies {
        view.apply(answer(part, Ok(reply), 4_000));
    }
    view
}

/// Presses keys, each of which must continue the program.
pub(super) fn press(view: &mut View, keys: &str) {
    for key in keys.chars() {
        let code = match key {
            '\n' => KeyCode::Enter,
            '\t' => KeyCode::Tab,
            character => KeyCode::Char(character),
        };
        assert_eq!(view.press(KeyEvent::new(code, KeyModifiers::NONE)), Flow::Continue, "{key}");
    }
}

/// Draws the view and returns the lines of the screen without spaces at their ends.
pub(super) fn screen(view: &mut View, size: Size) -> Vec<String> {
    view.resize(size);
    let mut terminal = Terminal::new(TestBackend::new(size.width, size.height)).unwrap();
    terminal.draw(|frame| draw(frame, view)).unwrap();
    let buffer = terminal.backend().buffer();
    let row = |y: u16| (0..size.width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..size.height).map(|y| row(y).trim_end().to_owned()).collect()
}

/// Checks that a screen has some texts.
pub(super) fn assert_shows(lines: &[String], texts: &[&str]) {
    for text in texts {
        let is_shown = lines.iter().any(|line| line.contains(text));
        assert!(is_shown, "no \"{text}\" in\n{}", lines.join("\n"));
    }
}

//! Each screen at each size: its figures, hostile names, age and reason of old figures, colours.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::layout::Size;
use ratatui::style::Color;

use super::fixture::{HOSTILE, SIZES, answer, assert_shows, press, screen, view};
use crate::{Part, Reply, View, draw};

const NARROW: Size = SIZES[0];
const USUAL: Size = SIZES[1];
const LARGE: Size = SIZES[2];

#[test]
fn the_overview_has_readiness_rates_space_and_warnings() {
    let mut view = view(10, true);
    assert_shows(
        &screen(&mut view, USUAL),
        &[
            "[1 Overview] 2 Devices ",
            "READY: proxy p1, release ",
            "4 of 5 nodes answer",
            "requests  103/s, errors 3/s",
            "latency   p50 ≤ 5 ms, p99 above all buckets",
            "bytes     in 1.0 MiB/s, out 8.0 MiB/s",
            "space     45.0 %, after moves 46.0 %, of 1000 GiB",
            "fullest   8.1 %, after moves 9.1 %; room for 37.0 GiB",
            "██",
            "warnings 1 to ",
            "does not answer",
            "q quit",
        ],
    );
    assert_shows(
        &screen(&mut view, LARGE),
        &["GetObject", "100/s", "PutObject", "3/s", "peak", "! d9 will be above its mark"],
    );
    assert_shows(
        &screen(&mut view, NARROW),
        &["[1 Overview] 2  3  4  5  6", "requests  103/s, errors 3/s", "warnings 1 to 1 of 3"],
    );
}

#[test]
fn devices_have_place_fullness_and_state() {
    let mut view = view(10, true);
    press(&mut view, "2");
    assert_shows(
        &screen(&mut view, LARGE),
        &[
            "Devices 1 to 10 of 10",
            "r1z1",
            "offline",
            "disk1",
            "used",
            "8.1 %",
            "100 GiB",
            "reason",
        ],
    );
    let lines = screen(&mut view, USUAL);
    assert_shows(&lines, &["n1", "offline", "now", "after moves"]);
    assert!(!lines.iter().any(|line| line.contains("reason")), "it has no room");
    assert_shows(&screen(&mut view, NARROW), &["state", "ready", "2.7 %"]);
}

#[test]
fn nodes_rings_workers_and_jobs_have_their_columns() {
    let mut view = view(10, true);
    press(&mut view, "3");
    assert_shows(
        &screen(&mut view, USUAL),
        &["storage node", "silent  ", "1 min 35 s", "-7 ms", "proxy", "replicator", "release"],
    );
    press(&mut view, "4");
    assert_shows(
        &screen(&mut view, USUAL),
        &["index", "data-0", "joint", "1.50 %", "0.25 %", "moving"],
    );
    press(&mut view, "5");
    assert_shows(
        &screen(&mut view, LARGE),
        &[
            "replicator r1",
            "working",
            "failed",
            "12.5/s",
            "390",
            "4 min 0 s",
            "25 s",
            "n4 is silent",
        ],
    );
    press(&mut view, "6");
    let lines = screen(&mut view, USUAL);
    assert_shows(&lines, &["census", "running", "███", "25.0 %", "3 min 5 s", "100.0 %"]);
    let at = |text: &str| lines.iter().position(|line| line.contains(text)).unwrap();
    assert!(at("census") < at("rewrite"), "jobs that run come first: {lines:?}");
}

/// Terminals of all sizes up to 200 columns, in steps, on all screens, with and without figures.
#[test]
fn screens_of_any_size_have_no_control_characters() {
    let sides = [0, 1, 2, 3, 5, 10, 24, 40, 80, 110, 200];
    let views = [View::new(HOSTILE, 2_000, true), view(300, true), {
        let mut view = View::new(HOSTILE, 2_000, false);
        for part in Part::ALL {
            view.apply(answer(part, Err(format!("no answer{HOSTILE}")), 9));
        }
        view
    }];
    for mut view in views {
        for keys in ["1", "2", "3", "4", "5", "6", "?", "x/n", "s", "s"] {
            press(&mut view, keys);
            for width in sides {
                for height in sides {
                    let lines = screen(&mut view, Size { width, height });
                    let text = lines.concat();
                    assert!(!text.chars().any(char::is_control), "{width}x{height}: {text:?}");
                    assert!(!text.contains('\u{202e}'), "{width}x{height}: {text:?}");
                }
            }
        }
    }
}

#[test]
fn hostile_names_are_shown_escaped() {
    let mut view = view(10, true);
    let name = "n\\u{1b}[2J\\u{9b}31m\\u{202e}\\r\\n";
    for key in ["2", "3", "6"] {
        press(&mut view, key);
        assert_shows(&screen(&mut view, LARGE), &[name]);
    }
}

#[test]
fn figures_of_a_silent_server_stay_with_their_age_and_the_reason() {
    let mut view = view(10, true);
    let refused = "no server answers at n1:6201: connection refused";
    for part in [Part::Metrics, Part::Status, Part::Capacity] {
        view.apply(answer(part, Err(refused.to_owned()), 16_000));
    }
    let lines = screen(&mut view, USUAL);
    let shown = "OLD FIGURES, of 12 s ago: no server answers at n1:6201: connection refused";
    assert_eq!(lines[1], shown);
    assert_shows(&lines, &["requests  103/s", "space     45.0 %"]);
    press(&mut view, "2");
    assert_shows(&screen(&mut view, USUAL), &["Devices 1 to 10 of 10, 12 s old", "disk1"]);
    let mut fresh = View::new("n1:6201", 2_000, true);
    assert_eq!(screen(&mut fresh, USUAL)[1], "waiting for the first reply of n1:6201");
    fresh.apply(answer(Part::Status, Err(refused.to_owned()), 16_000));
    assert_eq!(screen(&mut fresh, USUAL)[1], format!("NO FIGURES: {refused}"));
    press(&mut fresh, "6");
    assert_shows(&screen(&mut fresh, USUAL), &["Jobs: waiting for the first reply"]);
}

#[test]
fn a_process_without_s3_clients_names_the_remedy() {
    let mut view = View::new("n1:6201", 2_000, true);
    for at_ms in [0, 2_000] {
        let reading = crate::metrics::Reading::parse("martlet_ready 1\n", at_ms);
        view.apply(answer(Part::Metrics, Ok(Reply::Metrics(reading)), at_ms));
        let sentence = "requests  this process serves no S3 clients: query a proxy";
        assert_shows(&screen(&mut view, USUAL), &[sentence]);
    }
}

/// Returns true if a cell of the screen has a colour of its own.
fn is_coloured(view: &mut View) -> bool {
    view.resize(USUAL);
    let mut terminal = Terminal::new(TestBackend::new(USUAL.width, USUAL.height)).unwrap();
    terminal.draw(|frame| draw(frame, view)).unwrap();
    let mut cells = terminal.backend().buffer().content.iter();
    cells.any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
}

#[test]
fn screens_without_colours_have_the_same_text() {
    for key in ["1", "2", "3", "4", "5", "6"] {
        let (mut plain, mut coloured) = (view(10, false), view(10, true));
        press(&mut plain, key);
        press(&mut coloured, key);
        assert!(!is_coloured(&mut plain), "{key}");
        assert!(is_coloured(&mut coloured), "{key}");
        assert_eq!(screen(&mut plain, USUAL), screen(&mut coloured, USUAL));
    }
}

/// 60,000 devices: the screen shows the last rows of any order.
#[test]
fn thousands_of_devices_scroll() {
    let mut view = view(60_000, false);
    press(&mut view, "2G");
    let lines = screen(&mut view, USUAL);
    assert_shows(&lines, &["of 60000", "n29999"]);
    press(&mut view, "g");
    assert_shows(&screen(&mut view, USUAL), &["Devices 1 to 19 of 60000"]);
    press(&mut view, "/n29999\n");
    assert_shows(
        &screen(&mut view, USUAL),
        &["Devices 1 to 2 of 2 with \"n29999\", of 60000 in all"],
    );
}

//! Plain text of a reading.

use super::fixture::{answer, assert_shows, view};
use crate::{Part, View, plain};

#[test]
fn plain_text_has_all_rows_of_all_screens() {
    let text = plain(&view(1_000, true));
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    assert_shows(
        &lines,
        &[
            "martlet top of n1:6201",
            "READY: proxy p1, release ",
            "requests  103/s, errors 3/s",
            "operation GetObject 100/s, errors 0/s",
            "Warnings: 3",
            "! the node n4 does not answer",
            "Devices: 1000",
            "n499",
            "Nodes: 7",
            "Rings: 2",
            "Workers: 2",
            "Jobs: 2",
            "n\\u{1b}[2J",
        ],
    );
    let titles = lines.iter().find(|line| line.starts_with("zone  node")).unwrap();
    assert!(titles.ends_with("reason"), "{titles}");
    assert!(text.chars().all(|it| it == '\n' || !it.is_control()), "{text:?}");
}

#[test]
fn parts_that_failed_are_named() {
    let mut view = View::new("n1", 2_000, true);
    view.apply(answer(Part::Jobs, Err("n1 answered 404\u{1b}".into()), 0));
    let text = plain(&view);
    assert!(text.contains("jobs failed: n1 answered 404\\u{1b}\n"), "{text}");
    assert!(text.contains("Devices: 0\n"), "{text}");
}

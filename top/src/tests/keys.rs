//! Keys: screens, scrolling, filters, order, pause, help and the end.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::Size;

use super::fixture::{SIZES, assert_shows, press, screen, view};
use crate::{Flow, View};

const USUAL: Size = SIZES[1];

fn code(view: &mut View, code: KeyCode) -> Flow {
    view.press(KeyEvent::new(code, KeyModifiers::NONE))
}

#[test]
fn q_and_control_c_end_the_program() {
    let mut view = view(10, true);
    assert_eq!(code(&mut view, KeyCode::Char('q')), Flow::Quit);
    let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(view.press(control_c), Flow::Quit);
    press(&mut view, "/q");
    assert_shows(&screen(&mut view, USUAL), &["filter: q_"]);
    assert_eq!(view.press(control_c), Flow::Quit, "while a filter is typed too");
}

#[test]
fn tab_and_numbers_choose_screens() {
    let mut view = view(10, true);
    for title in ["Devices", "Nodes", "Rings", "Workers", "Jobs", "Overview"] {
        press(&mut view, "\t");
        assert_shows(&screen(&mut view, USUAL)[..1], &[title, "["]);
        let tab = &screen(&mut view, USUAL)[0];
        assert!(tab.contains(&format!(" {title}]")), "{tab}");
    }
    code(&mut view, KeyCode::BackTab);
    assert!(screen(&mut view, USUAL)[0].contains("[6 Jobs]"));
    press(&mut view, "7");
    assert!(screen(&mut view, USUAL)[0].contains("[6 Jobs]"), "there are six");
}

#[test]
fn arrows_and_page_keys_scroll_by_what_is_visible() {
    let mut view = view(100, true);
    press(&mut view, "2");
    let mut shown = |key: KeyCode| {
        screen(&mut view, USUAL);
        code(&mut view, key);
        screen(&mut view, USUAL)[2].clone()
    };
    assert_eq!(shown(KeyCode::Down), "Devices 2 to 20 of 100");
    assert_eq!(shown(KeyCode::PageDown), "Devices 21 to 39 of 100");
    assert_eq!(shown(KeyCode::Up), "Devices 20 to 38 of 100");
    assert_eq!(shown(KeyCode::End), "Devices 82 to 100 of 100");
    assert_eq!(shown(KeyCode::Down), "Devices 82 to 100 of 100");
    assert_eq!(shown(KeyCode::PageUp), "Devices 63 to 81 of 100");
    assert_eq!(shown(KeyCode::Home), "Devices 1 to 19 of 100");
}

#[test]
fn warnings_of_the_overview_scroll_to_the_last() {
    let mut view = view(10, true);
    let narrow = SIZES[0];
    screen(&mut view, narrow);
    code(&mut view, KeyCode::End);
    let lines = screen(&mut view, narrow);
    assert_shows(&lines, &["warnings 3 to 3 of 3", "! d9 will be above its mark"]);
}

#[test]
fn s_orders_by_the_next_column_and_capital_s_reverses() {
    let mut view = view(10, true);
    press(&mut view, "2");
    let first = |view: &mut View| screen(view, USUAL)[4].clone();
    assert!(first(&mut view).contains("n0"));
    press(&mut view, "ssssss");
    let lines = screen(&mut view, USUAL);
    assert_shows(&lines, &["by now", "now▼"]);
    assert!(first(&mut view).contains("8.1 %"), "the fullest: {lines:?}");
    press(&mut view, "S");
    assert_shows(&screen(&mut view, USUAL), &["now▲"]);
    assert!(first(&mut view).contains("0.0 %"));
}

#[test]
fn a_filter_is_typed_kept_and_removed() {
    let mut view = view(10, true);
    press(&mut view, "2/OFFLIx");
    code(&mut view, KeyCode::Backspace);
    assert_shows(&screen(&mut view, USUAL), &["filter: OFFLI_", "Devices 1 to 1 of 1 with"]);
    press(&mut view, "\n3");
    assert_shows(&screen(&mut view, USUAL), &["Nodes 1 to 7 of 7"]);
    press(&mut view, "2");
    assert_shows(&screen(&mut view, USUAL), &["Devices 1 to 1 of 1 with \"OFFLI\", of 10 in all"]);
    code(&mut view, KeyCode::Esc);
    assert_shows(&screen(&mut view, USUAL), &["Devices 1 to 10 of 10"]);
    press(&mut view, "/x");
    code(&mut view, KeyCode::Esc);
    assert_shows(&screen(&mut view, USUAL), &["Devices 1 to 10 of 10", "q quit"]);
}

#[test]
fn a_paused_view_requests_nothing() {
    let mut view = view(10, true);
    view.tick(60_000);
    assert!(!view.due().is_empty());
    press(&mut view, "p");
    assert!(view.due().is_empty());
    assert_shows(&screen(&mut view, USUAL), &["PAUSED, figures of 56 s ago; READY: proxy p1"]);
    press(&mut view, "p");
    assert!(!view.due().is_empty());
}

#[test]
fn help_covers_the_screen_until_a_key() {
    let mut view = view(10, true);
    press(&mut view, "?");
    assert_shows(&screen(&mut view, USUAL), &["q, Ctrl-C", "filter the rows", "next screen"]);
    assert_shows(&screen(&mut view, SIZES[0]), &["q, Ctrl-C", "choose a screen"]);
    press(&mut view, "2");
    assert!(screen(&mut view, USUAL)[0].contains("[1 Overview]"), "the key only closes the help");
    press(&mut view, "?");
    assert_eq!(code(&mut view, KeyCode::Char('q')), Flow::Quit);
}

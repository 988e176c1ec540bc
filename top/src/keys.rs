//! Keys: the change of the view that each of them makes.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use ratatui::layout::Rect;

use crate::layout::{OverviewLayout, Regions, table_rows};
use crate::screen::Screen;
use crate::view::{Flow, Mode, View};

/// Keys and their effects, for the help.
pub(crate) const HELP: [(&str, &str); 11] = [
    ("q, Ctrl-C", "quit"),
    ("1 to 6", "choose a screen"),
    ("Tab, Shift-Tab", "next screen, previous screen"),
    ("↑ ↓, k j", "scroll by a row"),
    ("PgUp PgDn, Space", "scroll by a page"),
    ("Home End, g G", "first rows, last rows"),
    ("/", "filter the rows by a text; Enter keeps it, Esc removes it"),
    ("s", "sort by the next column"),
    ("S", "reverse the order"),
    ("p", "pause, continue"),
    ("?", "this help; any key closes it"),
];

impl View {
    /// Takes a key.
    pub fn press(&mut self, key: KeyEvent) -> Flow {
        if key.kind == KeyEventKind::Release {
            return Flow::Continue;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            let quits = matches!(key.code, KeyCode::Char('c' | 'q'));
            return if quits { Flow::Quit } else { Flow::Continue };
        }
        match self.mode {
            Mode::Commands => return self.command(key.code),
            Mode::Filter => self.type_filter(key.code),
            Mode::Help if key.code == KeyCode::Char('q') => return Flow::Quit,
            Mode::Help => self.mode = Mode::Commands,
        }
        Flow::Continue
    }

    fn command(&mut self, code: KeyCode) -> Flow {
        match code {
            KeyCode::Char('q') => return Flow::Quit,
            KeyCode::Char('?' | 'h') => self.mode = Mode::Help,
            KeyCode::Char('p') => self.pause(),
            KeyCode::Char('/') => self.mode = Mode::Filter,
            KeyCode::Char('s') => self.listing_mut().sort_by_next(),
            KeyCode::Char('S') => self.listing_mut().reverse(),
            KeyCode::Char(digit @ '1'..='6') => {
                let at = digit.to_digit(10).and_then(|it| usize::try_from(it - 1).ok());
                self.screen = Screen::ALL[at.expect("a digit from 1 to 6")];
            }
            KeyCode::Tab | KeyCode::Right => self.screen = self.screen.after(1),
            KeyCode::BackTab | KeyCode::Left => {
                self.screen = self.screen.after(Screen::ALL.len() - 1);
            }
            KeyCode::Esc => self.listing_mut().set_filter(""),
            other => self.scroll(other),
        }
        Flow::Continue
    }

    /// Returns the rows of a page on the present screen.
    fn page_rows(&self) -> usize {
        let area = Rect::new(0, 0, self.size().width, self.size().height);
        let body = Regions::of(area).body;
        let rows = match self.screen {
            Screen::Overview => OverviewLayout::of(body, self).warning_rows(),
            _ => table_rows(body),
        };
        usize::from(rows.max(1))
    }

    fn scroll(&mut self, code: KeyCode) {
        let height = self.page_rows();
        let page = isize::try_from(height).unwrap_or(isize::MAX);
        let by = match code {
            KeyCode::Up | KeyCode::Char('k') => -1,
            KeyCode::Down | KeyCode::Char('j') => 1,
            KeyCode::PageUp => -page,
            KeyCode::PageDown | KeyCode::Char(' ') => page,
            KeyCode::Home | KeyCode::Char('g') => isize::MIN,
            KeyCode::End | KeyCode::Char('G') => isize::MAX,
            _ => return,
        };
        self.listing_mut().scroll(by, height);
    }

    fn type_filter(&mut self, code: KeyCode) {
        let mut filter = self.listing().filter().to_owned();
        match code {
            KeyCode::Enter => self.mode = Mode::Commands,
            KeyCode::Esc => {
                self.mode = Mode::Commands;
                self.listing_mut().set_filter("");
            }
            KeyCode::Backspace => {
                filter.pop();
                self.listing_mut().set_filter(&filter);
            }
            KeyCode::Char(character) => {
                filter.push(character);
                self.listing_mut().set_filter(&filter);
            }
            _ => {}
        }
    }
}

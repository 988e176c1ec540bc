//! Text for terminals: escaped names, sizes, rates, spans and bars.

use ratatui::text::Span;

/// Maximum number of characters of one text of the cluster.
const CHARACTERS_MAX: usize = 1000;

/// Returns a text of the cluster without characters that act on a terminal: control characters,
/// marks of direction and invisible characters become escapes such as `\u{1b}`. A backslash becomes
/// two, so that escapes are unambiguous. Texts beyond 1,000 characters end in `…`.
pub fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len().min(CHARACTERS_MAX));
    for (at, character) in text.chars().enumerate() {
        if at == CHARACTERS_MAX {
            shown.push('…');
            break;
        }
        if acts_on_terminals(character) || character == '\\' {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

fn acts_on_terminals(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}'
                | '\u{61c}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

/// Returns a number as a float.
#[expect(clippy::cast_precision_loss, reason = "for people")]
pub(crate) fn float(number: u64) -> f64 {
    number as f64
}

/// Formats a size such as `1.5 GiB`.
pub(crate) fn size(bytes: f64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let (mut number, mut unit) = (bytes, 0);
    while number >= 1024.0 && unit + 1 < UNITS.len() {
        number /= 1024.0;
        unit += 1;
    }
    let digits = usize::from(unit > 0 && number < 100.0);
    format!("{number:.digits$} {}", UNITS[unit])
}

/// Formats a number such as `7`, `12.3`, `8,000` or `1.2M`.
pub(crate) fn count(number: f64) -> String {
    const UNITS: [&str; 4] = ["k", "M", "G", "T"];
    if number < 100.0 {
        let digits = usize::from(number.fract() >= 0.05 && number.fract() < 0.95);
        return format!("{number:.digits$}");
    }
    if number < 10_000.0 {
        let text = format!("{number:.0}");
        let thousands = text.len() - 3.min(text.len());
        return match thousands {
            0 => text,
            at => format!("{},{}", &text[..at], &text[at..]),
        };
    }
    let (mut number, mut unit) = (number / 1000.0, 0);
    while number >= 1000.0 && unit + 1 < UNITS.len() {
        number /= 1000.0;
        unit += 1;
    }
    format!("{number:.1}{}", UNITS[unit])
}

/// Formats a share from 0 to 1 such as `42.1 %`.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Formats a latency such as `200 µs`, `5 ms` or `2.0 s`.
pub(crate) fn latency(seconds: f64) -> String {
    match seconds {
        it if it < 0.001 => format!("{:.0} µs", it * 1e6),
        it if it < 1.0 => format!("{:.0} ms", it * 1e3),
        it => format!("{it:.1} s"),
    }
}

/// Formats a span such as `45 s`, `3 min 5 s`, `2 h 3 min` or `5 d 2 h`.
pub(crate) fn span(seconds: u64) -> String {
    let (days, hours) = (seconds / 86_400, seconds / 3600 % 24);
    let (minutes, rest) = (seconds / 60 % 60, seconds % 60);
    match seconds {
        0..60 => format!("{rest} s"),
        60..3600 => format!("{minutes} min {rest} s"),
        3600..86_400 => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

/// Draws a share from 0 to 1 as a bar of `cells` characters. `│` shows the mark in an empty cell;
/// filled cells above the mark are `▓`.
pub(crate) fn bar(share: f64, mark: f64, cells: u16) -> String {
    let scaled = |share: f64| share.clamp(0.0, 1.0) * f64::from(cells);
    let (filled, mark) = (scaled(share), scaled(mark));
    let cell = |at: u16| {
        let at = f64::from(at);
        match filled - at {
            part if part >= 0.5 && at >= mark => '▓',
            part if part >= 0.5 => '█',
            _ if at <= mark && mark < at + 1.0 => '│',
            _ => '·',
        }
    };
    (0..cells).map(cell).collect()
}

/// Returns the columns that a text takes on a terminal.
pub(crate) fn columns(text: &str) -> usize {
    Span::raw(text).width()
}

/// Returns a text of exactly `width` columns: filled with spaces, or cut with `…` at its end.
pub(crate) fn padded(text: &str, width: usize, is_figure: bool) -> String {
    let taken = columns(text);
    if taken <= width {
        let spaces = " ".repeat(width - taken);
        return if is_figure { spaces + text } else { text.to_owned() + &spaces };
    }
    let mut cut = String::new();
    let mut left = width.saturating_sub(1);
    for character in text.chars() {
        let own = columns(character.encode_utf8(&mut [0; 4]));
        if own > left {
            break;
        }
        left -= own;
        cut.push(character);
    }
    if width > 0 {
        cut.push('…');
    }
    cut + &" ".repeat(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_act_on_terminals_are_escaped() {
        assert_eq!(escaped("n1/größe ✓"), "n1/größe ✓");
        assert_eq!(escaped("a\u{1b}[2Jb\r\n\t"), "a\\u{1b}[2Jb\\r\\n\\t");
        assert_eq!(escaped("\u{9b}31m\u{7f}"), "\\u{9b}31m\\u{7f}");
        assert_eq!(escaped("x\u{202e}fdp\u{200b}"), "x\\u{202e}fdp\\u{200b}");
        assert_eq!(escaped("\\u{1b}"), "\\\\u{1b}");
        let long = escaped(&"\u{7}".repeat(100_000));
        assert!(long.ends_with("\\u{7}…") && long.len() < 6_000, "{}", long.len());
        for character in (0..0x20_000).filter_map(char::from_u32) {
            assert!(!escaped(&character.to_string()).chars().any(char::is_control));
        }
    }

    #[test]
    fn figures_read_well() {
        for (bytes, text) in
            [(0.0, "0 B"), (1023.0, "1023 B"), (1536.0, "1.5 KiB"), (3e14, "273 TiB")]
        {
            assert_eq!(size(bytes), text);
        }
        for (number, text) in [
            (0.0, "0"),
            (12.34, "12.3"),
            (99.99, "100"),
            (123.0, "123"),
            (8000.0, "8,000"),
            (12_345.0, "12.3k"),
            (5e6, "5.0M"),
            (1e18, "1000000.0T"),
        ] {
            assert_eq!(count(number), text);
        }
        let spans = [(0, "0 s"), (59, "59 s"), (185, "3 min 5 s"), (7380, "2 h 3 min")];
        for (seconds, text) in spans {
            assert_eq!(span(seconds), text);
        }
        assert_eq!(span(5 * 86_400 + 7200), "5 d 2 h");
        assert_eq!((latency(0.0002), latency(0.005)), ("200 µs".into(), "5 ms".into()));
        assert_eq!((latency(2.0), percent(0.4213)), ("2.0 s".into(), "42.1 %".into()));
    }

    #[test]
    fn bars_show_fullness_and_mark() {
        assert_eq!(bar(0.0, 1.0, 10), "··········");
        assert_eq!(bar(0.5, 0.9, 10), "█████····│");
        assert_eq!(bar(1.0, 0.8, 10), "████████▓▓");
        assert_eq!(bar(f64::NAN, 0.8, 3), "··│");
        assert_eq!(bar(9.0, 1.0, 3), "███");
    }

    #[test]
    fn padded_texts_have_their_width() {
        assert_eq!(padded("ab", 4, false), "ab  ");
        assert_eq!(padded("12", 4, true), "  12");
        assert_eq!(padded("abcdef", 4, true), "abc…");
        assert_eq!(padded("日本語", 4, false), "日… ");
        assert_eq!((padded("ab", 0, false), padded("ab", 1, false)), (String::new(), "…".into()));
    }
}

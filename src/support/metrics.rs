//! Metrics without names of customers: labels of a list keep their values, others get numbers.

use std::collections::HashMap;
use std::fmt::Write;

/// Labels whose values are kept: names of operations, devices, nodes and kinds.
const KEPT: [&str; 18] = [
    "committed",
    "device",
    "direction",
    "kind",
    "le",
    "limit",
    "log",
    "node",
    "operation",
    "pending",
    "reason",
    "removing",
    "ring",
    "role",
    "state",
    "status",
    "verified",
    "worker",
];

/// Returns the text with a number in place of each value of another label. Equal values of a label
/// get one number, so that series stay distinct. Lines that can't be parsed are left out.
pub(super) fn filter(text: &str) -> String {
    let mut numbers: HashMap<(String, String), usize> = HashMap::new();
    let mut filtered = String::with_capacity(text.len());
    for line in text.lines() {
        if let Some(line) = filter_line(line, &mut numbers) {
            filtered.push_str(&line);
            filtered.push('\n');
        }
    }
    filtered
}

fn filter_line(line: &str, numbers: &mut HashMap<(String, String), usize>) -> Option<String> {
    let (name, rest) = match line.find(['{', ' ']) {
        _ if line.starts_with('#') => return Some(line.to_owned()),
        Some(at) if line[at..].starts_with('{') => (&line[..at], &line[at + 1..]),
        Some(_) => return Some(line.to_owned()),
        None => return None,
    };
    let mut filtered = format!("{name}{{");
    let mut rest = rest;
    loop {
        if let Some(value) = rest.strip_prefix('}') {
            filtered.push('}');
            // A sample, and maybe a time and an exemplar, of which the first two are kept.
            filtered.push_str(value.split('#').next()?.trim_end());
            return Some(filtered);
        }
        let (label, after) = rest.trim_start_matches(',').split_once("=\"")?;
        let end = quote_at(after)?;
        let value = &after[..end];
        if !filtered.ends_with('{') {
            filtered.push(',');
        }
        let shown = if KEPT.contains(&label) {
            value.to_owned()
        } else {
            let next = numbers.len() + 1;
            let number = numbers.entry((label.to_owned(), value.to_owned())).or_insert(next);
            format!("#{number}")
        };
        let _ = write!(filtered, "{label}=\"{shown}\"");
        rest = &after[end + 1..];
    }
}

/// Returns the place of the first quote that no backslash precedes.
fn quote_at(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    text.char_indices().find_map(|(at, character)| {
        let ends = character == '"' && !is_escaped;
        is_escaped = character == '\\' && !is_escaped;
        ends.then_some(at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_customers_become_numbers() {
        let text = "# HELP x counts\n\
            x_total{operation=\"PutObject\",tenant=\"s3cret\"} 3\n\
            x_total{operation=\"PutObject\",tenant=\"other\"} 4 1700000000\n\
            y{tenant=\"s3cret\",key=\"s3cret\"} 1\n\
            z 7\n\
            w{tenant=\"a\\\"s3cret} 9\",kind=\"part\"} 1 # {trace=\"s3cret\"} 1\n\
            broken{tenant=\"s3cret\n\
            # EOF\n";
        let filtered = filter(text);
        assert!(!filtered.contains("s3cret"), "{filtered}");
        let lines: Vec<&str> = filtered.lines().collect();
        assert_eq!(lines[1], "x_total{operation=\"PutObject\",tenant=\"#1\"} 3");
        assert_eq!(lines[2], "x_total{operation=\"PutObject\",tenant=\"#2\"} 4 1700000000");
        assert_eq!(lines[3], "y{tenant=\"#1\",key=\"#3\"} 1");
        assert_eq!(lines[4], "z 7");
        assert_eq!(lines[5], "w{tenant=\"#4\",kind=\"part\"} 1");
        assert_eq!(lines.len(), 7);
    }
}

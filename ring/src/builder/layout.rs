//! Text layout of a builder file: JSON with one line for each item that operators read or compare,
//! and deeply nested arrays in one line. A move takes one line instead of five: moves are most of a
//! large file.

use std::io::{Result, Write};

use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter, Serializer};

/// Depth beyond which arrays and objects are written in one line.
const DEPTH_MAX: usize = 4;

/// Formats `value` as indented JSON.
pub(super) fn to_text(value: &impl Serialize) -> String {
    let mut bytes = Vec::new();
    value
        .serialize(&mut Serializer::with_formatter(&mut bytes, IndentFormatter::default()))
        .expect("numbers and strings make JSON");
    bytes.push(b'\n');
    String::from_utf8(bytes).expect("JSON is UTF-8")
}

/// Formatter that indents shallow values only.
#[derive(Default)]
struct IndentFormatter {
    depth: usize,
    pretty: PrettyFormatter<'static>,
}

/// Forwards calls to one formatter or the other, by depth.
macro_rules! by_depth {
    ($($name:ident($($argument:ident: $kind:ty)?)),*) => {$(
        fn $name<W: ?Sized + Write>(&mut self, to: &mut W $(, $argument: $kind)?) -> Result<()> {
            if self.depth > DEPTH_MAX {
                CompactFormatter.$name(to $(, $argument)?)
            } else {
                self.pretty.$name(to $(, $argument)?)
            }
        }
    )*};
}

impl Formatter for IndentFormatter {
    fn begin_array<W: ?Sized + Write>(&mut self, to: &mut W) -> Result<()> {
        self.depth += 1;
        if self.depth > DEPTH_MAX { to.write_all(b"[") } else { self.pretty.begin_array(to) }
    }

    fn end_array<W: ?Sized + Write>(&mut self, to: &mut W) -> Result<()> {
        self.depth -= 1;
        if self.depth >= DEPTH_MAX { to.write_all(b"]") } else { self.pretty.end_array(to) }
    }

    fn begin_object<W: ?Sized + Write>(&mut self, to: &mut W) -> Result<()> {
        self.depth += 1;
        if self.depth > DEPTH_MAX { to.write_all(b"{") } else { self.pretty.begin_object(to) }
    }

    fn end_object<W: ?Sized + Write>(&mut self, to: &mut W) -> Result<()> {
        self.depth -= 1;
        if self.depth >= DEPTH_MAX { to.write_all(b"}") } else { self.pretty.end_object(to) }
    }

    by_depth!(
        begin_array_value(first: bool),
        end_array_value(),
        begin_object_key(first: bool),
        begin_object_value(),
        end_object_value()
    );
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::to_text;

    #[test]
    fn shallow_values_have_lines_and_deep_ones_share_one() {
        let value = json!({"a": {"moves": [{"list": [[1, 2], [3, {"x": []}]]}]}, "e": []});
        let text = to_text(&value);
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
        let deep = json!({"moves": [{"list": [[1, 2, 3], [4, 5, 6]]}], "end": 1});
        let text = to_text(&deep);
        assert!(text.contains("\n        [1,2,3],\n        [4,5,6]\n"), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), deep);
    }
}

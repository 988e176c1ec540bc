//! Stacks in the format of pprof, compressed by gzip: `perftools.profiles.Profile` of
//! <https://github.com/google/pprof/blob/main/proto/profile.proto>. The messages have the fields
//! that this process fills.

use std::collections::HashMap;
use std::io::Write;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;

use super::stack::FrameFunction;

/// Content of a file.
pub(super) struct PprofContent<'a> {
    /// Name and unit of each value of a row. The last one is that of the period.
    pub(super) types: &'static [(&'static str, &'static str)],
    /// Mean distance of two samples.
    pub(super) period: u64,
    /// Begin, in milliseconds since 1970.
    pub(super) begin_ms: u64,
    pub(super) took: Duration,
    pub(super) rows: Vec<PprofRow<'a>>,
    /// Remark for the reader of the file.
    pub(super) comment: Option<String>,
}

/// A stack with its values.
pub(super) struct PprofRow<'a> {
    /// Frames from the innermost to the outermost.
    pub(super) frames: &'a [Vec<FrameFunction>],
    /// Name of the thread, where it is known.
    pub(super) thread: Option<&'a str>,
    pub(super) values: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Profile {
    #[prost(message, repeated, tag = "1")]
    pub(super) sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    pub(super) sample: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    pub(super) location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    pub(super) function: Vec<Function>,
    /// The first text is empty. Other messages name texts by their position.
    #[prost(string, repeated, tag = "6")]
    pub(super) string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    pub(super) time_nanos: i64,
    #[prost(int64, tag = "10")]
    pub(super) duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    pub(super) period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    pub(super) period: i64,
    #[prost(int64, repeated, tag = "13")]
    pub(super) comment: Vec<i64>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct ValueType {
    #[prost(int64, tag = "1")]
    pub(super) r#type: i64,
    #[prost(int64, tag = "2")]
    pub(super) unit: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Sample {
    /// Locations from the innermost frame to the outermost.
    #[prost(uint64, repeated, tag = "1")]
    pub(super) location_id: Vec<u64>,
    /// Values in the order of the types.
    #[prost(int64, repeated, tag = "2")]
    pub(super) value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    pub(super) label: Vec<Label>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Label {
    #[prost(int64, tag = "1")]
    pub(super) key: i64,
    #[prost(int64, tag = "2")]
    pub(super) str: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Location {
    #[prost(uint64, tag = "1")]
    pub(super) id: u64,
    /// Functions of the frame, the innermost first.
    #[prost(message, repeated, tag = "4")]
    pub(super) line: Vec<Line>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Line {
    #[prost(uint64, tag = "1")]
    pub(super) function_id: u64,
    #[prost(int64, tag = "2")]
    pub(super) line: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Function {
    #[prost(uint64, tag = "1")]
    pub(super) id: u64,
    #[prost(int64, tag = "2")]
    pub(super) name: i64,
    #[prost(int64, tag = "3")]
    pub(super) system_name: i64,
    #[prost(int64, tag = "4")]
    pub(super) filename: i64,
}

/// Encodes a profile.
pub(super) fn encode(content: &PprofContent) -> std::io::Result<Vec<u8>> {
    let message = Tables::default().profile(content);
    let mut compressed = GzEncoder::new(Vec::new(), Compression::default());
    compressed.write_all(&message.encode_to_vec())?;
    compressed.finish()
}

fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Texts, functions and locations by what they are, so that each is there once.
#[derive(Default)]
struct Tables {
    texts: HashMap<String, i64>,
    /// Ids of functions, by name, symbol and file.
    functions: HashMap<(i64, i64, i64), u64>,
    locations: HashMap<Vec<(u64, u32)>, u64>,
    message: Profile,
}

impl Tables {
    fn profile(mut self, content: &PprofContent) -> Profile {
        self.text("");
        let mut sample_type = Vec::new();
        for (name, unit) in content.types {
            sample_type.push(ValueType { r#type: self.text(name), unit: self.text(unit) });
        }
        for row in &content.rows {
            self.add(row);
        }
        let comment = content.comment.iter().map(|comment| self.text(comment)).collect();
        Profile {
            period_type: sample_type.last().copied(),
            sample_type,
            time_nanos: number(content.begin_ms).saturating_mul(1_000_000),
            duration_nanos: i64::try_from(content.took.as_nanos()).unwrap_or(i64::MAX),
            period: number(content.period),
            comment,
            ..self.message
        }
    }

    fn add(&mut self, row: &PprofRow) {
        let location_id = row.frames.iter().map(|frame| self.location(frame)).collect();
        let label = |name: &str| Label { key: self.text("thread"), str: self.text(name) };
        let label = row.thread.map(label).into_iter().collect();
        let value = row.values.iter().copied().map(number).collect();
        self.message.sample.push(Sample { location_id, value, label });
    }

    fn text(&mut self, text: &str) -> i64 {
        if let Some(known) = self.texts.get(text) {
            return *known;
        }
        let at = i64::try_from(self.texts.len()).expect("a profile has few texts");
        self.texts.insert(text.to_owned(), at);
        self.message.string_table.push(text.to_owned());
        at
    }

    fn function(&mut self, function: &FrameFunction) -> u64 {
        let key =
            (self.text(&function.name), self.text(&function.symbol), self.text(&function.file));
        let next = self.functions.len() as u64 + 1;
        let id = *self.functions.entry(key).or_insert(next);
        if id == next {
            let (name, system_name, filename) = key;
            self.message.function.push(Function { id, name, system_name, filename });
        }
        id
    }

    fn location(&mut self, frame: &[FrameFunction]) -> u64 {
        let lines: Vec<_> =
            frame.iter().map(|function| (self.function(function), function.line)).collect();
        let next = self.locations.len() as u64 + 1;
        let id = *self.locations.entry(lines.clone()).or_insert(next);
        if id == next {
            let line = |(function_id, line): (u64, u32)| Line { function_id, line: line.into() };
            let line = lines.into_iter().map(line).collect();
            self.message.location.push(Location { id, line });
        }
        id
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;

    use super::*;

    fn function(name: &str, line: u32) -> FrameFunction {
        let (name, symbol) = (name.to_owned(), format!("_{name}"));
        FrameFunction { name, symbol, file: "src/main.rs".to_owned(), line }
    }

    fn row(frames: &[Vec<FrameFunction>], samples: u64) -> PprofRow<'_> {
        PprofRow { frames, thread: Some("martlet"), values: vec![samples, samples * 10_000_000] }
    }

    #[test]
    fn each_text_function_and_location_is_there_once() {
        let stack = |leaf: &str| {
            vec![vec![function(leaf, 7), function("caller", 8)], vec![function("main", 9)]]
        };
        let stacks = [(stack("a"), 3), (stack("b"), 1)];
        let content = PprofContent {
            types: &[("samples", "count"), ("cpu", "nanoseconds")],
            period: 10_000_000,
            begin_ms: 1_700_000_000_000,
            took: Duration::from_secs(2),
            rows: stacks.iter().map(|(frames, samples)| row(frames, *samples)).collect(),
            comment: Some("a remark".to_owned()),
        };
        let mut bytes = Vec::new();
        let encoded = encode(&content).unwrap();
        GzDecoder::new(&encoded[..]).read_to_end(&mut bytes).unwrap();
        let message = Profile::decode(&bytes[..]).unwrap();
        let text = |at: i64| message.string_table[usize::try_from(at).unwrap()].as_str();
        assert_eq!(text(0), "");
        let types: Vec<_> =
            message.sample_type.iter().map(|it| (text(it.r#type), text(it.unit))).collect();
        assert_eq!(types, [("samples", "count"), ("cpu", "nanoseconds")]);
        assert_eq!((message.period, message.duration_nanos), (10_000_000, 2_000_000_000));
        assert_eq!(text(message.comment[0]), "a remark");
        assert_eq!(message.sample[0].value, [3, 30_000_000]);
        assert_eq!(text(message.sample[1].label[0].str), "martlet");
        assert_eq!((message.function.len(), message.location.len()), (4, 3));
        let names = |sample: &Sample| -> Vec<String> {
            let locations = sample
                .location_id
                .iter()
                .map(|id| message.location.iter().find(|location| location.id == *id).unwrap());
            let lines = locations.flat_map(|location| &location.line);
            let name = |line: &Line| {
                let is_it = |function: &&Function| function.id == line.function_id;
                text(message.function.iter().find(is_it).unwrap().name).to_owned()
            };
            lines.map(name).collect()
        };
        assert_eq!(names(&message.sample[0]), ["a", "caller", "main"]);
        assert_eq!(names(&message.sample[1]), ["b", "caller", "main"]);
        let mut unique = message.string_table.clone();
        unique.sort();
        unique.dedup();
        assert_eq!(unique.len(), message.string_table.len());
    }
}

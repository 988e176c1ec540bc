//! Stacks in the format of pprof, compressed by gzip: `perftools.profiles.Profile` of
//! <https://github.com/google/pprof/blob/main/proto/profile.proto>. The messages have the fields
//! that this process fills.

use std::collections::HashMap;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;

use super::cpu::CpuProfile;
use super::stack::{FrameFunction, SampledStack};

const NANOS_PER_SECOND: i64 = 1_000_000_000;

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

/// Encodes a profile. A sample has its count, and its share of processor time in nanoseconds.
pub(super) fn encode(profile: &CpuProfile) -> std::io::Result<Vec<u8>> {
    let message = Tables::default().profile(profile);
    let mut compressed = GzEncoder::new(Vec::new(), Compression::default());
    compressed.write_all(&message.encode_to_vec())?;
    compressed.finish()
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
    fn profile(mut self, profile: &CpuProfile) -> Profile {
        self.text("");
        let period = NANOS_PER_SECOND / i64::from(profile.frequency.max(1));
        let samples = ValueType { r#type: self.text("samples"), unit: self.text("count") };
        let time = ValueType { r#type: self.text("cpu"), unit: self.text("nanoseconds") };
        let thread = self.text("thread");
        for stack in &profile.stacks {
            self.add(stack, period, thread);
        }
        let nanos = |time: std::time::Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        Profile {
            sample_type: vec![samples, time],
            time_nanos: i64::try_from(profile.begin_ms).unwrap_or_default() * 1_000_000,
            duration_nanos: nanos(profile.took),
            period_type: Some(time),
            period,
            ..self.message
        }
    }

    fn add(&mut self, stack: &SampledStack, period: i64, thread: i64) {
        let count = i64::try_from(stack.samples).unwrap_or(i64::MAX);
        let location_id = stack.frames.iter().map(|frame| self.location(frame)).collect();
        let label = vec![Label { key: thread, str: self.text(&stack.thread) }];
        let value = vec![count, count.saturating_mul(period)];
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
    use std::time::Duration;

    use flate2::read::GzDecoder;

    use super::*;

    fn function(name: &str, line: u32) -> FrameFunction {
        let (name, symbol) = (name.to_owned(), format!("_{name}"));
        FrameFunction { name, symbol, file: "src/main.rs".to_owned(), line }
    }

    #[test]
    fn each_text_function_and_location_is_there_once() {
        let stack = |leaf: &str, samples| SampledStack {
            thread: "martlet".to_owned(),
            frames: vec![vec![function(leaf, 7), function("caller", 8)], vec![function("main", 9)]],
            samples,
        };
        let profile = CpuProfile {
            stacks: vec![stack("a", 3), stack("b", 1)],
            frequency: 100,
            begin_ms: 1_700_000_000_000,
            took: Duration::from_secs(2),
        };
        let mut bytes = Vec::new();
        let encoded = encode(&profile).unwrap();
        GzDecoder::new(&encoded[..]).read_to_end(&mut bytes).unwrap();
        let message = Profile::decode(&bytes[..]).unwrap();
        let text = |at: i64| message.string_table[usize::try_from(at).unwrap()].as_str();
        assert_eq!(text(0), "");
        let types: Vec<_> =
            message.sample_type.iter().map(|it| (text(it.r#type), text(it.unit))).collect();
        assert_eq!(types, [("samples", "count"), ("cpu", "nanoseconds")]);
        assert_eq!((message.period, message.duration_nanos), (10_000_000, 2_000_000_000));
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

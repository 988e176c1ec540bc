//! Stacks as text, one line for each: `THREAD;OUTERMOST;…;INNERMOST SAMPLES`. Tools that draw flame
//! graphs read it.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::stack::SampledStack;

/// Separator of the functions of a line.
const SEPARATOR: char = ';';

/// Encodes stacks, in the order of their lines. Equal lines are added up.
pub(super) fn encode(stacks: &[SampledStack]) -> String {
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for stack in stacks {
        let functions = stack.frames.iter().rev().flat_map(|frame| frame.iter().rev());
        let mut line = plain(&stack.thread);
        for function in functions {
            line.push(SEPARATOR);
            line.push_str(&plain(&function.name));
        }
        *lines.entry(line).or_default() += stack.samples;
    }
    let mut text = String::new();
    for (line, samples) in lines {
        writeln!(text, "{line} {samples}").expect("writing to a String can't fail");
    }
    text
}

/// Returns a name without the characters that structure a line.
fn plain(name: &str) -> String {
    name.replace([SEPARATOR, '\n'], ":")
}

#[cfg(test)]
mod tests {
    use super::super::stack::FrameFunction;
    use super::*;

    #[test]
    fn lines_begin_at_the_outermost_call_and_are_added_up() {
        let function = |name: &str| FrameFunction {
            name: name.to_owned(),
            symbol: String::new(),
            file: String::new(),
            line: 1,
        };
        let stack = |samples| SampledStack {
            thread: "martlet".to_owned(),
            frames: vec![
                vec![function("inlined"), function("caller;of it")],
                vec![function("main")],
            ],
            samples,
        };
        let other = SampledStack { thread: "disk-d1".to_owned(), frames: Vec::new(), samples: 2 };
        let text = encode(&[stack(3), other, stack(4)]);
        assert_eq!(text, "disk-d1 2\nmartlet;main;caller:of it;inlined 7\n");
        assert_eq!(encode(&[]), "");
    }
}

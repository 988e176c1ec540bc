//! Methods and parameters that a source file declares.

use std::collections::BTreeMap;

use super::tokens::{Token, closed};

/// Returns the number of methods and associated functions in the inherent `impl` blocks of each
/// type.
pub fn inherent_methods(tokens: &[Token<'_>]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for at in (0..tokens.len()).filter(|at| begins_impl(tokens, *at)) {
        let Some(length) = tokens[at..].iter().position(|token| token.text == "{") else { break };
        let body = at + length;
        if let Some(name) = implemented_type(&tokens[at + 1..body]) {
            *counts.entry(name).or_default() += methods(&tokens[body..closed(tokens, body)]);
        }
    }
    counts
}

/// Returns true if an `impl` block begins here, rather than a type such as `impl Fn()`.
fn begins_impl(tokens: &[Token<'_>], at: usize) -> bool {
    let before = at.checked_sub(1).map_or(";", |before| tokens[before].text);
    tokens[at].text == "impl" && ["}", "{", ";", "]", "unsafe"].contains(&before)
}

/// Returns the type of an inherent `impl` block from its head; `None` if the block implements a
/// trait.
fn implemented_type(head: &[Token<'_>]) -> Option<String> {
    let mut name = None;
    let mut at = 0;
    while at < head.len() {
        match head[at].text {
            "<" => {
                at = closed(head, at);
                continue;
            }
            "for" => return None,
            "where" => break,
            text if head[at].is_word() => name = Some(text.to_owned()),
            _ => {}
        }
        at += 1;
    }
    name
}

/// Counts the functions directly within braces.
fn methods(block: &[Token<'_>]) -> usize {
    let (mut depth, mut count) = (0, 0);
    for pair in block.windows(2) {
        match pair[0].text {
            "{" => depth += 1,
            "}" => depth -= 1,
            "fn" if depth == 1 && pair[1].is_word() => count += 1,
            _ => {}
        }
    }
    count
}

/// Parameters of a function that are tuples by value, and so hide the number of its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TupleParameters {
    /// Name of the function.
    pub function: String,
    /// Number of the line that declares the function, from 1.
    pub line: usize,
    /// Number of its parameters that are tuples.
    pub count: usize,
}

/// Returns all functions with the number of their parameters that are tuples.
pub fn tuple_parameters(tokens: &[Token<'_>]) -> Vec<TupleParameters> {
    let mut found = Vec::new();
    for at in 0..tokens.len().saturating_sub(2) {
        let name = tokens[at + 1];
        if tokens[at].text != "fn" || !name.is_word() {
            continue;
        }
        let start = if tokens[at + 2].text == "<" { closed(tokens, at + 2) } else { at + 2 };
        if tokens.get(start).is_none_or(|token| token.text != "(") {
            continue;
        }
        let list = &tokens[start + 1..closed(tokens, start) - 1];
        let count = elements(list).into_iter().filter(|it| is_tuple(it)).count();
        found.push(TupleParameters { function: name.text.to_owned(), line: name.line, count });
    }
    found
}

/// Splits a list at its commas outside brackets.
fn elements<'a, 't>(list: &'a [Token<'t>]) -> Vec<&'a [Token<'t>]> {
    let mut depth = 0;
    let parts = list.split(|token| {
        match token.text {
            "(" | "[" | "{" | "<" => depth += 1,
            ")" | "]" | "}" | ">" => depth -= 1,
            _ => {}
        }
        depth == 0 && token.text == ","
    });
    parts.filter(|part| !part.is_empty()).collect()
}

/// Returns true for a parameter whose type is a tuple of at least two elements.
fn is_tuple(parameter: &[Token<'_>]) -> bool {
    let mut depth = 0;
    let colon = parameter.iter().position(|token| {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        depth == 0 && token.text == ":"
    });
    match colon.map_or(&[][..], |colon| &parameter[colon + 1..]) {
        [open, inner @ .., close] if open.text == "(" && close.text == ")" => {
            elements(inner).len() > 1
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tokens::tokens;
    use super::*;

    #[test]
    fn methods_are_counted_by_type() {
        let source = "impl<'a, T: Into<Vec<u8>>> Store<'a, T> where T: Clone {
                pub fn one(&self) { fn inner() {} } const async fn two(f: fn(u8)) {}
            }
            impl crate::Store { fn three(); }
            impl Drop for Store { fn drop(&mut self) {} }
            fn free() -> impl Fn() { || {} }
            #[allow(x)] impl Other { const ONE: u8 = 1; }";
        let counts = inherent_methods(&tokens(source));
        assert_eq!(counts, BTreeMap::from([("Store".to_owned(), 3), ("Other".to_owned(), 0)]));
    }

    #[test]
    fn parameters_are_tuples_by_their_types() {
        let source = "fn f<A: Fn(u8) -> (u8, u8)>((a, b): (A, B), c: (u8, (u8, u8)), d: ()) {}
            fn g(&self, (a, b): &(A, B), f: impl Fn((u8, u8)), e: Option<(u8, u8)>, o: (u8)) {}
            type F = fn(a: (u8, u8));";
        let found: Vec<_> = tuple_parameters(&tokens(source))
            .into_iter()
            .map(|it| (it.function, it.line, it.count))
            .collect();
        assert_eq!(found, [("f".to_owned(), 1, 2), ("g".to_owned(), 2, 0)]);
    }
}

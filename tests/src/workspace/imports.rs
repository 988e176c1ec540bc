//! Imports of a source file: `use` trees, and paths from `crate`, `super` or `self` in its code.

use super::tokens::{Token, closed};

/// Path that a file imports, from the module that contains the import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// Inline modules around the import, from the file's own module inwards.
    pub within: Vec<String>,
    /// Segments of the path; `*` is the last segment of a glob.
    pub path: Vec<String>,
    /// Name that the import binds: `None` for a glob, for `as _`, and for a path in code.
    pub name: Option<String>,
}

/// Returns the imports of a file, in their order.
pub fn imports(tokens: &[Token<'_>]) -> Vec<Import> {
    let mut scan = ImportScan::default();
    let mut at = 0;
    while at < tokens.len() {
        at = scan.step(tokens, at);
    }
    scan.found
}

/// Imports found so far, with the brackets around the present position.
#[derive(Default)]
struct ImportScan {
    found: Vec<Import>,
    /// Name of the inline module that each open brace begins, if the brace begins one.
    braces: Vec<Option<String>>,
}

impl ImportScan {
    /// Reads the declaration or token at `at`, and returns the position of the next one.
    fn step(&mut self, tokens: &[Token<'_>], at: usize) -> usize {
        let text = |offset: usize| tokens.get(at + offset).map_or("", |token| token.text);
        match text(0) {
            // A restricted visibility contains a path that is no import.
            "pub" if text(1) == "(" => return closed(tokens, at + 1),
            "use" if text(1) != "<" => return self.read_use(tokens, at + 1),
            "mod" if text(2) == "{" => {
                self.braces.push(Some(text(1).to_owned()));
                return at + 3;
            }
            "crate" | "super" | "self" if text(1) == "::" => return self.read_path(tokens, at),
            "{" => self.braces.push(None),
            "}" => drop(self.braces.pop()),
            _ => {}
        }
        at + 1
    }

    fn read_use(&mut self, tokens: &[Token<'_>], at: usize) -> usize {
        let length = tokens[at..].iter().position(|token| token.text == ";");
        let end = length.map_or(tokens.len(), |length| at + length);
        self.read_tree(&tokens[at..end], &[]);
        end
    }

    /// Reads a `use` tree whose paths begin with `prefix`.
    fn read_tree(&mut self, tree: &[Token<'_>], prefix: &[String]) {
        let mut path = prefix.to_vec();
        for (at, token) in tree.iter().enumerate() {
            match token.text {
                "::" => {}
                "{" => {
                    let inner = &tree[at + 1..closed(tree, at) - 1];
                    for branch in branches(inner) {
                        self.read_tree(branch, &path);
                    }
                    return;
                }
                "as" => {
                    let name = tree.get(at + 1).map(|token| token.text.to_owned());
                    return self.add(path, name.filter(|name| name != "_"));
                }
                // A `self` at the end of a tree names the module itself.
                "self" if !prefix.is_empty() => {}
                text => path.push(text.to_owned()),
            }
        }
        let name = path.last().filter(|name| *name != "*").cloned();
        self.add(path, name);
    }

    /// Reads a path in code, such as `super::print::show`.
    fn read_path(&mut self, tokens: &[Token<'_>], at: usize) -> usize {
        let mut path = vec![tokens[at].text.to_owned()];
        let mut next = at + 1;
        while let [mark, segment, ..] = tokens[next..]
            && mark.text == "::"
            && segment.is_word()
        {
            path.push(segment.text.to_owned());
            next += 2;
        }
        self.add(path, None);
        next
    }

    fn add(&mut self, path: Vec<String>, name: Option<String>) {
        let within = self.braces.iter().flatten().cloned().collect();
        self.found.push(Import { within, path, name });
    }
}

/// Splits the inner part of a tree's braces at its outer commas.
fn branches<'a, 't>(inner: &'a [Token<'t>]) -> Vec<&'a [Token<'t>]> {
    let mut depth = 0;
    let parts = inner.split(|token| {
        match token.text {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
        depth == 0 && token.text == ","
    });
    parts.filter(|part| !part.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tokens::tokens;
    use super::*;

    /// Imports as texts: the path, and behind `=` the name, if the import binds another one.
    fn read(source: &str) -> Vec<String> {
        let shown = |import: Import| {
            let (path, last) = (import.path.join("::"), import.path.last().cloned());
            let within =
                import.within.iter().fold(String::new(), |all, name| all + "[" + name + "]");
            match import.name {
                Some(name) if Some(&name) != last.as_ref() => format!("{within}{path}={name}"),
                Some(_) => within + &path,
                None => format!("{within}{path}="),
            }
        };
        imports(&tokens(source)).into_iter().map(shown).collect()
    }

    #[test]
    fn a_tree_is_one_path_for_each_leaf() {
        assert_eq!(
            read("use a::{b, c::{d as e, self}, f::*, g as _,};"),
            ["a::b", "a::c::d=e", "a::c", "a::f::*=", "a::g="]
        );
        assert_eq!(read("pub(crate) use self::a::B; use super::*;"), ["self::a::B", "super::*="]);
    }

    #[test]
    fn paths_in_code_are_imports_without_a_name() {
        assert_eq!(
            read("fn f() -> super::A { crate::b::c(); self.d(); self::e::F {} }"),
            ["super::A=", "crate::b::c=", "self::e::F="]
        );
    }

    #[test]
    fn visibilities_and_captures_are_no_imports() {
        assert_eq!(read("pub(in super::super) fn f() -> impl A + use<'_> {}"), [""; 0]);
    }

    #[test]
    fn imports_know_their_inline_modules() {
        assert_eq!(
            read("mod a { mod b { use super::C; } use d::E; } use f::G;"),
            ["[a][b]super::C", "[a]d::E", "f::G"]
        );
    }
}

//! Sources of a crate: the tokens of its modules, without tests.

use std::collections::BTreeMap;

use super::tokens::{CFG_TEST, Token, closed, starts_with, tokens, without_tests};

/// Source file of a crate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// Path below the crate's `src` folder.
    pub path: String,
    /// Content of the file.
    pub text: String,
}

impl SourceFile {
    /// Makes a source file from its path and its content.
    pub fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }
}

/// Path of a module within its crate; the root's is empty.
pub type ModulePath = Vec<String>;

/// Tokens of each module of a crate, without items and modules of tests.
pub type ModuleTokens<'a> = BTreeMap<ModulePath, Vec<Token<'a>>>;

/// Returns the modules of a crate's files.
pub fn modules(files: &[SourceFile]) -> ModuleTokens<'_> {
    let all: Vec<(ModulePath, Vec<Token<'_>>)> =
        files.iter().map(|file| (module_path(&file.path), tokens(&file.text))).collect();
    let tests: Vec<ModulePath> =
        all.iter().flat_map(|(path, tokens)| test_modules(path, tokens)).collect();
    let is_test = |path: &ModulePath| tests.iter().any(|test| path.starts_with(test));
    let production = all.into_iter().filter(|(path, _)| !is_test(path));
    production.map(|(path, tokens)| (path, without_tests(&tokens))).collect()
}

/// Returns the module of a file, from its path below `src/`.
fn module_path(file: &str) -> ModulePath {
    let mut path: ModulePath = file.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if path.last().is_some_and(|last| ["lib", "main", "mod"].contains(&last.as_str())) {
        path.pop();
    }
    path
}

/// Returns the modules that a module declares below `#[cfg(test)]`.
fn test_modules(module: &[String], tokens: &[Token<'_>]) -> Vec<ModulePath> {
    let marked = (0..tokens.len()).filter(|at| starts_with(&tokens[*at..], &CFG_TEST));
    let names = marked.filter_map(|at| module_name(&tokens[at + CFG_TEST.len()..]));
    names.map(|name| [module, [name.to_owned()].as_slice()].concat()).collect()
}

/// Returns the name of the module that the tokens declare, if they begin with such a declaration.
fn module_name<'a>(tokens: &[Token<'a>]) -> Option<&'a str> {
    let start = match tokens {
        [public, bracket, ..] if public.text == "pub" && bracket.text == "(" => closed(tokens, 1),
        [public, ..] if public.text == "pub" => 1,
        _ => 0,
    };
    match &tokens[start..] {
        [keyword, name, ..] if keyword.text == "mod" => Some(name.text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_have_the_paths_of_their_files() {
        let files = ["lib.rs", "a.rs", "a/b.rs", "c/mod.rs", "c/d.rs"];
        let files = files.map(|path| SourceFile::new(path, ""));
        let paths: Vec<String> = modules(&files).keys().map(|path| path.join("::")).collect();
        assert_eq!(paths, ["", "a", "a::b", "c", "c::d"]);
    }

    #[test]
    fn modules_of_tests_are_left_out() {
        let files = [
            SourceFile::new("main.rs", "#[cfg(test)] mod a; #[cfg(test)] pub(in crate::x) mod b;"),
            SourceFile::new("a.rs", "mod c;"),
            SourceFile::new("a/c.rs", ""),
            SourceFile::new("b.rs", ""),
            SourceFile::new("ab.rs", "fn d() {} #[cfg(test)] mod tests { fn e() {} }"),
        ];
        let modules = modules(&files);
        let paths: Vec<String> = modules.keys().map(|path| path.join("::")).collect();
        assert_eq!(paths, ["", "ab"]);
        assert_eq!(modules[&vec!["ab".to_owned()]].len(), 6);
    }
}

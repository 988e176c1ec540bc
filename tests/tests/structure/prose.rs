//! Prose and documents: words that readers need to read twice, pointers, and the list of decisions.

use std::fs;
use std::path::Path;

use martlet_tests::workspace::{self, files, rust_files, shown};

/// Words that begin a question or a clause without a subject.
const OPENINGS: [&str; 10] =
    ["What", "Who", "Whose", "Whom", "Whether", "How", "Whoever", "Whatever", "Where", "Which"];

#[test]
fn doc_comments_open_with_a_noun_or_a_verb() {
    let is_doc = |line: &str| line.starts_with("///") || line.starts_with("//!");
    for path in rust_files() {
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
        for (at, line) in lines.iter().enumerate().filter(|(_, line)| is_doc(line)) {
            let goes_on = at > 0 && is_doc(lines[at - 1]);
            let first = line[3..].split_whitespace().next().unwrap_or_default();
            let opens = !goes_on && OPENINGS.contains(&first);
            assert!(!opens, "{}:{}: {line}", shown(&path), at + 1);
        }
    }
}

/// Words for persons without a role. The field's words are caller, client, proxy, operator, device.
const VAGUE: [&str; 5] = ["whoever", "whomever", "somebody", "nobody", "anybody"];

/// Returns the first vague word of a line, outside of code between backticks.
fn vague_word(line: &str) -> Option<&'static str> {
    let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join(" ").to_lowercase();
    let mut words = prose.split(|it: char| !it.is_alphanumeric() && it != '_');
    words.find_map(|word| VAGUE.into_iter().find(|vague| *vague == word))
}

#[test]
fn prose_names_its_subjects() {
    let is_comment = |line: &str| line.trim_start().starts_with("//");
    let pages = files(|path| path.extension().is_some_and(|it| it == "md"));
    for path in rust_files().into_iter().chain(pages) {
        let is_page = path.extension().is_some_and(|it| it == "md");
        let text = fs::read_to_string(&path).unwrap();
        let lines = text.lines().enumerate().filter(|(_, line)| is_page || is_comment(line));
        for (at, line) in lines.filter(|_| !path.ends_with(file!())) {
            let word = vague_word(line);
            assert!(word.is_none(), "{}:{}: {line}", shown(&path), at + 1);
        }
    }
}

#[test]
fn vague_words_are_found_in_prose_alone() {
    assert_eq!(vague_word("Returns the key to whoever asks."), Some("whoever"));
    assert_eq!(vague_word("Each test, such as `a_page_that_nobody_reads`, ends."), None);
    assert_eq!(vague_word("The test a_page_that_nobody_reads ends."), None);
}

/// The list of decisions has a line `* [NUMBER](FILE) — TITLE` for each file, in their order.
#[test]
fn each_decision_is_listed_once() {
    let folder = workspace::root().join("docs/adr");
    let decisions = files(|path| path.starts_with(&folder) && !path.ends_with("README.md"));
    let mut expected: Vec<String> = decisions
        .iter()
        .map(|path| {
            let text = fs::read_to_string(path).unwrap();
            let heading = text.lines().next().unwrap_or_default();
            let (number, title) = heading
                .strip_prefix("# ")
                .and_then(|it| it.split_once(" — "))
                .unwrap_or_else(|| panic!("{} opens with `# NUMBER — TITLE`", shown(path)));
            let name = path.file_name().unwrap().to_str().unwrap();
            assert!(name.starts_with(number), "{} has the number {number}", shown(path));
            format!("* [{number}]({name}) — {title}")
        })
        .collect();
    expected.sort();
    let list = fs::read_to_string(folder.join("README.md")).unwrap();
    let listed: Vec<&str> = list.lines().filter(|line| line.starts_with("* [")).collect();
    assert_eq!(listed, expected);
}

/// Marks of unfinished work, folders of one machine, and praise.
const UNWANTED: [&str; 16] = [
    "todo",
    "fixme",
    "xxx:",
    "unimplemented!",
    "/root/",
    "/home/",
    "/work/",
    "blazing",
    "lightning-fast",
    "world-class",
    "cutting-edge",
    "state-of-the-art",
    "revolutionary",
    "seamless",
    "effortless",
    "game-changing",
];

#[test]
fn nothing_is_left_unfinished_or_praised() {
    let written = ["rs", "md", "toml", "py", "sh", "js", "json", "yml"];
    let paths = files(|path| {
        path.extension().and_then(|it| it.to_str()).is_some_and(|it| written.contains(&it))
            || path.ends_with("Makefile")
            || path.ends_with(".ci/run")
    });
    for path in paths {
        // Skips this file, which contains all these words, and manifests with lints, of which one is
        // such a word.
        let manifests = ["Cargo.toml", "heap-profile/Cargo.toml"];
        let has_lints = manifests.iter().any(|it| path == workspace::root().join(it));
        if path.ends_with(file!()) || has_lints {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap().to_lowercase();
        for (at, line) in text.lines().enumerate() {
            let word = UNWANTED.iter().find(|word| line.contains(**word));
            assert!(word.is_none(), "{}:{}: {line}", shown(&path), at + 1);
        }
    }
}

/// Pages whose pointers `file.rs` and `file.rs::name` lead into the code.
const POINTING: [&str; 5] = [
    "docs/INVARIANTS.md",
    "docs/FAULT_MODEL.md",
    "docs/WIRE.md",
    "docs/ARCHITECTURE.md",
    "docs/PROOF.md",
];

/// Returns the pointers of a page: paths of Rust files, with the name of an item if there is one.
fn pointers(page: &str) -> Vec<(&str, Option<&str>)> {
    let quoted = page.split('`').skip(1).step_by(2);
    let all =
        quoted.map(|text| text.split_once("::").map_or((text, None), |it| (it.0, Some(it.1))));
    let is_file = |path: &str| Path::new(path).extension().is_some_and(|it| it == "rs");
    all.filter(|(path, _)| path.contains('/') && is_file(path) && !path.contains(['{', ' ']))
        .map(|(path, name)| (path, name.and_then(|name| name.rsplit("::").next())))
        .collect()
}

/// Returns true if a source text defines an item of this name.
fn defines(code: &str, name: &str) -> bool {
    let is_part = |it: char| it.is_alphanumeric() || it == '_';
    ["fn", "struct", "enum", "trait", "const", "type", "mod"].iter().any(|kind| {
        let definition = format!("{kind} {name}");
        let mut found = code.match_indices(&definition);
        found.any(|(at, _)| !code[at + definition.len()..].starts_with(is_part))
    })
}

#[test]
fn pointers_of_documents_lead_somewhere() {
    let mut followed = 0;
    for page in POINTING {
        let text = fs::read_to_string(workspace::root().join(page)).unwrap();
        for (path, name) in pointers(&text) {
            let code = fs::read_to_string(workspace::root().join(path));
            let code = code.unwrap_or_else(|_| panic!("{page} points to {path}, which is gone"));
            let is_defined = name.is_none_or(|name| defines(&code, name));
            assert!(is_defined, "{page}: {path} does not define {name:?}");
            followed += 1;
        }
    }
    assert!(followed > 300, "only {followed} pointers were found");
}

/// Words of names of functions that hide the subject: a test's name states the caller, the component
/// and the result.
const UNCLEAR: [&str; 15] = [
    "whoever",
    "whatever",
    "somebody",
    "nobody",
    "nobodys",
    "anybody",
    "everybody",
    "tell",
    "tells",
    "told",
    "hear",
    "hears",
    "heard",
    "says",
    "said",
];
/// Words that open the name of a function as a riddle.
const RIDDLES: [&str; 4] = ["what", "who", "whose", "those"];

/// Returns the unclear word in the name of a function.
fn unclear_word(name: &str) -> Option<&str> {
    let riddle = name.split_once('_').map(|(first, _)| first).filter(|it| RIDDLES.contains(it));
    riddle.or_else(|| name.split('_').find(|word| UNCLEAR.contains(word)))
}

#[test]
fn functions_have_names_with_a_subject() {
    for path in rust_files() {
        let text = fs::read_to_string(&path).unwrap();
        for (at, line) in text.lines().enumerate() {
            let Some((_, rest)) = line.split_once("fn ") else { continue };
            let end = rest.find(|it: char| !it.is_alphanumeric() && it != '_');
            let name = &rest[..end.unwrap_or(rest.len())];
            let word = unclear_word(name);
            assert!(word.is_none(), "{}:{}: {name}", shown(&path), at + 1);
        }
    }
}

#[test]
fn unclear_words_are_found_in_names() {
    assert_eq!(unclear_word("what_is_none_is_refused"), Some("what"));
    assert_eq!(unclear_word("a_client_is_told_the_time"), Some("told"));
    assert_eq!(unclear_word("malformed_networks_are_refused"), None);
    assert_eq!(unclear_word("what"), None, "a parameter may have this name");
}

//! Text of a settings file, and the places of names in it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use toml::de::DeTable;

use crate::failure::Failure;
use crate::nearest::nearest;

/// Settings file. Without a file, an empty text.
#[derive(Clone, Default)]
pub(crate) struct SettingsFile {
    path: Option<PathBuf>,
    text: String,
}

impl SettingsFile {
    /// Reads a file.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            Failure::usage(format!("the settings in {} can't be read: {error}", path.display()))
        })?;
        Ok(Self { path: Some(path.to_owned()), text })
    }

    /// Makes a file from a text.
    pub(crate) fn of_text(text: &str) -> Self {
        Self { path: None, text: text.to_owned() }
    }

    /// Returns the text.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Refuses a text that is no TOML, and names that aren't among `names`. All unknown names are in
    /// the message, which grows with the file alone.
    pub(crate) fn check_names(&self, names: &[&str]) -> Result<(), Failure> {
        let table = DeTable::parse(&self.text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let place = self.place(at);
            Failure::usage(format!("the settings can't be parsed{place}: {}", error.message()))
        })?;
        let keys = table.get_ref().keys();
        let mut unknown: Vec<_> = keys.filter(|key| !names.contains(&&**key.get_ref())).collect();
        unknown.sort_by_key(|key| key.span().start);
        if unknown.is_empty() {
            return Ok(());
        }
        let sentences: Vec<String> = unknown
            .iter()
            .map(|key| {
                let (name, place) = (&**key.get_ref(), self.place(key.span().start));
                match nearest(name, names.iter().copied()) {
                    Some(right) => {
                        format!("there is no setting \"{name}\"{place}: did you mean \"{right}\"?")
                    }
                    None => format!(
                        "there is no setting \"{name}\"{place}; there are: {}",
                        names.join(", ")
                    ),
                }
            })
            .collect();
        Err(Failure::usage(sentences.join("\n")))
    }

    /// Returns the line of each setting in the file, as `line 3 of FILE`.
    pub(crate) fn sources(&self) -> BTreeMap<String, String> {
        let Ok(table) = DeTable::parse(&self.text) else { return BTreeMap::new() };
        let source = |at| self.place(at).trim_start_matches(" in ").to_owned();
        let keys = table.get_ref().keys();
        keys.map(|key| (key.get_ref().to_string(), source(key.span().start))).collect()
    }

    /// Returns the place of a setting for people, such as ` in line 3 of FILE`. Empty if the file
    /// doesn't have the setting.
    pub(crate) fn place_of(&self, name: &str) -> String {
        let Ok(table) = DeTable::parse(&self.text) else { return String::new() };
        let key = table.get_ref().keys().find(|key| &**key.get_ref() == name);
        key.map(|key| self.place(key.span().start)).unwrap_or_default()
    }

    fn place(&self, at: usize) -> String {
        let line = self.text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1;
        match &self.path {
            Some(path) => format!(" in line {line} of {}", path.display()),
            None => format!(" in line {line}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        let file = SettingsFile { path: Some("/etc/x.toml".into()), text: text.to_owned() };
        let checked = file.check_names(&["s3_address", "devices", "memory"]);
        checked.err().map(|failure| failure.to_string()).unwrap_or_default()
    }

    #[test]
    fn unknown_names_are_refused_with_their_lines_and_the_nearest_names() {
        assert_eq!(refusal("memory = '1GiB'\n[devices]\nmemry = '/x'"), "");
        assert_eq!(
            refusal("# a file\nmemory = '1GiB'\ns3_adress = 'x'"),
            "there is no setting \"s3_adress\" in line 3 of /etc/x.toml: did you mean \
             \"s3_address\"?"
        );
        let two = refusal("[device]\na = '/a'\n[zzz]\n");
        let lines: Vec<&str> = two.lines().collect();
        assert!(lines[0].contains("line 1 of") && lines[0].contains("\"devices\"?"), "{two}");
        assert!(
            lines[1].ends_with("line 3 of /etc/x.toml; there are: s3_address, devices, memory")
        );
    }

    #[test]
    fn a_text_that_is_no_toml_is_refused_with_its_line() {
        let refused = refusal("memory = '1GiB'\nmemory: 3");
        assert!(refused.starts_with("the settings can't be parsed in line 2 of /etc/x.toml"));
        let twice = refusal("memory = '1GiB'\nmemory = '1GiB'");
        assert!(twice.contains("in line 2 of"), "{twice}");
    }

    #[test]
    fn a_setting_has_a_place() {
        let file = SettingsFile::of_text("a = 1\n\nb = 2");
        assert_eq!((file.place_of("b"), file.place_of("c")), (" in line 3".into(), String::new()));
        let sources = [("a".into(), "line 1".into()), ("b".into(), "line 3".into())];
        assert_eq!(file.sources(), sources.into());
    }
}

//! Selection of keys by patterns with `*` and `?`, which match slashes too.

use wildmatch::WildMatch;

/// Selection of keys: those that an include pattern matches, or all keys without such patterns,
/// except those that an exclude pattern matches.
#[derive(Clone, Debug, Default)]
pub struct KeyFilter {
    include: Vec<WildMatch>,
    exclude: Vec<WildMatch>,
}

impl KeyFilter {
    /// Makes a filter.
    pub fn new(include: &[String], exclude: &[String]) -> Self {
        let parse = |patterns: &[String]| patterns.iter().map(|it| WildMatch::new(it)).collect();
        Self { include: parse(include), exclude: parse(exclude) }
    }

    /// Returns true if the filter selects a key.
    pub(crate) fn selects(&self, key: &str) -> bool {
        let any = |patterns: &[WildMatch]| patterns.iter().any(|it| it.matches(key));
        (self.include.is_empty() || any(&self.include)) && !any(&self.exclude)
    }

    /// Returns the patterns as text, which identifies the selection.
    pub(crate) fn identity(&self) -> String {
        let texts = |patterns: &[WildMatch]| patterns.iter().map(WildMatch::pattern).collect();
        let [include, exclude]: [Vec<String>; 2] = [texts(&self.include), texts(&self.exclude)];
        format!("{include:?}{exclude:?}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(include: &[&str], exclude: &[&str]) -> KeyFilter {
        let own = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        KeyFilter::new(&own(include), &own(exclude))
    }

    #[test]
    fn patterns_select_keys() {
        assert!(filter(&[], &[]).selects("any/key"));
        let images = filter(&["images/*.png", "*.txt"], &["*/tmp/*", "?.txt"]);
        for key in ["images/a.png", "images/a/b.png", "notes.txt", "images/.hidden.png"] {
            assert!(images.selects(key), "{key}");
        }
        for key in ["images/a.jpg", "images/tmp/a.png", "a.txt", "other/a.png", "images/A.PNG"] {
            assert!(!images.selects(key), "{key}");
        }
    }
}

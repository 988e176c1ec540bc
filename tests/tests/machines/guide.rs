//! Blocks of the guide: files and commands, by the heading above them.

use martlet_tests::workspace;

/// Blocks of a page.
pub(super) struct Guide(Vec<Block>);

/// A fenced block.
struct Block {
    heading: String,
    language: String,
    text: String,
}

impl Guide {
    /// Reads the page about clusters.
    pub(super) fn read() -> Self {
        let page = std::fs::read_to_string(workspace::root().join("docs/CLUSTER.md")).unwrap();
        let (mut heading, mut blocks) = (String::new(), Vec::new());
        let mut open: Option<Block> = None;
        for line in page.lines() {
            match (&mut open, line.strip_prefix("```")) {
                (None, Some(language)) => {
                    let (heading, language) = (heading.clone(), language.to_owned());
                    open = Some(Block { heading, language, text: String::new() });
                }
                (Some(_), Some(_)) => blocks.extend(open.take()),
                (Some(block), None) => block.text.extend([line, "\n"]),
                (None, None) => {
                    if let Some(title) = line.strip_prefix("### ") {
                        title.clone_into(&mut heading);
                    } else if line.starts_with("## ") {
                        heading.clear();
                    }
                }
            }
        }
        Self(blocks)
    }

    fn blocks<'a>(
        &'a self,
        heading: &'a str,
        language: &'a str,
    ) -> impl Iterator<Item = &'a Block> {
        self.0.iter().filter(move |it| it.heading == heading && it.language == language)
    }

    /// A file or its edit.
    pub(super) fn toml(&self, heading: &str, number: usize) -> String {
        let block = self.blocks(heading, "toml").nth(number);
        block.unwrap_or_else(|| panic!("{heading} has no toml block {number}")).text.clone()
    }

    /// Commands.
    pub(super) fn sh(&self, heading: &str, number: usize) -> String {
        let block = self.blocks(heading, "sh").nth(number);
        block.unwrap_or_else(|| panic!("{heading} has no sh block {number}")).text.clone()
    }

    /// The first line of commands.
    pub(super) fn first_line(&self, heading: &str, number: usize) -> String {
        self.sh(heading, number).lines().next().unwrap().to_owned()
    }

    /// Number of blocks of commands.
    pub(super) fn count(&self, heading: &str) -> usize {
        self.blocks(heading, "sh").count()
    }
}

//! Merge of the metrics of several roles of a process into one text. A family has one head, and each
//! of its samples the label `role`.

use std::collections::HashMap;

const END: &str = "# EOF";

/// Lines of a family: its head and its samples.
#[derive(Default)]
struct FamilyLines {
    head: Vec<String>,
    samples: Vec<String>,
}

/// Families in the order in which they came up.
#[derive(Default)]
struct FamilySet {
    families: Vec<FamilyLines>,
    known: HashMap<String, usize>,
}

impl FamilySet {
    fn family(&mut self, name: &str) -> usize {
        let next = self.families.len();
        let at = *self.known.entry(name.to_owned()).or_insert(next);
        if at == next {
            self.families.push(FamilyLines::default());
        }
        at
    }

    /// Adds all lines of a text. Samples follow the head of their family.
    fn add(&mut self, text: &str, role: Option<&str>) {
        let mut current = None;
        for line in text.lines().filter(|line| !line.is_empty() && *line != END) {
            if let Some(rest) = line.strip_prefix("# ") {
                let name = rest.split(' ').nth(1).unwrap_or_default();
                let at = self.family(name);
                current = Some(at);
                let kind = rest.split(' ').next().unwrap_or_default();
                let head = &mut self.families[at].head;
                let is_known = |other: &String| other[2..].split(' ').next() == Some(kind);
                if !head.iter().any(is_known) {
                    head.push(line.to_owned());
                }
                continue;
            }
            let at = current.unwrap_or_else(|| self.family(sample_name(line)));
            let sample = role.map_or_else(|| line.to_owned(), |role| labelled(line, role));
            self.families[at].samples.push(sample);
        }
    }
}

fn sample_name(line: &str) -> &str {
    line.split(['{', ' ']).next().unwrap_or_default()
}

/// Adds the label of the role to a sample.
fn labelled(line: &str, role: &str) -> String {
    let name = sample_name(line);
    let rest = &line[name.len()..];
    match rest.strip_prefix('{') {
        Some(labels) if labels.starts_with('}') => format!("{name}{{role=\"{role}\"{labels}"),
        Some(labels) => format!("{name}{{role=\"{role}\",{labels}"),
        None => format!("{name}{{role=\"{role}\"}}{rest}"),
    }
}

/// Merges the process's own metrics with those of its roles.
pub(super) fn merge(own: &str, roles: impl IntoIterator<Item = (&'static str, String)>) -> String {
    let mut set = FamilySet::default();
    set.add(own, None);
    for (role, text) in roles {
        set.add(&text, Some(role));
    }
    let mut text = String::new();
    for line in set.families.iter().flat_map(|family| family.head.iter().chain(&family.samples)) {
        text.push_str(line);
        text.push('\n');
    }
    text + END + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_has_one_head_and_samples_of_all_roles() {
        let proxy = "# HELP m_x Things.\n# TYPE m_x counter\nm_x_total{a=\"1 }\"} 3\n# TYPE m_y \
                     gauge\nm_y 1\n# EOF\n";
        let node = "# HELP m_x Things.\n# TYPE m_x counter\nm_x_total{} 4\n# EOF\n";
        let roles = [("proxy", proxy.to_owned()), ("storage-node", node.to_owned())];
        let expected = "# HELP m_x Things.\n# TYPE m_x counter\nm_x_total{role=\"proxy\",a=\"1 \
                        }\"} 3\nm_x_total{role=\"storage-node\"} 4\n# TYPE m_y gauge\n\
                        m_y{role=\"proxy\"} 1\n# EOF\n";
        assert_eq!(merge("# EOF\n", roles), expected);
    }
}

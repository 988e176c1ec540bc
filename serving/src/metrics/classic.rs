//! Prometheus' text format 0.0.4, made of `OpenMetrics` text: a counter's head has the name of its
//! samples, and types that the older format lacks become gauges.

/// Media type of the text.
pub(crate) const MEDIA: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Turns a page of `OpenMetrics` into one of the older format.
pub(crate) fn classic(text: &str) -> String {
    let mut page = String::with_capacity(text.len());
    // The help text comes before the type, on which the name depends.
    let mut help = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap_or((rest, ""));
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "stateset" => ("", "gauge"),
                "unknown" => ("", "untyped"),
                kind => ("", kind),
            };
            if let Some((_, help)) = help.take().filter(|(of, _)| *of == name) {
                push(&mut page, &["# HELP ", name, suffix, " ", help]);
            }
            push(&mut page, &["# TYPE ", name, suffix, " ", kind]);
        } else if !line.starts_with('#') {
            push(&mut page, &[line]);
        }
    }
    page
}

fn push(page: &mut String, words: &[&str]) {
    for word in words {
        page.push_str(word);
    }
    page.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_have_their_suffix_in_the_head() {
        let open = "# HELP m_x Things.\n# TYPE m_x counter\nm_x_total{a=\"# 1\"} 3\n\
            # HELP m_s Bytes.\n# TYPE m_s gauge\n# UNIT m_s bytes\nm_s 1\n\
            # HELP m_b Build.\n# TYPE m_b info\nm_b_info{v=\"1\"} 1\n# EOF\n";
        let expected = "# HELP m_x_total Things.\n# TYPE m_x_total counter\n\
            m_x_total{a=\"# 1\"} 3\n# HELP m_s Bytes.\n# TYPE m_s gauge\nm_s 1\n\
            # HELP m_b_info Build.\n# TYPE m_b_info gauge\nm_b_info{v=\"1\"} 1\n";
        assert_eq!(classic(open), expected);
    }
}

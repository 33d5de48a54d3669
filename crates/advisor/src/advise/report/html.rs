//! Puts the page together.

use super::data;
use crate::analyse::findings::Findings;

const PAGE: &str = include_str!("page/page.html");
const STYLES: [&str; 3] = [
    include_str!("page/page.css"),
    include_str!("page/tables.css"),
    include_str!("page/charts.css"),
];
/// In this order: each uses those before it.
const SCRIPTS: [&str; 11] = [
    include_str!("page/words.js"),
    include_str!("page/parts.js"),
    include_str!("page/table.js"),
    include_str!("page/measured.js"),
    include_str!("page/summary.js"),
    include_str!("page/timeline.js"),
    include_str!("page/flame.js"),
    include_str!("page/verdicts.js"),
    include_str!("page/replay.js"),
    include_str!("page/kernel.js"),
    include_str!("page/start.js"),
];

/// The whole page.
pub fn page(findings: &Findings) -> serde_json::Result<String> {
    let data = in_script(&serde_json::to_string(&data::data(findings)?)?);
    let title = text(&format!("{} · allot advise", findings.program.command.join(" ")));
    let script = format!("\"use strict\";\n(() => {{\n{}}})();\n", SCRIPTS.concat());
    let style = STYLES.concat();
    // One pass, so that nothing in the findings is taken for a placeholder.
    let mut page = String::with_capacity(PAGE.len() + style.len() + script.len() + data.len());
    for (number, part) in PAGE.split("@@").enumerate() {
        page += match (number % 2, part) {
            (0, text) => text,
            (_, "title") => &title,
            (_, "style") => &style,
            (_, "script") => &script,
            (_, "data") => &data,
            (_, other) => unreachable!("the template names {other}"),
        };
    }
    Ok(page)
}

/// Escapes JSON so that it can't end its script element: `<` only occurs in strings. Also escapes
/// the two separators that older browsers read as the end of a line.
fn in_script(json: &str) -> String {
    json.replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

fn text(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_does_not_end_its_element() {
        let json = in_script(r#"{"name":"</script><!--<script>"}"#);
        assert!(!json.contains('<'), "{json}");
        let back: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(back["name"], "</script><!--<script>");
    }
}

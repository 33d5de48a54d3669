//! Texts of the recorded program, made safe for one line on a terminal.

/// `text` in one line of at most `most` characters, without characters that control a terminal.
pub fn one_line(text: &str, most: usize) -> String {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.extend(word.chars().map(|c| if is_plain(c) { c } else { '?' }));
    }
    if line.chars().count() > most {
        line = line.chars().take(most.saturating_sub(1)).chain(['…']).collect();
    }
    line
}

/// Whether `c` is neither a control character nor one that changes the direction of the text.
fn is_plain(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_one_line_that_a_terminal_does_not_obey() {
        assert_eq!(one_line("create table\n\t t(a);  select", 100), "create table t(a); select");
        assert_eq!(one_line("a\u{1b}[2Jb\u{202e}c", 100), "a?[2Jb?c");
        assert_eq!(one_line("abcdefgh", 4), "abc…");
        assert_eq!(one_line("", 4), "");
    }
}

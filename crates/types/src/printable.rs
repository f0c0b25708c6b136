//! Text that others gave, as it may be shown: on a terminal, in a log, in a list by which a person
//! decides. Control characters would move the cursor, forge lines or change the order in which
//! letters are read; here they become U+FFFD.
//!
//! Not here: what is cut because it is long; other escapes (HTML). Invariant: what is
//! printable stays as it is.

/// Whether a character commands what shows it, or cannot be seen: controls (C0, DEL, C1), ends of
/// lines and paragraphs, what changes the direction of reading (UAX #9), and marks of no width. The
/// two joiners stay: letters of several scripts need them.
#[must_use]
pub fn is_unprintable(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{061c}'
                | '\u{180e}'
                | '\u{200b}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// Text for one line, or a part of it: a name must not forge a line of another object.
#[must_use]
pub fn printable(text: &str) -> String {
    text.chars().map(shown).collect()
}

/// Text of several lines, such as a table: ends of lines and tabs stay.
#[must_use]
pub fn printable_lines(text: &str) -> String {
    text.chars().map(|each| if is_layout(each) { each } else { shown(each) }).collect()
}

/// Text for one entry of a list or of a log: where it has an end of a line, what is behind that is
/// moved in, so that it is not taken for an entry of its own.
#[must_use]
pub fn printable_entry(text: &str) -> String {
    let mut lines = text.split('\n');
    let mut entry = printable_lines(lines.next().unwrap_or_default());
    for line in lines {
        entry.push_str("\n    ");
        entry.push_str(&printable_lines(line));
    }
    entry
}

/// JSON that says the same, and in which all that is not printable is escaped: the standard wants
/// that of the characters below U+0020 alone.
#[must_use]
pub fn printable_json(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for each in json.chars() {
        // Between the values of JSON that is laid out; within a text they are escaped already.
        if !is_unprintable(each) || is_layout(each) || each == '\r' {
            escaped.push(each);
            continue;
        }
        for unit in each.encode_utf16(&mut [0; 2]) {
            escaped.push_str(&format!("\\u{unit:04x}"));
        }
    }
    escaped
}

fn is_layout(letter: char) -> bool {
    matches!(letter, '\n' | '\t')
}

fn shown(letter: char) -> char {
    if is_unprintable(letter) { '\u{fffd}' } else { letter }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_commands_a_terminal_or_cannot_be_seen_is_replaced_and_letters_are_not() {
        for bad in [
            '\0', '\u{7}', '\u{8}', '\t', '\n', '\r', '\u{1b}', '\u{7f}', '\u{85}', '\u{9b}',
            '\u{200b}', '\u{200f}', '\u{2028}', '\u{202e}', '\u{2066}', '\u{2069}', '\u{feff}',
        ] {
            assert_eq!(printable(&format!("a{bad}b")), "a\u{fffd}b", "{bad:?}");
        }
        let good = "Größe 数量 عدد क्‍ष \u{200c}\u{200d} € \u{fffd} 🙂 \u{a0}";
        assert_eq!(printable(good), good);
        assert_eq!(printable_lines(good), good);
        assert_eq!(printable_entry(good), good);
    }

    #[test]
    fn lines_of_a_table_stay_and_those_of_an_entry_are_moved_in() {
        let text = "one\n\ttwo\u{1b}[2J\r\nthree";
        assert_eq!(printable_lines(text), "one\n\ttwo\u{fffd}[2J\u{fffd}\nthree");
        assert_eq!(printable_entry(text), "one\n    \ttwo\u{fffd}[2J\u{fffd}\n    three");
        assert_eq!(printable(text), "one\u{fffd}\u{fffd}two\u{fffd}[2J\u{fffd}\u{fffd}three");
    }

    #[test]
    fn json_is_escaped_where_the_standard_leaves_it_open() {
        let json = "{\n  \"a\": \"x\\u001b \u{7f}\u{9b}\u{202e}\u{e0041}ü\"\n}";
        let escaped = "{\n  \"a\": \"x\\u001b \\u007f\\u009b\\u202e\\udb40\\udc41ü\"\n}";
        assert_eq!(printable_json(json), escaped);
    }
}

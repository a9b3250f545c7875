//! Reads the text behind the flags in a help, laid out for 80 columns.
//!
//! ```text
//!   text from the left edge              paragraphs; a line that had room for the next word ends one
//!     indented lines                     stay as they are
//!   A HEADING IN CAPITALS                a section
//!     text of the section                its paragraphs
//!     a term  what it means              its items; examples without a meaning stay as they are
//! ```

use roff::roman;

use crate::pages::blocks::Block;

pub fn blocks(text: &str) -> Vec<Block> {
    let mut reader = Reader { blocks: Vec::new(), base: 0, in_examples: false, open: Open::Nothing };
    text.lines().for_each(|line| reader.read(line));
    reader.close();
    reader.blocks
}

struct Reader {
    blocks: Vec<Block>,
    base: usize,
    in_examples: bool,
    open: Open,
}

/// The next line may go on with it.
enum Open {
    Nothing,
    Paragraph {
        text: String,
        last_width: usize,
    },
    Literal {
        /// `indent` is the first line's.
        indent: usize,
        lines: Vec<String>,
    },
    Item {
        term: String,
        meaning: String,
    },
}

impl Reader {
    fn read(&mut self, line: &str) {
        let words = line.trim_start();
        let indent = line.len() - words.len();
        if words.is_empty() {
            return self.close();
        }
        if indent == 0 && is_heading(words) {
            self.close();
            self.blocks.push(Block::Section(words.to_owned()));
            self.base = SECTION_INDENT;
            self.in_examples = words == EXAMPLES;
            return;
        }
        let in_section = self.base > 0;
        if in_section && let Some((term, meaning)) = columns(words) {
            self.close();
            self.open = Open::Item { term: term.to_owned(), meaning: meaning.to_owned() };
            return;
        }
        if indent > self.base || self.in_examples {
            return match &mut self.open {
                Open::Item { meaning, .. } if indent > self.base => {
                    meaning.push(' ');
                    meaning.push_str(words);
                }
                Open::Literal { indent: first, lines } => {
                    lines.push(format!("{}{words}", " ".repeat(indent.saturating_sub(*first))));
                }
                Open::Nothing | Open::Paragraph { .. } | Open::Item { .. } => {
                    self.close();
                    self.open = Open::Literal { indent, lines: vec![words.to_owned()] };
                }
            };
        }
        let width = line.chars().count();
        let first = words.split(' ').next().unwrap_or_default().chars().count();
        match &mut self.open {
            Open::Paragraph { text, last_width } if *last_width + 1 + first > HELP_WIDTH => {
                text.push(' ');
                text.push_str(words);
                *last_width = width;
            }
            _ => {
                self.close();
                self.open = Open::Paragraph { text: words.to_owned(), last_width: width };
            }
        }
    }

    fn close(&mut self) {
        self.blocks.extend(match std::mem::replace(&mut self.open, Open::Nothing) {
            Open::Nothing => None,
            Open::Paragraph { text, .. } => Some(Block::Paragraph(vec![roman(text)])),
            Open::Literal { lines, .. } => Some(Block::Literal(lines)),
            Open::Item { term, meaning } => Some(Block::item(&term, &meaning)),
        });
    }
}

/// Capitals, perhaps with a remark in brackets.
fn is_heading(line: &str) -> bool {
    let name = line.split(" (").next().unwrap_or_default();
    name.chars().any(char::is_alphabetic) && name.chars().all(|c| c.is_uppercase() || c == ' ')
}

/// Two or more spaces part a row's columns.
fn columns(words: &str) -> Option<(&str, &str)> {
    let (term, meaning) = words.rsplit_once("  ")?;
    Some((term.trim_end(), meaning))
}

const EXAMPLES: &str = "EXAMPLES";

/// The texts are written for this terminal.
const HELP_WIDTH: usize = 80;

const SECTION_INDENT: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn section(name: &str) -> Block {
        Block::Section(name.to_owned())
    }

    #[test]
    fn a_line_that_had_room_for_more_ends_a_paragraph() {
        let text = format!("{}\nword. The end.\nAnother paragraph.\n\nAnd one more.", "x".repeat(77));
        let expected = [
            Block::plain(&format!("{} word. The end.", "x".repeat(77))),
            Block::plain("Another paragraph."),
            Block::plain("And one more."),
        ];
        assert_eq!(blocks(&text), expected);
    }

    #[test]
    fn what_is_indented_stays_line_by_line() {
        let text = "A list:\n  ro root=/a KEY\n  rw root=/b KEY\nIt is read again.";
        let lines = ["ro root=/a KEY", "rw root=/b KEY"].map(str::to_owned).to_vec();
        let expected = [Block::plain("A list:"), Block::Literal(lines), Block::plain("It is read again.")];
        assert_eq!(blocks(text), expected);
    }

    #[test]
    fn examples_stay_as_they_are() {
        let text = "EXAMPLES\n  haul cp a  what it does\n  haul cp b \\\n      c\n  haul why";
        let lines = ["haul cp b \\", "    c", "haul why"].map(str::to_owned).to_vec();
        let expected = [section("EXAMPLES"), Block::item("haul cp a", "what it does"), Block::Literal(lines)];
        assert_eq!(blocks(text), expected);
    }

    #[test]
    fn a_section_has_paragraphs_and_rows() {
        let text = "\
Before it.

THE SLASH (as in rsync)
  haul cp dir  host:to     makes to/dir
      and what is in it
  A slash means a directory.
EXIT STATUS
   0  all is there
  23  some is not";
        let expected = [
            Block::plain("Before it."),
            section("THE SLASH (as in rsync)"),
            Block::item("haul cp dir  host:to", "makes to/dir and what is in it"),
            Block::plain("A slash means a directory."),
            section("EXIT STATUS"),
            Block::item("0", "all is there"),
            Block::item("23", "some is not"),
        ];
        assert_eq!(blocks(text), expected);
    }
}

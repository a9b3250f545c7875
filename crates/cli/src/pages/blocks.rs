//! The parts of a manual page, and their man(7).

use roff::{Inline, Roff, bold, roman};

pub type Text = Vec<Inline>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Block {
    /// The heading of a section.
    Section(String),
    /// The heading within a section.
    Subsection(String),
    /// Filled to the terminal's width.
    Paragraph(Text),
    /// Lines that stay as they are.
    Literal(Vec<String>),
    /// Each text of the meaning begins a line.
    Item { term: Text, meaning: Vec<Text> },
    /// A point of a list.
    Bullet(Text),
}

impl Block {
    pub fn item(term: &str, meaning: &str) -> Self {
        Self::Item { term: vec![bold(term)], meaning: vec![vec![roman(meaning)]] }
    }

    pub fn plain(text: &str) -> Self {
        Self::Paragraph(vec![roman(text)])
    }

    pub fn is_section(&self, name: &str) -> bool {
        matches!(self, Self::Section(heading) if heading == name)
    }
}

pub fn render(blocks: &[Block]) -> Roff {
    let mut roff = Roff::new();
    let mut below_heading = false;
    for block in blocks {
        match block {
            Block::Section(heading) => {
                roff.control("SH", [heading.as_str()]);
            }
            Block::Subsection(heading) => {
                roff.control("SS", [heading.as_str()]);
            }
            Block::Paragraph(text) => {
                // man(7) has a heading's space already, and mandoc warns of another.
                if !below_heading {
                    roff.control("PP", []);
                }
                roff.text(text.clone());
            }
            Block::Literal(lines) => {
                roff.control("IP", [NO_TAG, LITERAL_INDENT]);
                roff.control("nf", []);
                for line in lines {
                    // An empty line requests space in some implementations.
                    if line.is_empty() {
                        roff.control("sp", [])
                    } else {
                        roff.text([roman(line)])
                    };
                }
                roff.control("fi", []);
            }
            Block::Item { term, meaning } => {
                roff.control("TP", []);
                roff.text(term.clone());
                for (number, text) in meaning.iter().enumerate() {
                    if number > 0 {
                        roff.control("br", []);
                    }
                    roff.text(text.clone());
                }
            }
            Block::Bullet(text) => {
                roff.control("IP", ["\\(bu", "2"]);
                roff.text(text.clone());
            }
        }
        below_heading = matches!(block, Block::Section(_) | Block::Subsection(_));
    }
    roff
}

const NO_TAG: &str = "\"\"";

/// man(1) indents text by 7 columns, so lines of 69 fit on a terminal of 80.
const LITERAL_INDENT: &str = "4";

/// Lines that stay must fit on a terminal of 80 columns.
#[cfg(test)]
pub const LITERAL_WIDTH: usize = 80 - 7 - 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_has_its_macros() {
        let blocks = [
            Block::Section("TWO WORDS".into()),
            Block::plain(".first, 'quoted'"),
            Block::plain("second"),
            Block::Literal(vec!["haul cp  a b".into(), String::new(), "'x'".into()]),
            Block::item("-x", "what it does"),
            Block::Bullet(vec![roman("a point")]),
        ];
        let expected = "\
.SH \"TWO WORDS\"
\\&.first, 'quoted'
.PP
second
.IP \"\" 4
.nf
haul cp  a b
.sp
\\&'x'
.fi
.TP
\\fB\\-x\\fR
what it does
.IP \\(bu 2
a point
";
        assert_eq!(render(&blocks).to_roff(), expected);
    }
}

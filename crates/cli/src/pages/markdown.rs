//! Reads the part of Markdown that docs/ uses for manual pages.
//!
//! ```text
//!   # title                 left out: the page has its NAME      - point        a list
//!   ## heading              a section                            ```            lines that stay as they are
//!   ### heading             a part of it                         | a | b |      items: the first column is the term
//!   `code`, **bold**        bold                                 [text](link)   text, or the page that it leads to
//! ```
//! A test of each page finds what is unknown here.

use roff::{Inline, bold, italic, roman};

use crate::pages::blocks::{Block, Text};

/// A page without its title. `pages` name the manual pages of pages beside it.
pub fn blocks(text: &str, directory: &str, pages: &[(&str, &str)]) -> Vec<Block> {
    let mut reader = Reader { links: Links { directory, pages }, blocks: Vec::new(), open: Open::Nothing };
    text.lines().for_each(|line| reader.read(line));
    reader.close();
    reader.blocks
}

struct Reader<'a> {
    links: Links<'a>,
    blocks: Vec<Block>,
    open: Open,
}

enum Open {
    Nothing,
    Paragraph(String),
    Bullet(String),
    Literal(Vec<String>),
    Table(Vec<Vec<String>>),
}

impl Reader<'_> {
    fn read(&mut self, line: &str) {
        if let Open::Literal(lines) = &mut self.open {
            if line.starts_with(FENCE) {
                self.close();
            } else {
                lines.push(line.to_owned());
            }
            return;
        }
        let words = line.trim();
        if words.is_empty() {
            self.close();
        } else if line.starts_with(FENCE) {
            self.close();
            self.open = Open::Literal(Vec::new());
        } else if let Some(row) = words.strip_prefix('|').and_then(|row| row.strip_suffix('|')) {
            self.read_row(row);
        } else if let Some(heading) = line.strip_prefix("### ") {
            self.close();
            self.blocks.push(Block::Subsection(self.links.words(heading)));
        } else if let Some(heading) = line.strip_prefix("## ") {
            self.close();
            self.blocks.push(Block::Section(self.links.words(heading).to_uppercase()));
        } else if line.starts_with("# ") {
            self.close();
        } else if let Some(point) = line.strip_prefix("- ") {
            self.close();
            self.open = Open::Bullet(point.to_owned());
        } else if let Open::Paragraph(text) | Open::Bullet(text) = &mut self.open {
            text.push(' ');
            text.push_str(words);
        } else {
            self.close();
            self.open = Open::Paragraph(words.to_owned());
        }
    }

    fn read_row(&mut self, row: &str) {
        if !matches!(self.open, Open::Table(_)) {
            self.close();
            self.open = Open::Table(Vec::new());
        }
        let cells: Vec<String> = row.split(" |").map(|cell| cell.trim().to_owned()).collect();
        let is_rule = cells.iter().all(|cell| cell.trim_matches(['|', '-']).is_empty() && cell.contains('-'));
        if let Open::Table(rows) = &mut self.open
            && !is_rule
        {
            rows.push(cells);
        }
    }

    fn close(&mut self) {
        match std::mem::replace(&mut self.open, Open::Nothing) {
            Open::Nothing => {}
            Open::Paragraph(text) => self.blocks.push(Block::Paragraph(self.links.text(&text))),
            Open::Bullet(text) => self.blocks.push(Block::Bullet(self.links.text(&text))),
            Open::Literal(lines) => self.blocks.push(Block::Literal(lines)),
            Open::Table(rows) => self.blocks.extend(self.links.items(&rows)),
        }
    }
}

struct Links<'a> {
    directory: &'a str,
    pages: &'a [(&'a str, &'a str)],
}

impl Links<'_> {
    /// Rows as items, below the headings of two columns; others lead each cell.
    fn items(&self, rows: &[Vec<String>]) -> Vec<Block> {
        let Some((heads, rows)) = rows.split_first() else { return Vec::new() };
        let item = |row: &Vec<String>| {
            let (term, cells) = row.split_first()?;
            let cells = cells.iter().zip(&heads[1..]).enumerate().filter(|(_, (cell, _))| !cell.is_empty());
            let meaning = cells.map(|(number, (cell, head))| match number {
                0 => self.text(cell),
                _ => [vec![italic(format!("{head}: "))], self.text(cell)].concat(),
            });
            Some(Block::Item { term: self.text(term), meaning: meaning.collect() })
        };
        let names = [heads.first(), heads.get(1)].map(|head| vec![italic(head.map_or("", String::as_str))]);
        let is_named = heads.iter().take(2).all(|head| !head.is_empty());
        let [term, meaning] = names;
        let above = is_named.then(|| Block::Item { term, meaning: vec![meaning] });
        above.into_iter().chain(rows.iter().filter_map(item)).collect()
    }

    fn words(&self, text: &str) -> String {
        let bare = |inline: Inline| match inline {
            Inline::Roman(text) | Inline::Bold(text) | Inline::Italic(text) => text,
            Inline::LineBreak => String::new(),
        };
        self.text(text).into_iter().map(bare).collect()
    }

    fn text(&self, mut text: &str) -> Text {
        let mut parts = Vec::new();
        while let Some((at, mark)) = first_mark(text) {
            let inside = &text[at + mark.len()..];
            let parted = match mark {
                "[" => inside.split_once("](").and_then(|(name, rest)| {
                    let (link, rest) = rest.split_once(')')?;
                    Some((roman(self.link(name, link)), rest))
                }),
                _ => inside.split_once(mark).map(|(inside, rest)| (bold(inside), rest)),
            };
            // A mark without its end is a letter.
            let (part, rest) = parted.unwrap_or_else(|| (roman(mark), inside));
            parts.extend((at > 0).then(|| roman(&text[..at])));
            parts.push(part);
            text = rest;
        }
        parts.extend((!text.is_empty()).then(|| roman(text)));
        parts
    }

    /// A link's manual page, or its path below docs/. Text that says more than the page's name stays.
    fn link(&self, text: &str, link: &str) -> String {
        let file = link.split('#').next().unwrap_or_default();
        let name = file.rsplit('/').next().unwrap_or_default().trim_end_matches(".md");
        let target = match self.pages.iter().find(|(page, _)| *page == name) {
            Some((_, manual)) => (*manual).to_owned(),
            None if file.starts_with("../") => format!("docs/{}", file.trim_start_matches("../")),
            None => format!("docs/{}/{file}", self.directory),
        };
        if text == name { target } else { format!("{text} ({target})") }
    }
}

fn first_mark(text: &str) -> Option<(usize, &'static str)> {
    ["`", "**", "["].into_iter().filter_map(|mark| Some((text.find(mark)?, mark))).min()
}

const FENCE: &str = "```";

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<Block> {
        blocks(text, "use", &[("policy", "haul-policy(5)")])
    }

    #[test]
    fn text_is_joined_and_code_is_bold() {
        let expected = [
            Block::Section("TWO WORDS".to_owned()),
            Block::Paragraph(vec![roman("First "), bold("a b"), roman(" and "), bold("more"), roman(" here.")]),
            Block::Bullet(vec![roman("one point that goes on")]),
            Block::Bullet(vec![roman("2 "), roman("[")]),
        ];
        assert_eq!(
            read("# Title\n\n## Two words\n\nFirst `a b` and\n**more** here.\n\n- one point\n  that goes on\n- 2 [\n"),
            expected
        );
    }

    #[test]
    fn lines_between_fences_stay() {
        let lines = ["[defaults]  # `x`", "", "| a |"].map(str::to_owned).to_vec();
        assert_eq!(read("```toml\n[defaults]  # `x`\n\n| a |\n```\n"), [Block::Literal(lines)]);
    }

    #[test]
    fn a_table_becomes_items() {
        let table = "| key | what | set by |\n|---|---|---|\n| `a` | b `c` | d |\n| e | f | |\n";
        let expected = [
            Block::Item { term: vec![italic("key")], meaning: vec![vec![italic("what")]] },
            Block::Item {
                term: vec![bold("a")],
                meaning: vec![vec![roman("b "), bold("c")], vec![italic("set by: "), roman("d")]],
            },
            Block::Item { term: vec![roman("e")], meaning: vec![vec![roman("f")]] },
        ];
        assert_eq!(read(table), expected);
    }

    #[test]
    fn links_name_the_page_that_they_lead_to() {
        let text = "See [policy](policy.md), [cp](cp.md#names), [the proof](../proof/lan-rto.md#b).";
        let expected = "See haul-policy(5), docs/use/cp.md, the proof (docs/proof/lan-rto.md).";
        let [Block::Paragraph(parts)] = &read(text)[..] else { panic!() };
        let words: String =
            parts.iter().map(|part| if let Inline::Roman(text) = part { text.as_str() } else { "" }).collect();
        assert_eq!(words, expected);
    }
}

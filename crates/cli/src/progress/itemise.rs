//! A line for each changed entry, in rsync's letters: `--itemize-changes` and `--out-format`.
//!
//! ```text
//!   >f.st......   >  received here, <  sent there, c  made, h  hard link, .  only its metadata
//!    f            f  file, d  directory, L  link
//!     cstpog      contents, size, time, permissions, owner, group; all + for what is new
//! ```

use haul_job::{EntryType, ItemTold};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

use crate::text::figures;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Words(String),
    Escape { letter: char, width: usize, left: bool },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    #[default]
    Here,
    /// Away from here, or between two other hosts.
    Away,
    Hither,
}

const LETTERS: &str = "nfilbLMBUGotp";

/// All of an entry, for `--list-only`; formats lack this letter.
const LISTED: char = 'Y';

/// Bound of a column's width.
const MAX_WIDTH: usize = 1_000;

impl Format {
    /// # Errors
    /// A letter is unknown.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((words, after)) = rest.split_once('%') {
            parts.push(Part::Words(words.to_owned()));
            let flags = after.trim_start_matches('\'');
            let (flags, left) = flags.strip_prefix('-').map_or((flags, false), |flags| (flags, true));
            let digits = flags.len() - flags.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let width = flags[..digits].parse().unwrap_or(0);
            match flags[digits..].chars().next() {
                Some('%') if digits == 0 => parts.push(Part::Words("%".to_owned())),
                Some(letter) if LETTERS.contains(letter) && width <= MAX_WIDTH => {
                    parts.push(Part::Escape { letter, width, left });
                }
                _ => {
                    let letters: Vec<String> = LETTERS.chars().map(|letter| format!("%{letter}")).collect();
                    return Err(format!("behind % one of these: {}", letters.join(" ")));
                }
            }
            rest = flags[digits..].get(1..).unwrap_or("");
        }
        parts.push(Part::Words(rest.to_owned()));
        Ok(Self(parts))
    }

    pub fn itemized() -> Self {
        let escape = |letter| Part::Escape { letter, width: 0, left: false };
        Self(vec![escape('i'), Part::Words(" ".to_owned()), escape('n'), escape('L')])
    }

    pub fn listing() -> Self {
        Self(vec![Part::Escape { letter: LISTED, width: 0, left: false }])
    }

    fn is_listing(&self) -> bool {
        self.0.iter().any(|part| matches!(part, Part::Escape { letter: LISTED, .. }))
    }

    /// As in rsync, an entry with changed metadata alone gets a line only where letters are asked for.
    pub fn shows(&self, item: &ItemTold) -> bool {
        let has_letters = self.0.iter().any(|part| matches!(part, Part::Escape { letter: 'i', .. }));
        self.is_listing() || has_letters || item.data_moved || item.made || item.kind == EntryType::Directory
    }

    /// Ends with a newline.
    pub fn line(&self, item: &ItemTold, direction: Direction) -> String {
        self.render(|letter| match letter {
            'i' => letters(item, direction),
            'n' if item.kind == EntryType::Directory => format!("{}/", shown(or_dot(&item.path))),
            'n' | 'f' => shown(or_dot(&item.path)),
            'l' => item.size.to_string(),
            'b' => (if item.data_moved { item.size } else { 0 }).to_string(),
            'L' => match (&item.link, item.kind) {
                (Some(link), EntryType::HardLink) => format!(" => {}", shown(link)),
                (Some(link), _) => format!(" -> {}", shown(link)),
                (None, _) => String::new(),
            },
            'M' => local_time(item.mtime_s, '-'),
            'B' => permissions(item.mode),
            'U' => number(item.uid),
            'G' => number(item.gid),
            'o' => (if direction == Direction::Hither { "recv" } else { "send" }).to_owned(),
            LISTED => listed(item),
            _ => of_process(letter),
        })
    }

    pub fn deleted(&self, path: &[u8], is_directory: bool) -> String {
        self.render(|letter| match letter {
            'i' => "*deleting  ".to_owned(),
            'n' if is_directory => format!("{}/", shown(path)),
            'n' | 'f' => shown(path),
            'o' => "del.".to_owned(),
            'l' | 'b' => "0".to_owned(),
            'L' | 'M' | 'B' | 'U' | 'G' | LISTED => String::new(),
            _ => of_process(letter),
        })
    }

    fn render(&self, value: impl Fn(char) -> String) -> String {
        let mut line = String::new();
        for part in &self.0 {
            match part {
                Part::Words(words) => line.push_str(words),
                Part::Escape { letter, width, left: true } => line.push_str(&format!("{:<width$}", value(*letter))),
                Part::Escape { letter, width, left: false } => line.push_str(&format!("{:>width$}", value(*letter))),
            }
        }
        line.push('\n');
        line
    }
}

pub fn letters(item: &ItemTold, direction: Direction) -> String {
    let kind = match item.kind {
        EntryType::File | EntryType::HardLink => 'f',
        EntryType::Directory => 'd',
        EntryType::Symlink => 'L',
        EntryType::Device => 'D',
        EntryType::Special => 'S',
    };
    let what = match item.kind {
        _ if item.data_moved => {
            if direction == Direction::Away {
                '<'
            } else {
                '>'
            }
        }
        EntryType::HardLink if item.made => 'h',
        // An existing one with another owner or time is not made anew.
        EntryType::Symlink if item.changed.new || item.changed.content => 'c',
        EntryType::Directory | EntryType::File | EntryType::Device | EntryType::Special if item.made => 'c',
        _ => '.',
    };
    let changed = &item.changed;
    let mut text = String::from_iter([what, kind]);
    let columns = [
        (changed.content, 'c'),
        // A link's text is its content.
        (changed.size && item.kind == EntryType::File, 's'),
        (changed.time, 't'),
        (changed.mode, 'p'),
        (changed.owner, 'o'),
        (changed.group, 'g'),
        (false, 'u'),
        (false, 'a'),
        (false, 'x'),
    ];
    text.extend(columns.map(|(is_so, letter)| match is_so {
        _ if changed.new => '+',
        true => letter,
        false => '.',
    }));
    text
}

/// `-rw-r--r--         12,345 2026/11/25 10:15:00 name`
fn listed(item: &ItemTold) -> String {
    let (kind, link) = match (item.kind, &item.link) {
        (EntryType::Directory, _) => ('d', String::new()),
        (EntryType::Symlink, Some(link)) => ('l', format!(" -> {}", shown(link))),
        (EntryType::Symlink, None) => ('l', String::new()),
        (EntryType::File | EntryType::HardLink, _) => ('-', String::new()),
        (EntryType::Device, _) => ('c', String::new()),
        (EntryType::Special, _) => ('p', String::new()),
    };
    let (permissions, time) = (permissions(item.mode), local_time(item.mtime_s, ' '));
    format!("{kind}{permissions} {:>14} {time} {}{link}", figures::count(item.size), shown(or_dot(&item.path)))
}

fn or_dot(path: &[u8]) -> &[u8] {
    if path.is_empty() { b"." } else { path }
}

/// As in rsync: `\#` and three octal digits for invalid text and what could drive a terminal.
fn shown(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len());
    for chunk in path.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() || haul_transfer::drives_terminal(c) {
                let mut bytes = [0; 4];
                c.encode_utf8(&mut bytes).bytes().for_each(|byte| text.push_str(&format!("\\#{byte:03o}")));
            } else {
                text.push(c);
            }
        }
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\#{byte:03o}")));
    }
    text
}

fn number(id: u32) -> String {
    if id == u32::MAX { "DEFAULT".to_owned() } else { id.to_string() }
}

/// `rw-r--r--`
fn permissions(mode: u32) -> String {
    let mut text: Vec<char> = "rwxrwxrwx".chars().collect();
    for (at, letter) in text.iter_mut().enumerate() {
        if mode & (0o400 >> at) == 0 {
            *letter = '-';
        }
    }
    for (bit, at, with, without) in [(0o4000, 2, 's', 'S'), (0o2000, 5, 's', 'S'), (0o1000, 8, 't', 'T')] {
        if mode & bit != 0 {
            text[at] = if text[at] == 'x' { with } else { without };
        }
    }
    text.into_iter().collect()
}

/// `2026/11/25-10:15:00`, by this place's clock.
fn local_time(s: i64, between: char) -> String {
    let at = Timestamp::from_second(s).map(|at| at.to_zoned(TimeZone::system()));
    at.map_or_else(|_| s.to_string(), |at| at.strftime(&format!("%Y/%m/%d{between}%H:%M:%S")).to_string())
}

/// Time and process, which are not the entry's.
fn of_process(letter: char) -> String {
    match letter {
        't' => local_time(Zoned::now().timestamp().as_second(), ' '),
        _ => std::process::id().to_string(),
    }
}

#[cfg(test)]
pub mod tests {
    use haul_job::Changed;

    use super::*;

    pub fn file(changed: Changed) -> ItemTold {
        ItemTold {
            path: b"d/a".to_vec(),
            kind: EntryType::File,
            size: 12,
            link: None,
            mode: 0o4750,
            mtime_s: 0,
            uid: 7,
            gid: u32::MAX,
            data_moved: true,
            made: false,
            changed,
        }
    }

    #[test]
    fn letters_are_those_of_rsync() {
        let new = Changed { new: true, ..Changed::default() };
        let differs = Changed { size: true, time: true, ..Changed::default() };
        assert_eq!(letters(&file(new), Direction::Hither), ">f+++++++++");
        assert_eq!(letters(&file(differs), Direction::Away), "<f.st......");
        let touched = Changed { mode: true, owner: true, ..Changed::default() };
        assert_eq!(letters(&ItemTold { data_moved: false, ..file(touched) }, Direction::Here), ".f...po....");
        let made = |kind, changed| ItemTold { kind, data_moved: false, made: true, ..file(changed) };
        assert_eq!(letters(&made(EntryType::Directory, new), Direction::Here), "cd+++++++++");
        assert_eq!(letters(&made(EntryType::HardLink, new), Direction::Here), "hf+++++++++");
        let leads = Changed { content: true, time: true, size: true, ..Changed::default() };
        assert_eq!(letters(&made(EntryType::Symlink, leads), Direction::Here), "cLc.t......");
    }

    #[test]
    fn a_format_has_its_columns_and_refuses_what_it_does_not_know() {
        let line = |format: &str| Format::parse(format).unwrap().line(&file(Changed::default()), Direction::Away);
        assert_eq!(
            line("%o|%5l|%-5l|%B|%U|%G|100%%"),
            "send|   12|12   |rws-r-x---|7|DEFAULT|100%\n".replace("rws-r-x---", "rwsr-x---")
        );
        assert_eq!(line("%n%L %b"), "d/a 12\n");
        for wrong in ["%q", "%", "%5", "%99999n"] {
            assert!(Format::parse(wrong).unwrap_err().contains("%n"), "{wrong}");
        }
        assert_eq!(Format::itemized().deleted(b"x\n", false), "*deleting   x\\#012\n");
        let listed = Format::listing().line(&ItemTold { size: 1_234_567, ..file(Changed::default()) }, Direction::Here);
        assert!(listed.starts_with("-rwsr-x---      1,234,567 ") && listed.ends_with(" d/a\n"), "{listed}");
        assert_eq!([0, 999, 1_000, 1_000_000].map(figures::count), ["0", "999", "1,000", "1,000,000"]);
        assert_eq!(Format::itemized().deleted(b"x", true), "*deleting   x/\n", "as rsync");
    }
}

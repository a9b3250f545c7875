//! Lines of directory lists: facts of MLSD and MLST (RFC 3659), and the two forms of LIST, of which no standard speaks: that of `ls -l`, and
//! that of MS-DOS.

use haul_store::Time;

use crate::codec::time;

/// A name in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// As the server wrote it. It may be no name that a file can have.
    pub name: Vec<u8>,
    /// What is known of it.
    pub facts: Facts,
}

/// What a server tells of an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// What it is.
    pub kind: EntryType,
    /// Bytes of content.
    pub size: Option<u64>,
    /// When it changed last.
    pub modified: Option<Modified>,
    /// Permission bits.
    pub mode: Option<u32>,
}

/// What an entry is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum EntryType {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// The listed directory itself, or the one above it.
    Itself,
    /// A symbolic link, and where it leads, if the server tells.
    Link(Option<Vec<u8>>),
    /// A device, a FIFO or a socket.
    Special,
    /// Not told.
    #[default]
    Unknown,
}

/// The time of the last change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Modified {
    /// The time.
    pub time: Time,
    /// It is a time to the second in UTC. LIST tells minutes or days, in a zone that nobody knows.
    pub is_exact: bool,
}

/// A line of MLSD, or the one of MLST: `fact=value;fact=value; NAME`.
pub fn facts(line: &[u8]) -> Option<Entry> {
    let space = line.iter().position(|byte| *byte == b' ')?;
    let (told, name) = (&line[..space], &line[space + 1..]);
    // Each fact ends with a semicolon. A space inside a fact would make a name of its rest.
    if !told.is_empty() && !told.ends_with(b";") {
        return None;
    }
    let mut facts = Facts::default();
    for fact in told.split(|byte| *byte == b';').filter(|fact| !fact.is_empty()) {
        let at = fact.iter().position(|byte| *byte == b'=')?;
        let (key, value) = (fact[..at].to_ascii_lowercase(), &fact[at + 1..]);
        match &key[..] {
            b"type" => facts.kind = type_of(value),
            b"size" | b"sizd" => facts.size = number(value),
            b"modify" => {
                facts.modified = time::parse(value).map(|time| Modified { time, is_exact: true });
            }
            b"unix.mode" => facts.mode = octal(value),
            _ => {}
        }
    }
    (!name.is_empty()).then(|| Entry { name: name.to_vec(), facts })
}

fn type_of(value: &[u8]) -> EntryType {
    let lower = value.to_ascii_lowercase();
    match &lower[..] {
        b"file" => EntryType::File,
        b"dir" => EntryType::Directory,
        b"cdir" | b"pdir" => EntryType::Itself,
        b"os.unix=symlink" | b"os.unix=slink" => EntryType::Link(None),
        _ if lower.starts_with(b"os.unix=slink:") => {
            EntryType::Link(Some(value[b"os.unix=slink:".len()..].to_vec()).filter(|target| !target.is_empty()))
        }
        _ if lower.starts_with(b"os.unix=") => EntryType::Special,
        _ => EntryType::Unknown,
    }
}

/// A line of LIST. `now` tells the year of a date without one. `None`: it names nothing (`total 12`, an empty line).
pub fn line(line: &[u8], now: Time) -> Option<Entry> {
    unix(line, now).or_else(|| dos(line))
}

/// `-rw-r--r--    1 0        0            12 Nov 28 11:07 NAME`. Some servers leave the group out, or the number of links.
fn unix(line: &[u8], now: Time) -> Option<Entry> {
    let mut words = Words { line, at: 0 };
    let mode = words.next()?;
    let (first, bits) = mode.split_first().filter(|_| mode.len() >= 10)?;
    let kind = match first {
        b'-' => EntryType::File,
        b'd' => EntryType::Directory,
        b'l' => EntryType::Link(None),
        b'b' | b'c' | b'p' | b's' | b'D' => EntryType::Special,
        _ => return None,
    };
    let mode = permissions(bits)?;
    // The date is found by its month, and the number in front of it is the size.
    let (mut before, mut size) = (0, None);
    let modified = loop {
        let begin = words.at;
        let word = words.next()?;
        if let (Some(month), true) = (month(word), size.is_some()) {
            let mut behind = Words { line, at: words.at };
            let date = behind.next().zip(behind.next()).and_then(|(day, clock)| date_of(month, day, clock, now));
            if let Some(date) = date {
                words.at = behind.at;
                break date;
            }
        }
        if let (Some(date), true) = (iso_date(word), size.is_some()) {
            let clock = words.next().and_then(clock_of)?;
            break time::at(date.0, date.1, date.2, clock.0, clock.1, 0)?;
        }
        size = number(word);
        before += 1;
        if before > MAX_WORDS_BEFORE_DATE || begin >= line.len() {
            return None;
        }
    };
    // Exactly one space: a name may begin with others.
    let rest = line.get(words.at..)?.strip_prefix(b" ")?;
    let (name, kind) = match kind {
        EntryType::Link(_) => link(rest, size),
        kind => (rest.to_vec(), kind),
    };
    let modified = Some(Modified { time: modified, is_exact: false });
    (!name.is_empty()).then_some(Entry { name, facts: Facts { kind, size, modified, mode: Some(mode) } })
}

/// Owners' names with spaces count as more.
const MAX_WORDS_BEFORE_DATE: usize = 12;

/// `NAME -> TARGET`, where both may have such an arrow in them: the size of a link is the length of its target.
fn link(rest: &[u8], size: Option<u64>) -> (Vec<u8>, EntryType) {
    let arrows: Vec<usize> = (0..rest.len()).filter(|at| rest[*at..].starts_with(ARROW)).collect();
    let length = |at: &&usize| Some((rest.len() - **at - ARROW.len()) as u64) == size;
    match arrows.iter().find(length).or(arrows.first()) {
        Some(at) => (rest[..*at].to_vec(), EntryType::Link(Some(rest[at + ARROW.len()..].to_vec()))),
        None => (rest.to_vec(), EntryType::Link(None)),
    }
}

const ARROW: &[u8] = b" -> ";

/// `11-28-26  11:07AM       <DIR>          NAME`, or with a size, and with a year of four digits.
fn dos(line: &[u8]) -> Option<Entry> {
    let mut words = Words { line, at: 0 };
    let date = words.next()?;
    let numbers: Vec<i16> =
        date.split(|byte| *byte == b'-').map(|part| ascii(part)?.parse().ok()).collect::<Option<_>>()?;
    let [month, day, year] = numbers[..] else { return None };
    let year = match year {
        0..70 => 2000 + year,
        70..100 => 1900 + year,
        year => year,
    };
    let clock = words.next()?;
    let (digits, half) = clock.split_at(clock.iter().position(u8::is_ascii_alphabetic).unwrap_or(clock.len()));
    let (hour, minute) = clock_of(digits)?;
    let hour = match &half.to_ascii_lowercase()[..] {
        b"" => hour,
        b"am" | b"a" => hour % 12,
        b"pm" | b"p" => hour % 12 + 12,
        _ => return None,
    };
    let time = time::at(year, i8::try_from(month).ok()?, i8::try_from(day).ok()?, hour, minute, 0)?;
    let what = words.next()?;
    let (kind, size) = match what {
        b"<DIR>" => (EntryType::Directory, None),
        b"<JUNCTION>" | b"<SYMLINK>" | b"<SYMLINKD>" => (EntryType::Link(None), None),
        size => (EntryType::File, Some(number(size)?)),
    };
    // A size stands right of a column and is followed by one space, a kind by as many as fill it.
    let rest = line.get(words.at..)?;
    let name = match kind {
        EntryType::File => rest.strip_prefix(b" ")?,
        _ => rest.trim_ascii_start(),
    };
    let modified = Some(Modified { time, is_exact: false });
    (!name.is_empty()).then(|| Entry { name: name.to_vec(), facts: Facts { kind, size, modified, mode: None } })
}

/// Words between spaces.
struct Words<'a> {
    line: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.line.get(self.at..)?;
        let begin = self.at + rest.iter().position(|byte| *byte != b' ')?;
        let word = &self.line[begin..];
        let word = &word[..word.iter().position(|byte| *byte == b' ').unwrap_or(word.len())];
        self.at = begin + word.len();
        Some(word)
    }
}

fn ascii(text: &[u8]) -> Option<&str> {
    std::str::from_utf8(text).ok()
}

fn number(text: &[u8]) -> Option<u64> {
    ascii(text).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?.parse().ok()
}

fn octal(text: &[u8]) -> Option<u32> {
    u32::from_str_radix(ascii(text)?, 8).ok().map(|mode| mode & 0o7777)
}

/// `rwxr-xr-x`, with `s`, `S`, `t` and `T` for the special bits.
fn permissions(letters: &[u8]) -> Option<u32> {
    let mut mode = 0;
    for (at, letter) in letters.iter().take(9).enumerate() {
        let bit = 0o400 >> at;
        let special = 0o4000 >> (at / 3);
        mode |= match letter {
            b'-' => 0,
            b'r' | b'w' | b'x' => bit,
            b's' | b't' => bit | special,
            b'S' | b'T' | b'l' | b'L' => special,
            _ => return None,
        };
    }
    Some(mode)
}

fn month(word: &[u8]) -> Option<i8> {
    const MONTHS: [&[u8]; 12] =
        [b"jan", b"feb", b"mar", b"apr", b"may", b"jun", b"jul", b"aug", b"sep", b"oct", b"nov", b"dec"];
    let lower = word.to_ascii_lowercase();
    (1..).zip(MONTHS).find(|(_, name)| lower == *name).map(|(number, _)| number)
}

/// `28 11:07` of the last twelve months, or `28 2025`.
fn date_of(month: i8, day: &[u8], clock: &[u8], now: Time) -> Option<Time> {
    let day: i8 = ascii(day)?.parse().ok()?;
    if let Some((hour, minute)) = clock_of(clock) {
        let (year, _) = time::year_and_month(now)?;
        let this_year = time::at(year, month, day, hour, minute, 0);
        // A clock may be ahead of ours, or in another zone.
        return match this_year {
            Some(time) if time.s <= now.s + 86_400 => Some(time),
            _ => time::at(year - 1, month, day, hour, minute, 0),
        };
    }
    let year: i16 = ascii(clock).filter(|year| year.len() == 4)?.parse().ok()?;
    time::at(year, month, day, 0, 0, 0)
}

fn clock_of(word: &[u8]) -> Option<(i8, i8)> {
    let (hour, minute) = ascii(word)?.split_once(':')?;
    let minute = minute.split(':').next()?;
    Some((hour.parse().ok()?, minute.parse().ok()?))
}

/// `2026-11-28`.
fn iso_date(word: &[u8]) -> Option<(i16, i8, i8)> {
    let mut parts = ascii(word)?.split('-');
    let date = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    (date.0.len() == 4 && parts.next().is_none()).then_some((date.0.parse().ok()?, date.1, date.2))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-28 12:00 UTC.
    const NOW: Time = Time { s: 1_795_867_200, ns: 0 };

    fn shown(entry: Option<Entry>) -> String {
        let Some(Entry { name, facts }) = entry else { return "none".to_owned() };
        let name = haul_store::printable(&name);
        let kind = match facts.kind {
            EntryType::Link(target) => {
                format!("link to {}", target.map_or("?".into(), |to| haul_store::printable(&to)))
            }
            kind => format!("{kind:?}").to_lowercase(),
        };
        let time = facts.modified.and_then(|modified| time::text(modified.time)).unwrap_or_default();
        let mode = facts.mode.map_or(String::new(), |mode| format!(" {mode:o}"));
        format!("[{name}] {kind} {} {time}{mode}", facts.size.map_or("-".into(), |size| size.to_string()))
    }

    #[test]
    fn lines_of_ls() {
        for (text, expected) in [
            ("-rw-r--r--    1 0        0              12 Nov 28 11:07 name", "[name] file 12 20261128110700 644"),
            (
                "-rw-r--r--    1 0        0              12 Dec 28 11:07  two words ",
                "[ two words ] file 12 20251228110700 644",
            ),
            ("drwxr-sr-t   2 ftp      ftp          4096 Feb 29  2024 d", "[d] directory 4096 20240229000000 3755"),
            (
                "lrwxrwxrwx   1 me       us              3 Jan  1  2020 a -> b -> c/d",
                "[a -> b] link to c/d 3 20200101000000 777",
            ),
            (
                "lrwxrwxrwx   1 me       us              8 Jan  1  2020 a -> b -> c/d",
                "[a] link to b -> c/d 8 20200101000000 777",
            ),
            ("lrwxrwxrwx   1 me       us              3 Jan  1  2020 a", "[a] link to ? 3 20200101000000 777"),
            ("srw-rw-rw-   1 me       us              0 Jan  1  2020 s", "[s] special 0 20200101000000 666"),
            ("-rw-r--r--+  1 domain users of it  7 Jan 1 2020 May 12 2020", "[May 12 2020] file 7 20200101000000 644"),
            ("-rw-r--r--   1 me  77 2026-11-28 11:07 iso", "[iso] file 77 20261128110700 644"),
            ("total 12", "none"),
            ("", "none"),
            ("-rw-r--r-- 1 0 0 12 Nov 28 11:07 ", "none"),
            ("-rw-r--r-- 1 0 0 12 Nov 31 11:07 no such day", "none"),
            ("hello world", "none"),
        ] {
            assert_eq!(shown(line(text.as_bytes(), NOW)), expected, "{text}");
        }
    }

    #[test]
    fn lines_of_ms_dos() {
        for (text, expected) in [
            ("11-28-26  11:07AM       <DIR>          a b", "[a b] directory - 20261128110700"),
            ("11-28-2026  12:07PM                 1234 x", "[x] file 1234 20261128120700"),
            ("01-02-99  12:00AM                    0  y", "[ y] file 0 19990102000000"),
            ("11-28-26  23:07                    1 z", "[z] file 1 20261128230700"),
            ("13-28-26  11:07AM       <DIR>          d", "none"),
            ("11-28-26  11:07AM       <DIR>", "none"),
        ] {
            assert_eq!(shown(line(text.as_bytes(), NOW)), expected, "{text}");
        }
    }

    #[test]
    fn lines_of_facts() {
        for (text, expected) in [
            ("type=file;size=12;modify=20261128110700;UNIX.mode=0644; a b", "[a b] file 12 20261128110700 644"),
            ("Type=dir;Modify=20261128110700.123; d", "[d] directory - 20261128110700"),
            ("type=cdir;modify=20261128110700; .", "[.] itself - 20261128110700"),
            ("type=OS.unix=slink:/x y;size=4; l", "none"),
            ("type=OS.unix=slink:/x;size=4; l", "[l] link to /x 4 "),
            ("type=OS.unix=symlink; l", "[l] link to ? - "),
            ("type=OS.unix=chr-1/3; n", "[n] special - "),
            ("size=-1;modify=tomorrow; n", "[n] unknown - "),
            (" n", "[n] unknown - "),
            ("type=file;", "none"),
            ("type=file; ", "none"),
        ] {
            assert_eq!(shown(facts(text.as_bytes())), expected, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_line_is_a_name_or_nothing(bytes: Vec<u8>) {
            for entry in [facts(&bytes), line(&bytes, NOW)].into_iter().flatten() {
                assert!(!entry.name.is_empty());
            }
        }

        #[test]
        fn what_ls_prints_is_read(name in "[a-z >-]{1,12}", size: u64, year in 1971_i16..2026) {
            let text = format!("-rw-r--r--    1 0        0        {size} Nov 28  {year} {name}");
            let entry = line(text.as_bytes(), NOW).unwrap();
            assert_eq!((entry.name, entry.facts.size), (name.into_bytes(), Some(size)));
        }
    }
}

//! Rows, columns, paragraphs and commands of `haul why`, `haul probe` and `haul tune`.
//!
//! Only a longer word, such as a path, exceeds [`WIDTH`], on terminals and in files: lines can be compared and mailed.

use std::fmt::Write as _;

/// A label, then a value, which goes on below itself.
pub fn row(text: &mut String, label: &str, value: &str) {
    let mut label = label;
    for line in lines(value, WIDTH - VALUE_COLUMN) {
        let _ = writeln!(text, "{}", format!("  {label:<LABEL_WIDTH$}  {line}").trim_end());
        label = "";
    }
}

pub fn pair(text: &mut String, label: &str, values: &[String; 2]) {
    let label = format!("  {label:<LABEL_WIDTH$}");
    cells(text, &[&label, &values[0], &values[1]], &[VALUE_COLUMN - GAP.len(), LEFT_WIDTH, RIGHT_WIDTH]);
}

/// Rows of cells in columns as wide as needed that fit together, `lead` before each.
pub fn table<const N: usize>(text: &mut String, lead: &str, rows: &[[String; N]], after: impl Fn(&mut String, usize)) {
    let widest = |of: &dyn Fn(&str) -> usize| -> [usize; N] {
        std::array::from_fn(|at| rows.iter().map(|row| of(&row[at])).max().unwrap_or(0))
    };
    let words = |cell: &str| with_units(cell).iter().map(|word| columns(word)).max().unwrap_or(0);
    let (mut widths, least) = (widest(&columns), widest(&words));
    let room = WIDTH.saturating_sub(columns(lead) + GAP.len() * (N - 1));
    while widths.iter().sum::<usize>() > room {
        let widest = (0..N).filter(|at| widths[*at] > least[*at]).max_by_key(|at| widths[*at]);
        let Some(at) = widest else { break };
        widths[at] -= 1;
    }
    for (nth, row) in rows.iter().enumerate() {
        let mut of_row = String::new();
        cells(&mut of_row, &row.each_ref().map(String::as_str), &widths);
        of_row.lines().for_each(|line| text.extend([lead, line, "\n"]));
        after(text, nth);
    }
}

pub fn paragraph(text: &mut String, lead: &str, words: &str) {
    let indent = " ".repeat(columns(lead));
    let mut lead = lead;
    for line in lines(words, WIDTH.saturating_sub(columns(lead))) {
        let _ = writeln!(text, "{}", format!("{lead}{line}").trim_end());
        lead = &indent;
    }
}

pub fn led(text: &mut String, lead: &str, words: &str) {
    for line in lines(words, WIDTH.saturating_sub(columns(lead))) {
        let _ = writeln!(text, "{lead}{line}");
    }
}

/// A long command goes on in the next line, as the shell reads it.
pub fn command(text: &mut String, lead: &str, command: &str) {
    let mut pieces: Vec<String> = Vec::new();
    let mut inside = Vec::new();
    for word in command.split(' ') {
        match (pieces.last_mut(), inside.last()) {
            // Between quotes a line break belongs to the word.
            (Some(piece), Some(Inside::Single | Inside::Double)) => piece.extend([" ", word]),
            _ => pieces.push(word.to_owned()),
        }
        follow(word, &mut inside);
    }
    let mut line = lead.to_owned();
    for (nth, piece) in pieces.iter().enumerate() {
        let ends = if nth + 1 < pieces.len() { columns(CONTINUES) } else { 0 };
        if nth > 0 && columns(&line) + " ".len() + columns(piece) + ends > WIDTH {
            let _ = writeln!(text, "{line}{CONTINUES}");
            line = " ".repeat(columns(lead) + 2);
        } else if nth > 0 {
            line.push(' ');
        }
        line.push_str(piece);
    }
    let _ = writeln!(text, "{line}");
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inside {
    Single,
    Double,
    /// `$(...)`
    Substitution,
}

fn follow(word: &str, inside: &mut Vec<Inside>) {
    let mut letters = word.chars().peekable();
    while let Some(letter) = letters.next() {
        match (inside.last().copied(), letter) {
            (Some(Inside::Single), '\'') | (Some(Inside::Double), '"') | (Some(Inside::Substitution), ')') => {
                inside.pop();
            }
            (Some(Inside::Single), _) => {}
            (_, '\\') => drop(letters.next()),
            (_, '$') if letters.peek() == Some(&'(') => {
                letters.next();
                inside.push(Inside::Substitution);
            }
            (Some(Inside::Double), _) => {}
            (_, '\'') => inside.push(Inside::Single),
            (_, '"') => inside.push(Inside::Double),
            _ => {}
        }
    }
}

/// Cells side by side. A word wider than its column begins further left, or in its own line.
fn cells(text: &mut String, cells: &[&str], widths: &[usize]) {
    let mut cells: Vec<_> = cells.iter().zip(widths).map(|(cell, width)| lines(cell, *width).into_iter()).collect();
    loop {
        let (mut line, mut column, mut has_any) = (String::new(), 0, false);
        for (cell, width) in cells.iter_mut().zip(widths) {
            if let Some(part) = cell.as_slice().first() {
                let excess = columns(part) > *width;
                let from = if excess { column.min(WIDTH.saturating_sub(columns(part))) } else { column };
                if line.is_empty() || columns(&line) + GAP.len() <= from {
                    line.push_str(&" ".repeat(from.saturating_sub(columns(&line))));
                    line.push_str(part);
                    has_any = true;
                    cell.next();
                }
            }
            column += width + GAP.len();
        }
        if !has_any {
            return;
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
}

/// At least one line, each at most `width` wide; numbers stay with units.
fn lines(words: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for (nth, word) in with_units(words).into_iter().enumerate() {
        let line = lines.last_mut().expect("there is one");
        if nth > 0 && columns(line) + 1 + columns(&word) > width {
            lines.push(word);
        } else {
            line.push_str(if nth > 0 { " " } else { "" });
            line.push_str(&word);
        }
    }
    lines
}

fn with_units(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in text.split(' ') {
        let unit = UNITS.contains(&word.trim_end_matches(['.', ',', ';', ':', ')']));
        match words.last_mut().filter(|last| unit && last.ends_with(|c: char| c.is_ascii_digit())) {
            Some(number) => number.extend([" ", word]),
            None => words.push(word.to_owned()),
        }
    }
    words
}

fn columns(text: &str) -> usize {
    text.chars().count()
}

const UNITS: [&str; 22] = [
    "%", "B", "us", "ms", "s", "min", "h", "kB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "TiB", "MiB/s", "GiB/s",
    "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s", "bytes",
];

/// A usual terminal, half a wide screen, a letter, a mail.
pub const WIDTH: usize = 80;

pub const LABEL_WIDTH: usize = 20;

const GAP: &str = "  ";
const VALUE_COLUMN: usize = GAP.len() + LABEL_WIDTH + GAP.len();
const LEFT_WIDTH: usize = 24;
const RIGHT_WIDTH: usize = WIDTH - VALUE_COLUMN - LEFT_WIDTH - GAP.len();

const CONTINUES: &str = " \\";

#[cfg(test)]
pub mod tests {
    use super::*;

    #[track_caller]
    pub fn fits(text: &str) {
        for line in text.lines() {
            assert!(columns(line) <= WIDTH, "{} columns: {line}\nof\n{text}", columns(line));
        }
    }

    #[test]
    fn values_go_on_below_themselves_and_numbers_keep_their_units() {
        let mut text = String::new();
        row(&mut text, "a label", &"word ".repeat(20));
        row(&mut text, "numbers", "a host allows one connection at most so many as 2.96 MiB, at 228 ms");
        paragraph(&mut text, "  - ", &"words of a sentence ".repeat(8));
        led(&mut text, "# ", &"words of a comment ".repeat(8));
        fits(&text);
        insta::assert_snapshot!(text, @r"
          a label               word word word word word word word word word word word
                                word word word word word word word word word
          numbers               a host allows one connection at most so many as
                                2.96 MiB, at 228 ms
          - words of a sentence words of a sentence words of a sentence words of a
            sentence words of a sentence words of a sentence words of a sentence words
            of a sentence
        # words of a comment words of a comment words of a comment words of a comment
        # words of a comment words of a comment words of a comment words of a comment
        ");
    }

    #[test]
    fn two_values_wrap_side_by_side_and_a_long_word_has_its_own_line() {
        let mut text = String::new();
        let all = "reno cubic bbr dctcp vegas westwood highspeed htcp".to_owned();
        pair(&mut text, "others allowed", &[all.clone(), all]);
        let long = "haul://[2001:db8:1234:5678:9abc:def0:1234:5678]:7632".to_owned();
        pair(&mut text, "source, target", &[long.clone(), "host-b".to_owned()]);
        pair(&mut text, "source, target", &["host-b".to_owned(), long]);
        insta::assert_snapshot!(text, @r"
          others allowed        reno cubic bbr dctcp      reno cubic bbr dctcp vegas
                                vegas westwood highspeed  westwood highspeed htcp
                                htcp
          source, target        haul://[2001:db8:1234:5678:9abc:def0:1234:5678]:7632
                                                          host-b
          source, target        host-b
                                    haul://[2001:db8:1234:5678:9abc:def0:1234:5678]:7632
        ");
    }

    #[test]
    fn columns_are_as_wide_as_they_need_to_be_and_fit_together() {
        let rows = [
            ["net.ipv4.tcp_allowed_congestion_control", "reno cubic", "reno cubic bbr"],
            ["net.ipv4.tcp_rmem", "4096 131072 6291456", "4096 131072 67108864"],
        ];
        let mut text = String::new();
        table(&mut text, "  ", &rows.map(|row| row.map(str::to_owned)), |text, nth| {
            text.push_str(&format!("after {nth}\n"))
        });
        fits(&text);
        insta::assert_snapshot!(text, @r"
          net.ipv4.tcp_allowed_congestion_control  reno cubic          reno cubic bbr
        after 0
          net.ipv4.tcp_rmem                        4096 131072         4096 131072
                                                   6291456             67108864
        after 1
        ");
        let mut text = String::new();
        table(&mut text, "  ", &[["a", "b"].map(str::to_owned)], |_, _| {});
        assert_eq!(text, "  a  b\n");
    }

    #[test]
    fn a_long_command_goes_on_as_a_shell_reads_it() {
        let rmem = "sysctl -w net.ipv4.tcp_rmem=\"$(sysctl -n net.ipv4.tcp_rmem | awk '{print $1, $2, 67108864}')\"";
        let flags = format!("sysctl {}", "--flag 'two words' \"and more\" a\\'b ".repeat(6).trim_end());
        for whole in [rmem, &flags, "sysctl --rate 1Gbit"] {
            let mut text = String::new();
            command(&mut text, "      ", whole);
            fits(&text);
            let words = |command: &str| {
                let script = format!("sysctl() {{ printf '<%s>\\n' \"$@\"; }}\n{command}");
                let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
                assert!(output.status.success() && !output.stdout.is_empty(), "{command}: {output:?}");
                output.stdout
            };
            assert_eq!(words(&text), words(whole), "{text}");
        }
    }

    #[test]
    fn a_word_without_end_stays_whole() {
        let path = "/a".repeat(100);
        for words in [path.clone(), format!("cannot read {path}")] {
            let mut text = String::new();
            paragraph(&mut text, "error: ", &words);
            assert!(text.contains(&path), "{text}");
        }
    }
}

//! What the word at the cursor is, by the flags' definitions.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

use clap::{Arg, ArgAction, Command};

pub struct Line<'a> {
    pub root: &'a Command,
    pub command: &'a Command,
    pub given: Vec<(&'a Arg, OsString)>,
    awaited: Option<&'a Arg>,
    operands: usize,
    /// Behind `--` nothing is a flag.
    is_escaped: bool,
}

/// A flag; and, in the same word, its value with what stands before it.
type FlagOfWord<'a> = (&'a Arg, Option<(String, OsString)>);

pub enum Slot<'a> {
    Nothing,
    Command,
    Flag,
    /// A flag's value. `lead` is the word's beginning before it, as in `--cipher=`.
    Value {
        arg: &'a Arg,
        lead: String,
    },
    Operand {
        arg: &'a Arg,
    },
}

impl<'a> Line<'a> {
    /// The words between program and cursor. `root` is built.
    pub fn read(root: &'a Command, words: &[OsString]) -> Self {
        let mut line = Self { root, command: root, given: Vec::new(), awaited: None, operands: 0, is_escaped: false };
        words.iter().for_each(|word| line.take(word));
        line
    }

    fn take(&mut self, word: &OsStr) {
        if let Some(arg) = self.awaited.take() {
            self.given.push((arg, word.to_owned()));
            return;
        }
        let is_flag = !self.is_escaped && word.len() > 1 && word.as_bytes().starts_with(b"-");
        if !is_flag {
            let sub = word.to_str().filter(|_| self.operands == 0).and_then(|name| self.command.find_subcommand(name));
            match sub.filter(|_| !self.is_escaped) {
                Some(sub) => self.command = sub,
                None => self.operands += 1,
            }
        } else if word == "--" {
            self.is_escaped = true;
        } else {
            for (arg, value) in self.flags(word).unwrap_or_default() {
                match value {
                    Some((_, value)) => self.given.push((arg, value)),
                    None if takes_value(arg) => self.awaited = Some(arg),
                    None => self.given.push((arg, OsString::new())),
                }
            }
        }
    }

    /// The flags of a word, the last perhaps with its value. `None`: there is no such flag.
    fn flags(&self, word: &OsStr) -> Option<Vec<FlagOfWord<'a>>> {
        let command = self.command;
        let value = |at: usize| -> Option<(String, OsString)> {
            let (lead, value) = word.as_bytes().split_at(at);
            Some((str::from_utf8(lead).ok()?.to_owned(), OsStr::from_bytes(value).to_owned()))
        };
        if let Some(long) = word.as_bytes().strip_prefix(b"--") {
            let equals = long.iter().position(|byte| *byte == b'=');
            let name = str::from_utf8(&long[..equals.unwrap_or(long.len())]).ok()?;
            let is_it = |arg: &&Arg| arg.get_long_and_visible_aliases().is_some_and(|longs| longs.contains(&name));
            let arg = command.get_arguments().find(is_it)?;
            return Some(vec![(arg, equals.and_then(|at| value(at + 3)))]);
        }
        let mut flags = Vec::new();
        for (at, byte) in word.as_bytes().iter().enumerate().skip(1) {
            let letter = char::from(*byte);
            let is_it = |arg: &&Arg| arg.get_short_and_visible_aliases().is_some_and(|all| all.contains(&letter));
            let arg = command.get_arguments().find(is_it)?;
            let rest = &word.as_bytes()[at + 1..];
            if takes_value(arg) && !rest.is_empty() {
                let equals = usize::from(rest.starts_with(b"="));
                flags.push((arg, value(at + 1 + equals)));
                break;
            }
            flags.push((arg, None));
        }
        Some(flags)
    }

    pub fn slot(&self, word: &OsStr) -> Slot<'a> {
        if let Some(arg) = self.awaited {
            return Slot::Value { arg, lead: String::new() };
        }
        if !self.is_escaped && word.as_bytes().starts_with(b"-") {
            return match self.flags(word).and_then(|mut flags| flags.pop()) {
                Some((arg, Some((lead, _)))) => Slot::Value { arg, lead },
                _ => Slot::Flag,
            };
        }
        if self.command.has_subcommands() {
            return Slot::Command;
        }
        let mut operands: Vec<&Arg> = self.command.get_positionals().collect();
        operands.sort_by_key(|arg| arg.get_index());
        let is_repeated = |arg: &&&Arg| {
            matches!(arg.get_action(), ArgAction::Append) || arg.get_num_args().is_some_and(|n| n.max_values() > 1)
        };
        let repeated = || operands.last().filter(is_repeated);
        match operands.get(self.operands).or_else(repeated) {
            Some(arg) => Slot::Operand { arg },
            None => Slot::Nothing,
        }
    }

    pub fn reaches(&self) -> bool {
        self.command.get_arguments().any(|arg| arg.get_id() == "ssh_config")
    }
}

/// A value that may be left out stands behind `=`.
fn takes_value(arg: &Arg) -> bool {
    arg.get_num_args().is_some_and(|n| n.min_values() > 0)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::commands::Typed;

    fn read(line: &str) -> String {
        let mut root = Typed::command();
        root.build();
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let (last, before) = words.split_last().unwrap();
        let line = Line::read(&root, before);
        let given: Vec<String> =
            line.given.iter().map(|(arg, value)| format!("{}={}", arg.get_id(), value.display())).collect();
        let slot = match line.slot(last) {
            Slot::Nothing => "nothing".to_owned(),
            Slot::Command => "command".to_owned(),
            Slot::Flag => "flag".to_owned(),
            Slot::Value { arg, lead } => format!("{} after '{lead}'", arg.get_id()),
            Slot::Operand { arg } => format!("operand {}", arg.get_id()),
        };
        format!("{} [{}] {slot}", line.command.get_name(), given.join(" "))
    }

    #[test]
    fn a_word_is_what_the_words_before_it_leave_open() {
        let table = [
            ("", "haul [] command"),
            ("cp ", "cp [] operand paths"),
            ("cp a b ls", "cp [] operand paths"),
            ("cp -aP 22 -i k host:", "cp [archive= port=22 ssh_identity=k] operand paths"),
            ("cp -P22 -oA=b --identity=k h", "cp [port=22 ssh_option=A=b identity=k] operand paths"),
            ("cp --rate ", "cp [] rate after ''"),
            ("cp --rate=", "cp [] rate after '--rate='"),
            ("cp -aP2", "cp [] port after '-aP'"),
            ("cp -4zP 22 -P=23 -z4 x", "cp [ipv4= compress= port=22 port=23 compress= ipv4=] operand paths"),
            ("cp -a", "cp [] flag"),
            ("cp -", "cp [] flag"),
            ("cp -- -", "cp [] operand paths"),
            ("cp --no-such x", "cp [] operand paths"),
            ("verify l r x", "verify [] nothing"),
            ("verify l r", "verify [] operand root"),
            ("key trust h", "trust [] operand host"),
            ("serve --http x", "serve [http=] nothing"),
        ];
        for (line, expected) in table {
            assert_eq!(read(line), expected, "{line}");
        }
    }
}

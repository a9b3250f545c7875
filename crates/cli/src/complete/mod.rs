//! `haul complete`: how a word of a command line may go on, for the shells.
//!
//! ```text
//!   words so far -> slot: a command, a flag, its value, a place -> offers -> one word a line
//!
//!   ho             hosts of ssh's configuration and known hosts, known daemons, named ends
//!   host:da        names at that host, over ssh in batch mode or over a login that is kept
//!   haul://dtn/da  names at that daemon
//!   tape:da        names at that named end
//! ```
//! A far side is asked only where that runs no program from the line alone (`harmless.rs`). Its names are left out
//! where a terminal or shell could take them for more. On a failure, nothing is offered or said.

mod bash;
pub mod flags;
mod harmless;
mod offer;
mod place;
mod slot;
mod ssh_files;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::process::ExitCode;

use clap::{Arg, Command, ValueHint};

use crate::complete::flags::{CompleteArgs, Shell};
use crate::complete::offer::{Files, MAX_OFFERS, Offer, Offers};
use crate::complete::slot::{Line, Slot};
use crate::detached::commands;
use crate::process::output;

/// Writes a line for what the shell adds by itself, then one word a line.
pub fn run(typed: &CompleteArgs, definitions: Command) -> ExitCode {
    // Now ssh and its jump hosts find no terminal to ask at.
    if haul_transfer::leave_terminal().is_err() {
        return ExitCode::SUCCESS;
    }
    let offers = |words: &[OsString]| offers(words, definitions.clone());
    let (files, lines) = match typed.shell {
        Shell::Bash => bash::lines(&typed.words, &offers),
        Shell::Zsh | Shell::Fish => {
            let offers = offers(&typed.words);
            let line = |offer: Offer| match offer.about.as_str() {
                "" => offer.word,
                about => format!("{}\t{about}", offer.word),
            };
            (offers.files, offers.words.into_iter().map(line).collect())
        }
    };
    let first = match files {
        Files::None => "none",
        Files::Any => "files",
        Files::Directories => "directories",
    };
    let lines = std::iter::once(first.to_owned()).chain(lines);
    output::say(lines.flat_map(|line| [line, "\n".to_owned()]).collect::<String>());
    ExitCode::SUCCESS
}

fn offers(words: &[OsString], mut root: Command) -> Offers {
    root.build();
    let Some((last, before)) = words.get(1..).and_then(<[OsString]>::split_last) else { return Offers::default() };
    let mut offers = offers_of(&Line::read(&root, before), last);
    offers.words.retain(|offer| offer.word.as_bytes().starts_with(last.as_bytes()));
    offers.words.sort();
    offers.words.dedup_by(|one, other| one.word == other.word);
    offers.words.truncate(MAX_OFFERS);
    offers
}

fn offers_of(line: &Line<'_>, last: &OsStr) -> Offers {
    match line.slot(last) {
        Slot::Nothing => Offers::default(),
        Slot::Command => {
            let visible = line.command.get_subcommands().filter(|sub| !sub.is_hide_set());
            let words = visible.map(|sub| offer(sub.get_name(), sub.get_about())).collect();
            Offers { files: Files::None, words }
        }
        Slot::Flag => {
            let visible = line.command.get_arguments().filter(|arg| !arg.is_hide_set());
            let flags = visible.flat_map(|arg| {
                let longs = arg.get_long_and_visible_aliases().unwrap_or_default();
                let shorts = arg.get_short_and_visible_aliases().unwrap_or_default();
                let longs = longs.into_iter().map(|long| format!("--{long}"));
                let words = longs.chain(shorts.into_iter().map(|short| format!("-{short}")));
                words.map(|word| offer(&word, arg.get_help())).collect::<Vec<Offer>>()
            });
            Offers { files: Files::None, words: flags.collect() }
        }
        Slot::Value { arg, lead } => {
            let begun = &last.as_bytes()[lead.len()..];
            let mut offers = values(arg, line, OsStr::from_bytes(begun));
            offers.words.iter_mut().for_each(|offer| offer.word.insert_str(0, &lead));
            offers
        }
        Slot::Operand { arg } if line.reaches() && arg.get_value_hint() != ValueHint::Hostname => {
            place::offers(line, last)
        }
        Slot::Operand { arg } if arg.get_id() == "id" || arg.get_id() == "ids" => {
            let copies = commands::offered().into_iter().map(|(id, about)| Offer { word: id.to_string(), about });
            Offers { files: Files::None, words: copies.collect() }
        }
        Slot::Operand { arg } => values(arg, line, last),
    }
}

fn values(arg: &Arg, line: &Line<'_>, begun: &OsStr) -> Offers {
    let possible = arg.get_possible_values();
    if !possible.is_empty() {
        let visible = possible.iter().filter(|value| !value.is_hide_set());
        let words = visible.map(|value| offer(value.get_name(), value.get_help())).collect();
        return Offers { files: Files::None, words };
    }
    // Words of `auto|one|LIST` are in small letters.
    let names = arg.get_value_names().unwrap_or_default().iter().flat_map(|names| names.split('|'));
    let is_word = |name: &&str| name.bytes().all(|byte| byte.is_ascii_lowercase());
    let words = names.filter(is_word).map(|name| offer(name, None)).collect();
    match arg.get_value_hint() {
        ValueHint::AnyPath | ValueHint::FilePath | ValueHint::ExecutablePath => Offers { files: Files::Any, words },
        ValueHint::DirPath => Offers { files: Files::Directories, words },
        ValueHint::Hostname => Offers { files: Files::None, words: place::hosts(line, begun) },
        _ => Offers { files: Files::None, words },
    }
}

fn offer(word: &str, about: Option<&clap::builder::StyledStr>) -> Offer {
    let about = about.map(ToString::to_string).unwrap_or_default();
    let about = about.lines().next().unwrap_or_default();
    let end = about.find(". ").unwrap_or(about.len());
    Offer { word: word.to_owned(), about: about[..end].to_owned() }
}

/// The script that makes a shell ask, if we have one.
pub fn script(shell: clap_complete::Shell) -> Option<&'static str> {
    match shell {
        clap_complete::Shell::Bash => Some(include_str!("haul.bash")),
        clap_complete::Shell::Zsh => Some(include_str!("haul.zsh")),
        clap_complete::Shell::Fish => Some(include_str!("haul.fish")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::commands::Typed;

    fn after(line: &str) -> (Files, Vec<String>) {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let offers = offers(&words, Typed::command());
        (offers.files, offers.words.into_iter().map(|offer| offer.word).collect())
    }

    #[track_caller]
    fn check(line: &str, files: Files, words: &[&str]) {
        assert_eq!(after(line), (files, words.iter().map(ToString::to_string).collect()), "{line}");
    }

    #[test]
    fn commands_flags_and_their_values_come_from_the_definitions() {
        check("haul sta", Files::None, &["stat", "status"]);
        check("haul key ", Files::None, &["generate", "help", "show", "trust"]);
        check("haul cp --files", Files::None, &["--files-from"]);
        check("haul cp -a --class ", Files::None, &["auto", "background", "normal", "priority"]);
        check("haul cp --class=b", Files::None, &["--class=background"]);
        check("haul cp --cipher a", Files::None, &["aes128-gcm", "aes256-gcm"]);
        check("haul cp a b --verify ", Files::None, &["disk", "wire"]);
        check("haul cp --paths ", Files::None, &["auto", "one"]);
        check("haul hash -asha", Files::None, &["-asha1", "-asha256", "-asha512"]);
        check("haul completions z", Files::None, &["zsh"]);
        check("haul agen", Files::None, &[]);
    }

    #[test]
    fn files_are_for_the_shell_where_a_flag_takes_one() {
        check("haul cp --files-from ", Files::Any, &[]);
        check("haul cp -i ./k", Files::Any, &[]);
        check("haul cp --stripe-dir ", Files::Directories, &[]);
        check("haul bench --sink m", Files::Directories, &["memory"]);
        check("haul cp --rate ", Files::None, &[]);
        check("haul cp ./a", Files::Any, &[]);
        check("haul cp -- ./-a", Files::Any, &[]);
        check("haul why ", Files::None, &[]);
    }

    #[test]
    fn a_flag_of_the_help_fits_into_a_line() {
        let about = |word: &str| {
            let words: Vec<OsString> = ["haul", "cp", word].map(OsString::from).into();
            offers(&words, Typed::command()).words.remove(0).about
        };
        assert_eq!(
            about("--inplace"),
            "Write into the final file instead of a temporary one; the file is incomplete until the end"
        );
    }
}

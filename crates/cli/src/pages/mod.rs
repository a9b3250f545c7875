//! Manual pages and completions, from the flags' definitions. `complete` answers the shells.
//!
//! ```text
//!   command_page   a command: title, clap_mangen's flags, help_text as sections, around
//!   file_page      a file: title, a page of docs/ by markdown, around
//!   blocks         what both are made of, and its man(7)
//! ```

mod around;
mod blocks;
mod command_page;
pub mod examples;
mod file_page;
pub mod flags;
mod help_text;
mod markdown;
mod title;

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

use haul_job::{Error, Fault};
use haul_transfer::whole_file;

use crate::complete;
use crate::process::output;
use crate::text::failure;
use crate::text::printable::printable;

pub fn completions(shell: clap_complete::Shell, mut definitions: clap::Command) -> ExitCode {
    match complete::script(shell) {
        Some(script) => output::say(script),
        None => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut definitions, "haul", &mut script);
            output::say(script);
        }
    }
    ExitCode::SUCCESS
}

pub fn man(directory: Option<&Path>, definitions: clap::Command) -> ExitCode {
    let written = match directory {
        Some(directory) => pages(definitions).and_then(|pages| {
            pages
                .iter()
                .try_for_each(|(name, page)| whole_file::write(&directory.join(name), page, whole_file::Mode::AsBefore))
        }),
        None => pages(definitions).map(|pages| {
            for (_, page) in pages {
                output::say(page);
            }
        }),
    };
    let Err(error) = written else { return ExitCode::SUCCESS };
    let place = directory.map_or_else(|| "standard output".to_owned(), |d| printable(d.as_os_str().as_bytes()));
    let error = Error::new(Fault::FileIo, format!("cannot write the manual pages to {place}")).because(error);
    let _ = write!(io::stderr(), "{}", failure::text(&error));
    ExitCode::from(failure::of_fault(error.fault).code)
}

/// Pages by file name: of haul, of each command for persons, of files.
fn pages(mut haul: clap::Command) -> io::Result<Vec<(String, Vec<u8>)>> {
    haul.build();
    let commands = haul.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help");
    let of_commands = std::iter::once(&haul).chain(commands).map(|command| {
        // `build` has named the commands haul-cp and so on.
        let name = format!("{}.1", command_page::name(command));
        Ok((name, command_page::page(command)?))
    });
    let of_files = file_page::ALL.iter().map(|file| Ok((format!("{}.5", file.name), file.page())));
    of_commands.chain(of_files).collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::commands::Typed;
    use crate::pages::blocks::LITERAL_WIDTH;

    fn names() -> Vec<String> {
        pages(Typed::command()).unwrap().into_iter().map(|(name, _)| name).collect()
    }

    fn text_of(name: &str) -> String {
        let pages = pages(Typed::command()).unwrap();
        let (_, page) = pages.into_iter().find(|(page, _)| page == name).unwrap();
        String::from_utf8(page).unwrap()
    }

    fn sections(page: &str) -> Vec<&str> {
        page.lines().filter_map(|line| Some(line.strip_prefix(".SH ")?.trim_matches('"'))).collect()
    }

    #[test]
    fn there_is_a_page_for_each_command_and_each_file() {
        let commands = "haul haul-cp haul-ls haul-du haul-df haul-stat haul-mkdir haul-mv haul-rm haul-cat haul-hash haul-clean \
                        haul-status haul-stop haul-wait haul-rate haul-log haul-why haul-verify haul-diff haul-key haul-serve \
                        haul-token haul-networks haul-probe haul-bench haul-record haul-tune haul-config \
                        haul-completions";
        let commands = commands.split_whitespace().map(|name| format!("{name}.1"));
        let files = ["haul-config.5", "haul-policy.5", "haul-networks.5"].map(str::to_owned);
        assert_eq!(names(), commands.chain(files).collect::<Vec<_>>());
    }

    #[test]
    fn each_page_that_another_one_names_is_made() {
        let (names, (pages, targets)) = (names(), around::named());
        for page in pages {
            assert!(names.iter().any(|name| name.rsplit_once('.').is_some_and(|(stem, _)| stem == page)), "{page}");
        }
        for target in targets {
            assert!(names.contains(&target), "{target}");
        }
    }

    #[test]
    fn what_stands_behind_the_flags_is_sections_of_the_page() {
        let page = text_of("haul-cp.1");
        let sections = sections(&page);
        let end = [
            "THE TRAILING SLASH (as in rsync)",
            "NAMES",
            "UNITS",
            "LETTERS THAT DIFFER",
            "AGAIN",
            "EXIT STATUS",
            "ENVIRONMENT",
            "FILES",
            "EXAMPLES",
            "SEE ALSO",
        ];
        assert!(
            sections.starts_with(&["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "WHAT IS COPIED"]),
            "{sections:?}"
        );
        assert!(sections.ends_with(&end), "{sections:?}");
        for item in [
            ".TP\n\\fB23\\fR\nsome entries were not copied; the rest was\n",
            ".TP\n\\fBhaul cp dir  host:to\\fR\nmakes to/dir with everything in dir\n",
            ".PP\nhaul://host[:port]/path starts at the directory that the daemon (port 7632) offers to your key.\n",
            ".TP\n\\fBhaul cp host:data/run42/ run42\\fR\npull\n",
        ] {
            assert!(page.contains(item), "{item}\n{page}");
        }
    }

    #[test]
    fn lines_of_an_example_stay_apart_and_fit_on_a_terminal() {
        let page = text_of("haul-serve.1");
        let lines =
            ".nf\nro root=/data/public ed25519:KEY bob@lab\nrw root=\"/data/new sets\" ed25519:KEY alice@laptop\n.fi\n";
        assert!(page.contains(lines), "{page}");
        for (name, page) in pages(Typed::command()).unwrap().iter().filter(|(name, _)| name.ends_with(".1")) {
            let page = String::from_utf8(page.clone()).unwrap();
            for literal in page.split("\n.nf\n").skip(1).map(|rest| rest.split("\n.fi\n").next().unwrap()) {
                for line in literal.lines().map(|line| line.replace("\\-", "-")) {
                    assert!(line.chars().count() <= LITERAL_WIDTH, "{name}: {line}");
                }
            }
        }
    }

    #[test]
    fn each_page_says_how_its_command_ends_and_where_to_read_on() {
        for (name, page) in pages(Typed::command()).unwrap() {
            let page = String::from_utf8(page).unwrap();
            let sections = sections(&page);
            assert_eq!(sections.last(), Some(&"SEE ALSO"), "{name}");
            assert!(sections.contains(&"EXIT STATUS") || name.ends_with(".5"), "{name}: {sections:?}");
            let once: std::collections::BTreeSet<_> = sections.iter().collect();
            assert_eq!(once.len(), sections.len(), "{name}: {sections:?}");
            let (command, _) = name.rsplit_once('.').unwrap();
            let has_examples = !examples::of_page(command).is_empty() && name.ends_with(".1");
            assert!(!has_examples || page.contains(".SH EXAMPLES\n.TP\n\\fBhaul"), "{name}");
        }
        let page = text_of("haul-key.1");
        assert!(page.contains(".SS \"haul key trust\"\n\\fBhaul key trust\\fR"), "{page}");
    }
}

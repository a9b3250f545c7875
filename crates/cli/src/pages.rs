//! Manual pages and completions, made from the definitions of the flags. `complete` answers the shells that ask.

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory as _;
use clap_mangen::Man;
use haul_job::{Error, Fault};
use haul_transfer::whole_file;

use crate::args::Typed;
use crate::examples::{Example, of_page};
use crate::printable::printable;
use crate::{complete, failure, output};

/// `haul completions SHELL`
pub fn completions(shell: clap_complete::Shell) -> ExitCode {
    match complete::script(shell) {
        Some(script) => output::say(script),
        None => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Typed::command(), "haul", &mut script);
            output::say(script);
        }
    }
    ExitCode::SUCCESS
}

/// `haul man [DIR]`
pub fn man(directory: Option<&Path>) -> ExitCode {
    let written = match directory {
        Some(directory) => pages().and_then(|pages| {
            pages.iter().try_for_each(|(name, page)| {
                whole_file::write(&directory.join(format!("{name}.1")), page, whole_file::Mode::AsBefore)
            })
        }),
        None => pages().map(|pages| {
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

/// A page for haul and one for each command that a person uses.
fn pages() -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut haul = Typed::command();
    haul.build();
    let visible = haul.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help");
    let commands = visible.map(|sub| {
        // `build` has already named the commands haul-cp and so on for display.
        (sub.get_display_name().unwrap_or_default().to_owned(), sub.clone())
    });
    let all = std::iter::once(("haul".to_owned(), haul.clone())).chain(commands);
    all.map(|(name, command)| {
        let mut page = Vec::new();
        Man::new(command).render(&mut page)?;
        page.extend_from_slice(examples(&name).as_bytes());
        Ok((name, page))
    })
    .collect()
}

/// man(7): each line as it is typed, and beneath it what it does.
fn examples(page: &str) -> String {
    let escaped = |text: &str| text.replace('\\', "\\e").replace('-', "\\-");
    let each = |(line, words): &Example| format!(".TP\n\\fB{}\\fR\n{}\n", escaped(line), escaped(words));
    match of_page(page) {
        [] => String::new(),
        examples => format!(".SH EXAMPLES\n{}", examples.iter().map(each).collect::<String>()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_page_for_each_command_with_its_flags() {
        let pages = pages().unwrap();
        let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names,
            [
                "haul",
                "haul-cp",
                "haul-ls",
                "haul-du",
                "haul-stat",
                "haul-mkdir",
                "haul-mv",
                "haul-rm",
                "haul-cat",
                "haul-hash",
                "haul-clean",
                "haul-status",
                "haul-stop",
                "haul-log",
                "haul-why",
                "haul-verify",
                "haul-diff",
                "haul-key",
                "haul-serve",
                "haul-token",
                "haul-networks",
                "haul-probe",
                "haul-bench",
                "haul-record",
                "haul-tune",
                "haul-config",
                "haul-completions"
            ]
        );
        for (name, page) in &pages {
            let text = String::from_utf8(page.clone()).unwrap();
            assert!(of_page(name).is_empty() || text.contains(".SH EXAMPLES\n.TP\n\\fBhaul"), "{name}");
        }
        let text = String::from_utf8(pages[1].1.clone()).unwrap();
        for word in ["files\\-from", "TRAILING SLASH", "EXIT STATUS", "lanes"] {
            assert!(text.contains(word), "{word}");
        }
    }
}

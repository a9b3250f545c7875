//! A command's manual page: flags by definition, and its help's last text as sections.

use std::io;

use clap::Command;
use clap_mangen::Man;
use roff::{Roff, bold, roman};

use crate::pages::around;
use crate::pages::blocks::{Block, render};
use crate::pages::examples::of_page;
use crate::pages::help_text;
use crate::pages::title::title;
use crate::text::failure;

/// The page of `haul` or a command; `command` is built.
pub fn page(command: &Command) -> io::Result<Vec<u8>> {
    let name = name(command).to_owned();
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let about = about.trim_end_matches('.');
    let mut page = title(&name, 1, about).render();
    let (first, sections) = described(command);
    let synopsis = [Block::Section("SYNOPSIS".to_owned())];
    let description = [Block::Section("DESCRIPTION".to_owned()), Block::plain(&format!("{about}."))];
    page.push_str(&render(&synopsis).to_roff());
    page.push_str(&usage(command).to_roff());
    page.push_str(&render(&[&description[..], &first[..]].concat()).to_roff());
    page.push_str(&options(command)?);
    page.push_str(&commands(command)?);
    page.push_str(&render(&ending(&name, sections)).to_roff());
    Ok(page.into_bytes())
}

/// The page's name; `haul` has no other name for display.
pub fn name(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

/// The help's last text: the description's part, and sections.
fn described(command: &Command) -> (Vec<Block>, Vec<Block>) {
    let text = command.get_after_long_help().or_else(|| command.get_after_help());
    let mut first = help_text::blocks(&text.map(ToString::to_string).unwrap_or_default());
    let sections = first.iter().position(|block| matches!(block, Block::Section(_))).unwrap_or(first.len());
    let sections = first.split_off(sections);
    (first, sections)
}

fn usage(command: &Command) -> Roff {
    let mut roff = Roff::new();
    let usage = command.clone().render_usage().to_string();
    for (number, line) in usage.trim_start_matches("Usage:").lines().map(str::trim).enumerate() {
        if number > 0 {
            roff.control("br", []);
        }
        let name = command.get_bin_name().unwrap_or("haul");
        match line.strip_prefix(name) {
            Some(rest) => roff.text([bold(name), roman(rest)]),
            None => roff.text([roman(line)]),
        };
    }
    roff
}

fn options(command: &Command) -> io::Result<String> {
    if command.get_arguments().all(clap::Arg::is_hide_set) {
        return Ok(String::new());
    }
    rendered(|page| Man::new(command.clone()).render_options_section(page))
}

/// `haul`'s commands have their own pages; subcommands stand here with their flags.
fn commands(command: &Command) -> io::Result<String> {
    let visible = |sub: &&Command| !sub.is_hide_set() && sub.get_name() != "help";
    let mut subs = command.get_subcommands().filter(visible).peekable();
    if subs.peek().is_none() {
        return Ok(String::new());
    }
    if !command.get_bin_name().unwrap_or_default().contains(' ') {
        let item = |sub: &Command| {
            let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
            Block::item(&format!("{}(1)", name(sub)), &about)
        };
        let all = std::iter::once(Block::Section("COMMANDS".to_owned())).chain(subs.map(item));
        return Ok(render(&all.collect::<Vec<_>>()).to_roff());
    }
    let mut text = render(&[Block::Section("COMMANDS".to_owned())]).to_roff();
    for sub in subs {
        let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
        text.push_str(&render(&[Block::Subsection(sub.get_bin_name().unwrap_or_default().to_owned())]).to_roff());
        text.push_str(&usage(sub).to_roff());
        text.push_str(&render(&[Block::plain(&format!("{about}."))]).to_roff());
        let flags = options(sub)?;
        // Flags stand below their command's name, without a heading.
        text.push_str(flags.split_once('\n').map_or("", |(_, flags)| flags));
    }
    Ok(text)
}

fn ending(name: &str, sections: Vec<Block>) -> Vec<Block> {
    let has = |section: &str| sections.iter().any(|block| block.is_section(section));
    let status = if has(EXIT_STATUS) { Vec::new() } else { exit_status(name) };
    let (examples, others) = parted(sections, EXAMPLES);
    let mut ending = [others, status, around::places(name)].concat();
    let more = of_page(name).iter().map(|(line, words)| Block::item(line, words)).collect::<Vec<_>>();
    if !examples.is_empty() || !more.is_empty() {
        ending.push(Block::Section(EXAMPLES.to_owned()));
        ending.extend(more);
        ending.extend(examples);
    }
    ending.extend(around::see_also(name, 1));
    ending
}

fn exit_status(name: &str) -> Vec<Block> {
    let heading = Block::Section(EXIT_STATUS.to_owned());
    if name == "haul" {
        return help_text::blocks(&format!("{EXIT_STATUS}\n{}", failure::exit_table()));
    }
    vec![heading, Block::plain("0 is success. haul-cp(1) has the other statuses.")]
}

fn parted(blocks: Vec<Block>, section: &str) -> (Vec<Block>, Vec<Block>) {
    let (mut inside, mut others, mut is_inside) = (Vec::new(), Vec::new(), false);
    for block in blocks {
        if let Block::Section(name) = &block {
            is_inside = name == section;
            if is_inside {
                continue;
            }
        }
        if is_inside { inside.push(block) } else { others.push(block) }
    }
    (inside, others)
}

/// `clap_mangen`'s text, without the definitions that begin a page.
fn rendered(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> io::Result<String> {
    let mut page = Vec::new();
    write(&mut page)?;
    let text = String::from_utf8(page).map_err(io::Error::other)?;
    let definitions = Roff::new().render();
    let text = text.strip_prefix(&definitions).unwrap_or(&text);
    // clap_mangen breaks the line around an empty one, which is a space by itself.
    Ok(text.replace("\n.br\n\n.br\n", "\n.sp\n"))
}

const EXIT_STATUS: &str = "EXIT STATUS";
const EXAMPLES: &str = "EXAMPLES";

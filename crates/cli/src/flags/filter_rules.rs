//! Rules of `--include`, `--exclude`, their lists, `--filter` and `--cvs-exclude`, in the order typed.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

use haul_job::job::{CVS_PATTERNS, MergeFile, MergeFormat, PatternRule, ReadRule, RuleTraits, read_rule};
use haul_job::{Error, Fault, FilterRule};

use crate::flags::filters::Filter;
use crate::text::printable::printable;

type Read<'a> = dyn FnMut(&'static str, &OsStr) -> Result<Vec<u8>, Error> + 'a;

/// How deep files of rules may name further ones.
const MAX_MERGE_DEPTH: usize = 16;

/// Expands a file of rules where its flag stands. `from0`: NUL bytes separate lists; `cvs` adds what CVS ignores.
///
/// # Errors
/// [`Fault::Usage`]: a rule is none. [`Fault::FileIo`]: a list cannot be read.
pub fn rules(filters: &[Filter], from0: bool, cvs: bool, read: &mut Read<'_>) -> Result<Vec<FilterRule>, Error> {
    let mut rules = Vec::new();
    for filter in filters {
        match filter {
            Filter::Rule { include, pattern } => add_pattern(&mut rules, *include, pattern.as_bytes())?,
            Filter::File { include, file } => {
                let flag = if *include { "--include-from" } else { "--exclude-from" };
                for line in split_lines(&read(flag, file)?, from0) {
                    if !line.starts_with(b"#") && !line.starts_with(b";") {
                        add_pattern(&mut rules, *include, line)?;
                    }
                }
            }
            Filter::Written(text) => {
                let rule = read_rule(text.as_bytes(), RuleTraits::default()).map_err(not_a_rule)?;
                add(&mut rules, rule, read, 0)?;
            }
        }
    }
    if cvs {
        for rule in [":C", "-C"] {
            let rule = read_rule(rule.as_bytes(), RuleTraits::default()).map_err(not_a_rule)?;
            add(&mut rules, rule, read, 0)?;
        }
    }
    Ok(rules)
}

/// As in rsync, a pattern's `+ ` or `- ` overrules the flag, and `!` alone forgets all rules so far.
fn add_pattern(rules: &mut Vec<FilterRule>, include: bool, pattern: &[u8]) -> Result<(), Error> {
    let (include, pattern) = match pattern {
        b"!" => {
            rules.clear();
            return Ok(());
        }
        [b'+', b' ', rest @ ..] => (true, rest),
        [b'-', b' ', rest @ ..] => (false, rest),
        _ => (include, pattern),
    };
    if pattern.is_empty() {
        return Err(Error::new(Fault::Usage, "a filter pattern is empty")
            .try_this("an empty pattern matches nothing; leave it out"));
    }
    rules.push(FilterRule::pattern(include, pattern));
    Ok(())
}

fn add(rules: &mut Vec<FilterRule>, rule: ReadRule, read: &mut Read<'_>, depth: usize) -> Result<(), Error> {
    match rule {
        ReadRule::Rule(rule) => rules.push(rule),
        ReadRule::Clear => rules.clear(),
        ReadRule::Cvs => add_cvs(rules, read)?,
        ReadRule::Merge(file) if depth >= MAX_MERGE_DEPTH => {
            let what = format!("{} is named by too many files of rules in a row", printable(&file.name));
            return Err(Error::new(Fault::Usage, what));
        }
        ReadRule::Merge(file) => {
            let bytes = read("--filter", OsStr::from_bytes(&file.name))?;
            for line in file.read(&bytes) {
                let rule = line.map_err(|why| not_a_rule(why).because(format!("in {}", printable(&file.name))))?;
                add(rules, rule, read, depth + 1)?;
            }
            if file.excludes_itself {
                let name = file.name.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
                rules.push(FilterRule::pattern(false, name));
            }
        }
    }
    Ok(())
}

fn add_cvs(rules: &mut Vec<FilterRule>, read: &mut Read<'_>) -> Result<(), Error> {
    let perishable = RuleTraits { perishable: true, ..RuleTraits::default() };
    for pattern in CVS_PATTERNS.split_ascii_whitespace() {
        let pattern = pattern.as_bytes().to_vec();
        rules.push(FilterRule::Pattern(PatternRule { include: false, pattern, traits: perishable }));
    }
    let own = std::env::home_dir().map(|home| home.join(".cvsignore")).filter(|file| file.is_file());
    let own = own.map(|file| read("--cvs-exclude", file.as_os_str())).transpose()?;
    let set = std::env::var_os("CVSIGNORE").map(|text: OsString| text.as_bytes().to_vec());
    let words = MergeFile {
        name: Vec::new(),
        inherits: false,
        excludes_itself: false,
        format: MergeFormat::Cvs,
        words: true,
        traits: RuleTraits::default(),
    };
    for text in own.into_iter().chain(set) {
        for rule in words.read(&text).filter_map(Result::ok) {
            add(rules, rule, read, MAX_MERGE_DEPTH)?;
        }
    }
    Ok(())
}

fn not_a_rule(why: String) -> Error {
    Error::new(Fault::Usage, why).try_this("--filter '- PATTERN', '+ PATTERN', '. FILE' or ': NAME', as in rsync")
}

pub fn split_lines(bytes: &[u8], from0: bool) -> impl Iterator<Item = &[u8]> {
    let end = if from0 { 0 } else { b'\n' };
    let whole = move |line| if from0 { line } else { <[u8]>::strip_suffix(line, b"\r").unwrap_or(line) };
    bytes.split(move |byte| *byte == end).map(whole).filter(|line| !line.is_empty())
}

//! Checks that linked pages and headings exist, pages named by Rust files, scripts and systemd units, and Rust files named by
//! pages.

use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::source::Source;

pub fn check(root: &Path, files: &[Source]) -> Vec<String> {
    let mut pages = Vec::new();
    let mut others: Vec<(String, String)> = files.iter().map(|file| (file.path.clone(), file.text.clone())).collect();
    collect(root, root, &mut pages, &mut others);
    let mut findings = Vec::new();
    for (path, text) in &pages {
        for (line, target) in links(text) {
            if let Some(why) = wrong(root, path, &target) {
                findings.push(format!("{path}:{line}: {target} {why}"));
            }
        }
        let missing = files_named(text).filter(|(_, file)| !is_source(root, file));
        findings.extend(missing.map(|(line, file)| format!("{path}:{line}: there is no file {file}")));
    }
    for (path, text) in &others {
        let named = text.lines().enumerate().flat_map(|(at, line)| pages_named(line).map(move |page| (at + 1, page)));
        let missing = named.filter(|(_, page)| !root.join(page).is_file());
        findings.extend(missing.map(|(line, page)| format!("{path}:{line}: there is no page {page}")));
    }
    findings
}

fn collect(root: &Path, dir: &Path, pages: &mut Vec<(String, String)>, others: &mut Vec<(String, String)>) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && !path.is_symlink() {
            // Results of builds and measurements do not count.
            if !name.starts_with('.') && name != "target" && name != "results" {
                collect(root, &path, pages, others);
            }
            continue;
        }
        let list = match name.rsplit_once('.').map(|(_, end)| end) {
            Some("md") => &mut *pages,
            Some("sh" | "service" | "socket") => &mut *others,
            _ => continue,
        };
        if let (Ok(below), Ok(text)) = (path.strip_prefix(root), fs::read_to_string(&path)) {
            list.push((below.to_string_lossy().into_owned(), text));
        }
    }
}

/// Finds Rust files between backquotes, with their lines: `crates/copy/src/receiver/lane.rs`, or shorter `copy/receiver/lane.rs`.
fn files_named(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = lines_outside_code(text);
    lines.flat_map(|(at, line)| {
        let words = line.split('`').skip(1).step_by(2);
        words
            .filter(|word| word.ends_with(".rs") && word.contains('/') && !word.contains(['*', ' ', '<', '{']))
            .map(move |word| (at + 1, word))
    })
}

fn is_source(root: &Path, named: &str) -> bool {
    let Some((house, rest)) = named.split_once('/') else { return false };
    let homes = [root.join(house), root.join("crates").join(house)];
    let mut places = homes.iter().flat_map(|home| [home.join(rest), home.join("src").join(rest)]);
    places.any(|place| place.is_file())
}

/// Finds links with their lines, except in code.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, line) in lines_outside_code(text) {
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        for rest in prose.split("](").skip(1) {
            let target = rest.split([')', ' ']).next().unwrap_or_default();
            let is_elsewhere = target.contains("://") || target.starts_with("mailto:");
            if !target.is_empty() && !is_elsewhere {
                found.push((at + 1, target.to_owned()));
            }
        }
    }
    found
}

fn lines_outside_code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    text.lines().enumerate().filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        !in_code && !fence
    })
}

fn wrong(root: &Path, from: &str, target: &str) -> Option<&'static str> {
    let (path, heading) = target.split_once('#').map_or((target, None), |(path, heading)| (path, Some(heading)));
    let page = match path {
        "" => root.join(from),
        _ => without_dots(&root.join(from).parent()?.join(path)),
    };
    if !page.starts_with(root) || !page.exists() {
        return Some("leads to no file");
    }
    let heading = heading?;
    let text = fs::read_to_string(&page).unwrap_or_default();
    (!anchors(&text).contains(&heading.to_owned())).then_some("leads to no heading of that page")
}

/// Turns `a/../b` into `b`, without the disk.
fn without_dots(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut so_far, part| {
        match part {
            Component::ParentDir => drop(so_far.pop()),
            Component::CurDir => {}
            other => so_far.push(other),
        }
        so_far
    })
}

/// Names headings as GitHub does: small letters, digits, `-` for each space, nothing else.
fn anchors(text: &str) -> Vec<String> {
    let headings = lines_outside_code(text).filter(|(_, line)| line.starts_with('#'));
    let mut found: Vec<String> = Vec::new();
    for (_, line) in headings {
        let words = line.trim_start_matches('#').trim().to_lowercase();
        let kept = words.chars().filter(|letter| letter.is_alphanumeric() || matches!(letter, '-' | '_' | ' '));
        let name: String = kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect();
        let before = found.iter().filter(|other| **other == name).count();
        found.push(if before == 0 { name } else { format!("{name}-{before}") });
    }
    found
}

/// Finds `docs/…` with the ending of a page.
fn pages_named(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("docs/").filter_map(|(at, _)| {
        let rest = &line[at..];
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '/' | '-' | '_' | '.');
        let page = &rest[..rest.find(|letter| !is_part(letter)).unwrap_or(rest.len())];
        let page = page.trim_end_matches('.');
        page.ends_with(".md").then_some(page)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_outside_of_code() {
        let text =
            "[a](b.md) and ![c](d.svg)\n```\n[x](y.md)\n```\n`[x](y.md)` [e](#f \"title\") [g](https://h/i.md)\n";
        let expected = [(1, "b.md".to_owned()), (1, "d.svg".to_owned()), (5, "#f".to_owned())];
        assert_eq!(links(text), expected);
    }

    #[test]
    fn headings_have_the_names_that_links_use() {
        let text = "# Two words, `code`\n```\n# no heading\n```\n## Again\n## Again\n## `--by TIME`: be done\n";
        assert_eq!(anchors(text), ["two-words-code", "again", "again-1", "--by-time-be-done"]);
    }

    #[test]
    fn a_link_leads_to_a_file_and_a_heading() {
        let root = crate::tidy::root();
        let wrong = |target: &str| wrong(&root, "docs/README.md", target);
        assert_eq!(wrong("../README.md#two-commands"), None);
        assert_eq!(wrong("../README.md#no-such-heading"), Some("leads to no heading of that page"));
        assert_eq!(wrong("nowhere.md"), Some("leads to no file"));
        assert_eq!(wrong("../../elsewhere.md"), Some("leads to no file"));
    }

    #[test]
    fn pages_are_found_in_comments_and_errors() {
        // In two parts, because this file is looked through, too.
        let line = ["/// See ", "a/b-c.md, \"", "d.md.\" and ", "e.json."].join("docs/");
        assert_eq!(
            pages_named(&line).collect::<Vec<_>>(),
            [["docs", "a/b-c.md"].join("/"), ["docs", "d.md"].join("/")]
        );
    }
}

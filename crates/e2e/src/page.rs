//! Reads pages of documentation, and compares what comes with what they show.
//!
//! A block ` ```console ` has commands behind a prompt (`$ `, or `there$ ` at another host), each with its output. In a block
//! ` ```sh ` each line is a command, without output.
//!
//! Varying figures are compared by form ([`FORMS`]): a time for a time, a rate for a rate. `…` stands for the rest of a word
//! or line, a line with `…` alone for any lines. A bar on the page was seen; other bars may be missing.

use std::path::Path;
use std::sync::LazyLock;

use regex::Regex;
use snapbox::IntoData as _;
use snapbox::filter::NormalizeToExpected;

/// A command of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The host before `$`, or empty.
    pub host: String,
    /// The command.
    pub command: String,
    /// The lines below it.
    pub shown: Vec<String>,
    /// The page's lines of it, from 0: the first, and the one behind the last.
    pub lines: (usize, usize),
}

/// A terminal after a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The lines that stay.
    pub lines: Vec<String>,
    /// Overwritten lines: each state of a bar.
    pub wiped: Vec<String>,
    /// The exit status.
    pub status: i32,
}

const FORMS: [(&str, &str); 14] = [
    ("0 s ago", r"\bjust now\b"),
    ("(size of the program)", r"\([0-9.]+ [KM]iB\), once$"),
    ("", r", limited by [^,]*"),
    ("(rate)", r"\b[0-9.,]+ ([KMGT]i)?B/s \([0-9.,]+ [kMG]bit/s\)"),
    ("(lanes)", r"\b[0-9]+ lanes?\b"),
    ("(part)", r"\b[0-9.,]+ ([KMGT]i)?B of an earlier run"),
    ("(time left)", r"\b[0-9]+(:[0-9]{2})+ left"),
    ("(time)", r"\b([0-9]+ (d|h|min) )?[0-9.]+ (ms|s|min|h)\b"),
    ("(date)", r"\b[A-Z][a-z]{2} [ 0-3][0-9] ([0-2][0-9]:[0-9]{2}| [0-9]{4})"),
    ("(date)", r"\b[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?)?Z?( [+-][0-9]{4})?"),
    ("(date)", r"\b[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9:]{8} GMT"),
    ("ed25519:(key)", r"\bed25519:[A-Za-z0-9+/=_-]{20,}"),
    ("SHA256:(key)", r"\bSHA256:[A-Za-z0-9+/]{43}"),
    ("(address)", r"\b[0-9]{1,3}(\.[0-9]{1,3}){3}(:[0-9]{5})?\b"),
];

const FORMS_OF_A_BAR: [(&str, &str); 6] = [
    ("(bar)", r"^[=> ]{16}"),
    // In the first second nothing is known of these.
    ("", r"  ~?\(time left\)"),
    ("", r"  \(rate\)"),
    ("(part)", r"~?[0-9]+ %"),
    ("(part) of ", r"\b[0-9.,]+ (([KMGT]i)?B )?of "),
    ("flushing (files)", r"\bflushing [0-9,]+ files?"),
];

static MASKS: LazyLock<Vec<(&str, Regex)>> = LazyLock::new(|| compiled(&FORMS));
static MASKS_OF_A_BAR: LazyLock<Vec<(&str, Regex)>> = LazyLock::new(|| compiled(&FORMS_OF_A_BAR));
static PROMPT: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^([a-z0-9]*)\$ (.+)$").expect("a constant"));
static BAR: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^[=> ]{16} [0-9~]").expect("a constant"));
static RUNNING: LazyLock<Regex> = LazyLock::new(|| Regex::new("^ +[0-9]+  running ").expect("a constant"));
static CONTROL: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\x1b\[[0-9;?]*[A-Za-z]").expect("a constant"));

fn compiled(forms: &[(&'static str, &str)]) -> Vec<(&'static str, Regex)> {
    forms.iter().map(|(name, form)| (*name, Regex::new(form).expect("a constant"))).collect()
}

/// A page's commands, in order.
#[track_caller]
pub fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut block = "";
    for (at, line) in page.lines().enumerate() {
        if let Some(kind) = line.strip_prefix("```") {
            block = kind;
            continue;
        }
        let typed = PROMPT.captures(line);
        match (block, typed, steps.last_mut()) {
            ("console", Some(typed), _) => steps.push(Step::at(at, &typed[1], &typed[2])),
            ("console", None, Some(step)) if step.lines.1 == at && step.command.ends_with('\\') => {
                step.command = format!("{}{}", step.command.trim_end_matches('\\'), line.trim_start());
                step.lines.1 += 1;
            }
            ("console", None, Some(step)) if step.lines.1 == at => {
                step.shown.push(line.to_owned());
                step.lines.1 += 1;
            }
            ("console", ..) => panic!("line {} is below no command: {line}", at + 1),
            ("sh", ..) => steps.push(Step::at(at, "", line)),
            _ => {}
        }
    }
    steps
}

impl Step {
    fn at(line: usize, host: &str, command: &str) -> Self {
        Self { host: host.to_owned(), command: command.to_owned(), shown: Vec::new(), lines: (line, line + 1) }
    }

    /// Tells how the page differs from what came, if so.
    pub fn difference(&self, seen: &Seen) -> Option<String> {
        let (bars, stays): (Vec<_>, Vec<_>) = self.shown.iter().partition(|line| BAR.is_match(line));
        let expected = masked(&stays);
        let came = masked(&seen.lines.iter().collect::<Vec<_>>());
        let pattern = expected.replace("\n…\n", "\n...\n").replace('…', "[..]").into_data().raw();
        let same = NormalizeToExpected::new().redact().normalize(came.clone().into_data(), &pattern) == pattern;
        let unseen = bars.iter().find(|bar| !seen.wiped.iter().any(|frame| masked_bar(frame) == masked_bar(bar)));
        match (same, unseen) {
            _ if seen.status != 0 => Some(format!("exit status {}\n{came}", seen.status)),
            (true, None) => None,
            (false, _) => Some(format!("the page:\n{expected}\nwhat came:\n{came}")),
            (true, Some(bar)) => Some(format!("no bar was\n{}\nbut\n{}", masked_bar(bar), seen.wiped.join("\n"))),
        }
    }
}

impl Seen {
    /// Replays these bytes: a carriage return begins the line anew.
    pub fn of(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let text = CONTROL.replace_all(&text, "");
        let mut seen = Self::default();
        for line in text.split("\r\n").flat_map(|part| part.split('\n')) {
            let mut states = line.split('\r');
            let stays = states.next_back().unwrap_or_default();
            seen.wiped.extend(states.filter(|state| !state.is_empty()).map(str::to_owned));
            seen.lines.push(stays.trim_end().to_owned());
        }
        if seen.lines.last().is_some_and(String::is_empty) {
            seen.lines.pop();
        }
        seen
    }

    /// The page's form, with the middle bar above the closing line if asked for.
    fn page_lines(&self, with_bar: bool) -> Vec<String> {
        let mut lines = self.lines.clone();
        let bars: Vec<_> = self.wiped.iter().filter(|state| BAR.is_match(state)).collect();
        if let Some(bar) = bars.get(bars.len() / 2).filter(|_| with_bar) {
            lines.insert(lines.len().saturating_sub(1), bar.trim_end().to_owned());
        }
        lines
    }
}

fn masked(lines: &[&String]) -> String {
    let form = |line: &&String| if RUNNING.is_match(line) { masked_bar(line) } else { mask(line, &MASKS) };
    lines.iter().map(|line| form(line) + "\n").collect()
}

fn masked_bar(line: &str) -> String {
    mask(&mask(line.trim_end(), &MASKS), &MASKS_OF_A_BAR)
}

fn mask(line: &str, masks: &[(&str, Regex)]) -> String {
    masks.iter().fold(line.to_owned(), |line, (name, form)| form.replace_all(&line, *name).into_owned())
}

/// All differences; empty if the page is right.
pub fn differences(results: &[(Step, Seen)]) -> String {
    let wrong = results
        .iter()
        .filter_map(|(step, seen)| Some(format!("{}$ {}\n{}\n", step.host, step.command, step.difference(seen)?)));
    wrong.collect()
}

/// Compares each step with what came. `PAGES=overwrite` writes differences into the page; `PAGES=anew` all but steps with
/// `…`, so all figures are of one run.
#[track_caller]
pub fn compare(page: &Path, results: &[(Step, Seen)]) {
    let asked = std::env::var("PAGES").unwrap_or_default();
    let (is_anew, overwrites) = (asked == "anew", asked == "anew" || asked == "overwrite");
    let told = differences(results);
    assert!(overwrites || told.is_empty(), "{} (PAGES=overwrite writes what comes)\n{told}", page.display());
    if !overwrites {
        return;
    }
    let text = std::fs::read_to_string(page).expect("it was read before");
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    // Going backwards keeps earlier line numbers.
    for (step, seen) in results.iter().rev() {
        let is_open = step.shown.iter().any(|line| line.contains('…'));
        if step.difference(seen).is_some() || (is_anew && !is_open) {
            let with_bar = step.shown.iter().any(|line| BAR.is_match(line));
            lines.splice(step.lines.1 - step.shown.len()..step.lines.1, seen.page_lines(with_bar));
        }
    }
    std::fs::write(page, lines.join("\n") + "\n").expect("the repository is writable");
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "words\n```console\n$ haul a\nin 0.61 s, …\nthere$ haul b \\\n  c\n```\n```sh\nd   # e\n```\n";

    #[test]
    fn a_page_has_commands_and_what_they_print() {
        let steps = steps(PAGE);
        let short: Vec<_> = steps.iter().map(|step| (step.host.as_str(), step.command.as_str())).collect();
        assert_eq!(short, [("", "haul a"), ("there", "haul b c"), ("", "d   # e")]);
        assert_eq!((&steps[0].shown, steps[0].lines), (&vec!["in 0.61 s, …".to_owned()], (2, 4)));
    }

    fn check(shown: &str, came: &str) -> Option<String> {
        let step = Step { shown: shown.lines().map(str::to_owned).collect(), ..Step::at(0, "", "x") };
        step.difference(&Seen::of(came.as_bytes()))
    }

    #[test]
    fn forms_are_compared_and_all_else_as_it_stands() {
        let page = "copied 21 files, 4.19 MiB in 0.61 s, 6.87 MiB/s (57.6 Mbit/s), all verified, 2 lanes direct";
        let came = "copied 21 files, 4.19 MiB in 3 min 05 s, 17 B/s (0.1 kbit/s), all verified, 1 lane direct, limited by x\r\n";
        assert_eq!(check(page, came), None);
        assert!(check(page, &came.replace("21", "20")).is_some());
        assert!(check(page, &came.replace("all verified, ", "")).is_some());
        assert!(check(page, &format!("{came}more\r\n")).is_some());
        assert_eq!(check("a … c\n…\nz", "a b c\r\nd\r\ne\r\nz\r\n"), None);
        assert!(check("a … c\n…\nz", "a b d\r\nd\r\nz\r\n").is_some());
    }

    #[test]
    fn a_bar_on_the_page_was_seen() {
        let bar =
            "=======>         45 %  0:02 left  1.00 MiB/s (8.39 Mbit/s)  1.50 MiB of 4.19 MiB  8 of 21 files  2 lanes";
        let other = bar.replace("45 %", "46 %").replace("0:02", "0:01").replace("8 of 21", "9 of 21");
        let came = format!("\r\x1b[2K{other}\r\x1b[2Kcopied\r\n");
        assert_eq!(check(&format!("{bar}\ncopied"), &came), None);
        assert_eq!(check("copied", &came), None);
        assert!(check(&format!("{}\ncopied", bar.replace("21 files", "22 files")), &came).is_some());
    }
}

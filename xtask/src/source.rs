//! The Rust files of the repository, tests told apart.

use std::fs;
use std::path::Path;

#[derive(Clone, Debug)]
pub struct Source {
    /// The path from the root, with `/`.
    pub path: String,
    pub text: String,
    /// Compiled for tests and benchmarks alone.
    pub is_test: bool,
}

impl Source {
    /// `net` for `crates/net/src/…`, `xtask` for `xtask/…`.
    pub fn crate_name(&self) -> &str {
        let mut parts = self.path.split('/');
        match parts.next() {
            Some("crates") => parts.next().unwrap_or_default(),
            other => other.unwrap_or_default(),
        }
    }

    /// Numbers lines without comments and tests.
    ///
    /// Tests end a file (STYLE: file order), so the program ends at the first `#[cfg(test)]` before a module with a body.
    pub fn program_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines: Vec<&str> = self.text.lines().collect();
        let end = lines
            .iter()
            .enumerate()
            .position(|(at, line)| {
                line.trim() == "#[cfg(test)]"
                    && lines[at + 1..]
                        .iter()
                        .map(|next| next.trim())
                        .find(|next| !next.starts_with("#["))
                        .is_some_and(|next| next.contains("mod ") && next.ends_with('{'))
            })
            .unwrap_or(lines.len());
        lines
            .into_iter()
            .enumerate()
            .take(if self.is_test { 0 } else { end })
            .map(|(at, line)| (at + 1, line))
            .filter(|(_, line)| !line.trim_start().starts_with("//"))
    }

    pub fn new(path: &str, text: &str) -> Self {
        let mut source = Self { path: path.to_owned(), text: text.to_owned(), is_test: false };
        source.is_test = source.crate_name() == "e2e"
            || ["/tests/", "/benches/", "fuzz/"].iter().any(|part| path.contains(part))
            || path.ends_with("/tests.rs");
        source
    }

    /// Finds `#[cfg(test)] mod scenarios;`.
    fn test_modules(&self) -> Vec<String> {
        let (dir, name) = self.path.rsplit_once('/').unwrap_or_default();
        let below = match name {
            "lib.rs" | "main.rs" | "mod.rs" => dir.to_owned(),
            _ => format!("{dir}/{}", name.trim_end_matches(".rs")),
        };
        let lines: Vec<&str> = self.text.lines().map(str::trim).collect();
        let declared = lines.windows(2).filter(|pair| pair[0] == "#[cfg(test)]").map(|pair| pair[1]);
        declared
            .filter_map(|line| line.strip_suffix(';')?.rsplit_once("mod "))
            .map(|(_, module)| format!("{below}/{module}.rs"))
            .collect()
    }

    /// Whether a crate, binary or test begins here.
    pub fn is_root(&self) -> bool {
        self.path.ends_with("src/lib.rs") || self.path.ends_with("src/main.rs") || self.path.contains("/src/bin/")
    }
}

pub fn all(root: &Path) -> Vec<Source> {
    let mut found = Vec::new();
    for part in ["crates", "lab", "xtask", "fuzz"] {
        collect(root, &root.join(part), &mut found);
    }
    let test_modules: Vec<String> = found.iter().flat_map(Source::test_modules).collect();
    for file in &mut found {
        file.is_test |= test_modules.contains(&file.path);
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn collect(root: &Path, dir: &Path, found: &mut Vec<Source>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name();
        // Beside a Cargo.toml `target` is cargo's output, elsewhere a module.
        let is_built = name == "target" && dir.join("Cargo.toml").exists();
        if path.is_dir() && !is_built {
            collect(root, &path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap_or_default();
            let path = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
            found.push(Source::new(&path, &text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_lines_leave_out_comments_and_tests() {
        let text = "//! head\nfn a() {}\n// why\n#[cfg(test)]\nuse x;\nfn b() {}\n#[cfg(test)]\n#[allow(x)]\nmod tests {\nfn c() {}\n}\n";
        let source = Source::new("crates/net/src/a.rs", text);
        let lines: Vec<_> = source.program_lines().collect();
        assert_eq!(lines, [(2, "fn a() {}"), (4, "#[cfg(test)]"), (5, "use x;"), (6, "fn b() {}")]);
        assert_eq!(source.crate_name(), "net");
        assert_eq!(Source::new("xtask/src/main.rs", "").crate_name(), "xtask");
    }

    #[test]
    fn modules_for_tests_are_found_by_their_declaration() {
        let text = "mod a;\n#[cfg(test)]\nmod b;\n#[cfg(test)]\npub(crate) mod c;\n#[cfg(test)]\nuse d;\n";
        let found = |path| Source::new(path, text).test_modules();
        assert_eq!(found("crates/net/src/lib.rs"), ["crates/net/src/b.rs", "crates/net/src/c.rs"]);
        assert_eq!(found("crates/net/src/x.rs"), ["crates/net/src/x/b.rs", "crates/net/src/x/c.rs"]);
    }
}

//! Which symbolic links stay in the tree that is copied: rsync's rule for `--safe-links`.

/// Whether a link may lead out of the tree. As with rsync, `..` stands only at the beginning, once for each directory above:
/// other names may be links.
pub fn leads_out(path: &[u8], target: &[u8]) -> bool {
    let directories = path.iter().filter(|byte| **byte == b'/').count();
    let (mut rest, mut ups) = (target, usize::from(target == b".."));
    while let Some(after) = rest.strip_prefix(b"../") {
        let slashes = after.iter().take_while(|byte| **byte == b'/').count();
        rest = &after[slashes..];
        ups += 1;
    }
    let is_absolute = target.first().is_none_or(|byte| *byte == b'/');
    is_absolute || ups > directories || target.ends_with(b"/..") || rest.windows(4).any(|part| part == b"/../")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_climb_no_higher_than_the_tree_are_safe() {
        for (path, target) in [
            ("ok", "f/y"),
            ("f/dd", ".."),
            ("f/g/up", "../y"),
            ("f/g/top", "../../y"),
            ("f/g/slashes", "..//..///y"),
            ("a", "./b"),
            ("a", "..b"),
            ("a", "b..//c"),
            ("a", "."),
            ("a", "b/"),
        ] {
            assert!(!leads_out(path.as_bytes(), target.as_bytes()), "{path} -> {target}");
        }
        for (path, target) in [
            ("a", ""),
            ("a", "/"),
            ("a", "/etc/passwd"),
            ("dd", ".."),
            ("a", "../out"),
            ("f/g", "../../z"),
            ("f/g/h", "../../../z"),
            // Where a directory is a link, these lead elsewhere.
            ("mid", "f/../f/y"),
            ("f/g/h", "../../.."),
            ("f/g/h", "../.."),
            ("tail", "f/g/.."),
            ("f/g/dot", "./../x"),
            ("f/g/again", "../x/../../y"),
        ] {
            assert!(leads_out(path.as_bytes(), target.as_bytes()), "{path} -> {target}");
        }
    }
}

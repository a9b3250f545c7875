//! `--chmod` as in rsync: `D750,Fgo-w,u=rwX`; `D` is for directories alone, `F` for all else.

use haul_job::ModeChange;

const ALL: u32 = 0o7777;

/// Reads the changes, in the order typed.
///
/// # Errors
/// A change of another form.
pub fn parse(text: &str) -> Result<Changes, String> {
    let wrong = || format!("'{text}' is no change of modes as in rsync: 644, D750, F640, u=rwX, go-w, Dg+s");
    let umask = umask();
    let changes: Option<Vec<ModeChange>> = text.split(',').map(|part| change(part, umask)).collect();
    changes.filter(|changes| changes.len() <= MAX_CHANGES).map(Changes).ok_or_else(wrong)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes(pub Vec<ModeChange>);

/// A job stays small on the wire.
const MAX_CHANGES: usize = 64;

fn change(part: &str, umask: u32) -> Option<ModeChange> {
    let (files, directories, rest) = match part.as_bytes().first()? {
        b'D' => (false, true, &part[1..]),
        b'F' => (true, false, &part[1..]),
        _ => (true, true, part),
    };
    let change = |keep, add| Some(ModeChange { files, directories, keep, add, only_if_executable: false });
    if !rest.is_empty() && rest.bytes().all(|digit| (b'0'..=b'7').contains(&digit)) {
        let mode = u32::from_str_radix(rest, 8).ok().filter(|mode| *mode <= ALL)?;
        return change(0, mode);
    }
    let at = rest.find(['+', '-', '='])?;
    let (who, what) = (&rest[..at], &rest[at + 1..]);
    let (mut places, mut special) = (0, 0);
    for letter in who.chars() {
        let (place, bit) = match letter {
            'u' => (0o100, 0o4000),
            'g' => (0o010, 0o2000),
            'o' => (0o001, 0),
            'a' => (0o111, 0o6000),
            _ => return None,
        };
        (places, special) = (places | place, special | bit);
    }
    let (mut bits, mut top, mut only_if_executable) = (0, 0, false);
    for letter in what.chars() {
        match letter {
            'r' => bits |= 4,
            'w' => bits |= 2,
            'x' => bits |= 1,
            'X' => (bits, only_if_executable) = (bits | 1, true),
            's' => top |= if special == 0 { 0o4000 } else { special },
            't' => top |= 0o1000,
            _ => return None,
        }
    }
    // Without a who, the umask limits a change for all.
    let (places, mask) = if places == 0 { (0o111, !umask) } else { (places, !0) };
    let bits = ((places * bits) & mask) | top;
    let change = |keep, add| Some(ModeChange { files, directories, keep, add, only_if_executable });
    match rest.as_bytes()[at] {
        b'+' => change(ALL, bits),
        b'-' => change(ALL & !bits, 0),
        _ => change(ALL & !(places * 7) & !(if top == 0 { 0 } else { special | 0o1000 & top }), bits),
    }
}

/// Without `/proc` the umask is 022.
fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|text| u32::from_str_radix(text.trim(), 8).ok()).unwrap_or(0o022)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_file(text: &str, mode: u32) -> u32 {
        parse(text).unwrap().0.iter().fold(mode, |mode, change| change.apply(mode, false))
    }

    fn of_directory(text: &str, mode: u32) -> u32 {
        parse(text).unwrap().0.iter().fold(mode, |mode, change| change.apply(mode, true))
    }

    #[test]
    fn modes_change_as_in_rsync() {
        for (text, file, directory) in [
            ("644", 0o644, 0o644),
            ("D750,F640", 0o640, 0o750),
            ("go-w", 0o644, 0o755),
            ("u=rwX,g=rX,o=", 0o640, 0o750),
            ("a+x", 0o775, 0o777),
            ("Dg+s", 0o664, 0o2777),
            ("Fu=r", 0o464, 0o777),
            ("o=", 0o660, 0o770),
        ] {
            assert_eq!((of_file(text, 0o664), of_directory(text, 0o777)), (file, directory), "{text}");
        }
        // chmod(1) and rsync 3.5 do the same.
        assert_eq!(of_file("a+s", 0o755), 0o6755);
        assert_eq!((of_file("a-s", 0o6755), of_file("a=rx", 0o6755), of_file("a=s", 0o755)), (0o755, 0o6555, 0o6000));
        assert_eq!(of_file("go+X", 0o700), 0o711, "it may be executed by somebody");
        for wrong in ["", "x", "u", "888", "D", "u+q", "z=r", "77777", ","] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}

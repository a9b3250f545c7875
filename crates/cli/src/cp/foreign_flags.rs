//! Flags of rsync and scp that haul lacks, with haul's way or word.

use std::fmt::Write as _;

use clap::error::{ContextKind, ContextValue, ErrorKind};

type Word = (&'static [&'static str], &'static str);

const WORDS: &[Word] = &[
    (
        &["--info", "--debug", "--stderr", "--msgs2stderr"],
        "--progress shows how far it is, -v names each path, -vv what rules leave out, --stats the totals, --live what limits it",
    ),
    (&["--no-motd", "--motd"], "a daemon of haul sends no message of the day"),
    (
        &["--fuzzy", "-y", "--block-size", "-B"],
        "haul compares a file that differs with what stands under its own name, and cuts both by their content",
    ),
    (&["--checksum-choice", "--checksum-seed"], "the hash is BLAKE3"),
    (
        &[
            "--compress-choice",
            "--compress-level",
            "--zc",
            "--zl",
            "--skip-compress",
            "--new-compress",
            "--old-compress",
        ],
        "-z compresses with zstd, and lets go where it does not help",
    ),
    (&["--rsync-path"], "--haul-path names the program at the far side"),
    (&["--remote-option", "-M"], "both ends get the same job; --haul-path names the program at the far side"),
    (&["--blocking-io", "--sockopts", "--outbuf"], "--window, --cc and --lanes tune the connections"),
    (&["--contimeout"], "--timeout bounds each silence, also of the connect"),
    (&["--address"], "--paths names the interfaces and addresses of this host"),
    (&["--password-file", "--early-input"], "haul:// logs in with a key: haul key generate"),
    (&["--daemon", "--config", "--dparam"], "haul serve is the daemon"),
    (
        &["--write-batch", "--only-write-batch", "--read-batch"],
        "haul keeps no batches; name several targets one after the other",
    ),
    (&["--protocol"], "both ends run the same version: haul brings its own program over ssh"),
    (&["--iconv"], "names are copied byte for byte"),
    (
        &["--secluded-args", "--protect-args", "-s", "--old-args", "--no-old-args"],
        "names never pass a shell at the far side",
    ),
    (&["--trust-sender"], "a sender brings only what was asked for, and that is always checked"),
    (&["--8-bit-output", "-8"], "names in valid UTF-8 are shown as they are"),
    (
        &["--copy-devices", "--write-devices", "--super", "--fake-super"],
        "--devices and --specials copy devices, FIFOs and sockets as they are; without them they are skipped, and named",
    ),
    (&["--preallocate"], "room for a large file is taken before its data comes"),
    (&["--fsync"], "every file is flushed before it counts; --no-flush does not wait"),
    (
        &["--copy-unsafe-links", "--munge-links", "--copy-dirlinks", "-k"],
        "links are copied as links; -K follows those to directories at the target, -L copies what they lead to, --safe-links leaves out those that lead away",
    ),
    (&["--executability", "-E"], "permissions are always kept"),
    (
        &["--no-links", "--no-l", "--no-D", "--no-devices", "--no-specials"],
        "links are always kept, devices and FIFOs come with -D alone",
    ),
    (
        &["--atimes", "-U", "--open-noatime", "--crtimes", "-N"],
        "modification times are kept; times of reading and of birth are not",
    ),
    (
        &["--old-dirs", "--no-recursive", "--no-r", "--no-implied-dirs", "--no-inc-recursive", "--no-i-r"],
        "directories come with their contents; -d copies them without, and --files-from lists single ones",
    ),
    (
        &["--ignore-missing-args", "--delete-missing-args"],
        "a source that is missing fails, and the rest is copied (exit status 23)",
    ),
    (&["--ignore-errors"], "nothing is deleted while a directory of the source cannot be listed"),
    (&["--copy-as"], "`user=NAME` beside a key of haul serve says as whom its files are written"),
    (&["--max-alloc"], "memory does not grow with files; there is no limit to set"),
    (&["--log-file-format"], "--out-format is the form of lines on standard output"),
    (&["-B"], "of scp, haul has -3 -4 -6 -C -F -J -P -S -c (checksum) -i -l -o -p -q -r -v"),
];

/// The message for a flag that haul lacks; `None` leaves clap's own.
pub fn words(error: &clap::Error) -> Option<String> {
    let flag = match error.get(ContextKind::InvalidArg)? {
        ContextValue::String(flag) => flag.as_str(),
        _ => return None,
    };
    let flag = flag.split([' ', '=']).next()?;
    let mut text = String::new();
    match error.kind() {
        ErrorKind::UnknownArgument => {
            let (_, words) = WORDS.iter().find(|(flags, _)| flags.contains(&flag))?;
            let _ = writeln!(text, "error: haul cp has no {flag}\n  hint:  {words}");
        }
        ErrorKind::ValueValidation | ErrorKind::InvalidValue if flag == "-P" => {
            let value = error.get(ContextKind::InvalidValue).map(ToString::to_string).unwrap_or_default();
            let shown = crate::text::printable::printable(&value);
            let _ = writeln!(text, "error: -P takes a port, as in scp, and '{shown}' is none");
            let _ = writeln!(
                text,
                "  hint:  rsync's -P is --partial --progress: data is always kept, and --progress shows it"
            );
        }
        ErrorKind::ValueValidation | ErrorKind::InvalidValue if flag == "-l" => {
            let value = error.get(ContextKind::InvalidValue).map(ToString::to_string).unwrap_or_default();
            let shown = crate::text::printable::printable(&value);
            let _ = writeln!(text, "error: -l takes kbit/s, as in scp, and '{shown}' is no number");
            let _ = writeln!(text, "  hint:  links are always kept: for rsync's -rltO write -rtO");
        }
        _ => return None,
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::ffi::OsString;

    use super::*;
    use crate::commands::Typed;

    fn refused(args: &[&str]) -> clap::Error {
        let args = ["haul", "cp"].iter().chain(args).map(OsString::from);
        Typed::parse_from(args).expect_err("it has no such flag")
    }

    #[test]
    fn every_flag_that_is_not_ours_has_its_word_and_is_none_of_ours() {
        let mut seen = HashSet::new();
        for (flags, _) in WORDS {
            for flag in flags.iter().filter(|flag| flag.starts_with("--")) {
                assert!(seen.insert(*flag), "{flag} has two words");
                let said = words(&refused(&[flag, "a", "b"])).unwrap_or_else(|| panic!("{flag} is ours by now"));
                assert!(said.contains(flag) && said.contains("hint:"), "{said}");
            }
        }
        assert_eq!(words(&refused(&["--nonsense"])), None);
    }

    #[test]
    fn the_letters_of_rsync_that_mean_something_else_here_say_so() {
        let said = words(&refused(&["-avhP", "src", "dst"])).expect("a word");
        assert!(said.contains("'src' is none") && said.contains("--progress"), "{said}");
        let said = words(&refused(&["-rltO", "src", "dst"])).expect("a word");
        assert!(said.contains("'tO' is no number") && said.contains("-rtO"), "{said}");
        assert!(words(&refused(&["-ak", "a", "b"])).is_some_and(|said| said.contains("no -k")));
    }
}

//! Text before and behind the flags in the help of `haul cp`.

pub type Example = (&'static str, &'static str);

/// The commands most people need. Lines fit on a narrow terminal.
pub const FIRST_SIX: [Example; 6] = [
    ("haul cp run42/ host:data/run42", "push; the same command again goes on"),
    ("haul cp host:data/run42/ run42", "pull"),
    ("haul cp hostA:/data/x hostB:/data/", "from one host to another, directly"),
    ("haul cp -aHAX --delete src/ host:dst", "mirror, as rsync -aHAX --delete"),
    ("haul cp --detach --rate 2Gbit d host:", "goes on when the terminal closes"),
    ("haul why", "what limited the last copy"),
];

pub fn first_six() -> String {
    FIRST_SIX.iter().fold("Examples:".to_owned(), |text, (line, words)| format!("{text}\n  {line:<38} {words}"))
}

pub const CP_SHORT_HELP: &str = "\
A trailing slash on a source directory means its contents: 'haul cp dir
host:to' makes to/dir, 'haul cp dir/ host:to' fills to. The whole help: haul cp
--help";

const CP_LONG_HELP: &str = "\
THE TRAILING SLASH (as in rsync)
  haul cp dir  host:to     makes to/dir with everything in dir
  haul cp dir/ host:to     puts the contents of dir directly into to
  A slash after the target means that it is a directory. Directories need no -r.

NAMES
  host:path and host:~/path start at the home directory there, host:/path at the
  root. ssh://[user@]host[:port]/path starts at the home directory too,
  ssh://host//path at the root.
  haul://host[:port]/path starts at the directory that the daemon (port 7632)
  offers to your key.
  https://host/path and http://host/dir/ are files and directories of a web
  server, to copy from. davs://host/path and dav://host/path are those of a
  server with WebDAV, to copy from and to.
  ftp://[user@]host/path is a tree at a server of FTP and starts where the
  server does, ftp://host//path at its root; ftps:// sends nothing in clear.
  gsiftp://host/path (without certificates) and sshftp://[user@]host/path (a
  login of ssh) are trees at servers of GridFTP, from the root on.
  host1,host2:path and haul://host1,host2/path are one end on several hosts with
  the same files: data goes over all of them at once.
  zero:10G is a file of so many zeros to copy from. null: verifies the data here
  and discards it; /dev/null does so at either end. stripes:FILE.stripes is a
  recording of 'haul record --stripe-dir', read as one file.
  A local name with a colon needs ./ in front: ./a:b. An IPv6 address needs
  brackets: [::1]:path.
  Wildcards in a remote source are expanded there; put them in quotes. '--' ends
  the options.
  All sources must be on one machine. Between two remote hosts the data goes
  directly, unless -3.

UNITS
  --rate 500Mbit or 100MB: bit is bits, B is bytes; k M G T are powers of 1000,
  Ki Mi Gi Ti of 1024.
  --bwlimit 5000: KiB/s as in rsync; K M G are powers of 1024. -l 8000: kbit/s
  as in scp.
  Sizes are shown in KiB, MiB, GiB, TiB (powers of 1024), rates of networks in
  Mbit/s and Gbit/s (of 1000).

LETTERS THAT DIFFER
  -c is rsync's checksum, not scp's cipher: --cipher. -o and -S are ssh's, as in
  scp: --owner, --sparse. -l is scp's limit in kbit/s; links are always kept.
  -P is the port, -p is always on. -i is an ssh key, not rsync's letters:
  --itemize-changes.

AGAIN
  After an interruption, a kill or a lost connection: run the same command again
  and it goes on where it stopped. After a success it moves nothing.

EXIT STATUS
";

/// Ends with the exit codes of `text/failure.rs`.
pub fn cp_long_help() -> String {
    format!("{CP_LONG_HELP}{}", crate::text::failure::exit_table())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_six_fit_on_a_narrow_terminal() {
        assert!(first_six().lines().all(|line| line.chars().count() < 80), "{}", first_six());
    }
}

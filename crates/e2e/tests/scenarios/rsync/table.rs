//! The rows of the matrix.

pub struct Row {
    /// As in rsync's manual.
    pub flag: &'static str,
    pub verdict: Verdict,
    pub shown_by: ShownBy,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The same tree, the same letters.
    Same,
    /// The same tree, and more.
    Better(&'static str),
    Other(&'static str),
    /// The error tells haul's way, in these words.
    NotOurs(&'static str),
}

#[derive(Clone, Copy)]
pub enum ShownBy {
    Both(&'static [&'static str]),
    /// Each with its own: haul, rsync.
    Each(&'static [&'static str], &'static [&'static str]),
    /// Both run; times and letters of directories are not compared.
    Files(&'static [&'static str]),
    /// Both copy these paths in the source's directory.
    From(&'static [&'static str], &'static [&'static str]),
    /// Both run; letters are not compared.
    Trees(&'static [&'static str]),
    /// haul takes the flag, and copies.
    Taken(&'static [&'static str]),
    /// haul refuses the flag.
    Refused(&'static [&'static str]),
}

use ShownBy::{Both, Each, Files, From, Refused, Taken, Trees};
use Verdict::{Better, NotOurs, Other, Same};

const fn row(flag: &'static str, verdict: Verdict, shown_by: ShownBy) -> Row {
    Row { flag, verdict, shown_by }
}

pub const ROWS: &[Row] = &[
    row("-v, --verbose", Other("one line a path, with what was done to it"), Taken(&["-v"])),
    row("-q, --quiet", Same, Taken(&["-q"])),
    row("-c, --checksum", Better("BLAKE3 at both ends; what is sent is verified with every copy"), Both(&["-c"])),
    row("-a, --archive", Other("devices and FIFOs are skipped, and named"), Both(&["-a"])),
    row("-r, --recursive", Other("always on, except beneath what --files-from lists"), Taken(&["-r"])),
    row(
        "-R, --relative",
        Other("wildcards of a far side are refused; sources whose paths begin in several directories, too"),
        From(&["-R", "--delete"], &["dir/deep", "cache/", "link"]),
    ),
    row("-R with /./", Same, From(&["-R"], &["dir/./deep", "dir/./there"])),
    row("-b, --backup", Better("times of directories are kept, too"), Files(&["--backup", "--delete"])),
    row("--suffix", Same, Files(&["-b", "--suffix=.old"])),
    row(
        "--backup-dir",
        Other("not onto another file system"),
        Files(&["--backup-dir=old", "--delete", "--exclude=/old"]),
    ),
    row("-u, --update", Same, Both(&["-u"])),
    row("--inplace", Better("an unfinished file is finished by the next run, also with -u"), Both(&["--inplace"])),
    row("-l, --links", Other("always on; -l KBIT is scp's limit"), Taken(&["--links"])),
    row("-L, --copy-links", Same, Both(&["-L", "--exclude=dangling"])),
    row("-H, --hard-links", Other("the same tree; another of the names may be told as the first"), Trees(&["-H"])),
    row("-p, --perms", Other("always on but for set-id and sticky bits, which -p adds"), Both(&["-p"])),
    row("-A, --acls", Same, Both(&["-A"])),
    row("-X, --xattrs", Same, Both(&["-X"])),
    row("-o, --owner", Other("--owner; -o is an option for ssh"), Each(&["--owner"], &["-o"])),
    row("-g, --group", Same, Both(&["-g"])),
    row("-t, --times", Other("always on; where they belong to another user, -t makes it a failure"), Both(&["-t"])),
    row("-S, --sparse", Other("always on; -S is the ssh program"), Taken(&["--sparse"])),
    row("-n, --dry-run", Same, Both(&["-n"])),
    row("--mkpath", Other("always on"), Taken(&["--mkpath"])),
    row("--force", Same, Both(&["--force"])),
    row("-W, --whole-file", Same, Both(&["-W"])),
    row("-x, --one-file-system", Same, Both(&["-x"])),
    row("-e, --rsh", Same, Taken(&["-e", "ssh"])),
    row("--existing", Same, Both(&["--existing"])),
    row("--ignore-existing", Same, Both(&["--ignore-existing"])),
    row(
        "--remove-source-files",
        Better("the target flushes a file and its name before the source goes"),
        Both(&["--remove-source-files"]),
    ),
    row(
        "--delete",
        Better(
            "nothing is deleted while a directory of the source cannot be listed, nor where a source is empty or lacks most of what stands there (`--force`)",
        ),
        Both(&["--delete"]),
    ),
    row("--del, --delete-during, --delete-delay", Same, Both(&["--del"])),
    row(
        "--delete-after",
        Other("with `--force` or `--max-delete` in each directory after its entries: the same tree"),
        Both(&["--delete-after"]),
    ),
    row(
        "--delete-before",
        Other("after the copy, with `--force` or `--max-delete` in each directory after its entries: the same tree"),
        Both(&["--delete-before"]),
    ),
    row("--delete-excluded", Same, Both(&["--delete-excluded", "--exclude=*.o"])),
    row("--chmod", Same, Both(&["--chmod=D750,Fgo-w,u+X"])),
    row("--chown", Same, Both(&["--chown=12:34"])),
    row("--usermap, --groupmap", Same, Both(&["--usermap=0:12,*:13", "--groupmap=5-9:33,root:34"])),
    row("--max-delete", Same, Taken(&["--delete", "--max-delete=10"])),
    row("--max-size", Same, Both(&["--max-size=1.5K"])),
    row("--min-size", Same, Both(&["--min-size=1k+1"])),
    row("--size-only", Same, Both(&["--size-only"])),
    row("-I, --ignore-times", Same, Both(&["-I"])),
    row("--partial", Other("always on"), Taken(&["--partial"])),
    row("--numeric-ids", Same, Both(&["--numeric-ids"])),
    row("--exclude", Same, Both(&["--exclude=*.o", "--exclude=/dir/deep"])),
    row("--include", Same, Both(&["--include=kept.o", "--exclude=*.o"])),
    row(
        "--compare-dest",
        Other("a file that the target has right stays there; no letters"),
        Trees(&["--compare-dest=../reference"]),
    ),
    row(
        "--copy-dest",
        Other("the same tree; no letters for what is not sent"),
        Trees(&["--copy-dest=../none", "--copy-dest=DIR/reference"]),
    ),
    row(
        "--link-dest",
        Other("regular files alone, and those that are to be sent; no letters"),
        Trees(&["--link-dest=../reference"]),
    ),
    row("-f, --filter", Same, Both(&["-f", "+ kept.o", "--filter=- *.o", "--filter=exclude_large"])),
    row("--filter, H S P R", Same, Both(&["--filter=P extra", "--filter=H *.o", "--delete"])),
    row(
        "--filter, merge files",
        Other("directories above the source are not looked into"),
        Both(&["--filter=. DIR/rules", "--filter=:e .rules", "--delete"]),
    ),
    row(
        "-F",
        Other("--filter=': /.rsync-filter'; -F is an ssh configuration, as in scp"),
        Taken(&["-f", ": /.rsync-filter"]),
    ),
    row("-C, --cvs-exclude", Other("--cvs-exclude; -C compresses, as in scp"), Each(&["--cvs-exclude"], &["-C"])),
    row("-z, --compress", Same, Both(&["-z"])),
    row("--stats", Other("haul's own table"), Taken(&["--stats"])),
    row("--bwlimit", Same, Taken(&["--bwlimit=1g"])),
    row(
        "-i, --itemize-changes",
        Other("--itemize-changes; -i is an ssh key, as in scp"),
        Taken(&["--itemize-changes"]),
    ),
    row("--out-format", Other("no %a %c %C %h %m %P %u"), Taken(&["--out-format=%i %n%L"])),
    row("--log-file", Other("lines as with --itemize-changes"), Taken(&["--log-file=/dev/null"])),
    row(
        "--stop-after, --time-limit, --stop-at",
        Other("an interruption, with exit status 20 in both; --stop-at also takes 06:00"),
        Taken(&["--stop-after=10"]),
    ),
    row(
        "--append, --append-verify",
        Better("a file that has grown is sent and verified whole, once, and replaced in one step"),
        Trees(&["--append-verify"]),
    ),
    row(
        "--partial-dir",
        Other("unfinished data has names of haul there; a relative DIR is one name"),
        Both(&["--partial-dir=.partial", "--delete"]),
    ),
    row(
        "--delay-updates",
        Other("not with --remove-source-files; the next run takes what waits"),
        Both(&["--delay-updates", "--delete"]),
    ),
    row(
        "-T, --temp-dir",
        Other("on another file system it is not used, with a warning: rsync copies into the final name"),
        Both(&["--temp-dir=DIR/reference"]),
    ),
    row("-y, --fuzzy", NotOurs("under its own name"), Refused(&["--fuzzy"])),
    row("--info, --debug", NotOurs("--stats the totals"), Refused(&["--info=progress2"])),
    row("--compress-choice, --compress-level", NotOurs("zstd"), Refused(&["--compress-level=3"])),
    row("--checksum-choice", NotOurs("BLAKE3"), Refused(&["--checksum-choice=md5"])),
    row(
        "-D, --devices, --specials",
        Other("not part of -a; who may not make a device is told of each"),
        Both(&["-D", "--delete"]),
    ),
    row("--safe-links", Better("further names of a link are judged, too"), Both(&["--safe-links", "--delete"])),
    row(
        "-K, --keep-dirlinks",
        Other("links of the user or root lead out of the target, too"),
        Both(&["-K", "--delete"]),
    ),
    row("--copy-unsafe-links, --munge-links, -k", NotOurs("-K follows those"), Refused(&["-k"])),
    row("-O, --omit-dir-times", Same, Files(&["-O"])),
    row(
        "-J, --omit-link-times",
        Other("--omit-link-times; -J is a jump host, as in scp"),
        Trees(&["--omit-link-times"]),
    ),
    row("--no-perms", Same, Both(&["--no-perms"])),
    row("--no-times", Other("no letter T"), Taken(&["--no-times"])),
    row("--no-group, --no-owner", Same, Both(&["-a", "--no-group", "--no-owner"])),
    row("-U, --atimes, -N, --crtimes", NotOurs("modification times are kept"), Refused(&["--atimes"])),
    row("-d, --dirs", Same, Each(&["-d", "--delete"], &["--no-r", "-d", "--delete"])),
    row("-m, --prune-empty-dirs", Same, Both(&["-m", "--delete", "--exclude=*.o", "--filter=P /dir/deep/"])),
    row(
        "-@, --modify-window",
        Other("without the flag to the nanosecond; -u with -1, too"),
        Both(&["--modify-window=2"]),
    ),
    row("--iconv", NotOurs("byte for byte"), Refused(&["--iconv=."])),
    row("--rsync-path", NotOurs("--haul-path"), Refused(&["--rsync-path=x"])),
    row("--password-file", NotOurs("haul key generate"), Refused(&["--password-file=x"])),
    row(
        "--list-only",
        Other("in the order of names, links with where they lead, directories without a size, devices with -D"),
        Taken(&["--list-only"]),
    ),
    row("--write-batch, --read-batch", NotOurs("no batches"), Refused(&["--write-batch=x"])),
    row("--fsync", NotOurs("--no-flush"), Refused(&["--fsync"])),
];

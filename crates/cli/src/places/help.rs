//! Words in several commands' help.

pub const PATHS_HELP: &str = "\
A PATH is one of this machine, [USER@]HOST:PATH, ssh://[USER@]HOST[:PORT]/PATH,
haul://HOST[:PORT]/PATH, sftp://[USER@]HOST[:PORT]/PATH, ftp://[USER@]HOST/PATH
or, to look at, a URL of a web server. Wildcards of a path at another host are
expanded there; put them in quotes. Those of a URL are taken as they are.";

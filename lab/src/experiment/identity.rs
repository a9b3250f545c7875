//! The user of commands: root, an ordinary user, or one who only looks like root.
//!
//! The owner of a user namespace is its only user, and root there. Servers that as root change their user (sshd, rsyncd,
//! xrootd) fail, so a further namespace gives back the real number.

use std::io::{self, Read};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::process::Process;
use super::testbed::Testbed;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) user: String,
    /// Servers must be told to stay root, or to become another user.
    pub(super) is_root: bool,
    /// Words before a command that restore the real number.
    pub(super) wrap: Vec<String>,
}

impl Identity {
    pub(super) fn ask(testbed: &dyn Testbed, host: &str) -> io::Result<Identity> {
        let mut command = Command::new("sh");
        command.args(["-c", "id -u; cat /proc/self/uid_map; cat /proc/self/gid_map"]).stdin(Stdio::null());
        let (mut read, write) = io::pipe()?;
        command.stdout(write);
        let mut process = Process::start(testbed, host, command)?;
        process.wait(Duration::from_secs(10), &|| false)?;
        let mut answer = String::new();
        read.by_ref().take(4096).read_to_string(&mut answer)?;
        Ok(Identity::from_answer(&answer, &std::fs::read_to_string("/etc/passwd").unwrap_or_default()))
    }

    fn from_answer(answer: &str, passwd: &str) -> Identity {
        let lines: Vec<Vec<&str>> = answer.lines().map(|line| line.split_whitespace().collect()).collect();
        let id = lines.first().and_then(|words| words.first()).copied().unwrap_or("0");
        let owner = match lines.as_slice() {
            [_, user, group] => match (user.as_slice(), group.as_slice()) {
                (["0", uid, "1"], ["0", gid, "1"]) if *uid != "0" => Some((*uid, *gid)),
                _ => None,
            },
            _ => None,
        };
        let number = owner.map_or(id, |(uid, _)| uid);
        let entry = passwd.lines().find(|line| line.split(':').nth(2) == Some(number));
        let user = entry.and_then(|line| line.split(':').next()).unwrap_or("root").to_owned();
        let wrap = match owner {
            Some((uid, gid)) => {
                ["unshare", "--user", &format!("--map-user={uid}"), &format!("--map-group={gid}"), "--"]
                    .map(str::to_owned)
                    .to_vec()
            }
            None => Vec::new(),
        };
        Identity { user, is_root: number == "0", wrap }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nada:x:1000:1000::/home/ada:/bin/sh\n";

    #[test]
    fn an_owner_who_looks_like_root_is_an_ordinary_user() {
        let root = Identity::from_answer("0\n0 0 4294967295\n0 0 4294967295\n", PASSWD);
        assert_eq!(root, Identity { user: "root".into(), is_root: true, wrap: vec![] });
        let ada = Identity::from_answer("1000\n0 0 4294967295\n0 0 4294967295\n", PASSWD);
        assert_eq!(ada, Identity { user: "ada".into(), is_root: false, wrap: vec![] });
        let owner = Identity::from_answer("0\n  0 1000 1\n  0 1000 1\n", PASSWD);
        assert_eq!((owner.user.as_str(), owner.is_root), ("ada", false));
        assert_eq!(owner.wrap.join(" "), "unshare --user --map-user=1000 --map-group=1000 --");
    }
}

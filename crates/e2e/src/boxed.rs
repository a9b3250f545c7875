//! `haul cp` over a path with known properties, to or from a `haul serve` in `haul-lab`.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use crate::boxed_stage::{Stage, Turn};
use crate::{Outcome, Run};

/// The path, and its hosts' slow parts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Boxed<'a> {
    /// As `haul-lab` reads it.
    pub rate: &'a str,
    /// As `haul-lab` reads it.
    pub rtt: &'a str,
    /// Further lines about the link.
    pub link: &'a str,
    /// The sender's settings: `"name" = "value"`, with commas between.
    pub source: &'a str,
    /// The target's settings.
    pub target: &'a str,
    /// Tables at the end of the topology.
    pub more: &'a str,
    /// A shell command before the sender, in its shell.
    pub before_source: &'a str,
    /// A shell command before the target.
    pub before_target: &'a str,
    /// A host is so slow that the emulator has hardly anything to carry: other light ones run at the same time.
    pub is_light: bool,
}

/// After three attempts without enough processor time, the result counts.
const ATTEMPTS: u32 = 3;

/// The lab's warning that its emulator was late.
const NOT_TO_BE_BELIEVED: &str = "figures of this run must not be believed";

impl Boxed<'_> {
    /// `haul cp --json FLAGS FROM haul://target/TO` without memory of earlier paths, repeated only if the lab says that the
    /// path was not as asked.
    #[track_caller]
    pub fn push(&self, flags: &[&str], from: &Path, to: &Path) -> Outcome {
        self.copy(flags, to, |there| [from.as_os_str().to_owned(), there], to)
    }

    /// `haul cp --json FLAGS FROM URL`, to a server that `before_target` starts, and which writes `to`.
    #[track_caller]
    pub fn push_to(&self, flags: &[&str], from: &Path, url: &str, to: &Path) -> Outcome {
        self.copy(flags, to, |_| [from.as_os_str().to_owned(), url.into()], to)
    }

    /// `haul cp --json FLAGS haul://target/FROM TO`: the target sends.
    #[track_caller]
    pub fn pull(&self, flags: &[&str], from: &Path, to: &Path) -> Outcome {
        self.copy(flags, from, |there| [there, to.as_os_str().to_owned()], to)
    }

    /// `haul cp --json FLAGS URL TO`, from a server that `before_target` starts.
    #[track_caller]
    pub fn pull_from(&self, flags: &[&str], url: &str, to: &Path) -> Outcome {
        self.copy(flags, to, |_| [url.into(), to.as_os_str().to_owned()], to)
    }

    /// The daemon offers `remote`, from which `paths` makes source and target. Each attempt makes `to` anew.
    #[track_caller]
    fn copy(&self, flags: &[&str], remote: &Path, paths: impl Fn(OsString) -> [OsString; 2], to: &Path) -> Outcome {
        let _turn = Turn::take(self.is_light);
        let mut run = self.copy_once(flags, remote, &paths);
        for attempt in 1..ATTEMPTS {
            if !run.stderr_text().contains(NOT_TO_BE_BELIEVED) {
                break;
            }
            eprintln!("attempt {attempt} of {ATTEMPTS} does not count:\n{}", run.stderr_text());
            let _ = fs::remove_file(to);
            Run::new("sync").run().expect(0);
            let _ = fs::write("/proc/sys/vm/drop_caches", "3");
            run = self.copy_once(flags, remote, &paths);
        }
        run
    }

    #[track_caller]
    fn copy_once(&self, flags: &[&str], remote: &Path, paths: impl Fn(OsString) -> [OsString; 2]) -> Outcome {
        let (Some(offered), Some(name)) = (remote.parent(), remote.file_name()) else {
            panic!("{} has no directory", remote.display())
        };
        let Self { rate, rtt, link, source, target, more, before_source, before_target, is_light: _ } = self;
        let topology = format!(
            "name = \"why\"\nseed = 1\n[hosts.source]\nsysctl = {{ {source} }}\n[hosts.target]\nsysctl = {{ {target} }}\n\
             [[links]]\nname = \"wan\"\nends = [\"source\", \"target\"]\nrate = \"{rate}\"\nrtt = \"{rtt}\"\n{link}\n{more}\n"
        );
        let stage = Stage::build(&topology, offered, before_source, before_target);
        let mut there = stage.url(&name.to_string_lossy());
        if remote.as_os_str().as_encoded_bytes().ends_with(b"/") {
            there.push('/');
        }
        stage.cp().args(flags).args(paths(there.into())).run()
    }
}

//! `haul cp` over a path with known properties: two hosts in `haul-lab`, one of them with a `haul serve`.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::{Outcome, Run, binary, scratch};

/// The path, and the slow parts of its hosts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Boxed<'a> {
    /// As `haul-lab` reads them.
    pub rate: &'a str,
    /// As `haul-lab` reads them.
    pub rtt: &'a str,
    /// More lines about the link.
    pub link: &'a str,
    /// Settings of the sender: `"name" = "value"`, with commas between.
    pub source: &'a str,
    /// Settings of the target.
    pub target: &'a str,
    /// Whole tables at the end of the topology.
    pub more: &'a str,
    /// A shell command that runs before the sender starts, in the same shell.
    pub before_source: &'a str,
    /// The same for the target.
    pub before_target: &'a str,
}

const PORT: u16 = 7070;

/// One lab at a time: two labs on a small machine would take processor time from each other.
static EMULATOR: Mutex<()> = Mutex::new(());

/// After three attempts without enough processor time, the result counts all the same.
const ATTEMPTS: u32 = 3;

/// The warning of the lab when its emulator was late.
const NOT_TO_BE_BELIEVED: &str = "figures of this run must not be believed";

impl Boxed<'_> {
    /// `haul cp --json FLAGS FROM haul://target/TO`, without any memory of earlier paths. Repeated only when the lab
    /// says that the path was not as asked.
    #[track_caller]
    pub fn push(&self, flags: &[&str], from: &Path, to: &Path) -> Outcome {
        self.copy(flags, to, |there| [from.as_os_str().to_owned(), there], to)
    }

    /// `haul cp --json FLAGS haul://target/FROM TO`, likewise: the host that the topology calls the target sends.
    #[track_caller]
    pub fn pull(&self, flags: &[&str], from: &Path, to: &Path) -> Outcome {
        self.copy(flags, from, |there| [there, to.as_os_str().to_owned()], to)
    }

    /// The daemon offers `remote`. `paths` makes source and target from its name. `to` is made anew for each attempt.
    #[track_caller]
    fn copy(&self, flags: &[&str], remote: &Path, paths: impl Fn(OsString) -> [OsString; 2], to: &Path) -> Outcome {
        let _one_at_a_time = EMULATOR.lock().unwrap_or_else(PoisonError::into_inner);
        let mut run = self.copy_once(flags, remote, &paths);
        for attempt in 1..ATTEMPTS {
            if !run.stderr_text().contains(NOT_TO_BE_BELIEVED) {
                break;
            }
            eprintln!("attempt {attempt} of {ATTEMPTS} does not count:\n{}", run.stderr_text());
            // As before the first attempt, the copy is made anew and a slow disk has nothing in memory.
            let _ = fs::remove_file(to);
            Run::new("sync").run().expect(0);
            let _ = fs::write("/proc/sys/vm/drop_caches", "3");
            run = self.copy_once(flags, remote, &paths);
        }
        run
    }

    #[track_caller]
    fn copy_once(&self, flags: &[&str], remote: &Path, paths: impl Fn(OsString) -> [OsString; 2]) -> Outcome {
        let dir = scratch();
        let haul = binary::find().expect("asked for with needs!(Haul)");
        let key = |name: &str| {
            let file = dir.path().join(name);
            Run::new(&haul).args(["key", "generate", "--file"]).arg(&file).run().expect(0);
            let shown = Run::new(&haul).args(["key", "show", "--file"]).arg(&file).run().expect(0).stdout_text();
            shown.lines().next().unwrap_or_default().to_owned()
        };
        let (user, host) = (key("user"), key("host"));
        let write = |name: &str, text: String| -> PathBuf {
            let file = dir.path().join(name);
            fs::write(&file, text).expect("own directory");
            file
        };
        let (Some(offered), Some(name)) = (remote.parent(), remote.file_name()) else {
            panic!("{} has no directory", remote.display())
        };
        write("authorized", format!("rw root=\"{}\" {user}\n", offered.display()));
        write("known", format!("target:{PORT} {host}\n"));
        let Self { rate, rtt, link, source, target, more, before_source, before_target } = self;
        let topology = write(
            "topology.toml",
            format!(
                "name = \"why\"\nseed = 1\n[hosts.source]\nsysctl = {{ {source} }}\n[hosts.target]\nsysctl = {{ {target} }}\n\
                 [[links]]\nname = \"wan\"\nends = [\"source\", \"target\"]\nrate = \"{rate}\"\nrtt = \"{rtt}\"\n{link}\n{more}\n"
            ),
        );
        let (haul, place) = (haul.display(), dir.path().display());
        let start = format!("set -eu; export HOME={place} XDG_STATE_HOME={place}/state");
        let serve = write(
            "serve.sh",
            format!(
                "{start}\n{before_target}\nexec {haul} serve -q --port {PORT} --identity {place}/host \
                 --authorized-keys {place}/authorized\n"
            ),
        );
        let copy = write(
            "copy.sh",
            format!(
                "{start}\ntries=0\nuntil bash -c 'exec 3<>/dev/tcp/target/{PORT}' 2>/dev/null; do\n\
                 tries=$((tries + 1)); [ $tries -lt 100 ]; sleep 0.1\ndone\n{before_source}\n\
                 exec {haul} cp --json --identity {place}/user --known-hosts {place}/known \"$@\"\n"
            ),
        );
        let mut there = format!("haul://target:{PORT}/{}", name.display());
        if remote.as_os_str().as_encoded_bytes().ends_with(b"/") {
            there.push('/');
        }
        Run::new(binary::find_lab().expect("asked for with needs!(Boxed)"))
            .args(["run", "--on", "source"])
            .arg(topology)
            .arg("--with")
            .arg(format!("target=sh {}", serve.display()))
            .args(["--", "sh"])
            .arg(copy)
            .args(flags)
            .args(paths(there.into()))
            .run()
    }
}

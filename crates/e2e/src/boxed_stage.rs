//! What every copy in `haul-lab` needs: keys, a `haul serve` on the host `target`, and a `haul cp` on the host `source`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{Run, binary, scratch};

/// Port of the daemon.
const PORT: u16 = 7070;

/// Files of one copy.
#[derive(Debug)]
pub(crate) struct Stage {
    dir: tempfile::TempDir,
}

/// One lab at a time: two labs on a small machine would take processor time from each other.
static EMULATOR: Mutex<()> = Mutex::new(());

/// Waits for the lab before to end.
pub(crate) fn one_at_a_time() -> MutexGuard<'static, ()> {
    EMULATOR.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stage {
    /// Keys and scripts. `topology` has the hosts `source` and `target`. The daemon offers a directory. The two commands
    /// run in the shell that then becomes `haul cp`, and `haul serve`.
    #[track_caller]
    pub(crate) fn build(topology: &str, offered: &Path, before_source: &str, before_target: &str) -> Self {
        let stage = Self { dir: scratch() };
        let (haul, place) = (binary::find().expect("asked for with needs!(Haul)"), stage.dir.path().display());
        let haul = haul.display();
        let (user, host) = (stage.key("user"), stage.key("host"));
        stage.write("authorized", &format!("rw root=\"{}\" {user}\n", offered.display()));
        stage.write("known", &format!("target:{PORT} {host}\n"));
        stage.write("topology.toml", topology);
        let start = format!("set -eu; export HOME={place} XDG_STATE_HOME={place}/state");
        stage.write(
            "serve.sh",
            &format!(
                "{start}\n{before_target}\nexec {haul} serve ${{SERVE-}} --port {PORT} --identity {place}/host \
                 --authorized-keys {place}/authorized >{place}/serve.log 2>&1\n"
            ),
        );
        stage.write(
            "copy.sh",
            &format!(
                "{start}\ntries=0\nuntil bash -c 'exec 3<>/dev/tcp/target/{PORT}' 2>/dev/null; do\n\
                 tries=$((tries + 1)); [ $tries -lt 100 ]; sleep 0.1\ndone\n{before_source}\n\
                 command=$1; shift\n\
                 exec {haul} \"$command\" --json --identity {place}/user --known-hosts {place}/known \"$@\"\n"
            ),
        );
        stage
    }

    /// `haul cp --json` on the host `source`, with the daemon's keys and without memory of earlier paths. Flags, sources and
    /// target are still to be added.
    pub(crate) fn cp(&self) -> Run {
        self.haul("cp")
    }

    /// Another command than a copy, in the same way.
    pub(crate) fn haul(&self, command: &str) -> Run {
        Run::new(binary::find_lab().expect("asked for with needs!(Boxed)"))
            .args(["run", "--on", "source"])
            .arg(self.file("topology.toml"))
            .arg("--with")
            .arg(format!("target=sh {}", self.file("serve.sh").display()))
            .args(["--", "sh"])
            .arg(self.file("copy.sh"))
            .arg(command)
    }

    /// A path below the offered directory, by way of the daemon.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("haul://target:{PORT}/{path}")
    }

    /// Its path in the directory of this copy.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a file in the directory of this copy.
    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.file(name), text).expect("own directory");
    }

    /// Makes a key, and returns the line of its public half.
    fn key(&self, name: &str) -> String {
        let (haul, file) = (binary::find().expect("asked for with needs!(Haul)"), self.file(name));
        Run::new(&haul).args(["key", "generate", "--file"]).arg(&file).run().expect(0);
        let shown = Run::new(&haul).args(["key", "show", "--file"]).arg(&file).run().expect(0).stdout_text();
        shown.lines().next().unwrap_or_default().to_owned()
    }
}

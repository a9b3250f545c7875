//! Each copy in `haul-lab` needs keys, a `haul serve` on `target`, and a `haul cp` on `source`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::{Run, binary, scratch};

const PORT: u16 = 7070;

#[derive(Debug)]
pub(crate) struct Stage {
    dir: tempfile::TempDir,
}

/// Two labs on a small machine would take each other's processor time, unless both have next to nothing to carry.
static EMULATOR: RwLock<()> = RwLock::new(());

#[derive(Debug)]
pub(crate) enum Turn {
    Alone { _emulator: RwLockWriteGuard<'static, ()> },
    BesideLight { _emulator: RwLockReadGuard<'static, ()> },
}

impl Turn {
    pub(crate) fn take(is_light: bool) -> Self {
        match is_light {
            true => Self::BesideLight { _emulator: EMULATOR.read().unwrap_or_else(PoisonError::into_inner) },
            false => Self::Alone { _emulator: EMULATOR.write().unwrap_or_else(PoisonError::into_inner) },
        }
    }
}

impl Stage {
    /// `topology` has the hosts `source` and `target`. Both commands run in the shell that becomes `haul cp` or `haul serve`,
    /// which offers `offered`.
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

    /// `haul cp --json` on `source` with the daemon's keys, without memory of earlier paths; flags and paths are still to be
    /// added.
    pub(crate) fn cp(&self) -> Run {
        self.haul("cp")
    }

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

    pub(crate) fn url(&self, path: &str) -> String {
        format!("haul://target:{PORT}/{path}")
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.file(name), text).expect("own directory");
    }

    fn key(&self, name: &str) -> String {
        let (haul, file) = (binary::find().expect("asked for with needs!(Haul)"), self.file(name));
        Run::new(&haul).args(["key", "generate", "--file"]).arg(&file).run().expect(0);
        let shown = Run::new(&haul).args(["key", "show", "--file"]).arg(&file).run().expect(0).stdout_text();
        shown.lines().next().unwrap_or_default().to_owned()
    }
}

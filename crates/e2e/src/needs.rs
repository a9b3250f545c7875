//! A test without what it needs prints its name and the reason. Under `CI=true` it fails, so a missing package never looks
//! green.

use std::path::PathBuf;

use crate::{slow, user_manager};

/// A condition of the machine.
#[derive(Clone, Debug)]
pub enum Need {
    /// Namespaces, mounts and other users need user 0.
    Root,
    /// A program in `PATH` or `sbin`.
    Tool(&'static str),
    /// A file of a package without a program.
    File(&'static str),
    /// The built `haul`.
    Haul,
    /// Network namespaces joined by a bridge.
    Namespaces,
    /// nftables in a namespace.
    Nftables,
    /// The built `haul` and `haul-lab`.
    Boxed,
    /// Control groups for a slow processor or disk.
    Slow,
    /// Disks made of files.
    LoopDevices,
    /// File systems by FUSE.
    Fuse,
    /// `Boxed`, with package user-mode-linux's kernel.
    GuestKernel,
    /// A store that speaks S3: versitygw or moto.
    ObjectStore,
    /// systemd for a user's services.
    UserManager,
}

impl Need {
    /// Why the need is not met, if so.
    pub fn missing(&self) -> Option<String> {
        match self {
            Need::Root if rustix::process::geteuid().is_root() => None,
            Need::Root => Some("needs root (network namespaces, mounts)".into()),
            Need::Tool(name) if tool(name).is_some() => None,
            Need::Tool(name) => Some(format!("needs the program `{name}`; scripts/setup-test.sh installs it")),
            Need::File(path) if std::path::Path::new(path).exists() => None,
            Need::File(path) => Some(format!("needs {path}; scripts/setup-test.sh installs it")),
            Need::Haul if crate::binary::find().is_some() => None,
            Need::Haul => Some("needs the built program: run `make build`, or name it in HAUL_BIN".into()),
            Need::ObjectStore => {
                let is_there = ["versitygw", "moto_server"].into_iter().any(|name| tool(name).is_some());
                (!is_there).then(|| "needs versitygw or moto_server; scripts/setup-test.sh installs one".into())
            }
            Need::Namespaces => Need::Root
                .missing()
                .or_else(|| Need::Tool("ip").missing())
                .or_else(|| Need::Tool("sshd").missing())
                .or_else(|| Need::Tool("ssh").missing())
                .or_else(|| Need::Tool("ssh-keygen").missing()),
            Need::Boxed => Need::Haul.missing().or_else(|| {
                let is_there = crate::binary::find_lab().is_some();
                (!is_there).then(|| "needs the built haul-lab: run `make build`, or name it in HAUL_LAB_BIN".into())
            }),
            Need::Fuse => Need::Root.missing().or_else(|| {
                let is_there = std::path::Path::new("/dev/fuse").exists();
                (!is_there).then(|| "needs /dev/fuse (modprobe fuse)".into())
            }),
            Need::LoopDevices => Need::Root
                .missing()
                .or_else(|| ["mkfs.ext4", "losetup"].into_iter().find_map(|name| Need::Tool(name).missing())),
            Need::Slow => Need::LoopDevices.missing().or_else(|| {
                let has_both = slow::has_controller(slow::CPU) && slow::has_controller(slow::BLOCKS);
                (!has_both).then(|| "needs the control groups cpu and blkio (io)".into())
            }),
            Need::GuestKernel => Need::Boxed.missing().or_else(|| {
                let is_named = std::env::var_os("HAUL_LAB_KERNEL").is_some();
                if is_named { None } else { Need::Tool(GUEST_KERNEL).missing() }
            }),
            Need::UserManager => {
                let missing =
                    ["systemd-run", "nsenter", "unshare"].into_iter().find_map(|name| Need::Tool(name).missing());
                Need::Root.missing().or(missing).or_else(|| {
                    let why = "needs systemd and a control group that root may write to";
                    (!user_manager::is_possible()).then(|| why.into())
                })
            }
            Need::Nftables => Need::Namespaces.missing().or_else(|| Need::Tool("nft").missing()),
        }
    }
}

/// Package user-mode-linux's kernel, a program.
pub const GUEST_KERNEL: &str = "linux.uml";

/// A program's path, also from `sbin`, which a user's `PATH` may lack.
pub fn tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/local/sbin"].map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
}

/// True if all needs are met. Otherwise prints the test's name and the reason, and fails it under `CI=true`.
#[track_caller]
pub fn met(test: &str, needs: &[Need]) -> bool {
    let Some(why) = needs.iter().find_map(Need::missing) else { return true };
    let in_ci = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
    assert!(!in_ci, "{test} cannot run here: {why}");
    eprintln!("skipped {test}: {why}");
    false
}

/// `needs!(Namespaces, Haul)` returns from the test with a message if a need is not met.
#[macro_export]
macro_rules! needs {
    ($($need:expr),+ $(,)?) => {{
        #[allow(unused_imports)]
        use $crate::needs::Need::*;
        let test = std::thread::current().name().unwrap_or("a test").to_owned();
        if !$crate::needs::met(&test, &[$($need),+]) {
            return;
        }
    }};
}

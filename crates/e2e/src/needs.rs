//! What a test needs from its machine. A test that cannot run prints its name and the reason. Under `CI=true` that is a
//! failure, so that a missing package never passes for a green run.

use std::path::PathBuf;

use crate::{slow, user_manager};

/// A condition of the machine.
#[derive(Clone, Debug)]
pub enum Need {
    /// Effective user 0: namespaces, mounts, other users.
    Root,
    /// A program in `PATH` or an `sbin` directory.
    Tool(&'static str),
    /// A file of a package that has no program.
    File(&'static str),
    /// The built `haul`.
    Haul,
    /// Network namespaces joined by a bridge.
    Namespaces,
    /// nftables inside a namespace.
    Nftables,
    /// The built `haul` and `haul-lab`.
    Boxed,
    /// Control groups that make a processor or a disk slow.
    Slow,
    /// Disks made of files.
    LoopDevices,
    /// File systems by FUSE.
    Fuse,
    /// As `Boxed`, with the kernel of the package user-mode-linux.
    GuestKernel,
    /// A store that speaks S3: versitygw or moto.
    ObjectStore,
    /// systemd that looks after the services of a user.
    UserManager,
}

impl Need {
    /// The reason why the need is not met; `None` when it is met.
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

/// The kernel of the package user-mode-linux, which is a program.
pub const GUEST_KERNEL: &str = "linux.uml";

/// Full path of a program, from `PATH` and the `sbin` directories, which the `PATH` of a plain user may lack.
pub fn tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/local/sbin"].map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
}

/// True when all needs are met. Otherwise prints the name of the test and the reason. Under `CI=true` it fails the
/// test.
#[track_caller]
pub fn met(test: &str, needs: &[Need]) -> bool {
    let Some(why) = needs.iter().find_map(Need::missing) else { return true };
    let in_ci = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
    assert!(!in_ci, "{test} cannot run here: {why}");
    eprintln!("skipped {test}: {why}");
    false
}

/// `needs!(Namespaces, Haul)`: returns from the test with a message when a need is not met.
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

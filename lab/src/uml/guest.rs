//! Process 1 of the guest makes a machine of a bare kernel, runs one child, reports its end, and switches off.
//!
//! Every failure switches off, even a panic: nobody watches a kernel that hangs.

use std::fs::{self, File};
use std::io::{Read, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, symlink};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;

use rustix::mount::{MountFlags, mount};
use rustix::process::{Pid, Signal, WaitOptions};
use rustix::system::RebootCommand;

use super::boot::GUEST_SUBCOMMAND;
use super::error::UmlError;
use super::job::{self, GuestStatus, LastWord};
use super::{lab, modules};
use crate::limits;

const SHARED: &str = "/run/haul-lab";

/// The hidden subcommand. Process 1 never returns; the child runs the command. Ignores what the kernel adds behind the first
/// argument.
pub fn main(arguments: &[String]) -> Result<u8, UmlError> {
    let Some(directory) = arguments.first() else {
        return Err(UmlError::Refused { what: GUEST_SUBCOMMAND.into(), why: "is for internal use".into() });
    };
    if rustix::process::getpid() == Pid::INIT {
        init(directory)
    } else {
        check_that_this_is_uml()?;
        child()
    }
}

fn init(directory: &str) -> ! {
    let outcome = catch_unwind(AssertUnwindSafe(|| machine(directory)));
    let word = match outcome {
        Ok(Ok(word)) => word,
        Ok(Err(error)) => LastWord::GaveUp(error.to_string()),
        Err(_) => LastWord::GaveUp("process 1 of the guest panicked".to_owned()),
    };
    if let Err(error) = word.write(Path::new(SHARED)) {
        let _ = writeln!(std::io::stderr(), "haul-lab: {word:?}, and {error}");
    }
    rustix::fs::sync();
    let _ = rustix::system::reboot(RebootCommand::PowerOff);
    // If process 1 ends, the kernel panics.
    loop {
        thread::park();
    }
}

fn machine(directory: &str) -> Result<LastWord, UmlError> {
    mount_one("proc", "proc", "/proc", "")?;
    check_that_this_is_uml()?;
    mount_all(directory)?;
    let shared = Path::new(SHARED);
    let refused = modules::load();
    let bytes = super::available_memory().bytes;
    fs::write("/proc/sys/net/ipv4/tcp_mem", tcp_memory(bytes))
        .map_err(UmlError::io("set net.ipv4.tcp_mem in the guest"))?;
    let mut stderr = open_output(job::STDERR)?;
    for line in refused {
        let _ = writeln!(stderr, "haul-lab: {line}");
    }
    drop(stderr);
    let exe = fs::read_link("/proc/self/exe").map_err(UmlError::io("find our own program"))?;
    let mut child = Command::new(exe)
        .args([GUEST_SUBCOMMAND, SHARED])
        .env("PATH", lab::SYSTEM_PATH)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(UmlError::io("start the guest's first program"))?;
    let (done, drained) = mpsc::channel();
    let mut relays = 0;
    let streams: [(&str, Option<Box<dyn Read + Send>>); 2] = [
        (job::STDOUT, child.stdout.take().map(|stream| Box::new(stream) as _)),
        (job::STDERR, child.stderr.take().map(|stream| Box::new(stream) as _)),
    ];
    for (name, stream) in streams {
        let Some(stream) = stream else { continue };
        let to = open_output(name)?;
        let done = done.clone();
        relays += 1;
        thread::spawn(move || {
            relay(stream, to);
            let _ = done.send(());
        });
    }
    let status = reap_until(child.id())?;
    kill_all();
    for _ in 0..relays {
        let _ = drained.recv_timeout(limits::UML_DRAIN_TIME);
    }
    Ok(match job::complaint(shared) {
        Some(reason) => LastWord::GaveUp(reason),
        None => LastWord::Ended(status),
    })
}

/// In pages. By default all hosts share a tenth of memory for TCP: one flow on a long fast path exceeds it, and its window
/// stays small for good.
fn tcp_memory(bytes: u64) -> String {
    let pages = bytes / 4096;
    let [low, pressure, high] = limits::UML_TCP_MEMORY_EIGHTHS.map(|eighths| pages / 8 * eighths);
    format!("{low} {pressure} {high}")
}

/// Process 1 reaps orphans; only the child's status matters.
fn reap_until(child: u32) -> Result<GuestStatus, UmlError> {
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid.as_raw_nonzero().get().cast_unsigned() == child => {
                return Ok(match (status.exit_status(), status.terminating_signal()) {
                    (Some(code), _) => GuestStatus::Exited(code),
                    (None, signal) => GuestStatus::Killed(signal.unwrap_or(0)),
                });
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(UmlError::Io { what: "wait for the command".into(), error: error.into() }),
        }
    }
}

/// Kills servers left behind, but not process 1 and kernel threads.
fn kill_all() {
    let Ok(entries) = fs::read_dir("/proc") else { return };
    for entry in entries.flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid.filter(|&pid| pid != Pid::INIT) {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }
}

/// Writes each piece at once, so progress is visible on the host.
fn relay(mut from: Box<dyn Read + Send>, mut to: File) {
    let mut buffer = vec![0; limits::UML_OUTPUT_BYTES];
    while let Ok(count) = from.read(&mut buffer) {
        if count == 0 || to.write_all(&buffer[..count]).and_then(|()| to.sync_data()).is_err() {
            break;
        }
    }
}

fn open_output(name: &str) -> Result<File, UmlError> {
    let path = Path::new(SHARED).join(name);
    let file = fs::OpenOptions::new().append(true).open(&path);
    file.map_err(UmlError::io(format!("open {} in the guest", path.display())))
}

fn mount_all(directory: &str) -> Result<(), UmlError> {
    mount_one("sysfs", "sysfs", "/sys", "")?;
    mount_one("tmpfs", "tmpfs", "/run", "mode=755")?;
    make_directory(SHARED, 0o700)?;
    // The private directory may lie below the host's /dev/shm, which the guest's own hides.
    mount_one("hostfs", "none", SHARED, directory)?;
    if !Path::new("/dev/null").exists() || !is_mounted("/dev") {
        mount_one("devtmpfs", "devtmpfs", "/dev", "mode=755")?;
    }
    make_directory("/dev/shm", 0o1777)?;
    // Experiments' data needs more than the default half; the guest's memory includes it.
    mount_one("tmpfs", "tmpfs", "/dev/shm", "mode=1777,size=80%")?;
    make_directory("/dev/pts", 0o755)?;
    mount_one("devpts", "devpts", "/dev/pts", "mode=620,ptmxmode=666")?;
    // sshd and locks need these.
    for (path, mode) in [("/run/sshd", 0o755), ("/run/lock", 0o1777), ("/run/netns", 0o755)] {
        make_directory(path, mode)?;
    }
    for (link, target) in [("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")] {
        let link = Path::new("/dev").join(link);
        if fs::symlink_metadata(&link).is_err() {
            symlink(Path::new("/proc/self").join(target), &link)
                .map_err(UmlError::io(format!("make {}", link.display())))?;
        }
    }
    Ok(())
}

fn mount_one(kind: &str, source: &str, target: &str, options: &str) -> Result<(), UmlError> {
    let refuse = |error: std::io::Error| UmlError::Io { what: format!("mount {kind} on {target} in the guest"), error };
    let options = std::ffi::CString::new(options).map_err(|error| refuse(error.into()))?;
    let options = (!options.is_empty()).then_some(options.as_c_str());
    mount(source, target, kind, MountFlags::empty(), options).map_err(|error| refuse(error.into()))
}

fn make_directory(path: &str, mode: u32) -> Result<(), UmlError> {
    let made = fs::DirBuilder::new().recursive(true).mode(mode).create(path);
    // The umask cuts the mode of creation.
    let made = made.and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(mode)));
    made.map_err(UmlError::io(format!("make {path} in the guest")))
}

fn is_mounted(path: &str) -> bool {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    mounts.lines().any(|line| line.split(' ').nth(1) == Some(path))
}

/// Process 1's acts must never happen on a real machine.
fn check_that_this_is_uml() -> Result<(), UmlError> {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    match text.contains("User Mode Linux") {
        true => Ok(()),
        false => Err(UmlError::Refused {
            what: GUEST_SUBCOMMAND.into(),
            why: "is for the inside of a User Mode Linux kernel; haul-lab run --engine virtual boots one".into(),
        }),
    }
}

fn child() -> Result<u8, UmlError> {
    let shared = Path::new(SHARED);
    let outcome = job::GuestJob::read(shared).and_then(|job| lab::run(&job));
    if let Err(error) = &outcome {
        job::complain(shared, &error.to_string())?;
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tcp_may_have_most_of_the_machine() {
        assert_eq!(tcp_memory(4 << 30), "524288 655360 786432");
    }
}

//! Children with a deadline, which are killed with all that they started. A child leads a process group: Ctrl-C at the
//! terminal reaches only us.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open};

use super::testbed::Testbed;
use crate::limits;

/// A child in its own process group. Killed with all its descendants when it is dropped.
pub(super) struct Process {
    child: Child,
    pid: Pid,
    fd: OwnedFd,
    ended: bool,
}

/// The result of waiting for a process.
#[derive(Debug)]
pub(super) enum End {
    /// The process ended by itself.
    Exited {
        status: ExitStatus,
        /// Processor time of the process, and of the children that it waited for.
        cpu_s: f64,
    },
    /// The process was still running.
    TimedOut,
    /// The user has interrupted.
    Cancelled,
}

impl Process {
    pub(super) fn start(testbed: &dyn Testbed, host: &str, mut command: Command) -> io::Result<Process> {
        command.process_group(0);
        let mut child = testbed.spawn(host, command)?;
        let pid = Pid::from_child(&child);
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(fd) => Ok(Process { child, pid, fd, ended: false }),
            Err(error) => {
                // The descriptor allows waiting with a deadline.
                let _ = child.kill();
                let _ = child.wait();
                Err(error.into())
            }
        }
    }

    /// The number in `/proc`.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it has ended, the time is over, or `cancelled` is true. The rest of its group is killed.
    pub(super) fn wait(&mut self, limit: Duration, cancelled: &dyn Fn() -> bool) -> io::Result<End> {
        let deadline = Instant::now() + limit;
        loop {
            if cancelled() {
                self.kill();
                return Ok(End::Cancelled);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if self.has_ended_within(left.min(limits::CANCEL_LOOK_EVERY))? {
                break;
            }
            if left.is_zero() {
                self.kill();
                return Ok(End::TimedOut);
            }
        }
        // It is not reaped yet, so its number is still its own and /proc still has its times.
        let cpu_s = cpu_s(self.child.id());
        // Kills helpers that it left behind. Usually there are none, and kill fails.
        let _ = kill_process_group(self.pid, Signal::KILL);
        let status = self.child.wait()?;
        self.ended = true;
        Ok(End::Exited { status, cpu_s })
    }

    /// Whether the process ends within this time, without reaping it.
    pub(super) fn has_ended_within(&self, time: Duration) -> io::Result<bool> {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
        match poll(&mut fds, Some(&time)) {
            Ok(count) => Ok(count > 0),
            // A signal: the caller checks whether it was for us.
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The processor seconds of it and of all its descendants so far.
    pub(super) fn cpu_of_tree_s(&self) -> f64 {
        descendants(self.child.id()).into_iter().chain([self.child.id()]).map(cpu_s).sum()
    }

    /// Kills it and everything it started, session leaders among them (sshd's children are).
    pub(super) fn kill(&mut self) {
        if self.ended {
            return;
        }
        let mut tree = vec![self.child.id()];
        for _ in 0..limits::FREEZE_PASSES {
            signal(&tree, Signal::STOP);
            let mut now = descendants(self.child.id());
            now.push(self.child.id());
            now.sort_unstable();
            if now == tree {
                break;
            }
            tree = now;
        }
        signal(&tree, Signal::KILL);
        let _ = kill_process_group(self.pid, Signal::KILL);
        // It has been killed, so this is quick. Nobody could handle an error here.
        let _ = self.child.wait();
        self.ended = true;
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Some may have ended meanwhile.
fn signal(processes: &[u32], signal: Signal) {
    for &process in processes {
        if let Some(pid) = i32::try_from(process).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, signal);
        }
    }
}

fn descendants(root: u32) -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(process) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        if let Some(parent) = stat_fields(process).and_then(|fields| fields.get(1)?.parse().ok()) {
            children.entry(parent).or_default().push(process);
        }
    }
    let mut found = Vec::new();
    let mut next = vec![root];
    while let Some(process) = next.pop() {
        // Each process is taken out of the list, so that a number in reuse cannot make a circle.
        for child in children.remove(&process).unwrap_or_default() {
            found.push(child);
            next.push(child);
        }
    }
    found
}

/// The fields of `/proc/PID/stat` behind the name: state, parent, ...
fn stat_fields(process: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name stands in parentheses and may have any characters, parentheses too.
    let fields = text.rsplit_once(')')?.1;
    Some(fields.split_whitespace().map(str::to_owned).collect())
}

/// Processor seconds of a process and of the children that it has waited for, to 10 ms.
fn cpu_s(process: u32) -> f64 {
    // proc(5): utime, stime, cutime and cstime are fields 14 to 17, the state is field 3; Linux counts them in 1/100 s.
    const FIRST: usize = 14 - 3;
    let Some(fields) = stat_fields(process) else { return 0.0 };
    let ticks: u64 = fields.iter().skip(FIRST).take(4).filter_map(|field| field.parse::<u64>().ok()).sum();
    ticks as f64 / 100.0
}

#[cfg(test)]
mod tests {
    use super::super::testbed::Here;
    use super::*;

    fn sh(script: &str) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Process::start(&Here, "client", command).unwrap()
    }

    #[test]
    fn an_exit_status_is_passed_on() {
        match sh("exit 3").wait(Duration::from_secs(10), &|| false).unwrap() {
            End::Exited { status, .. } => assert_eq!(status.code(), Some(3)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_tool_that_hangs_is_killed_with_its_helpers() {
        let mut process = sh("setsid sleep 1000 & sleep 1000 & wait");
        let started = Instant::now();
        assert!(matches!(process.wait(Duration::from_millis(300), &|| false).unwrap(), End::TimedOut));
        assert!(started.elapsed() < Duration::from_secs(5));
        assert_eq!(descendants(process.id()), Vec::<u32>::new());
    }

    #[test]
    fn work_is_counted() {
        match sh("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done").wait(Duration::from_secs(60), &|| false).unwrap()
        {
            End::Exited { cpu_s, .. } => assert!(cpu_s > 0.0),
            other => panic!("{other:?}"),
        }
    }
}

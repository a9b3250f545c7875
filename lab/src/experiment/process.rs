//! Children with a deadline. A child leads a process group, so Ctrl-C reaches only us.

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

/// A child in its own process group, killed with all descendants on drop.
pub(super) struct Process {
    child: Child,
    pid: Pid,
    fd: OwnedFd,
    ended: bool,
}

#[derive(Debug)]
pub(super) enum End {
    Exited {
        status: ExitStatus,
        /// Processor time, with that of children waited for.
        cpu_s: f64,
    },
    TimedOut,
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

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the end, the limit or `cancelled`; kills the rest.
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
        // Before it is reaped its number is its own, and /proc has its times.
        let cpu_s = cpu_s(self.child.id());
        // Kill fails if no helper was left behind.
        let _ = kill_process_group(self.pid, Signal::KILL);
        let status = self.child.wait()?;
        self.ended = true;
        Ok(End::Exited { status, cpu_s })
    }

    /// Whether the process ends within this time; does not reap it.
    pub(super) fn has_ended_within(&self, time: Duration) -> io::Result<bool> {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
        match poll(&mut fds, Some(&time)) {
            Ok(count) => Ok(count > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn cpu_of_tree_s(&self) -> f64 {
        descendants(self.child.id()).into_iter().chain([self.child.id()]).map(cpu_s).sum()
    }

    /// Kills all it started, session leaders like sshd's children too.
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
        let _ = self.child.wait();
        self.ended = true;
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

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
        // Each process leaves the list: a reused number cannot make a circle.
        for child in children.remove(&process).unwrap_or_default() {
            found.push(child);
            next.push(child);
        }
    }
    found
}

fn stat_fields(process: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name in parentheses may have any characters, parentheses too.
    let fields = text.rsplit_once(')')?.1;
    Some(fields.split_whitespace().map(str::to_owned).collect())
}

fn cpu_s(process: u32) -> f64 {
    // proc(5): fields 14 to 17 are utime, stime, cutime and cstime, 3 is the state; Linux counts 1/100 s.
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

//! Peak memory of a host's hauls, by the kernel's high-water mark.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::Host;
use crate::lab::haul_processes_in;

/// Reads each process every [`INTERVAL`]. The mark never falls, so only growth in a process's last interval is missed.
#[derive(Debug)]
pub struct PeakWatch {
    stop: Arc<AtomicBool>,
    peaks: Arc<Mutex<BTreeMap<u32, u64>>>,
    thread: Option<JoinHandle<()>>,
}

const INTERVAL: Duration = Duration::from_millis(50);

impl PeakWatch {
    /// Watches `host`'s haul processes.
    pub fn of(host: &Host) -> Self {
        let namespace = host.namespace.clone();
        Self::start(move || haul_processes_in(&namespace))
    }

    /// Watches the processes of `list`.
    pub fn start(list: impl Fn() -> Vec<u32> + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let peaks = Arc::new(Mutex::new(BTreeMap::new()));
        let (watch_stop, watch_peaks) = (Arc::clone(&stop), Arc::clone(&peaks));
        let thread = std::thread::spawn(move || {
            while !watch_stop.load(Ordering::Relaxed) {
                for pid in list() {
                    if let Some(bytes) = peak_resident_bytes(pid) {
                        watch_peaks.lock().unwrap_or_else(PoisonError::into_inner).insert(pid, bytes);
                    }
                }
                std::thread::sleep(INTERVAL);
            }
        });
        Self { stop, peaks, thread: Some(thread) }
    }

    /// Peak resident bytes of the largest process, if any.
    pub fn largest(mut self) -> Option<u64> {
        self.end();
        self.peaks.lock().unwrap_or_else(PoisonError::into_inner).values().copied().max()
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for PeakWatch {
    fn drop(&mut self) {
        self.end();
    }
}

/// `VmHWM`: a process's peak.
pub fn peak_resident_bytes(pid: u32) -> Option<u64> {
    status_bytes(pid, "VmHWM:")
}

/// `VmRSS`: a process's memory now.
pub fn resident_bytes(pid: u32) -> Option<u64> {
    status_bytes(pid, "VmRSS:")
}

fn status_bytes(pid: u32, name: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

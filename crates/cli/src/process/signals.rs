//! SIGINT, SIGTERM and SIGHUP: the first ends the job at the next safe point, the second the process at once. To a
//! daemon, SIGHUP means to look at its files.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::text::failure;

pub fn watch() -> Arc<AtomicBool> {
    stop_at(&[SIGINT, SIGTERM, SIGHUP])
}

pub fn watch_daemon() -> (Arc<AtomicBool>, Arc<AtomicBool>) {
    let look = Arc::new(AtomicBool::new(false));
    // Under nohup, too, nothing ends by this signal.
    let _ = flag::register(SIGHUP, Arc::clone(&look));
    (stop_at(&[SIGINT, SIGTERM]), look)
}

fn stop_at(signals: &[i32]) -> Arc<AtomicBool> {
    let asked = Arc::new(AtomicBool::new(false));
    let ignored = ignored_signals(&std::fs::read_to_string("/proc/self/status").unwrap_or_default());
    let code = failure::of_fault(haul_job::Fault::Interrupted).code;
    for signal in signals.iter().copied() {
        // nohup, and `&` in a shell script, ignore signals.
        if ignored & (1 << (signal - 1)) != 0 {
            continue;
        }
        // In this order, the second signal finds the first one's flag. Without handlers a signal ends the process at
        // once, safely, too: an error stops no copy.
        let _ = flag::register_conditional_shutdown(signal, code.into(), Arc::clone(&asked));
        let _ = flag::register(signal, Arc::clone(&asked));
    }
    asked
}

fn ignored_signals(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap_or_default();
    u64::from_str_radix(mask.trim(), 16).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_status() {
        assert_eq!(ignored_signals("Name:\thaul\nSigIgn:\t0000000000001001\n"), 0x1001);
        assert_eq!(ignored_signals("SigIgn: rubbish"), 0);
        assert_eq!(ignored_signals(""), 0);
    }
}

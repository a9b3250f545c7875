//! Runs the lanes of a probe. One thread of each lane sends zeros in this side's turn; another counts arriving bytes and drops
//! them.
//!
//! TLS makes zeros look like noise, which no device can compress.

use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use haul_net::{ReadHalf, Stream, WriteHalf};
use haul_wire::control::LaneTime;
use haul_wire::limits::BLOCK_BYTES;

use haul_channel::stopwatch::{self, Stopwatch, Waiting};
use haul_kept::files::zeros::ZEROS;
use haul_kept::sync::lock;

#[derive(Default)]
pub(super) struct Flow {
    state: Mutex<State>,
    changed: Condvar,
    sent_bytes: AtomicU64,
    arrived_bytes: AtomicU64,
}

#[derive(Default)]
struct State {
    sends: bool,
    over: bool,
    resting: Vec<u16>,
    sending_time: LaneTime,
    receiving_time: LaneTime,
}

impl Flow {
    /// Lets the lanes send, or stops them after their present block.
    pub(super) fn send(&self, sends: bool) {
        self.lock().sends = sends;
        self.changed.notify_all();
    }

    pub(super) fn rest(&self, lanes: Vec<u16>) {
        let mut state = self.lock();
        if state.resting != lanes {
            state.resting = lanes;
            self.changed.notify_all();
        }
    }

    /// Ends the sending threads. The others end with their connections.
    pub(super) fn finish(&self) {
        self.lock().over = true;
        self.changed.notify_all();
    }

    pub(super) fn sent_bytes(&self) -> u64 {
        self.sent_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn arrived_bytes(&self) -> u64 {
        self.arrived_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn sending_time(&self) -> LaneTime {
        self.lock().sending_time
    }

    pub(super) fn receiving_time(&self) -> LaneTime {
        self.lock().receiving_time
    }

    /// Returns false if this lane never may send again.
    fn await_turn(&self, lane: u16, gone: &AtomicBool) -> bool {
        let ended = |state: &State| state.over || gone.load(Ordering::Relaxed);
        let state = self
            .changed
            .wait_while(self.lock(), |state| !ended(state) && (!state.sends || state.resting.contains(&lane)))
            .unwrap_or_else(PoisonError::into_inner);
        !ended(&state)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

pub(super) fn carry(stream: Stream, lane: u16, flow: &Arc<Flow>) -> io::Result<()> {
    let shutdown = stream.shutdown_handle();
    let (input, output) = stream.split();
    let gone = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let receiving = std::thread::Builder::new().name(format!("lane-{lane}-in")).spawn_scoped(scope, || {
            let result = receive(input, flow);
            gone.store(true, Ordering::Relaxed);
            // The lock keeps the other thread from missing this between its look and its wait.
            drop(flow.lock());
            flow.changed.notify_all();
            shutdown.shutdown();
            result
        })?;
        let sent = send(output, lane, flow, &gone);
        shutdown.shutdown();
        let received = receiving.join().unwrap_or_else(|_| Err(io::Error::other("the thread of this lane panicked")));
        sent.and(received)
    })
}

fn send(mut output: WriteHalf, lane: u16, flow: &Flow, gone: &AtomicBool) -> io::Result<()> {
    let mut watch = Stopwatch::start();
    while flow.await_turn(lane, gone) {
        watch.lap(Waiting::Leave);
        output.write_all(&ZEROS)?;
        output.flush()?;
        watch.lap(Waiting::Network);
        flow.sent_bytes.fetch_add(BLOCK_BYTES as u64, Ordering::Relaxed);
        stopwatch::add(&mut flow.lock().sending_time, &watch.take());
    }
    Ok(())
}

fn receive(mut input: ReadHalf, flow: &Flow) -> io::Result<()> {
    let mut buffer = vec![0; BLOCK_BYTES];
    let mut watch = Stopwatch::start();
    // The time until the first byte was the other side's.
    let mut waiting = Waiting::Leave;
    loop {
        let read = input.read(&mut buffer)?;
        if read == 0 {
            return Ok(());
        }
        watch.lap(waiting);
        waiting = Waiting::Network;
        flow.arrived_bytes.fetch_add(read as u64, Ordering::Relaxed);
        stopwatch::add(&mut flow.lock().receiving_time, &watch.take());
    }
}

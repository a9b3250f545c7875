//! Writes on one thread for each link: all messages where this end speaks, pings on the others.

use std::io::Write as _;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Instant;

use haul_net::WriteHalf;
use haul_wire::codec;
use haul_wire::control::Control;

use super::framing::put_frame;
use super::{Inside, State};
use crate::links::LinkId;
use crate::outbox::{MAX_TAKEN_BYTES, PIECE_BYTES};

enum Turn {
    Write,
    WriteLast,
    Leave,
}

impl Inside {
    pub(super) fn write(&self, id: LinkId, mut output: WriteHalf) {
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            let turn = self.turn(id, &mut bytes);
            let mut pieces = bytes.chunks(PIECE_BYTES);
            let written = pieces.try_for_each(|piece| output.write_all(piece).map(|()| self.outbox.moved()));
            let written = written.and_then(|()| output.flush());
            if written.is_err() {
                return self.cannot_write(id);
            }
            match turn {
                Turn::Write => {}
                Turn::WriteLast => {
                    if self.lock().peer_leaves_first {
                        drop(output.finish_write());
                    }
                    return self.outbox.written_out();
                }
                Turn::Leave => return,
            }
        }
    }

    /// The link's reader may still get the last messages of the peer.
    fn cannot_write(&self, id: LinkId) {
        let mut state = self.lock();
        state.links.mute(id);
        self.find_speaker(&mut state);
        let is_mute = state.links.speaker().is_none() && (!state.is_attended || state.is_over());
        drop(state);
        if is_mute {
            self.outbox.written_out();
        }
        self.call();
    }

    fn turn(&self, id: LinkId, bytes: &mut Vec<u8>) -> Turn {
        let begun = Instant::now();
        let mut state = self.lock();
        loop {
            if state.is_closed || !state.links.stands(id) {
                return Turn::Leave;
            }
            let ping_at = begun + self.ping_often();
            let kept = state.kept.next();
            let handle = state.links.handle(id).expect("it stands");
            let (is_to_greet, next) = (std::mem::take(&mut handle.is_to_greet), handle.next);
            if is_to_greet {
                self.ping(&state, id, bytes);
            }
            if state.links.speaker() == Some(id) {
                if next < kept {
                    self.again(&mut state, id, bytes);
                }
                if !bytes.is_empty() {
                    return Turn::Write;
                }
                let calls = self.outbox.calls();
                drop(state);
                let may_leave = self.outbox.await_leave(ping_at, calls);
                state = self.lock();
                if may_leave && state.links.speaker() == Some(id) {
                    return self.new_words(&mut state, id, bytes);
                }
                continue;
            }
            if !bytes.is_empty() {
                return Turn::Write;
            }
            if id == LinkId::FIRST {
                return Turn::Leave;
            }
            let now = Instant::now();
            if state.kept.is_whole() && !self.heard.waits() && state.links.is_to_take_over(id, now) {
                self.move_to(&mut state, id);
                drop(state);
                self.call();
                state = self.lock();
                continue;
            }
            if now >= ping_at {
                self.ping(&state, id, bytes);
                return Turn::Write;
            }
            let waited = self.changed.wait_timeout(state, ping_at.saturating_duration_since(now));
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn again(&self, state: &mut State, id: LinkId, bytes: &mut Vec<u8>) {
        let Some(mut next) = state.links.handle(id).map(|handle| handle.next) else { return };
        for (number, frame) in state.kept.from(next) {
            put_frame(id, number, frame, bytes);
            next = number + 1;
            if bytes.len() >= MAX_TAKEN_BYTES {
                break;
            }
        }
        if let Some(handle) = state.links.handle(id) {
            handle.next = next;
        }
    }

    fn new_words(&self, state: &mut State, id: LinkId, bytes: &mut Vec<u8>) -> Turn {
        let leaving = self.outbox.leave();
        let is_last = leaving.closing && leaving.messages.is_empty();
        let mut frame = Vec::new();
        for message in &leaving.messages {
            frame.clear();
            if let Err(fault) = codec::encode(message, &mut frame) {
                // Only our own message can be too large: a broken invariant, but the peer must not hang.
                debug_assert!(false, "cannot encode {message:?}: {fault}");
                self.outbox.written_out();
                return Turn::Leave;
            }
            put_frame(id, state.kept.next(), &frame, bytes);
            state.kept.push(&frame);
        }
        let next = state.kept.next();
        if let Some(handle) = state.links.handle(id) {
            handle.next = next;
        }
        let is_due = leaving.messages.is_empty() || self.way_times.is_due(Instant::now(), self.ping_often());
        if leaving.ping || (is_due && !leaving.closing) {
            self.ping(state, id, bytes);
        }
        if is_last { Turn::WriteLast } else { Turn::Write }
    }

    fn ping(&self, state: &State, id: LinkId, bytes: &mut Vec<u8>) {
        let received = self.delivered.load(Ordering::Acquire);
        self.told.store(received, Ordering::Relaxed);
        self.untold_bytes.store(0, Ordering::Relaxed);
        let mut frame = Vec::new();
        let sent_us = self.way_times.leaves(Instant::now());
        let ping = Control::Ping { received, turn: state.links.turn_on(id), sent_us };
        codec::encode(&ping, &mut frame).expect("it is short");
        put_frame(id, state.kept.next(), &frame, bytes);
    }
}

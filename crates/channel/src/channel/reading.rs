//! Reads the messages of the peer, on one thread for each link, and hands each over once.

use std::io::Read as _;
use std::sync::atomic::Ordering;
use std::time::Instant;

use haul_net::ReadHalf;
use haul_wire::control::Control;

use super::framing::{End, read_frame, read_numbered};
use super::{CONFIRM_BYTES, CONFIRM_MESSAGES, Inside, Loss};
use crate::inbox::SessionEvent;
use crate::links::LinkId;
use haul_kept::sync::lock;

impl Inside {
    pub(super) fn read(&self, id: LinkId, mut input: ReadHalf) {
        let (mut buffer, mut count) = (Vec::new(), 0);
        let end = loop {
            let frame = match id {
                LinkId::FIRST => read_frame(&mut input, &mut buffer).map(|read| read.map(|message| (count, message))),
                _ => read_numbered(&mut input, &mut buffer),
            };
            let taken = match frame {
                Ok(Some((_, Control::Ping { received, turn, sent_us }))) => {
                    self.way_times.on_ping(Instant::now(), sent_us);
                    self.on_ping(id, received, turn)
                }
                Ok(Some((number, message))) => {
                    count += 1;
                    self.take(id, number, message, buffer.len())
                }
                Ok(None) => Err(End::Gone { why: None, by_peer: true }),
                Err(end) => Err(end),
            };
            if let Err(end) = taken {
                break end;
            }
        };
        if matches!(end, End::NotHeard) && self.lock().peer_leaves_first {
            read_to_end(&mut input);
        }
        self.link_ended(id, end);
        self.lock().readers -= 1;
        self.changed.notify_all();
    }

    fn take(&self, id: LinkId, number: u64, message: Control, bytes: usize) -> Result<(), End> {
        let intake = lock(&self.intake);
        self.heard.touch();
        self.hear(id);
        if self.lock().is_closed {
            return Err(End::NotHeard);
        }
        let expected = self.delivered.load(Ordering::Relaxed);
        if number > expected {
            return Err(End::Broken(format!("message {number} came before {expected}")));
        }
        if number < expected {
            return Ok(());
        }
        let mut has_waited = false;
        let sent = self.events.send_noting(SessionEvent::Control(message), || {
            has_waited = true;
            self.heard.begin_wait();
        });
        self.heard.end_wait();
        if has_waited {
            self.lock().links.exclude_own_time(Instant::now());
        }
        if sent.is_err() {
            return Err(End::NotHeard);
        }
        self.delivered.store(expected + 1, Ordering::Release);
        drop(intake);
        let untold_bytes = self.untold_bytes.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        let untold = (expected + 1).saturating_sub(self.told.load(Ordering::Relaxed));
        if untold >= CONFIRM_MESSAGES || untold_bytes >= CONFIRM_BYTES {
            self.outbox.want_ping();
        }
        Ok(())
    }

    fn hear(&self, id: LinkId) {
        let mut state = self.lock();
        let is_new = !state.links.is_proved(id);
        state.links.hear(id, Instant::now());
        if is_new {
            self.find_speaker(&mut state);
            drop(state);
            self.call();
        }
    }

    fn on_ping(&self, id: LinkId, received: u64, turn: u32) -> Result<(), End> {
        self.heard.touch();
        self.hear(id);
        let mut state = self.lock();
        if state.kept.confirm(received).is_err() {
            return Err(End::Broken(format!("it confirms {received} messages, which were never sent")));
        }
        if state.links.is_to_follow(id, turn) && state.kept.is_whole() {
            self.move_to(&mut state, id);
            drop(state);
            self.call();
        }
        Ok(())
    }

    pub(super) fn link_ended(&self, id: LinkId, end: End) {
        let mut state = self.lock();
        let (why, by_peer) = match end {
            End::NotHeard => return,
            End::Broken(why) => return self.finish(state, Some(why)),
            End::Gone { why, by_peer } => (why, by_peer),
        };
        if state.is_over() {
            return;
        }
        let is_needed = state.links.speaker().is_none_or(|speaker| speaker == id);
        let can_go_on = state.kept.is_whole() && (state.is_attended || state.links.successor().is_some());
        if self.first.is_shut_down() || (is_needed && !can_go_on) {
            return self.finish(state, why);
        }
        let Some(handle) = state.links.remove(id) else { return };
        if id != LinkId::FIRST {
            handle.shutdown.shutdown();
        }
        self.find_speaker(&mut state);
        if state.links.speaker().is_none() && state.loss.is_none() {
            state.loss = Some(Loss { since: Instant::now(), by_peer, is_direct: handle.is_direct, why });
        }
        drop(state);
        self.call();
    }
}

fn read_to_end(input: &mut ReadHalf) {
    let mut unwanted = [0; UNWANTED_BYTES];
    while input.read(&mut unwanted).is_ok_and(|read| read > 0) {}
}

const UNWANTED_BYTES: usize = 4 << 10;

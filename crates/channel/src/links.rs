//! Chooses the link on which this end of a control channel speaks. Pure: the time is an argument.
//!
//! Each end leaves a link that ended, was silent, or is to be avoided. It follows the peer to another link, because the peer
//! may have noticed a fault.

use std::time::{Duration, Instant};

/// Leaves some of a host's many paths to the lanes alone.
pub const MAX_LINKS: usize = 8;

/// Three pings are missing.
pub(crate) const MOVE_AFTER: Duration = Duration::from_secs(1);

/// One link of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkId(u32);

impl LinkId {
    /// The first link. Its messages have no numbers, so no end comes back to it.
    pub const FIRST: LinkId = LinkId(0);
}

/// The links of one end, with owners' handles.
pub struct Links<H> {
    standing: Vec<Link<H>>,
    speaker: Option<LinkId>,
    turn: u32,
    peer: (u32, LinkId),
    next: u32,
}

struct Link<H> {
    id: LinkId,
    handle: H,
    heard: Instant,
    is_proved: bool,
    is_mute: bool,
}

impl<H> Links<H> {
    /// Begins with one link.
    pub fn new(handle: H, now: Instant) -> Self {
        let first = Link { id: LinkId::FIRST, handle, heard: now, is_proved: true, is_mute: false };
        Self { standing: vec![first], speaker: Some(LinkId::FIRST), turn: 1, peer: (1, LinkId::FIRST), next: 1 }
    }

    /// Adds a link. Of too many, the one silent longest goes, and is returned. `Err`: all are needed.
    pub fn add(&mut self, handle: H, is_proved: bool, now: Instant) -> Result<(LinkId, Option<H>), H> {
        let mut gone = None;
        if self.standing.len() >= MAX_LINKS {
            let is_spare = |id: LinkId| id != LinkId::FIRST && Some(id) != self.speaker && id != self.peer.1;
            let spare = self.standing.iter().filter(|link| is_spare(link.id));
            let Some(id) = spare.min_by_key(|link| link.heard).map(|link| link.id) else { return Err(handle) };
            gone = self.remove(id);
        }
        let id = LinkId(self.next);
        self.next += 1;
        self.standing.push(Link { id, handle, heard: now, is_proved, is_mute: false });
        Ok((id, gone))
    }

    /// Removes a link. This end may speak nowhere until it moves.
    pub fn remove(&mut self, id: LinkId) -> Option<H> {
        let at = self.standing.iter().position(|link| link.id == id)?;
        if self.speaker == Some(id) {
            self.speaker = None;
        }
        Some(self.standing.remove(at).handle)
    }

    /// The handle of a link.
    pub fn handle(&mut self, id: LinkId) -> Option<&mut H> {
        self.standing.iter_mut().find(|link| link.id == id).map(|link| &mut link.handle)
    }

    pub(crate) fn handles(&self) -> impl Iterator<Item = &H> {
        self.standing.iter().map(|link| &link.handle)
    }

    /// Whether the link exists.
    pub fn stands(&self, id: LinkId) -> bool {
        self.standing.iter().any(|link| link.id == id)
    }

    /// Whether the peer spoke on it.
    pub fn is_proved(&self, id: LinkId) -> bool {
        self.standing.iter().any(|link| link.id == id && link.is_proved)
    }

    /// Counts links.
    pub fn count(&self) -> usize {
        self.standing.len()
    }

    /// The link where this end speaks.
    pub fn speaker(&self) -> Option<LinkId> {
        self.speaker
    }

    pub(crate) fn turn_on(&self, id: LinkId) -> u32 {
        if self.speaker == Some(id) { self.turn } else { 0 }
    }

    pub(crate) fn speaker_silence(&self, now: Instant) -> Option<Duration> {
        let link = self.standing.iter().find(|link| Some(link.id) == self.speaker)?;
        Some(now.saturating_duration_since(link.heard))
    }

    /// Notes a sign of life.
    pub fn hear(&mut self, id: LinkId, now: Instant) {
        for link in self.standing.iter_mut().filter(|link| link.id == id) {
            (link.heard, link.is_proved) = (now, true);
        }
    }

    /// Restarts all silences: this end did not listen.
    pub fn exclude_own_time(&mut self, now: Instant) {
        self.standing.iter_mut().for_each(|link| link.heard = now);
    }

    pub(crate) fn mute(&mut self, id: LinkId) {
        self.standing.iter_mut().filter(|link| link.id == id).for_each(|link| link.is_mute = true);
        if self.speaker == Some(id) {
            self.speaker = None;
        }
    }

    pub(crate) fn is_to_follow(&mut self, id: LinkId, turn: u32) -> bool {
        if turn <= self.peer.0 {
            return false;
        }
        let (_, left) = std::mem::replace(&mut self.peer, (turn, id));
        self.can_speak(id) && self.speaker.is_none_or(|speaker| speaker == left && speaker != id)
    }

    /// Whether this link is better than the speaking one, silent for too long.
    pub(crate) fn is_to_take_over(&self, id: LinkId, now: Instant) -> bool {
        let silence = |link: &Link<H>| now.saturating_duration_since(link.heard);
        let is_alive = |link: &&Link<H>| link.id == id && silence(link) < MOVE_AFTER / 2;
        let is_left = self.speaker_silence(now).is_none_or(|silence| silence >= MOVE_AFTER);
        is_left && self.can_speak(id) && self.speaker != Some(id) && self.standing.iter().any(|link| is_alive(&link))
    }

    /// The link heard last is the best.
    pub(crate) fn successor(&self) -> Option<LinkId> {
        let can = self.standing.iter().filter(|link| self.can_speak(link.id) && Some(link.id) != self.speaker);
        can.max_by_key(|link| link.heard).map(|link| link.id)
    }

    pub(crate) fn move_to(&mut self, id: LinkId) {
        self.turn = self.turn.saturating_add(1);
        self.speaker = Some(id);
    }

    fn can_speak(&self, id: LinkId) -> bool {
        id != LinkId::FIRST && self.standing.iter().any(|link| link.id == id && link.is_proved && !link.is_mute)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(250);

    fn with(count: usize) -> (Links<()>, Vec<LinkId>, Instant) {
        let now = Instant::now();
        let mut links = Links::new((), now);
        let added = (0..count).map(|_| links.add((), true, now).unwrap().0).collect();
        (links, added, now)
    }

    #[test]
    fn a_silent_link_is_left_for_one_that_is_heard() {
        let (mut links, added, start) = with(2);
        let [one, two] = added[..] else { panic!() };
        for tick in 1..=3 {
            let now = start + tick * TICK;
            links.hear(one, now);
            assert!(!links.is_to_take_over(one, now), "after {tick} ticks");
        }
        let now = start + MOVE_AFTER;
        links.hear(one, now);
        assert!(links.is_to_take_over(one, now) && !links.is_to_take_over(two, now), "the other one is silent, too");
        links.move_to(one);
        assert_eq!((links.turn_on(one), links.turn_on(two), links.turn_on(LinkId::FIRST)), (2, 0, 0));
        let now = now + MOVE_AFTER;
        links.hear(LinkId::FIRST, now);
        assert!(!links.is_to_take_over(LinkId::FIRST, now));
        links.hear(two, now);
        assert!(links.is_to_take_over(two, now));
        assert!(!links.is_to_take_over(two, now + MOVE_AFTER));
    }

    #[test]
    fn a_busy_host_that_did_not_listen_finds_nobody_silent() {
        let (mut links, added, start) = with(1);
        let now = start + 10 * MOVE_AFTER;
        links.exclude_own_time(now);
        assert!(!links.is_to_take_over(added[0], now));
        assert_eq!(links.speaker_silence(now), Some(Duration::ZERO));
    }

    #[test]
    fn who_speaks_on_the_link_that_the_peer_leaves_follows_it_and_nobody_else_does() {
        let (mut links, added, _) = with(3);
        let [one, two, three] = added[..] else { panic!() };
        assert!(!links.is_to_follow(one, 0), "it only says that it is alive");
        assert!(!links.is_to_follow(LinkId::FIRST, 1));
        assert!(links.is_to_follow(one, 2));
        links.move_to(one);
        assert!(!links.is_to_follow(two, 2));
        links.move_to(two);
        assert!(!links.is_to_follow(three, 3), "the peer spoke on the first of them");
        assert!(!links.is_to_follow(two, 4) && links.is_to_follow(one, 5));
    }

    #[test]
    fn two_ends_that_move_at_once_come_to_rest() {
        let (mut ours, added, _) = with(2);
        let (mut theirs, _, _) = with(2);
        let [one, two] = added[..] else { panic!() };
        ours.move_to(one);
        theirs.move_to(two);
        assert!(!ours.is_to_follow(two, theirs.turn_on(two)));
        assert!(!theirs.is_to_follow(one, ours.turn_on(one)));
    }

    #[test]
    fn the_end_of_a_link_leaves_the_best_of_the_others() {
        let (mut links, added, start) = with(3);
        let [one, two, three] = added[..] else { panic!() };
        links.hear(two, start + TICK);
        links.remove(LinkId::FIRST);
        assert_eq!((links.speaker(), links.successor()), (None, Some(two)));
        links.move_to(two);
        links.mute(two);
        links.mute(three);
        assert_eq!((links.speaker(), links.successor()), (None, Some(one)));
        links.remove(one);
        assert_eq!(links.successor(), None);
        let (new, _) = links.add((), false, start).unwrap();
        assert_eq!(links.successor(), None, "the peer may not have it");
        links.hear(new, start);
        assert_eq!(links.successor(), Some(new));
    }

    #[test]
    fn links_are_bounded_and_the_most_silent_one_makes_room() {
        let (mut links, added, start) = with(MAX_LINKS - 1);
        links.move_to(added[0]);
        links.is_to_follow(added[1], 2);
        (2..added.len()).for_each(|at| links.hear(added[at], start + at as u32 * TICK));
        let (_, gone) = links.add((), true, start + 9 * TICK).unwrap();
        assert!(gone.is_some() && links.count() == MAX_LINKS && links.stands(LinkId::FIRST));
        assert!(links.stands(added[0]) && links.stands(added[1]) && !links.stands(added[2]));
    }
}

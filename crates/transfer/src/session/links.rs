//! Which links of a control channel stand, and over which of them this end speaks. Pure: the time is an argument.
//!
//! Each end chooses by itself where it speaks. It leaves a link that ended, that has been silent, or that it was told to
//! avoid. It also leaves the link that the peer has left: the peer may have noticed what is not seen here.

use std::time::{Duration, Instant};

/// Most links of a channel at a time. A host with more paths leaves some of them to the lanes alone.
pub(crate) const MAX_LINKS: usize = 8;

/// With several links each end says on each of them so often that it is alive.
pub(crate) const LINK_PING_EVERY: Duration = Duration::from_millis(250);

/// A link that is silent for so long is left for another: three pings are missing.
pub(crate) const MOVE_AFTER: Duration = Duration::from_secs(1);

/// One link of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkId(u32);

impl LinkId {
    /// The link with which the channel began. Its messages have no numbers on the way, so nobody comes back to it.
    pub(crate) const FIRST: LinkId = LinkId(0);
}

/// The links of one end, each with what the owner needs for it.
pub(crate) struct Links<H> {
    standing: Vec<Link<H>>,
    speaker: Option<LinkId>,
    /// 1, and one more for each move.
    turn: u32,
    /// The highest turn that the peer has told, and where it speaks since then.
    peer: (u32, LinkId),
    next: u32,
}

struct Link<H> {
    id: LinkId,
    handle: H,
    heard: Instant,
    /// The peer has said something on it, or has proved who it is.
    is_proved: bool,
    /// Nothing can be written any more.
    is_mute: bool,
}

impl<H> Links<H> {
    pub(crate) fn new(handle: H, now: Instant) -> Self {
        let first = Link { id: LinkId::FIRST, handle, heard: now, is_proved: true, is_mute: false };
        Self { standing: vec![first], speaker: Some(LinkId::FIRST), turn: 1, peer: (1, LinkId::FIRST), next: 1 }
    }

    /// A further link. If there are too many, the link goes that has been silent longest, and its handle is returned.
    /// `Err`: all of them are needed.
    pub(crate) fn add(&mut self, handle: H, is_proved: bool, now: Instant) -> Result<(LinkId, Option<H>), H> {
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

    /// It is no more. Where this end spoke there, it speaks nowhere until it has moved.
    pub(crate) fn remove(&mut self, id: LinkId) -> Option<H> {
        let at = self.standing.iter().position(|link| link.id == id)?;
        if self.speaker == Some(id) {
            self.speaker = None;
        }
        Some(self.standing.remove(at).handle)
    }

    pub(crate) fn handle(&mut self, id: LinkId) -> Option<&mut H> {
        self.standing.iter_mut().find(|link| link.id == id).map(|link| &mut link.handle)
    }

    pub(crate) fn handles(&self) -> impl Iterator<Item = &H> {
        self.standing.iter().map(|link| &link.handle)
    }

    pub(crate) fn stands(&self, id: LinkId) -> bool {
        self.standing.iter().any(|link| link.id == id)
    }

    pub(crate) fn is_proved(&self, id: LinkId) -> bool {
        self.standing.iter().any(|link| link.id == id && link.is_proved)
    }

    pub(crate) fn len(&self) -> usize {
        self.standing.len()
    }

    /// Where this end speaks.
    pub(crate) fn speaker(&self) -> Option<LinkId> {
        self.speaker
    }

    /// What this end says of itself on this link: see `Control::Ping`.
    pub(crate) fn turn_on(&self, id: LinkId) -> u32 {
        if self.speaker == Some(id) { self.turn } else { 0 }
    }

    /// How long nothing has come on the link on which this end speaks.
    pub(crate) fn speaker_silence(&self, now: Instant) -> Option<Duration> {
        let link = self.standing.iter().find(|link| Some(link.id) == self.speaker)?;
        Some(now.saturating_duration_since(link.heard))
    }

    /// Something came.
    pub(crate) fn hear(&mut self, id: LinkId, now: Instant) {
        for link in self.standing.iter_mut().filter(|link| link.id == id) {
            (link.heard, link.is_proved) = (now, true);
        }
    }

    /// Nobody listened to any of them until now.
    pub(crate) fn forgive(&mut self, now: Instant) {
        self.standing.iter_mut().for_each(|link| link.heard = now);
    }

    /// Nothing can be written there any more.
    pub(crate) fn mute(&mut self, id: LinkId) {
        self.standing.iter_mut().filter(|link| link.id == id).for_each(|link| link.is_mute = true);
        if self.speaker == Some(id) {
            self.speaker = None;
        }
    }

    /// The peer has said on this link where it speaks. True: it has left the link on which this end speaks, which should
    /// follow it there.
    pub(crate) fn is_to_follow(&mut self, id: LinkId, turn: u32) -> bool {
        if turn <= self.peer.0 {
            return false;
        }
        let (_, left) = std::mem::replace(&mut self.peer, (turn, id));
        self.can_speak(id) && self.speaker.is_none_or(|speaker| speaker == left && speaker != id)
    }

    /// Whether this link is better than the one on which this end speaks, which has been silent for too long.
    pub(crate) fn is_to_take_over(&self, id: LinkId, now: Instant) -> bool {
        let silence = |link: &Link<H>| now.saturating_duration_since(link.heard);
        let is_alive = |link: &&Link<H>| link.id == id && silence(link) < MOVE_AFTER / 2;
        let is_left = self.speaker_silence(now).is_none_or(|silence| silence >= MOVE_AFTER);
        is_left && self.can_speak(id) && self.speaker != Some(id) && self.standing.iter().any(|link| is_alive(&link))
    }

    /// The link to move to from where this end speaks: of those that can be had, the one that was heard last.
    pub(crate) fn successor(&self) -> Option<LinkId> {
        let can = self.standing.iter().filter(|link| self.can_speak(link.id) && Some(link.id) != self.speaker);
        can.max_by_key(|link| link.heard).map(|link| link.id)
    }

    /// From now on this end speaks there.
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
        // Nobody comes back to the first one, whatever it says.
        let now = now + MOVE_AFTER;
        links.hear(LinkId::FIRST, now);
        assert!(!links.is_to_take_over(LinkId::FIRST, now));
        links.hear(two, now);
        assert!(links.is_to_take_over(two, now));
        // If nothing is heard at all there is nothing better.
        assert!(!links.is_to_take_over(two, now + MOVE_AFTER));
    }

    #[test]
    fn a_busy_host_that_did_not_listen_finds_nobody_silent() {
        let (mut links, added, start) = with(1);
        let now = start + 10 * MOVE_AFTER;
        links.forgive(now);
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
        // Of old words, and of a move from elsewhere, it learns nothing.
        assert!(!links.is_to_follow(two, 2));
        links.move_to(two);
        assert!(!links.is_to_follow(three, 3), "the peer spoke on the first of them");
        assert!(!links.is_to_follow(two, 4) && links.is_to_follow(one, 5));
    }

    /// Both move at the same time, to different links: they do not chase each other.
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
        assert!(gone.is_some() && links.len() == MAX_LINKS && links.stands(LinkId::FIRST));
        assert!(links.stands(added[0]) && links.stands(added[1]) && !links.stands(added[2]));
    }
}

//! Tests a channel whose peer is a plain stream.

use std::io::Write as _;

use haul_wire::codec;
use haul_wire::control::Control;

use super::*;

const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_peer_is_not_silent_while_nobody_listens_to_it() {
    const BUSY: Duration = Duration::from_millis(500);
    let (ours, mut theirs) = Stream::plain_pair().unwrap();
    let events = Events::with(64 << 10);
    let channel = Channel::open(ours, events.sender(), LONG).unwrap();
    let mut flood = Vec::new();
    codec::encode(&Control::EndOfManifest, &mut flood).unwrap();
    let flood = flood.repeat(10_000);
    let talks = std::thread::spawn(move || {
        let _ = theirs.write_all(&flood).and_then(|()| theirs.flush());
        theirs
    });
    let begun = Instant::now();
    while begun.elapsed() < BUSY || channel.silence() > Duration::ZERO {
        assert!(begun.elapsed() < LONG, "it counts as silent for {:?}", channel.silence());
        std::thread::sleep(Duration::from_millis(5));
    }
    let listening = Instant::now();
    let heard = std::iter::from_fn(|| events.next(LONG)).take(10_000).count();
    assert_eq!(heard, 10_000);
    let _peer = talks.join().unwrap();
    while channel.silence() == Duration::ZERO {
        assert!(listening.elapsed() < LONG, "it is never silent");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(channel.silence() <= listening.elapsed());
}

#[test]
fn a_peer_that_has_said_its_last_word_is_not_silent() {
    let (ours, mut theirs) = Stream::plain_pair().unwrap();
    let events = Events::new();
    let channel = Channel::open(ours, events.sender(), LONG).unwrap();
    let mut last_words = Vec::new();
    codec::encode(&Control::EndOfManifest, &mut last_words).unwrap();
    theirs.write_all(&last_words).and_then(|()| theirs.finish_write()).unwrap();
    drop(theirs);
    assert!(matches!(events.next(LONG), Some(SessionEvent::Control(Control::EndOfManifest))));
    assert!(matches!(events.next(LONG), Some(SessionEvent::ControlEnded(None))));
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(20) {
        assert_eq!(channel.silence(), Duration::ZERO);
    }
}

#[test]
fn silence_brings_a_ping() {
    let (ours, mut theirs) = Stream::plain_pair().unwrap();
    let channel = Channel::open(ours, Events::new().sender(), Duration::from_millis(1)).unwrap();
    let mut buffer = Vec::new();
    for _ in 0..3 {
        let read = read_message(&mut theirs, &mut buffer);
        assert!(matches!(read, Ok(Some(Control::Ping { received: 0, turn: 1, .. }))), "{read:?}");
    }
    channel.close(LONG);
}

#[test]
fn what_has_arrived_is_confirmed_before_it_is_much() {
    let (ours, theirs) = Stream::plain_pair().unwrap();
    let events = Events::new();
    let channel = Channel::open(ours, events.sender(), LONG).unwrap();
    let (mut input, mut output) = theirs.split();
    let mut bytes = Vec::new();
    (0..CONFIRM_MESSAGES).for_each(|_| codec::encode(&Control::EndOfManifest, &mut bytes).unwrap());
    output.write_all(&bytes).unwrap();
    let mut buffer = Vec::new();
    let confirmed = |read| match read {
        Ok(Some(Control::Ping { received, turn: 1, .. })) => received,
        other => panic!("{other:?}"),
    };
    assert_eq!(confirmed(read_message(&mut input, &mut buffer)), CONFIRM_MESSAGES);
    bytes.clear();
    let why = "w".repeat(4096);
    let messages = CONFIRM_BYTES / 4096;
    (0..messages).for_each(|_| codec::encode(&Control::DialFailed { why: why.clone() }, &mut bytes).unwrap());
    output.write_all(&bytes).unwrap();
    assert_eq!(confirmed(read_message(&mut input, &mut buffer)), CONFIRM_MESSAGES + messages);
    channel.close(LONG);
}

#[test]
fn a_channel_that_would_have_to_keep_too_much_cannot_move() {
    const MAX_KEPT: usize = 10_000;
    let (ours, mut theirs) = Stream::plain_pair().unwrap();
    let events = Events::new();
    let channel = Channel::with(ours, events.sender(), LONG, MAX_KEPT).unwrap();
    channel.set_attended();
    let why = "w".repeat(1000);
    let mut buffer = Vec::new();
    for _ in 0..3 * MAX_KEPT / why.len() {
        channel.outbox().send(Control::DialFailed { why: why.clone() });
        read_message(&mut theirs, &mut buffer).unwrap();
    }
    assert!(!channel.inside.lock().kept.is_whole());
    let (link, _peer) = Stream::plain_pair().unwrap();
    assert!(channel.add_link(link, true).is_some());
    channel.avoid(LinkId::FIRST);
    assert_eq!(channel.speaks_on(), Some(LinkId::FIRST));
    drop(theirs);
    assert!(matches!(events.next(LONG), Some(SessionEvent::ControlEnded(_))));
    channel.close(LONG);
}

#[test]
fn who_ends_the_first_link_here_ends_the_channel() {
    let (ours, _theirs) = Stream::plain_pair().unwrap();
    let (first, events) = (ours.shutdown_handle(), Events::new());
    let channel = Channel::open(ours, events.sender(), LONG).unwrap();
    channel.set_attended();
    let (link, _peer) = Stream::plain_pair().unwrap();
    channel.add_link(link, true);
    channel.avoid(LinkId::FIRST);
    first.shutdown();
    assert!(matches!(events.next(LONG), Some(SessionEvent::ControlEnded(_))));
    assert_eq!(channel.attend(LONG).1, Health::Over);
    channel.close(LONG);
}

#[test]
fn nobody_waits_to_say_nothing_to_a_peer_that_has_left() {
    let (ours, theirs) = Stream::plain_pair().unwrap();
    let channel = Channel::open(ours, Events::new().sender(), LONG).unwrap();
    channel.set_attended();
    drop(theirs);
    while channel.speaks_on().is_some() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let begun = Instant::now();
    channel.close(LONG);
    assert!(begun.elapsed() < LONG / 2, "it waited for {:?}", begun.elapsed());
}

#[test]
fn the_last_words_reach_a_peer_that_still_speaks() {
    const WORDS: usize = 4000;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    let channel = Channel::open(Stream::plain_tcp(far), Events::new().sender(), LONG).unwrap();
    channel.let_peer_leave_first();
    let why = "w".repeat(1000);
    (0..WORDS).for_each(|_| channel.outbox().send(Control::DialFailed { why: why.clone() }));
    let closing = channel.clone();
    let closes = std::thread::spawn(move || closing.close(LONG));
    let (mut input, mut output) = Stream::plain_tcp(near).split();
    let (mut heard, mut buffer, mut word) = (0, Vec::new(), Vec::new());
    codec::encode(&Control::EndOfManifest, &mut word).unwrap();
    while let Some(said) = read_message(&mut input, &mut buffer).unwrap() {
        match said {
            Control::DialFailed { .. } => heard += 1,
            Control::Ping { .. } => continue,
            other => panic!("{other:?}"),
        }
        output.write_all(&word).unwrap();
    }
    assert_eq!(heard, WORDS);
    drop((input, output));
    closes.join().unwrap();
}

#[test]
fn a_peer_that_left_before_the_end_is_not_waited_for() {
    let (ours, theirs) = Stream::plain_pair().unwrap();
    let events = Events::new();
    let channel = Channel::open(ours, events.sender(), LONG).unwrap();
    channel.let_peer_leave_first();
    drop(theirs);
    assert!(matches!(events.next(LONG), Some(SessionEvent::ControlEnded(_))));
    let begun = Instant::now();
    channel.close(LONG);
    assert!(begun.elapsed() < LONG / 2, "it waited for {:?}", begun.elapsed());
}

#[test]
fn a_peer_that_never_leaves_is_not_waited_for_longer_than_the_limit() {
    let (ours, theirs) = Stream::plain_pair().unwrap();
    let channel = Channel::open(ours, Events::new().sender(), LONG).unwrap();
    channel.let_peer_leave_first();
    let begun = Instant::now();
    channel.close(Duration::from_millis(10));
    assert!(begun.elapsed() < LONG);
    drop(theirs);
}

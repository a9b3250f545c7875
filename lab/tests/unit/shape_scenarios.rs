//! A link's behaviour in virtual time. 1500 bytes are 1538 on the wire: 12,304 ns at 1 Gbit/s.

use std::time::Duration;

use proptest::option;
use proptest::prelude::*;

use super::packet::{Packet, ms, us};
use super::{Direction, LinkChange, Nanos};
use crate::topology::{BurstSpec, DiffServSpec, DirectionSpec};
use crate::units::{Probability, Rate, Size, Time};

const NS_PER_PACKET: u64 = 12_304;

fn link(spec: &str) -> Direction<Packet> {
    seeded(spec, 1)
}

fn seeded(spec: &str, seed: u64) -> Direction<Packet> {
    Direction::new(&toml::from_str(spec).unwrap(), Time::default(), seed)
}

/// `count` packets of 1500 bytes, one every `gap`.
fn offer(link: &mut Direction<Packet>, count: u64, gap: Nanos) {
    for id in 0..count {
        link.offer(Nanos(id * gap.0), Packet::new(id, 1500));
    }
}

fn marked(id: u64, dscp: u8) -> Packet {
    Packet { dscp, ..Packet::new(id, 1500) }
}

fn arrivals(link: &mut Direction<Packet>, until: Nanos) -> Vec<(Nanos, Packet)> {
    let mut arrived = Vec::new();
    link.advance(until, &mut |at, packet| arrived.push((at, packet)));
    arrived
}

/// Takes arrivals every 100 packets, as an emulator would.
fn carry(link: &mut Direction<Packet>, packet: &Packet, count: u64, gap: Nanos) -> Vec<(Nanos, Packet)> {
    let mut arrived = Vec::new();
    for id in 0..count {
        let now = Nanos(id * gap.0);
        link.offer(now, Packet { id, ..packet.clone() });
        if id % 100 == 0 {
            arrived.extend(arrivals(link, now));
        }
    }
    arrived.extend(arrivals(link, Nanos(u64::MAX)));
    arrived
}

fn ids(link: &mut Direction<Packet>, until: Nanos) -> Vec<u64> {
    arrivals(link, until).into_iter().map(|(_, packet)| packet.id).collect()
}

/// Within three standard deviations of the share.
fn agrees(count: u64, trials: u64, share: f64) -> bool {
    let (expected, sigma) = (trials as f64 * share, (trials as f64 * share * (1.0 - share)).sqrt());
    (count as f64 - expected).abs() <= 3.0 * sigma
}

#[test]
fn rate_and_delay_are_exact_to_the_nanosecond() {
    let mut link = link("rate = '1Gbit'\ndelay = '114ms'");
    offer(&mut link, 3, Nanos(0));
    link.offer(ms(5), Packet::new(3, 1500));
    assert_eq!(link.next_at(), Some(Nanos(ms(114).0 + NS_PER_PACKET)));
    let times: Vec<u64> = arrivals(&mut link, ms(1000)).iter().map(|(at, _)| at.0 - ms(114).0).collect();
    assert_eq!(times, [1, 2, 3].map(|nth| nth * NS_PER_PACKET).into_iter().chain([5_012_304]).collect::<Vec<_>>());
    assert_eq!((link.next_at(), link.packets_inside()), (None, 0));
}

#[test]
fn a_queue_fills_and_the_rest_is_dropped() {
    let mut link = link("rate = '1Gbit'\nqueue = 15380");
    offer(&mut link, 20, Nanos(0));
    assert_eq!(link.waiting_bytes(), 15_380);
    assert_eq!(ids(&mut link, ms(1)), (0..=10).collect::<Vec<_>>(), "one was on the wire, ten waited");
    let counters = link.counters();
    assert_eq!((counters.dropped, counters.waiting_bytes_max), (9, 15_380));
    assert_eq!(counters.waiting_time_max, Duration::from_nanos(10 * NS_PER_PACKET));
    assert_eq!((counters.wire_bytes_sent, counters.ip_bytes_delivered), (11 * 1538, 11 * 1500));
}

#[test]
fn without_a_queue_packets_pass_one_at_a_time() {
    let mut link = link("rate = '1Gbit'\nqueue = 0");
    offer(&mut link, 100, Nanos(NS_PER_PACKET));
    assert_eq!(link.counters().dropped, 0, "each came as the one before had left");
    link.offer(Nanos(99 * NS_PER_PACKET + 1), Packet::new(100, 1500));
    assert_eq!(link.counters().dropped, 1);
}

#[test]
fn without_a_rate_nothing_waits() {
    let mut link = link("delay = '10ms'");
    offer(&mut link, 1000, Nanos(1));
    let arrived = arrivals(&mut link, ms(11));
    assert!(arrived.iter().enumerate().all(|(nth, (at, _))| at.0 == ms(10).0 + nth as u64));
    assert_eq!((arrived.len(), link.counters().waiting_time_max), (1000, Duration::ZERO));
}

#[test]
fn more_on_the_way_than_the_lab_holds_is_counted_on_its_own() {
    // 256 MiB without a rate; segments of 64 KiB.
    let mut link = link("delay = '1s'");
    for id in 0..5000 {
        link.offer(ms(0), Packet { packets: 45, ..Packet::new(id, 65_000) });
    }
    let fit = (256 << 20) / (65_000 + 45 * 38);
    let arrived = arrivals(&mut link, ms(1000)).len() as u64;
    assert_eq!((arrived, link.counters().overflowed), (fit, 5000 - fit));
}

#[test]
fn what_is_handed_out_late_is_not_on_the_way() {
    // 1.2 GiB in all, 300 MiB in flight at once.
    let mut link = link("rate = '1Tbit'\ndelay = '1us'\nqueue = '1GiB'");
    for id in 0..4 {
        link.offer(ms(0), Packet::new(id, 300 << 20));
    }
    assert_eq!((ids(&mut link, ms(1000)), link.counters().overflowed), (vec![0, 1, 2, 3], 0));
}

#[test]
fn a_large_segment_takes_the_time_of_its_packets() {
    let mut link = link("rate = '10Gbit'");
    link.offer(ms(0), Packet { packets: 10, ..Packet::new(0, 15_000) });
    assert_eq!(arrivals(&mut link, ms(1))[0].0, Nanos(12_304));
}

#[test]
fn losses_are_the_share_asked_also_of_large_segments() {
    for packets in [1, 40] {
        for share in [0.001, 0.1, 0.5] {
            let mut link = link(&format!("loss = {share}"));
            let packet = Packet { packets, ..Packet::new(0, 1000) };
            let arrived = carry(&mut link, &packet, 200_000, us(1)).len() as u64;
            let lost = link.counters().lost;
            assert_eq!(arrived + lost, 200_000);
            assert!(agrees(lost, 200_000, share), "{share}: {lost} of 200,000");
        }
    }
}

#[test]
fn bursts_have_the_length_asked() {
    let mut link = link("burst = { loss = '1%', length = 8 }");
    let arrived = carry(&mut link, &Packet::new(0, 1500), 500_000, us(1));
    let rows = arrived.windows(2).filter(|pair| pair[1].1.id > pair[0].1.id + 1).count() as f64;
    let lost = link.counters().lost as f64;
    assert!((lost / 500_000.0 / 0.01 - 1.0).abs() < 0.15, "{lost} of 500,000");
    assert!((lost / rows / 8.0 - 1.0).abs() < 0.15, "{lost} in {rows} rows");
}

#[test]
fn jitter_never_reorders() {
    // 1000 packets a millisecond: each likely draws less than one in front.
    let mut dense = link("delay = '10ms'\njitter = '2ms'");
    offer(&mut dense, 10_000, us(1));
    assert_eq!(ids(&mut dense, ms(100)), (0..10_000).collect::<Vec<_>>());

    let mut sparse = link("delay = '10ms'\njitter = '2ms'");
    offer(&mut sparse, 10_000, ms(3));
    let arrived = arrivals(&mut sparse, ms(40_000));
    let jitter: Vec<u64> = arrived.iter().map(|(at, packet)| at.0 - ms(3 * packet.id + 10).0).collect();
    assert!(jitter.iter().all(|&jitter| jitter <= 2_000_000));
    let mean_us = jitter.iter().sum::<u64>() / 10_000 / 1000;
    assert!((980..=1020).contains(&mean_us), "{mean_us} us: half of it, within three standard deviations (17 us)");
}

#[test]
fn packets_chosen_for_reordering_are_overtaken_and_the_others_keep_their_order() {
    let mut link = link("delay = '10ms'\nreorder = '1%'\nreorder_by = '5ms'");
    let arrived = carry(&mut link, &Packet::new(0, 1500), 100_000, us(10));
    let (late, in_time): (Vec<_>, Vec<_>) =
        arrived.iter().partition(|(at, packet)| at.0 != us(10 * packet.id).0 + ms(10).0);
    assert!(late.iter().all(|(at, packet)| at.0 == us(10 * packet.id).0 + ms(15).0));
    assert!(in_time.windows(2).all(|pair| pair[0].1.id < pair[1].1.id));
    let reordered = link.counters().reordered;
    assert!(
        agrees(late.len() as u64, 100_000, 0.01) && late.len() as u64 - reordered <= 1,
        "the last has none behind it"
    );
}

#[test]
fn one_millisecond_is_the_default_for_reordering() {
    let mut link = link("reorder = 1");
    link.offer(ms(0), Packet::new(0, 1500));
    assert_eq!(arrivals(&mut link, ms(2))[0].0, ms(1));
    assert_eq!(link.counters().reordered, 0, "there was nobody to overtake it");
}

#[test]
fn copies_come_right_behind_and_bits_change() {
    let mut link = link("duplicate = '5%'\ncorrupt = '2%'\ndelay = '1ms'");
    let arrived = carry(&mut link, &Packet::new(0, 1500), 100_000, us(1));
    let copies = arrived.windows(2).filter(|pair| pair[0] == pair[1]).count() as u64;
    assert!(agrees(copies, 100_000, 0.05), "{copies}");
    let counters = link.counters();
    assert_eq!((counters.duplicated, counters.delivered), (copies, 100_000 + copies));
    assert!(agrees(counters.corrupted, 100_000, 0.02), "{}", counters.corrupted);
    assert!(arrived.iter().any(|(_, packet)| packet.is_flipped));
}

#[test]
fn the_same_seed_gives_the_same_fate() {
    let run = |spec: &str, seed| {
        let mut link = seeded(spec, seed);
        offer(&mut link, 10_000, us(10));
        arrivals(&mut link, ms(10_000))
    };
    let spec = "rate = '1Gbit'\nloss = '1%'\njitter = '1ms'\nreorder = '1%'\nduplicate = '1%'\ncorrupt = '1%'";
    assert_eq!(run(spec, 7), run(spec, 7));
    assert_ne!(run(spec, 7), run(spec, 8));

    let mut who = run(spec, 7).into_iter().map(|(_, packet)| packet.id).collect::<Vec<_>>();
    who.sort_unstable();
    who.dedup();
    assert_eq!(who, run("loss = '1%'", 7).into_iter().map(|(_, packet)| packet.id).collect::<Vec<_>>());
}

#[test]
fn ef_overtakes_best_effort_and_is_policed() {
    // EF may have 10 Mbit/s: 6.5 packets in 8 ms, after 50 ms (40.6 packets) at once.
    let mut link = link("rate = '100Mbit'\ndiffserv = { ef_rate = '10Mbit' }");
    for id in 0..50 {
        link.offer(ms(0), marked(id, 0));
    }
    for id in 100..150 {
        link.offer(ms(0), marked(id, 46));
    }
    assert_eq!(link.counters().policed, 9, "41 fit into the bucket");
    let order = ids(&mut link, ms(8));
    assert_eq!(order[0], 0, "it was on the wire already");
    assert_eq!(order[1..42], (100..141).collect::<Vec<_>>());
    assert_eq!(order[42], 1);
    for id in 200..220 {
        link.offer(ms(8), marked(id, 48));
    }
    assert_eq!(link.counters().policed, 9 + 13, "the bucket has 8 ms of its rate, less what was overdrawn");
}

#[test]
fn af_has_its_share_and_lower_effort_what_nobody_wants() {
    let mut link = link("rate = '100Mbit'\nqueue = '4MB'\ndiffserv = { af_share = 0.8 }");
    for id in 0..600 {
        for dscp in [1, 0, 26] {
            link.offer(ms(0), marked(1000 * u64::from(dscp) + id, dscp));
        }
    }
    let order: Vec<u64> = ids(&mut link, ms(1000)).into_iter().map(|id| id / 1000).collect();
    assert_eq!(order.len(), 1800);
    let assured_of_500 = order[1..501].iter().filter(|&&class| class == 26).count();
    assert!((399..=401).contains(&assured_of_500), "{assured_of_500}");
    assert_eq!(order[0], 1, "nothing else was there when it came");
    assert!(order[1201..].iter().all(|&class| class == 1), "lower effort waited for all others");
}

#[test]
fn a_class_that_waits_with_one_packet_at_a_time_gets_no_more_than_its_share() {
    // 1 ms a packet. Best effort always waits; assured offers its next when its last has arrived.
    let mut link = link("rate = '12304kbit'\nqueue = '20MB'\ndiffserv = { af_share = 0.1 }");
    for id in 0..1100 {
        link.offer(ms(0), marked(id, 0));
    }
    link.offer(ms(0), marked(0, 10));
    let mut assured = 0;
    for tick in 1..=1000 {
        for (at, packet) in arrivals(&mut link, ms(tick)) {
            if packet.dscp == 10 {
                assured += 1;
                link.offer(at, marked(0, 10));
            }
        }
    }
    assert!((90..=101).contains(&assured), "{assured} of 1000: every 11th, as it comes back when the next has begun");
}

#[test]
fn a_class_that_fills_its_queue_leaves_room_for_the_others() {
    let mut link = link("rate = '100Mbit'\nqueue = 61520\ndiffserv = {}");
    for id in 0..100 {
        link.offer(ms(0), marked(id, 0));
    }
    assert_eq!(link.counters().dropped, 100 - 11, "one on the wire, ten in a quarter of the queue");
    for (id, dscp) in [(100, 46), (101, 10), (102, 1)] {
        link.offer(ms(0), marked(id, dscp));
    }
    assert_eq!(link.counters().dropped, 89);
    assert_eq!(ids(&mut link, ms(10)).len(), 14);
}

#[test]
fn while_the_link_is_down_what_is_on_the_way_arrives_and_what_waits_stays() {
    let mut link = link("rate = '12304kbit'\ndelay = '10ms'"); // 1 ms a packet
    for id in 0..5 {
        link.offer(ms(0), Packet::new(id, 1500));
    }
    let down = |is_down| LinkChange { down: Some(is_down), ..LinkChange::default() };
    link.change(us(2500), &down(true));
    link.offer(ms(3), Packet::new(5, 1500));
    assert_eq!(ids(&mut link, ms(100)), [0, 1], "2 was cut off, 5 was lost");
    assert_eq!((link.counters().lost_down, link.packets_inside(), link.next_at()), (2, 2, None));
    link.change(ms(100), &down(false));
    let arrived = arrivals(&mut link, ms(200));
    assert_eq!(arrived.iter().map(|(at, packet)| (*at, packet.id)).collect::<Vec<_>>(), [(ms(111), 3), (ms(112), 4)]);
}

#[test]
fn a_change_of_rate_delay_and_loss_holds_from_the_next_packet_on() {
    let mut link = link("rate = '12304kbit'\ndelay = '50ms'");
    offer(&mut link, 4, Nanos(0));
    let (rate, delay) = ("123040kbit".parse().ok(), "1ms".parse().ok());
    link.change(us(500), &LinkChange { rate, delay, ..LinkChange::default() });
    // The first packet leaves at the old rate; all have the shorter delay.
    let times: Vec<Nanos> = arrivals(&mut link, ms(10)).iter().map(|(at, _)| *at).collect();
    assert_eq!(times, [us(2000), us(2100), us(2200), us(2300)]);

    link.change(ms(10), &LinkChange { loss: Probability::new(1.0), ..LinkChange::default() });
    link.offer(ms(10), Packet::new(4, 1500));
    assert!(arrivals(&mut link, ms(100)).is_empty() && link.counters().lost == 1);
}

#[test]
fn a_shorter_way_does_not_let_packets_overtake() {
    let mut link = link("delay = '50ms'");
    link.offer(ms(0), Packet::new(0, 1500));
    link.change(ms(1), &LinkChange { delay: "1ms".parse().ok(), ..LinkChange::default() });
    link.offer(ms(2), Packet::new(1, 1500));
    link.offer(ms(60), Packet::new(2, 1500));
    let arrived: Vec<_> = arrivals(&mut link, ms(100)).into_iter().map(|(at, packet)| (at, packet.id)).collect();
    assert_eq!(arrived, [(ms(50), 0), (ms(50), 1), (ms(61), 2)]);
}

#[test]
fn a_faster_link_has_a_longer_queue_unless_it_was_given() {
    for (given, expected) in [("", 1001), ("queue = 153800", 101)] {
        let mut link = link(&format!("rate = '12304kbit'\n{given}"));
        link.change(ms(0), &LinkChange { rate: "123040kbit".parse().ok(), ..LinkChange::default() });
        offer(&mut link, 2000, Nanos(0));
        assert_eq!(link.packets_inside(), expected);
    }
}

#[test]
fn time_that_goes_back_stands_still() {
    let mut link = link("rate = '1Gbit'");
    link.offer(ms(5), Packet::new(0, 1500));
    link.offer(ms(1), Packet::new(1, 1500));
    let times: Vec<u64> = arrivals(&mut link, ms(6)).iter().map(|(at, _)| at.0 - ms(5).0).collect();
    assert_eq!(times, [NS_PER_PACKET, 2 * NS_PER_PACKET]);
    assert!(arrivals(&mut link, ms(0)).is_empty());
}

/// Each effect may be there or not.
fn any_spec() -> impl Strategy<Value = DirectionSpec> {
    let share =
        || option::of((0u32..=1000).prop_map(|permille| Probability::new(f64::from(permille) / 1000.0).unwrap()));
    let time = || option::of((0u64..20_000_000).prop_map(|ns| Time(Duration::from_nanos(ns))));
    let rate = || option::of((1_000_000u64..10_000_000_000).prop_map(|rate| Rate::from_bits_per_s(rate).unwrap()));
    let queue = option::of((0u64..40_000).prop_map(|bytes| Size { bytes }));
    let burst = option::of((0u32..1000, 1u32..20).prop_map(|(permille, length)| BurstSpec {
        loss: Probability::new(f64::from(permille) / 1000.0).unwrap(),
        length: f64::from(length),
    }));
    let diffserv = option::of((rate(), share()).prop_map(|(ef_rate, af_share)| DiffServSpec { ef_rate, af_share }));
    let times = (time(), time(), time());
    let shares = (share(), share(), share(), share());
    (rate(), queue, times, shares, burst, diffserv).prop_map(|(rate, queue, times, shares, burst, diffserv)| {
        DirectionSpec {
            rate,
            delay: times.0,
            jitter: times.1,
            spread: None,
            reorder_by: times.2,
            queue,
            loss: shares.0,
            reorder: shares.1,
            duplicate: shares.2,
            corrupt: shares.3,
            burst,
            diffserv,
        }
    })
}

fn any_change() -> impl Strategy<Value = Option<LinkChange>> {
    let rate = option::of((1_000_000u64..10_000_000_000).prop_map(|rate| Rate::from_bits_per_s(rate).unwrap()));
    let delay = option::of((0u64..20_000_000).prop_map(|ns| Time(Duration::from_nanos(ns))));
    let loss = option::of((0u32..=10).prop_map(|tenth| Probability::new(f64::from(tenth) / 10.0).unwrap()));
    let change = (option::of(any::<bool>()), rate, delay, loss);
    option::weighted(0.1, change.prop_map(|(down, rate, delay, loss)| LinkChange { down, rate, delay, loss }))
}

proptest! {
    #[test]
    fn a_late_emulator_does_not_slow_the_link_down_and_no_packet_is_forgotten(
        spec in any_spec(),
        seed in any::<u64>(),
        steps in proptest::collection::vec((0u64..2_000_000, 40u32..9000, 0u8..64, any_change()), 1..80),
    ) {
        let new = || Direction::new(&spec, Time(Duration::from_millis(1)), seed);
        let (mut prompt, mut late) = (new(), new());
        let (mut from_prompt, mut now) = (Vec::new(), Nanos::ZERO);
        for (id, (gap, bytes, dscp, change)) in steps.iter().enumerate() {
            let until = Nanos(now.0 + gap);
            while let Some(at) = prompt.next_at().filter(|&at| at <= until) {
                prop_assert!(at >= now, "time goes on");
                now = at;
                from_prompt.extend(arrivals(&mut prompt, now));
            }
            now = until;
            for link in [&mut prompt, &mut late] {
                link.offer(now, Packet { dscp: *dscp, ..Packet::new(id as u64, *bytes) });
                change.iter().for_each(|change| link.change(now, change));
                let counters = link.counters();
                let gone = counters.delivered + counters.vanished();
                prop_assert_eq!(counters.offered + counters.duplicated, gone + link.packets_inside() as u64);
            }
        }
        from_prompt.extend(arrivals(&mut prompt, ms(100_000)));
        prop_assert!(from_prompt.windows(2).all(|pair| pair[0].0 <= pair[1].0), "in order of time");
        prop_assert_eq!(from_prompt, arrivals(&mut late, ms(100_000)));
        prop_assert_eq!(prompt.counters(), late.counters());
    }
}

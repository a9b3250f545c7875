//! What was once measured, played to the tuner again.

use haul_engine::path::{LaneReading, Sample, Tuner, Wishes};

const LANES: u16 = 64;
const RTT_US: u32 = 228_000;

/// All lanes have equal parts.
fn sample((at_ms, delivered_kb, in_flight_kb, queue_ms): (u64, u64, u64, u32)) -> Sample {
    let part = |kb: u64| kb * 1000 / u64::from(LANES);
    let lane = |lane| LaneReading {
        lane,
        rtt_us: RTT_US + queue_ms * 1000,
        rtt_min_us: RTT_US,
        mss_bytes: 1428,
        cwnd_bytes: part(in_flight_kb),
        in_slow_start: true,
        acked_bytes: part(delivered_kb),
        delivered_bytes: part(delivered_kb),
        sent_bytes: part(delivered_kb + in_flight_kb),
        unsent_bytes: 500_000,
        busy_us: at_ms * 1000,
        peer_window_bytes: 6 << 20,
        send_buffer_bytes: 4 << 20,
        ..LaneReading::default()
    };
    Sample { at_us: at_ms * 1000, lanes: (0..LANES).map(lane).collect(), waiting_bytes: u64::MAX }
}

/// 64 lanes on 1 Gbit/s x 228 ms: the link was at work from 1.23 s on, but its queue came and went, because doubling lanes send
/// their windows in the first half of a round trip. Without a bound by 1.43 s it overflowed, and 14 MB went twice.
#[test]
fn a_ramp_ends_when_two_samples_bring_the_same() {
    let recorded = [
        (328, 2_096, 2_000, 3),
        (428, 2_558, 3_300, 4),
        (528, 3_472, 3_900, 4),
        (628, 5_849, 6_200, 3),
        (728, 6_445, 7_000, 3),
        (828, 10_495, 10_800, 2),
        (928, 12_429, 13_200, 1),
        (1_028, 18_723, 19_300, 1),
        (1_128, 25_589, 26_300, 0),
        (1_229, 32_561, 33_200, 5),
        (1_329, 44_168, 44_800, 34),
        (1_429, 55_771, 56_500, 12),
    ];
    let wishes = Wishes { host_congestion_control: "cubic".into(), ..Wishes::default() };
    let mut tuner = Tuner::new(wishes, RTT_US, 8);
    let mut bounds =
        recorded.map(|values| tuner.on_sample(&sample(values)).and_then(|advice| advice.pacing_bytes_per_s));
    let last = bounds[recorded.len() - 1].take();
    assert_eq!(bounds, [None; 12], "nothing holds the ramp back before");
    let bound = last.expect("a bound");
    assert!((108_000_000..116_100_000).contains(&bound), "{bound} of 116.1 MB/s");
}

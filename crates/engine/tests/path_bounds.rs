//! Whatever the readings say, the tuner does not panic, and its advice is within bounds.

use haul_engine::path::{AUTO_LANES_MAX, Advice, LaneReading, Remembered, Sample, Tuner, Wishes};
use haul_engine::paths::{Joined, PathEvent, PathReading, Paths, PathsSample};
use proptest::prelude::*;

fn any_size() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(u64::MAX), 0u64..10_000, 0u64..100_000_000, any::<u64>()]
}

fn any_time() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0), Just(u32::MAX), 0u32..500_000, any::<u32>()]
}

prop_compose! {
    fn any_reading()(
        lane in 0u16..70, in_slow_start: bool, times in (any_time(), any_time(), any_time()), sizes in prop::array::uniform10(any_size())
    ) -> LaneReading {
        let [cwnd_bytes, acked_bytes, sent_bytes, resent_bytes, unsent_bytes, busy_us, receive, send, peer, buffer] = sizes;
        LaneReading {
            lane, rtt_us: times.0, rtt_min_us: times.1, mss_bytes: times.2, rtt_deviation_us: times.2, resent_in_vain_bytes: resent_bytes,
            cwnd_bytes, in_slow_start, acked_bytes, delivered_bytes: acked_bytes, sent_bytes, resent_bytes, unsent_bytes, busy_us,
            receive_window_limited_us: receive, send_buffer_limited_us: send,
            peer_window_bytes: peer, send_buffer_bytes: buffer, silent_us: send,
        }
    }
}

prop_compose! {
    fn any_sample()(
        at_us in prop_oneof![0u64..100_000_000, any::<u64>()],
        lanes in prop::collection::vec(any_reading(), 0..12),
        waiting_bytes in any_size()
    ) -> Sample {
        Sample { at_us, lanes, waiting_bytes }
    }
}

prop_compose! {
    fn any_wishes()(
        lanes in prop::option::of(any::<u16>()), rate in prop::option::of(any_size()),
        remembered in prop::option::of((any_time(), any_size(), any::<u16>(), any_time())), bbr: bool,
        foreseen_bytes: u64
    ) -> Wishes {
        Wishes {
            lanes,
            rate_bytes_per_s: rate,
            congestion_control: None,
            allowed_congestion_controls: if bbr { vec!["bbr".into()] } else { Vec::new() },
            host_congestion_control: "cubic".into(),
            foreseen_bytes,
            remembered: remembered.map(|(rtt_min_us, capacity_bytes_per_s, lanes, random_loss_ppm)| Remembered {
                rtt_min_us, capacity_bytes_per_s, lanes, random_loss_ppm, congestion_control: "bbr".into(),
            }),
        }
    }
}

proptest! {
    #[test]
    fn any_readings_give_advice_within_bounds(
        wishes in any_wishes(), rtt_us in any_time(), cpus: u16, in_order: bool,
        mut samples in prop::collection::vec(any_sample(), 0..80)
    ) {
        if in_order {
            for (at, sample) in (1u64..).zip(&mut samples) {
                sample.at_us = at * 100_000;
            }
        }
        let mut tuner = Tuner::new(wishes.clone(), rtt_us, cpus);
        let mut given = vec![tuner.first()];
        given.extend(samples.iter().filter_map(|sample| tuner.on_sample(sample)));
        for advice in given {
            let most = wishes.lanes.map_or(AUTO_LANES_MAX, |lanes| lanes.clamp(1, 256));
            prop_assert!((1..=most).contains(&advice.lanes), "{advice:?}");
            prop_assert!(advice.pacing_bytes_per_s != Some(0), "{advice:?}");
            let known = advice.congestion_control.as_deref();
            prop_assert!(matches!(known, None | Some("bbr" | "cubic")), "{advice:?}");
        }
        let _ = (tuner.summary().time.total_us(), tuner.remembered(), tuner.estimate().clone());
    }
}

fn joined(wishes: &Wishes, rtt_us_at_connect: u32) -> Joined {
    Joined { rtt_us_at_connect, foreseen_bytes: wishes.foreseen_bytes, remembered: wishes.remembered.clone() }
}

proptest! {
    #[test]
    fn a_job_with_one_path_has_what_its_tuner_says(
        wishes in any_wishes(), rtt_us in any_time(), cpus: u16, timeouts: u8,
        mut samples in prop::collection::vec(any_sample(), 0..40)
    ) {
        for (at, sample) in (1u64..).zip(&mut samples) {
            sample.at_us = at * 100_000;
        }
        let mut tuner = Tuner::new(wishes.clone(), rtt_us, cpus);
        let mut paths = Paths::new(wishes.clone(), cpus);
        prop_assert_eq!(paths.path_up(0, joined(&wishes, rtt_us)), tuner.first());
        for sample in samples {
            let expected: Vec<Advice> = tuner.on_sample(&sample).into_iter().collect();
            let reading = PathReading { path: 0, lanes: sample.lanes, timeouts };
            let (at_us, waiting_bytes) = (sample.at_us, sample.waiting_bytes);
            let events = paths.on_sample(&PathsSample { at_us, paths: vec![reading], waiting_bytes });
            let given: Vec<PathEvent> =
                expected.into_iter().map(|advice| PathEvent::Advice { path: 0, advice }).collect();
            prop_assert_eq!(events, given);
        }
        prop_assert_eq!(paths.summary(0), Some(tuner.summary()));
        prop_assert_eq!((paths.estimate(0), paths.remembered(0)), (Some(tuner.estimate()), tuner.remembered()));
    }

    #[test]
    fn any_readings_of_several_paths_give_advice_within_bounds(
        wishes in any_wishes(), rtts in prop::collection::vec(any_time(), 2..5), cpus: u16, timeouts: u8,
        mut samples in prop::collection::vec(prop::collection::vec(any_sample(), 4), 0..20)
    ) {
        for (at, samples) in (1u64..).zip(&mut samples) {
            samples[0].at_us = at * 100_000;
        }
        let count = rtts.len() as u16;
        let mut paths = Paths::new(wishes.clone(), cpus);
        let mut lanes = 0;
        for (path, rtt_us) in (0..).zip(rtts) {
            let advice = paths.path_up(path, joined(&wishes, rtt_us));
            prop_assert!(advice.lanes >= 1 && advice.lanes <= 256 / (path + 1));
        }
        for samples in samples {
            let (at_us, waiting_bytes) = (samples[0].at_us, samples[0].waiting_bytes);
            let reading = |(path, sample): (u16, Sample)| PathReading { path, lanes: sample.lanes, timeouts };
            let readings = (0..count).zip(samples).map(reading).collect();
            for event in paths.on_sample(&PathsSample { at_us, paths: readings, waiting_bytes }) {
                if let PathEvent::Advice { advice, .. } = event {
                    prop_assert!(advice.lanes >= 1 && advice.pacing_bytes_per_s != Some(0), "{advice:?}");
                }
            }
            lanes = paths.up().filter_map(|path| paths.advice(path)).map(|advice| advice.lanes).sum();
        }
        prop_assert!(lanes <= 256, "{lanes}");
        prop_assert!(count < 2 || paths.up().count() >= 1, "one always stays");
    }
}

//! Tests the tuning of real connections over loopback.

use std::net::{TcpListener, TcpStream};

use haul_net::Stream;
use haul_wire::lane::lane_of;
use haul_wire::summary::PathState;

use super::*;

fn lane() -> (Stream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (Stream::plain_tcp(near), listener.accept().unwrap().0)
}

#[test]
fn the_smaller_host_decides_how_many_processors_there_are() {
    let of = |cpus| cpus_of_smaller(&Carriage { cpus, ..Carriage::default() });
    assert_eq!(of(1), 1, "the other one has a single processor");
    assert_eq!(
        (of(0), of(u16::MAX)),
        (host_facts::cpus(), host_facts::cpus()),
        "nothing is known of the other, or it has more"
    );
}

#[test]
fn the_report_has_the_congestion_control_that_the_lanes_have() {
    let (stream, _other) = lane();
    let asked = Some("no-such-thing".to_owned());
    let mut tuning = Tuning::new(&Carriage { congestion_control: asked, ..Carriage::default() }, Foreseen::default());
    tuning.lane_up(0, stream.probe(), None);
    assert_eq!(Some(tuning.summary().0.congestion_control), stream.probe().congestion_control());
}

/// One lane has nearly all of it.
struct Last;

impl Work for Last {
    fn waiting_bytes(&self) -> u64 {
        0
    }

    fn unit_bytes(&self) -> u64 {
        0
    }

    fn left(&self) -> Left {
        Left::default()
    }

    fn ending(&self, lanes: &[u16], _carrying: usize) -> Option<Ending> {
        let left_bytes = lanes.iter().map(|lane| if *lane == 0 { 1 << 20 } else { 10 }).collect();
        Some(Ending { left_bytes, again_bytes: Vec::new(), waiting_bytes: Vec::new() })
    }
}

/// A repeat would go at the rate of a few last bytes.
#[test]
fn a_bound_that_is_lifted_at_the_end_of_a_job_is_lifted_for_every_lane() {
    let (streams, _others): (Vec<_>, Vec<_>) = (0..2).map(|_| lane()).unzip();
    let mut tuning = Tuning::new(&Carriage::default(), Foreseen::default());
    for (number, stream) in (0..).zip(&streams) {
        tuning.lane_up(number, stream.probe(), None);
    }
    let mut bounds = |bound| {
        tuning.applied.get_mut(&0).unwrap().advice.pacing_bytes_per_s = bound;
        let paths = tuning.readings();
        tuning.divide(&paths, &Last);
        streams.iter().map(|stream| stream.tcp_info().unwrap().max_pacing_rate_bytes_per_s).collect::<Vec<_>>()
    };
    let divided = bounds(Some(100_000_000));
    assert!(divided.iter().all(|bound| *bound < Some(u64::MAX)), "{divided:?}");
    assert_eq!(bounds(None), [Some(u64::MAX); 2]);
}

#[test]
fn while_a_lane_that_comes_to_rest_has_something_to_send_the_bound_is_divided_often() {
    let (streams, _others): (Vec<_>, Vec<_>) = (0..2).map(|_| lane()).unzip();
    let mut tuning = Tuning::new(&Carriage { lanes: Some(1), ..Carriage::default() }, Foreseen::default());
    for (number, stream) in (0..).zip(&streams) {
        tuning.lane_up(number, stream.probe(), None);
    }
    tuning.applied.get_mut(&0).unwrap().advice.pacing_bytes_per_s = Some(100_000_000);
    let mut paths = tuning.readings();
    for (unsent_bytes, tick) in [(1, DIVIDE_EVERY), (0, TICK)] {
        paths[0].lanes[1].unsent_bytes = unsent_bytes;
        tuning.divide(&paths, &Endless);
        assert_eq!(tuning.tick(), tick, "{unsent_bytes}");
    }
}

#[test]
fn lanes_with_the_highest_numbers_rest_and_those_that_ended_do_not() {
    let (streams, _others): (Vec<_>, Vec<_>) = (0..4).map(|_| lane()).unzip();
    let mut tuning = Tuning::new(&Carriage { lanes: Some(2), ..Carriage::default() }, Foreseen::default());
    for (number, stream) in [3, 0, 2, 1].into_iter().zip(&streams) {
        tuning.lane_up(number, stream.probe(), None);
    }
    assert_eq!(tuning.resting(), [2, 3]);
    tuning.lane_up(3, streams[0].probe(), None);
    assert_eq!(tuning.resting(), [2, 3], "dialled again it is the same lane");
    tuning.lane_down(0);
    assert_eq!(tuning.resting(), [3]);
}

#[test]
fn each_path_has_its_own_lanes_and_its_own_part_of_the_report() {
    let (streams, _others): (Vec<_>, Vec<_>) = (0..4).map(|_| lane()).unzip();
    let mut tuning = Tuning::new(&Carriage { lanes: Some(2), ..Carriage::default() }, Foreseen::default());
    for (number, stream) in [0, lane_of(1, 0), 1, lane_of(1, 1)].into_iter().zip(&streams) {
        tuning.lane_up(number, stream.probe(), LaneAddresses::of(stream));
    }
    let numbers = |paths: &[OnePath]| paths.iter().map(|path| (path.number, path.state)).collect::<Vec<_>>();
    assert_eq!(numbers(&tuning.summary().1), [(0, PathState::Carries), (1, PathState::Carries)]);
    tuning.lane_down(lane_of(1, 0));
    tuning.lane_down(lane_of(1, 1));
    assert_eq!(numbers(&tuning.summary().1), [(0, PathState::Carries), (1, PathState::Lost)]);
    assert_eq!(tuning.resting(), Vec::<u16>::new(), "the first path has all lanes that were asked for");
}

/// A deadline would wait for a class that cannot be had.
#[test]
fn where_the_mark_harms_priority_is_not_the_most_that_can_be_had() {
    let (stream, _other) = lane();
    let service = haul_wire::control::Service { class: AskedClass::Priority, ..Default::default() };
    let mut classes = Classes::new(&Carriage { service, ..Carriage::default() }, Permits::default(), None);
    let mut lane = Lane::new(0, stream.probe());
    classes.lane_up(&mut lane, None);
    assert_eq!(classes.allowed_most(), ServiceClass::Priority);
    let estimate = haul_engine::path::Estimate::default();
    for tenth in 0..30 {
        let reading = LaneReading { sent_bytes: 90_000, mss_bytes: 1_448, ..LaneReading::default() };
        let (at_us, lanes) = (tenth * 100_000, [reading]);
        let now = PathInClass { path: 0, at_us, estimate: &estimate, lanes: &lanes, carrying: 1, ends: false };
        classes.on_sample(&now, std::iter::once(&mut lane));
    }
    assert_eq!(classes.allowed_most(), ServiceClass::Normal);
}

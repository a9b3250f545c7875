//! Connections over several paths, and what becomes of them without MPTCP.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use haul_sys::condition::unmet;
use haul_sys::own_network::OwnNetwork;

use super::*;
use crate::cipher::Cipher;
use crate::dial::dial;
use crate::interfaces::tests::await_uplinks;
use crate::kernel_scenarios::kernel_seals;
use crate::kernel_sealer::KeyUsedUp;
use crate::listen::Listener;
use crate::policy::{
    DelayedAckMax, Dscp, Keepalive, NoDelay, Pacing, Policies, Policy, RtoMax, RtoMin, UnsentMax, UserTimeout, Wanted,
    apply,
};
use crate::scenarios::{pattern, tls_pair};
use crate::stream::Stream;
use crate::way::{self, Way};

const TIMEOUT: Duration = Duration::from_secs(5);
const SOON: Duration = Duration::from_secs(20);

fn over_mptcp() -> Way {
    Way { protocol: way::Protocol::Mptcp, ..Way::default() }
}

fn dialled(there: SocketAddr, way: &Way) -> TcpStream {
    dial(&[there], TIMEOUT, &Policies::default(), way, None).unwrap()
}

fn at_loopback(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

fn pair(listener: &Listener, way: &Way) -> (TcpStream, TcpStream) {
    let near = dialled(at_loopback(listener.port()), way);
    (near, listener.socket.accept().unwrap().0)
}

fn has_mptcp() -> bool {
    let listener = Listener::bind(None, None).unwrap();
    let has = is_socket(&listener.socket);
    if !has {
        unmet("this kernel has no MPTCP, or net.mptcp.enabled is 0");
    }
    has
}

fn carry(near: &mut (impl io::Write + Send), far: &mut impl io::Read, bytes: usize) {
    let sent = pattern(bytes);
    let mut received = vec![0; bytes];
    thread::scope(|scope| {
        let writes = scope.spawn(|| near.write_all(&sent).and_then(|()| near.flush()));
        far.read_exact(&mut received).unwrap();
        writes.join().unwrap().unwrap();
    });
    assert!(received == sent);
}

#[test]
fn a_listener_takes_both_protocols_and_each_end_knows_which_it_has() {
    if !has_mptcp() {
        return;
    }
    let listener = Listener::bind(None, None).unwrap();
    for (way, is_used) in [(Way::default(), None), (over_mptcp(), Some(true))] {
        let (mut near, mut far) = pair(&listener, &way);
        for end in [&near, &far] {
            assert_eq!(is_in_use(end), is_used, "{way}");
            assert_eq!(mptcp::tells_of_paths(end), is_used.is_some(), "what older kernels tell: {way}");
        }
        carry(&mut near, &mut far, 300_000);
        let (local, peer) = (near.local_addr().unwrap(), near.peer_addr().unwrap());
        let stream = Stream::plain(near);
        let probe = stream.probe();
        assert_eq!((stream.is_mptcp(), probe.is_mptcp()), (is_used, is_used));
        let paths: Vec<_> = probe.subflows().iter().map(|path| (path.local, path.remote)).collect();
        assert_eq!(paths, if is_used.is_some() { vec![(local, peer)] } else { Vec::new() });
        for path in probe.subflows() {
            assert!(path.sent_bytes >= 300_000 && path.acked_bytes >= 1 && path.rtt_us > 0, "{path:?}");
        }
        // A busy host may send some of it twice.
        let info = probe.tcp_info().unwrap();
        assert!(info.bytes_sent.unwrap() >= 300_000 && info.rtt_us > 0 && info.snd_cwnd > 0, "{info:?}");
    }
}

fn every_option() -> Policy {
    let ms = Duration::from_millis;
    Policy {
        no_delay: Some(NoDelay(true)),
        congestion_control: None,
        pacing: Some(Pacing { bytes_per_s: 12_500_000 }),
        dscp: Dscp::new(10),
        rto_min: Some(RtoMin(ms(40))),
        rto_max: Some(RtoMax(ms(5_000))),
        delayed_ack_max: Some(DelayedAckMax(ms(40))),
        user_timeout: Some(UserTimeout(ms(7_000))),
        keepalive: Some(Keepalive { idle: ms(15_000), interval: ms(5_000) }),
        unsent_max: Some(UnsentMax { bytes: 65_536 }),
    }
}

#[test]
fn a_client_without_mptcp_gets_a_socket_like_that_of_a_plain_listener() {
    if !has_mptcp() {
        return;
    }
    let ours = Listener::bind(None, None).unwrap();
    let plain = TcpListener::bind("[::]:0").or_else(|_| TcpListener::bind("0.0.0.0:0")).unwrap();
    let accepted = |listener: &TcpListener, port| {
        let near = TcpStream::connect(at_loopback(port)).unwrap();
        (near, listener.accept().unwrap().0)
    };
    let (_near, by_ours) = accepted(&ours.socket, ours.port());
    let (_near, by_plain) = accepted(&plain, plain.local_addr().unwrap().port());
    assert!(!is_socket(&by_ours));
    let peer = [127, 0, 0, 1].into();
    let granted = |socket: &TcpStream| {
        let settings = apply(socket, &every_option(), peer).settings;
        settings.into_iter().map(|setting| (setting.what, setting.granted, setting.falls_short)).collect::<Vec<_>>()
    };
    assert_eq!(granted(&by_ours), granted(&by_plain));
    assert_eq!(granted(&by_ours).len(), 9, "nothing is missing");
}

#[test]
fn a_client_without_mptcp_is_sealed_for_as_ever_and_one_with_mptcp_by_the_program() {
    if !has_mptcp() {
        return;
    }
    let listener = Listener::bind(None, None).unwrap();
    for way in [Way::default(), over_mptcp()] {
        let (near, far) = pair(&listener, &way);
        let is_mptcp = is_in_use(&far) == Some(true);
        let (mut near, mut far) = tls_pair(near, far, Cipher::Aes128Gcm);
        match far.seal_in_kernel() {
            Ok(()) => assert!(!is_mptcp && kernel_seals()),
            Err(error) => {
                assert!(error.kind() == io::ErrorKind::Unsupported && !KeyUsedUp::caused(&error), "{error}");
                assert!(is_mptcp || !kernel_seals(), "{error}");
            }
        }
        carry(&mut far, &mut near, 300_000);
        carry(&mut near, &mut far, 300_000);
    }
}

#[test]
fn options_that_mptcp_does_not_have_are_told_in_one_word() {
    if !has_mptcp() {
        return;
    }
    let listener = Listener::bind(None, None).unwrap();
    let (near, far) = pair(&listener, &over_mptcp());
    for end in [&near, &far] {
        // With this bound, every path is far.
        let applied = Wanted::default().apply(end, 0);
        let told: Vec<_> = applied.iter().filter(|setting| setting.reason.contains("MPTCP")).collect();
        let [told] = told[..] else { panic!("{applied:#?}") };
        assert!(told.asked.contains("pacing at most") && told.asked.contains("TCP_USER_TIMEOUT 30000 ms"), "{told}");
        assert!(!told.falls_short, "nobody asked for them by name");
        assert!(applied.iter().all(|setting| !setting.reason.contains("refuses")), "{applied:#?}");
    }
    let by_name = apply(&near, &every_option(), [127, 0, 0, 1].into());
    let short: Vec<_> = by_name.falls_short().collect();
    assert!(matches!(&short[..], [one] if one.asked.contains("TCP_RTO_MIN_US 40 ms")), "{by_name:#?}");
}

#[test]
fn a_peer_without_mptcp_is_noticed_and_said() {
    if !has_mptcp() {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut near = dialled(listener.local_addr().unwrap(), &over_mptcp());
    let (mut far, _) = listener.accept().unwrap();
    assert_eq!((is_in_use(&near), is_in_use(&far)), (Some(false), None));
    assert_eq!(fallback(&near), Some(Fallback::There));
    assert!(!mptcp::tells_of_paths(&near), "what older kernels tell");
    assert_eq!(Way::of(&near).unwrap().protocol, way::Protocol::Tcp);
    carry(&mut near, &mut far, 300_000);
    let probe = Stream::plain(near).probe();
    assert!(probe.subflows().is_empty());
    assert!(probe.tcp_info().unwrap().bytes_sent.unwrap() >= 300_000);
}

#[test]
fn a_host_without_mptcp_listens_and_dials_over_tcp_and_says_so() {
    let Some(host) = OwnNetwork::new() else { return };
    host.enter(|| {
        if std::fs::write("/proc/sys/net/mptcp/enabled", "0").is_err() {
            return unmet("no setting net.mptcp.enabled");
        }
        let listener = Listener::bind(None, None).unwrap();
        let (mut near, mut far) = pair(&listener, &over_mptcp());
        assert_eq!((is_in_use(&near), is_in_use(&far)), (None, None));
        assert_eq!(fallback(&near), Some(Fallback::Here));
        assert!(Fallback::Here.to_string().contains("net.mptcp.enabled"));
        carry(&mut near, &mut far, 300_000);
    });
}

fn two_hosts() -> Option<(OwnNetwork, OwnNetwork)> {
    if !has_mptcp() {
        return None;
    }
    let (client, server) = (OwnNetwork::new()?, OwnNetwork::new()?);
    for net in [1, 2] {
        client.connect(&format!("eth{net}"), &server, &format!("eth{net}"));
        for (host, number) in [(&client, 1), (&server, 2)] {
            host.ip(&format!("addr add 10.{net}.0.{number}/24 dev eth{net}"));
            host.ip(&format!("link set eth{net} up"));
        }
    }
    for host in [&client, &server] {
        host.enter(|| await_uplinks(2));
        host.ip("mptcp limits set subflows 2 add_addr_accepted 2");
    }
    // It joins only if it reaches the address that the connection began with.
    client.ip("route add 10.1.0.0/24 via 10.2.0.2 dev eth2 metric 100");
    client.ip("mptcp endpoint add 10.2.0.1 dev eth2 subflow");
    Some((client, server))
}

#[test]
fn both_paths_are_told_apart_and_a_connection_survives_the_loss_of_one() {
    let Some((client, server)) = two_hosts() else { return };
    let listener = server.enter(|| Listener::bind(None, None).unwrap());
    let there = ([10, 1, 0, 2], listener.port()).into();
    let near = client.enter(|| dialled(there, &over_mptcp()));
    let far = listener.socket.accept().unwrap().0;
    let (mut near, mut far) = tls_pair(near, far, Cipher::Aes128Gcm);
    let probe = near.probe();
    let begin = Instant::now();
    let mut carried = 0;
    while probe.subflows().iter().filter(|path| path.acked_bytes > 100_000).count() < 2 {
        assert!(begin.elapsed() < SOON, "{:#?}", probe.subflows());
        carry(&mut near, &mut far, 1_000_000);
        carried += 1_000_000;
    }
    let mut locals: Vec<_> = probe.subflows().iter().map(|path| path.local.ip().to_string()).collect();
    locals.sort();
    assert_eq!(locals, ["10.1.0.1", "10.2.0.1"]);
    let before = probe.tcp_info().unwrap();
    assert!(before.bytes_sent.unwrap() >= carried && before.snd_cwnd > 0, "{before:?}");
    client.ip("link set eth1 down");
    carry(&mut near, &mut far, 1_000_000);
    let after = probe.tcp_info().unwrap();
    assert!(after.bytes_acked >= before.bytes_acked && after.busy_time_us >= before.busy_time_us, "{after:?}");
    assert_eq!(near.is_mptcp(), Some(true));
}

#[test]
fn a_network_that_strips_mptcp_leaves_plain_tcp_with_the_same_bytes() {
    let Some((client, server)) = two_hosts() else { return };
    for words in [
        "add table inet strip",
        "add chain inet strip received { type filter hook input priority -300 ; }",
        "add rule inet strip received reset tcp option mptcp",
    ] {
        if let Err(error) = server.try_run("nft", words) {
            return unmet(format_args!("nftables here do not strip an option: {error}"));
        }
    }
    let listener = server.enter(|| Listener::bind(None, None).unwrap());
    let there = ([10, 1, 0, 2], listener.port()).into();
    let near = client.enter(|| dialled(there, &over_mptcp()));
    let far = listener.socket.accept().unwrap().0;
    assert_eq!((fallback(&near), is_in_use(&far)), (Some(Fallback::There), None));
    assert!(Fallback::There.to_string().contains("on the way"));
    let (mut near, mut far) = tls_pair(near, far, Cipher::Aes128Gcm);
    carry(&mut near, &mut far, 1_000_000);
    carry(&mut far, &mut near, 1_000_000);
}

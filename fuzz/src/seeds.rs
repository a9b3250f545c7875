//! Inputs of honest programs for each target, to begin searches and short tests.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use haul_engine::journal;
use haul_job::ManifestLine;
use haul_net::Identity;
use haul_transfer::manifest_file;
use haul_web::token::{Condition, Secret, Token};
use haul_wire::RelPath;
use haul_wire::codec;
use haul_wire::control::{
    Abort, AbortFault, Address, AgentHello, Answer, Candidate, Carriage, ChunkRange, Control, Dial, FailureKind,
    FilterRule, Listed, Notice, Outcome, OutcomeKind, ProbeArrived, ProbeSent, Receipt, ReceiverSummary, Role,
    Selection, SenderSummary, Sides, Start, Void, Wanted, Withdraw,
};
use haul_wire::lane::{BlockHeader, Encoding, Hello, LaneHello, Trailer, UnitHeader, UnitKind};
use haul_wire::manifest::{Attributes, Identity as FileIdentity, Item, ItemKind, PackedItem, Packer, Time, Xattr};
use haul_wire::standing::{MIN_MEAN_BYTES, Piece, Standing};
use haul_wire::summary::{HostLimits, KnownPath, PathNow};

/// Seeds of a target.
pub fn of(target: &str) -> Vec<Vec<u8>> {
    match target {
        "authorized_keys" => texts(&[
            "# access\nro root=/data/public ed25519:KEY bob@lab\nrw clear user=alice root=\"/data/new sets\\\"\\x20\" ed25519:KEY2 a\n",
            "rw root=\"/a\\\\b\" ed25519:KEY",
        ]),
        "bag" => texts(&[
            "BagIt-Version: 0.97\nTag-File-Character-Encoding: UTF-8\n",
            "Source-Organization: x\nPayload-Oxum: 17.3\nmanifest-sha256.txt\ntagmanifest-md5.txt\n",
        ]),
        "banner" => {
            texts(&["Welcome\nHAUL-AGENT 4\n", "mail\r\nHAUL-NEED Linux x86_64\n", "x HAUL-FAIL no space left\n"])
        }
        "block" => vec![zstd(&[0; 9000]), zstd(b"some words, and some words again, and again some words")],
        "control" => messages()
            .iter()
            .map(|message| frame(message)[codec::LENGTH_BYTES..].to_vec())
            .chain([channel(), link()])
            .collect(),
        "filter" => texts(&["a/b/c.o\0\0*.o\0\x01/a/**/c?\0\0[a-c[:digit:]]*\0\x01dir/***", "dir/x\0\0**/x\0\x01\\*["]),
        "handshake" => handshakes(),
        "hash_list" => texts(&[
            "HASH  ./a//b\n\\HASH *a\\\\b\\nc\n# words\r\nHASH /x\n",
            "SHA256 (a) b) = HASH\nSHA2-256(x)= HASH\n\\BLAKE3 (a\\nb) = HASH\n",
            "d41d8cd98f00b204e9800998ecf8427e \t*data/a%0Ab%25\nHASHHASH data/x\n",
        ]),
        "items" => {
            vec![packed().iter().flat_map(|item| postcard::to_allocvec(item).expect("memory takes all")).collect()]
        }
        "journal" => vec![a_journal()],
        "key" => {
            let identity = Identity::generate().expect("the kernel has random numbers");
            vec![identity.to_pem().as_bytes().to_vec(), identity.public().to_string().into_bytes()]
        }
        "known_hosts" => texts(&["# daemons\n\ndtn1:7632 ed25519:KEY comment\n[fd00::1]:7632 ed25519:KEY2\n"]),
        "known_paths" => texts(&[
            "to 10.99.1.0/24 via 10.99.1.0/24 rtt_us 228120 bytes_per_s 117500000 lanes 14 loss_ppm 0 cc cubic\n",
            "4f2a91c07d3e5b18 direct 1795298048\n",
        ]),
        "lane" => lane_heads(),
        "manifest" => vec![a_manifest()],
        "networks" => texts(&[NETWORKS]).into_iter().chain([networks_observed()]).collect(),
        "receiver" => receiver_scripts(),
        "records" => record_scripts(),
        "saved_settings" => {
            texts(&["\"net.ipv4.tcp_rmem\" = \"4096 131072 6291456\"\n\"net.core.default_qdisc\" = \"fq_codel\"\n"])
        }
        "ftp" => texts(&[
            "\x10220 hello\r\n211-Features:\r\n MLST size*;\r\n211 End\r\n",
            "\x40type=file;size=12;modify=20261128110700;UNIX.mode=0644; a b\r\ntype=OS.unix=slink:/x; l\r\n",
            "\x40-rw-r--r--    1 0        0              12 Nov 28 11:07 name\r\nlrwxrwxrwx 1 me us 1 Jan  1  2020 a -> b\r\n",
            "\x4011-28-26  11:07AM       <DIR>          a b\r\n11-28-2026  12:07PM                 1234 x\r\n",
        ]),
        "grid" => vec![grid_blocks()],
        "grid_stripe" => vec![grid_stripe()],
        "sftp" => vec![sftp_answers()],
        "stripes" => texts(&[concat!(
            r#"{"format":"haul-stripes","version":1,"name":"scan.vdif","bytes":100,"complete":true,"blake3":"HASH","#,
            r#""block_bytes":65536,"directories":["/a","/b"]}"#
        )]),
        "web" => vec![a_web_request()],
        "web_digests" => vec![haul_web::fuzzing::a_digest().repeat(2)],
        _ => Vec::new(),
    }
}

/// Two blocks, and the end.
fn grid_blocks() -> Vec<u8> {
    let mut bytes = vec![0x20];
    for (flags, data, offset) in [(0, &b"first"[..], 0), (0, b"second", 5), (0x48, b"", 1)] {
        bytes.extend(haul_grid::Header { flags, count: data.len() as u64, offset }.encode());
        bytes.extend(data);
    }
    bytes
}

/// Two connections to one port, of which the second one says how many there are.
fn grid_stripe() -> Vec<u8> {
    let mut bytes = vec![3];
    for (connection, flags, count, offset) in
        [(0, 0, 9, 100), (1, 0x40, 0, 2), (1, 0, 9, 0), (1, 8, 0, 0), (0, 8, 5, 109)]
    {
        bytes.push(connection);
        bytes.extend(haul_grid::Header { flags, count, offset }.encode());
    }
    bytes
}

const NETWORKS: &str = r#"near-ms = 2.5
[class.inside]
networks = ["10.0.0.0/8", "10.1.0.0/16", "fd00::/8", "::ffff:192.0.2.0/120"]
interfaces = ["eth1"]
rto-min-ms = 50
rto-max-ms = 5000
delayed-ack-max-ms = 40
user-timeout-s = 20
keepalive-s = 30
keepalive-interval-s = 5
initial-window = 20
congestion-control = "cubic"
pacing-mbit = 100
dscp = 10
lanes = 4
cipher = "256"
rate-mbit = 80
rate-per-address-mbit = 8.0
connections = 100
connections-per-address = 10
read = true
write = false

[class.a]
networks = ["10.1.2.0/24", "0.0.0.0/0"]
rto-min-ms = 20
[class.rest]
rto-min-ms = 120
"#;

fn networks_observed() -> Vec<u8> {
    let counts = ["7"; 96].join(",");
    let lists = ["round_trips", "lateness", "timeouts"].map(|name| format!(r#""{name}":[{counts}]"#)).join(",");
    let numbers = r#""connections":672,"recoveries":2,"recovery_ms":900,"spurious":1,"sent_bytes":9,"floor_us":50000"#;
    format!(r#"{{"inside":{{{lists},{numbers}}},"rest":{{"connections":3,"floor_us":null}}}}"#).into_bytes()
}

fn a_web_request() -> Vec<u8> {
    let token = Secret::new([7; 32].into()).issue("token:lab", [1; 16]).expect("the name is short");
    let token = [Condition::path(b"runs/3"), Condition::ReadOnly, Condition::Until(9)]
        .into_iter()
        .try_fold(token, Token::narrowed)
        .expect("it has room");
    let fields = "W/\"a\", \"b\", *";
    let text = ["/a%20b/%C3%BC?sort=-size&json", "bytes=0-4, 7-, -3", fields, &token.to_text()].join("\0");
    [text.as_bytes(), b"\0/x\0bytes=5-1\0sha-256=3, gzip;q=0.5\0haul1.00"].concat()
}

/// Short names stand for the keys and hashes.
fn texts(texts: &[&str]) -> Vec<Vec<u8>> {
    let (one, two) = ("ab".repeat(32), "cd".repeat(32));
    texts
        .iter()
        .map(|text| text.replace("KEY2", &two).replace("KEY", &one).replace("HASH", &one).into_bytes())
        .collect()
}

/// A greeting, and each kind of answer to request 1.
fn sftp_answers() -> Vec<u8> {
    let string = |text: &[u8]| [&u32::try_from(text.len()).expect("short").to_be_bytes()[..], text].concat();
    let attributes =
        [&15_u32.to_be_bytes()[..], &7_u64.to_be_bytes(), &[0; 8], &0o100_644_u32.to_be_bytes(), &[9; 8]].concat();
    let name = [&1_u32.to_be_bytes()[..], &string(b"file"), &string(b"-rw-r--r-- file"), &attributes].concat();
    let status = [&4_u32.to_be_bytes()[..], &string(b"Failure"), &string(b"en")].concat();
    let answer = |kind: u8, rest: Vec<u8>| [&[kind][..], &1_u32.to_be_bytes(), &rest].concat();
    let packets = [
        [&[2][..], &3_u32.to_be_bytes(), &string(b"limits@openssh.com"), &string(b"1")].concat(),
        answer(101, status),
        answer(102, string(b"\0\0\0\0")),
        answer(103, string(b"data")),
        answer(104, name),
        answer(105, attributes),
        answer(201, vec![0; 32]),
    ];
    let with_length =
        |packet: &Vec<u8>| [&u16::try_from(packet.len()).expect("short").to_be_bytes()[..], packet].concat();
    packets.iter().flat_map(with_length).collect()
}

fn frame(message: &Control) -> Vec<u8> {
    let mut frame = Vec::new();
    codec::encode(message, &mut frame).expect("it is within the limits");
    frame
}

fn channel() -> Vec<u8> {
    messages().iter().flat_map(frame).collect()
}

fn link() -> Vec<u8> {
    let numbered = |(number, message): (u64, &Control)| [number.to_be_bytes().to_vec(), frame(message)].concat();
    (0..).zip(&messages()).flat_map(numbered).collect()
}

fn time() -> Time {
    Time { s: 1_700_000_000, ns: 999_999_999 }
}

fn items() -> Vec<Item> {
    let identity = FileIdentity { size: 5 << 20, mtime: time(), ctime: time(), inode: 7 };
    let path = |path: &str| RelPath::new(path.as_bytes().to_vec()).expect("it lies beneath the root");
    let xattrs = vec![Xattr { name: b"user.a".to_vec(), value: b"b".to_vec() }];
    let attributes = Attributes { mode: 0o644, mtime: time(), uid: 1000, gid: 1000, names: None, xattrs };
    let kinds = [
        ItemKind::Directory,
        ItemKind::File { identity, hole_bytes: 1, blake3: Some([3; 32]), further_names: 1 },
        ItemKind::Symlink { target: b"../x".to_vec() },
        ItemKind::HardLink { first: path("d/1") },
        ItemKind::Skipped { why: "a socket".into() },
        ItemKind::Failed { why: "denied".into(), vanished: true },
        ItemKind::DirectoryEnd { complete: true },
    ];
    (0..)
        .zip(kinds)
        .map(|(number, kind)| Item { path: path(&format!("d/{number}")), kind, attributes: attributes.clone() })
        .collect()
}

fn packed() -> Vec<PackedItem> {
    let mut packer = Packer::default();
    items().iter().map(|item| packer.pack(item)).collect()
}

fn messages() -> Vec<Control> {
    let known = KnownPath {
        rtt_min_us: 9000,
        capacity_bytes_per_s: 1 << 27,
        lanes: 4,
        random_loss_ppm: 1,
        congestion_control: "bbr".into(),
    };
    let mut sender = SenderSummary::default();
    sender.path.known = Some(known.clone());
    sender.path.congestion_control = "cubic".into();
    let address = Address::V4([192, 0, 2, 1]);
    let limits = HostLimits {
        congestion_control: "cubic".into(),
        allowed_congestion_controls: vec!["bbr".into()],
        ..HostLimits::default()
    };
    let hello = AgentHello {
        version: "0.1.0".into(),
        key: [7; 32],
        port: 7632,
        relay_port: 0,
        addresses: vec![address, Address::V6([9; 16])],
        ssh_server: Some(address),
        ssh_client: None,
        cpus: 8,
        fast_aes: true,
        limits,
    };
    let selection = Selection {
        rules: vec![FilterRule {
            include: false,
            pattern: b"*.o".to_vec(),
            sides: Sides::Both,
            negated: false,
            perishable: false,
            merge: None,
        }],
        max_delete: Some(3),
        ..Selection::default()
    };
    let carriage = Carriage {
        ciphers: vec![1, 3],
        path: Some(known),
        lanes: Some(4),
        congestion_control: Some("bbr".into()),
        ..Carriage::default()
    };
    let start = |role| {
        Control::Start(Box::new(Start {
            session: [1; 16],
            peer_session: [9; 16],
            peer_key: [2; 32],
            links: true,
            stays: true,
            job: 1,
            role,
            selection: selection.clone(),
            listed: Listed::Trees,
            hash_kept: false,
            carriage: carriage.clone(),
        }))
    };
    let failed = OutcomeKind::Failed { why: "no space".into(), kind: FailureKind::Space };
    let outcomes =
        [OutcomeKind::Copied { blake3: [3; 32] }, OutcomeKind::Kept { blake3: None }, OutcomeKind::Made, failed];
    let answers = [Wanted::All, Wanted::Hash, Wanted::Chunks(vec![ChunkRange { first: 1, count: 2 }])];
    vec![
        Control::AgentHello(hello),
        Control::JobEnd { lanes: true },
        Control::Leave,
        start(Role::Sender { sources: vec![b"/a".to_vec()] }),
        start(Role::Receiver { target: b"/b".to_vec() }),
        start(Role::Probe { time_ms: 1000 }),
        Control::Dial(Dial {
            candidates: vec![Candidate { address, port: 7632 }],
            lanes: 4,
            several_paths: true,
            timeout_ms: 1000,
        }),
        Control::DialFailed { why: "refused".into() },
        Control::Dialled { lanes: 4, rtt_us: 9000 },
        Control::Admit { key: [8; 32] },
        Control::WantLanes { path: 1, lanes: 8 },
        Control::SmallerSegments { path: 0, segment_bytes: 1220 },
        Control::PathLost { path: 7 },
        Control::Addresses(vec![address]),
        Control::PathNow(PathNow::default()),
        Control::Begin { single_file: true },
        Control::Items(packed()),
        Control::EndOfManifest,
        Control::Withdraw(Withdraw {
            index: 1,
            why: "changed".into(),
            kind: FailureKind::Changed,
            retry: packed().into_iter().nth(1),
        }),
        Control::Answers((0..).zip(answers).map(|(index, wanted)| Answer { index, wanted }).collect()),
        Control::Receipts(vec![Receipt { index: 300, chunk: 7, data_bytes: 1 << 22, matched_bytes: 0 }; 2]),
        Control::Standing(Standing {
            index: 300,
            mean_bytes: MIN_MEAN_BYTES,
            in_place: false,
            pieces: vec![Piece { bytes: MIN_MEAN_BYTES, digest: [7; 8] }; 2],
            is_last: true,
        }),
        Control::Again { index: 1, chunk: 2 },
        Control::Void(Void { index: 1, chunk: 2, lane: 3 }),
        Control::Outcomes((0..).zip(outcomes).map(|(index, result)| Outcome::of(index, result)).collect()),
        Control::Notice(Notice::Skipped { path: b"x".to_vec(), why: "a socket".into() }),
        Control::LaneLost { lane: 3 },
        Control::Summary(ReceiverSummary::default()),
        Control::Bye(sender.clone()),
        Control::Findings(sender.clone()),
        Control::ProbeSent(ProbeSent { sender, ..ProbeSent::default() }),
        Control::ProbeArrived(ProbeArrived::default()),
        Control::Abort(Abort {
            fault: AbortFault::Space,
            what: "full".into(),
            cause: None,
            hint: Some("make room".into()),
        }),
        Control::Ping { received: 300, turn: 2, sent_us: 7_000_000 },
        Control::Repair { index: 1, chunk: 2 },
        Control::Counted(haul_wire::control::Counted { files: 3, data_bytes: 1 << 20, share_ppm: 400_000 }),
        Control::ReadAgain { bytes: 1 << 30 },
        Control::Gathers { us: 4_000 },
        Control::Rate { bytes_per_s: None },
        Control::Rate { bytes_per_s: Some(25_000_000) },
        Control::Listed(vec![b"a".to_vec(), b"d/e".to_vec()]),
        Control::Named(RelPath::new(b"new name".to_vec()).expect("it is one")),
    ]
}

fn lane_heads() -> Vec<Vec<u8>> {
    let lane = Hello::Lane(LaneHello { session: [5; 16], lane: 3 });
    let mut heads: Vec<Vec<u8>> = [lane, Hello::Control, Hello::OtherVersion(2), Hello::Link { session: [6; 16] }]
        .iter()
        .map(|hello| hello.encode().to_vec())
        .collect();
    let kinds = [UnitKind::Whole, UnitKind::Chunk, UnitKind::Hash, UnitKind::End, UnitKind::JobEnd, UnitKind::Hole];
    heads.extend(kinds.map(|kind| UnitHeader { kind, index: 300, chunk: 2 }.encode().to_vec()));
    heads.extend(
        [
            Encoding::Plain,
            Encoding::Zstd,
            Encoding::Zeros,
            Encoding::PlainWithHoles,
            Encoding::ZstdWithHoles,
            Encoding::Standing,
        ]
        .map(|encoding| BlockHeader { bytes: 9, encoding }.encode().to_vec()),
    );
    heads.extend([Trailer::Void, Trailer::Complete([9; 32])].map(|trailer| trailer.encode().to_vec()));
    heads
}

fn a_journal() -> Vec<u8> {
    let identity = FileIdentity { size: 1 << 30, mtime: time(), ctime: time(), inode: 5 };
    let header = journal::Header { identity, chunk_bytes: 4 << 20, part: (1, 2) };
    [header.encode(), journal::encode_records(&header, &[(0, [1; 32]), (1, [2; 32])])].concat()
}

fn a_manifest() -> Vec<u8> {
    let mut writer = manifest_file::Writer::start(Vec::new()).expect("memory takes all");
    for (path, mtime_s) in [(&b"a/b"[..], 1_700_000_000), (b"x\\\n\xff", -5)] {
        let line = ManifestLine { path: path.to_vec(), size: 5, mtime_s, mtime_ns: 42, blake3: [9; 32] };
        writer.add(&line).expect("memory takes all");
    }
    writer.finish().expect("memory takes all")
}

/// See `haul_net::fuzzing::records`.
fn record_scripts() -> Vec<Vec<u8>> {
    let data = op(2, b"some data\x17");
    let padded = op(2, &[&b"padded"[..], &[23], &[0; 40]].concat());
    let update = op(2, &[24, 0, 0, 1, 1, 22]);
    let end = op(2, &[1, 0, 21]);
    let (refused, raw, changed) = (op(2, &[2, 49, 21]), op(0, &[23, 3, 3, 0, 40]), op(1, b"some data\x17"));
    let long = op(2, &[&[7; 16_384][..], &[23]].concat());
    vec![
        [&[0], &data[..], &padded, &update, &data, &end].concat(),
        [&[3], &data[..], &update, &update, &refused].concat(),
        [&[4], &data[..], &raw].concat(),
        [&[7], &data[..], &changed, &data].concat(),
        [&[5], &long[..], &end, &data].concat(),
    ]
}

/// See `haul_transfer::fuzzing::receiver`.
fn receiver_scripts() -> Vec<Vec<u8>> {
    let item = |kind: u8, size: u8, path: &str| op(0, &[&[kind, size, 0x14], path.as_bytes()].concat());
    let unit = |kind: u8, index: u8, chunk: u8, data: &[u8]| op(2, &[&[kind, index, chunk], data].concat());
    let (end, done) = (|path| item(8 | 3, 0, path), op(4, &[]));
    let tree =
        [item(2, 0, "d"), item(0, 2, "d/a"), item(4, 0, "d/b\0../../outside/secret"), item(5, 0, "d/c\0d/a"), end("d")];
    let raw = unit_header(UnitKind::Whole, 0);
    let plain = BlockHeader { bytes: 5, encoding: Encoding::Plain }.encode();
    let hello = *blake3::hash(b"hello").as_bytes();
    let whole = [&raw[..], &plain, b"hello", &BlockHeader::LAST.encode(), &Trailer::Complete(hello).encode()].concat();
    vec![
        [&[0x14, 0][..], &tree.concat(), &unit(0, 1, 0, b"hello"), &done].concat(),
        [
            &[0x15, 0][..],
            &item(2, 0, ""),
            &item(8, 9, "big"),
            &unit(1, 1, 3, b"tail"),
            &unit(1, 1, 0, b""),
            &unit(1, 1, 1, b"x"),
            &unit(1, 1, 2, b""),
            &end(""),
            &done,
        ]
        .concat(),
        [&[0, 0][..], &item(0, 2, "f"), &op(1, &whole), &done].concat(),
        [
            &[4, 16][..],
            &item(8, 10, "hole"),
            &unit(3, 0, 0, b""),
            &op(3, &[&[0, 0, 2, 0], &b"hole"[..]].concat()),
            &unit(0, 1, 0, b"hello"),
            &done,
        ]
        .concat(),
        [&[2, 4][..], &item(0, 8, "in"), &unit(1, 0, 1, b"a"), &unit(1, 0, 0, b"b"), &done].concat(),
    ]
}

fn unit_header(kind: UnitKind, index: u64) -> [u8; 20] {
    UnitHeader { kind, index, chunk: 0 }.encode()
}

/// A step: what, how many bytes, which.
fn op(what: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).expect("short").to_be_bytes();
    [&[what, length[0], length[1]], bytes].concat()
}

/// The first bytes of each end, behind the hearer's number.
fn handshakes() -> Vec<Vec<u8>> {
    const PATIENCE: Duration = Duration::from_secs(5);
    let (client, mut to_client) = UnixStream::pair().expect("two descriptors");
    let (server, mut to_server) = UnixStream::pair().expect("two descriptors");
    let shakes = |server_side: bool, end: UnixStream| {
        std::thread::spawn(move || {
            let me = Identity::generate().expect("the kernel has random numbers");
            let ciphers = haul_net::preferred_ciphers(None);
            // No handshake is answered to the end.
            match server_side {
                true => drop(haul_net::server(end, &me, |_| true, &ciphers)),
                false => drop(haul_net::client(end, &me, |_| true, &ciphers)),
            }
        })
    };
    let ends = [shakes(false, client), shakes(true, server)];
    let mut flight = vec![0; 16 << 10];
    let mut hears = |from: &mut UnixStream| {
        from.set_read_timeout(Some(PATIENCE)).expect("above zero");
        let length = from.read(&mut flight).expect("an honest end begins");
        flight[..length].to_vec()
    };
    let from_client = hears(&mut to_client);
    to_server.write_all(&from_client).expect("it is open");
    let from_server = hears(&mut to_server);
    drop((to_client, to_server));
    for end in ends {
        end.join().expect("it does not panic");
    }
    vec![[&[0], &from_client[..]].concat(), [&[1], &from_server[..]].concat()]
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(bytes, 3).expect("memory takes all")
}

//! Sums that servers give of their files, right and wrong.

use std::sync::Arc;

use haul_foreign::{Credentials, Lists, open};
use haul_store::{SumKind, WalkOptions};

use crate::server::{Reply, Request, Server, file, settings};
use crate::{data, opened, read_all, tree};

fn with(reply: Reply, field: &str) -> Reply {
    let (line, rest) = reply.head.split_once("\r\n").unwrap();
    Reply { head: format!("{line}\r\n{field}\r\n{rest}"), ..reply }
}

/// Reads a file of 3 MB in this order of blocks of 1 MB.
fn read_in(server: &Server, order: &[u64]) -> (Arc<dyn haul_store::SourceTree>, std::io::Result<()>) {
    let tree = tree(server, "/f").unwrap();
    let _ = Arc::clone(&tree).items(WalkOptions::default()).count();
    let file = opened(&tree);
    let mut block = vec![0; MB];
    let read = order.iter().try_for_each(|at| file.read_at(&mut block, at * MB as u64).map(drop));
    (tree, read)
}

const MB: usize = 1_000_000;

fn adler32(data: &[u8]) -> String {
    let mut sums = (1_u32, 0_u32);
    for byte in data {
        sums.0 = (sums.0 + u32::from(*byte)) % 65_521;
        sums.1 = (sums.1 + sums.0) % 65_521;
    }
    // Grids leave out leading zeros.
    format!("{:x}", sums.1 << 16 | sums.0)
}

#[test]
fn a_sum_for_which_the_server_is_asked_at_the_end_is_compared_whatever_the_order() {
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        for (right, lies) in [(true, false), (false, true)] {
            let content = data(3 * MB);
            let sum = if lies { "1".to_owned() } else { adler32(&content) };
            let server = Server::start(move |request: &Request| {
                let reply = file(request, &content, "\"a\"");
                let is_asked = request.field("want-digest").is_some_and(|wanted| wanted.contains("adler32"));
                if is_asked { with(reply, &format!("Digest: adler32={sum}")) } else { reply }
            });
            let (tree, read) = read_in(&server, &order);
            assert_eq!(read.is_ok(), right, "{order:?}");
            let counts = tree.sums().unwrap();
            let expected = if right { vec![(SumKind::Adler32, 1)] } else { Vec::new() };
            assert_eq!(counts.compared().collect::<Vec<_>>(), expected);
            assert!(right || read.unwrap_err().to_string().contains("adler32"));
        }
    }
}

#[test]
fn short_files_are_compared_with_the_sum_that_comes_with_them() {
    let server = Server::start(|request| {
        let reply = file(request, b"0123456789", "\"a\"");
        match request.field("want-repr-digest") {
            Some(_) if request.target == "/bad" => with(reply, "Repr-Digest: md5=:AAAAAAAAAAAAAAAAAAAAAA==:"),
            Some(_) => with(reply, "Repr-Digest: md5=:eB5eJF1ptWaXm4bijSPyxw==:, crc32c=:AAAAAA==:"),
            None => reply,
        }
    });
    for (path, fails) in [("/good", false), ("/bad", true)] {
        let tree = tree(&server, path).unwrap();
        let _ = Arc::clone(&tree).items(WalkOptions::default()).count();
        let read = read_all(&opened(&tree), 4);
        assert_eq!(read.is_err(), fails, "{path}");
        assert!(!fails || read.unwrap_err().to_string().contains("MD5"));
    }
    assert!(server.seen().iter().all(|seen| seen.method == "GET" || seen.field("want-digest").is_none()));
}

#[test]
fn a_server_without_sums_and_one_that_writes_nonsense_copy_as_ever() {
    for field in ["X-Nothing: 1", "Digest: adler32=zzz", "Repr-Digest: sha-256=::", "Content-MD5: ????"] {
        let content = data(3 * MB);
        let server = Server::start(move |request| with(file(request, &content, "\"a\""), field));
        let (tree, read) = read_in(&server, &[0, 1, 2]);
        read.unwrap();
        assert_eq!((tree.sums().unwrap().files(), tree.sums().unwrap().without), (0, 1), "{field}");
    }
}

#[test]
fn a_sum_of_another_version_says_nothing() {
    let content = data(3 * MB);
    let server = Server::start(move |request| {
        let is_asked = request.is_head() && request.field("want-digest").is_some();
        let reply = file(request, &content, if is_asked { "\"b\"" } else { "\"a\"" });
        if is_asked { with(reply, "Digest: adler32=1") } else { reply }
    });
    read_in(&server, &[0, 1, 2]).1.unwrap();
}

#[test]
fn the_md5_of_a_part_is_not_that_of_the_file() {
    let server =
        Server::start(|request| with(file(request, &data(3 * MB), "\"a\""), "Content-MD5: AAAAAAAAAAAAAAAAAAAAAA=="));
    let tree = open(&[server.url("/f")], settings(Credentials::default()), Lists::Pages).unwrap().tree;
    let file = opened(&tree);
    let mut block = vec![0; MB];
    assert!(file.read_at(&mut block, MB as u64).is_ok());
}

#[test]
fn a_server_that_repeats_the_sum_of_another_file_unasked_is_not_believed() {
    let content = data(3 * MB);
    let sum = adler32(&content);
    let server = Server::start(move |request| {
        let reply = file(request, &content, "\"a\"");
        match request.field("want-digest") {
            Some(_) => with(reply, &format!("Digest: adler32={sum}")),
            None => with(reply, "Digest: adler32=1"),
        }
    });
    let (tree, read) = read_in(&server, &[1, 0, 2]);
    read.unwrap();
    assert_eq!(tree.sums().unwrap().files(), 1);
}

#[test]
fn the_sum_of_a_long_file_is_asked_for_while_its_second_half_comes() {
    let content = data(20 * MB);
    let sum = adler32(&content);
    let server = Server::start(move |request| {
        let reply = file(request, &content, "\"a\"");
        let is_asked = request.is_head() && request.field("want-digest").is_some();
        if is_asked { with(reply, &format!("Digest: adler32={sum}")) } else { reply }
    });
    let questions = || server.seen().iter().filter(|seen| seen.field("want-digest").is_some()).count();
    let tree = tree(&server, "/f").unwrap();
    let _ = Arc::clone(&tree).items(WalkOptions::default()).count();
    let (file, mut block) = (opened(&tree), vec![0; MB]);
    for at in 0..20 {
        file.read_at(&mut block, (at * MB) as u64).unwrap();
        while at == 10 && questions() == 0 {
            std::thread::yield_now();
        }
    }
    assert_eq!((questions(), tree.sums().unwrap().files()), (1, 1));
}

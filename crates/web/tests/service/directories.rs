//! Pages, links, tar files, and pages of other origins.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use haul_web::token::Condition;
use haul_web::{Cors, Limits};
use serde_json::Value;

use crate::harness::{answers, get, secret, serve, serve_to};

fn body(answer: &crate::harness::Answer) -> Vec<u8> {
    if answer.field("transfer-encoding") != Some("chunked") {
        return answer.body.clone();
    }
    let (mut rest, mut whole) = (answer.body.as_slice(), Vec::new());
    loop {
        let end = rest.windows(2).position(|two| two == b"\r\n").expect("a chunk");
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..end]).unwrap(), 16).unwrap();
        if size == 0 {
            return whole;
        }
        whole.extend_from_slice(&rest[end + 2..end + 2 + size]);
        rest = &rest[end + 2 + size + 2..];
    }
}

fn text(answer: &crate::harness::Answer) -> String {
    String::from_utf8(body(answer)).unwrap()
}

fn names(listing: &Value) -> Vec<String> {
    let entries = listing["entries"].as_array().expect("a list");
    entries.iter().map(|entry| entry["name"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn a_directory_with_more_names_than_a_page_is_read_to_its_end() {
    let served = serve(Limits::default());
    let many = served.top.join("many");
    fs::create_dir(&many).unwrap();
    for number in 0..20_500 {
        fs::write(many.join(format!("f{number}")), b"").unwrap();
    }
    let expected: Vec<String> = (0..20_500).map(|number| format!("f{number}")).collect();
    let (mut target, mut found, mut pages) = ("/many/?json".to_owned(), Vec::new(), 0);
    loop {
        let answer = get(served.address, &target, "");
        let listing: Value = serde_json::from_slice(&body(&answer)).unwrap();
        found.extend(names(&listing));
        pages += 1;
        let Some(next) = listing["next"].as_str() else { break };
        assert_eq!(answer.field("link"), Some(&*format!("<{next}>; rel=\"next\"")));
        target = format!("/many/{next}");
    }
    assert!(found == expected && pages == 2, "{pages} pages, {} names", found.len());
    // A reader of HTML may not know pages.
    let page = text(&get(served.address, "/many/", ""));
    let shown: Vec<&str> =
        page.split("<tr><td class=\"n\"><a href=\"").skip(1).map(|row| row.split('"').next().unwrap()).collect();
    assert!(shown == expected, "all names, in their order");
    assert!(page.contains("20500 files, 0 directories"), "{}", &page[page.len() - 1000..]);
    let few = text(&get(served.address, "/many/?limit=3&sort=-name", ""));
    assert!(few.contains(">f20499<") && few.contains(">f20497<") && !few.contains(">f20496<"));
    let next = few.split("rel=\"next\" href=\"").nth(1).unwrap().split('"').next().unwrap().replace("&amp;", "&");
    let few = text(&get(served.address, &format!("/many/{next}"), ""));
    assert!(few.contains(">f20496<") && !few.contains(">f20497<") && !few.contains(">f20493<"), "{next}");
    // Links of a page lead back to it, however it was asked for.
    fs::create_dir(served.top.join("a:b")).unwrap();
    fs::write(served.top.join("a:b/c:d"), b"x").unwrap();
    let dotted = text(&get(served.address, "//./a:b/", ""));
    assert!(dotted.contains("<a href=\"/%2E/a%3Ab/c%3Ad\">"), "{dotted}");
    assert_eq!(get(served.address, "/%2E/a%3Ab/c%3Ad", "").body, b"x");
    let head = answers(served.address, b"HEAD /many/ HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    assert!(head.starts_with(b"HTTP/1.1 200 ") && head.ends_with(b"\r\n\r\n"), "{}", head.escape_ascii());
    assert_eq!(get(served.address, "/many/?sort=size&after=x", "").status, 400);
}

#[test]
fn links_that_stay_beneath_are_shown_and_followed_and_others_hidden() {
    let served = serve(Limits::default());
    let top = &served.top;
    fs::write(top.join("sub/inner"), b"inner").unwrap();
    symlink("sub/inner", top.join("near")).unwrap();
    symlink("sub", top.join("near_sub")).unwrap();
    symlink(top.join("sub"), top.join("absolute")).unwrap();
    symlink("../../public/ten", top.join("sub/around")).unwrap();
    symlink("none", top.join("dangling")).unwrap();
    let listing: Value = serde_json::from_slice(&get(served.address, "/?json", "").body).unwrap();
    assert_eq!(names(&listing), ["absolute", "near_sub", "sub", "a b", "empty", "near", "ten"]);
    assert_eq!(listing["entries"][5]["size"], 5);
    for (target, status) in [
        ("/near", 200),
        ("/near_sub", 301),
        ("/near_sub/", 200),
        ("/near_sub/inner", 200),
        ("/absolute/inner", 200),
        ("/sub/around", 403),
        ("/dangling", 404),
        ("/link", 403),
    ] {
        assert_eq!(get(served.address, target, "").status, status, "{target}");
    }
    assert_eq!(get(served.address, "/near", "Range: bytes=1-2\r\n").body, b"nn");
    let private = top.parent().unwrap().join("private");
    symlink("../hidden", private.join("runs/out")).unwrap();
    fs::write(private.join("hidden"), b"hidden").unwrap();
    let wide = secret().issue("token:lab", [1; 16]).unwrap();
    let narrow = wide.clone().narrowed(Condition::path(b"runs")).unwrap();
    for (token, status, is_shown) in [(wide, 200, true), (narrow, 403, false)] {
        let field = format!("Authorization: Bearer {}\r\n", *token.to_text());
        assert_eq!(get(served.address, "/runs/out", &field).status, status);
        assert_eq!(text(&get(served.address, "/runs/", &field)).contains(">out<"), is_shown);
    }
}

#[test]
fn a_page_has_a_filter_counts_and_the_readme_and_nothing_in_it_is_taken_for_html() {
    let served = serve(Limits::default());
    fs::write(served.top.join("README.md"), "# Words\n<script>alert(1)</script>\n").unwrap();
    fs::create_dir(served.top.join("sub/<i>")).unwrap();
    let answer = get(served.address, "/", "");
    let page = text(&answer);
    assert!(page.contains("<pre># Words\n&lt;script&gt;alert(1)&lt;/script&gt;\n</pre>"), "{page}");
    assert!(page.contains("4 files, 1 directory, 49 B"), "{page}");
    let policy = answer.field("content-security-policy").expect("a policy");
    assert!(policy.contains("default-src 'none'") && policy.contains("script-src 'sha256-"), "{policy}");
    assert!(!policy.contains("script-src 'unsafe"), "{policy}");
    let below = text(&get(served.address, "/sub/%3Ci%3E/", ""));
    assert!(below.contains("<h1><a href=\"../../\">/</a><a href=\"../\">sub</a>/&lt;i&gt;</h1>"), "{below}");
}

#[test]
fn a_directory_comes_as_a_tar_file_that_is_made_while_it_is_sent() {
    let served = serve(Limits::default());
    let top = &served.top;
    let long = format!("sub/{}/{}", "d".repeat(120), "n".repeat(200));
    fs::create_dir_all(top.join(&long).parent().unwrap()).unwrap();
    fs::write(top.join(&long), b"long").unwrap();
    fs::write(top.join("sub/large"), vec![7; 3_000_000]).unwrap();
    symlink("large", top.join("sub/near")).unwrap();
    symlink("../ten", top.join("sub/above")).unwrap();
    symlink("/etc/passwd", top.join("sub/out")).unwrap();
    symlink("..", top.join("sub/up")).unwrap();
    fs::set_permissions(top.join("sub/large"), fs::Permissions::from_mode(0o640)).unwrap();
    let answer = get(served.address, "/sub/?tar", "");
    assert_eq!(answer.field("content-disposition"), Some("attachment; filename=\"sub.tar\""));
    let bytes = body(&answer);
    let mut found = BTreeMap::new();
    for entry in tar::Archive::new(bytes.as_slice()).entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        let what = match entry.link_name().unwrap() {
            Some(target) => format!("-> {}", target.display()),
            None => format!("{:o} {}", entry.header().mode().unwrap(), content.len()),
        };
        found.insert(path, what);
    }
    let expected = [
        ("above", "644 10"),
        (&*format!("{}/", "d".repeat(120)), "755 0"),
        (long.strip_prefix("sub/").unwrap(), "644 4"),
        ("large", "640 3000000"),
        ("near", "-> large"),
    ];
    let expected: BTreeMap<_, _> =
        expected.into_iter().map(|(name, what)| (name.to_owned(), what.to_owned())).collect();
    assert_eq!(found, expected);
    assert!(bytes.ends_with(&[0; 1024]));
}

#[test]
fn pages_of_other_origins_read_where_the_operator_says_so() {
    let ask = |served: &crate::harness::Served, method: &str, fields: &str| {
        let request = format!("{method} /ten HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{fields}\r\n");
        String::from_utf8(answers(served.address, request.as_bytes())).unwrap().to_ascii_lowercase()
    };
    let preflight =
        "Origin: https://a.example\r\nAccess-Control-Request-Method: GET\r\nAccess-Control-Request-Headers: range\r\n";
    let closed = serve(Limits::default());
    assert!(!ask(&closed, "GET", "Origin: https://a.example\r\n").contains("access-control"));
    assert!(ask(&closed, "OPTIONS", preflight).starts_with("http/1.1 405 "));
    let to = |origin: &str| serve_to(Limits::default(), Cors::parse(&[origin.to_owned()]).unwrap());
    let open = to("*");
    let answer = ask(&open, "GET", "Origin: https://a.example\r\nRange: bytes=0-0\r\n");
    assert!(answer.contains("access-control-allow-origin: *\r\n") && answer.contains("expose-headers:"), "{answer}");
    assert!(["content-range", "etag", "accept-ranges", "repr-digest", "link"].iter().all(|field| {
        let exposed = answer.lines().find(|line| line.starts_with("access-control-expose-headers")).unwrap();
        exposed.contains(field)
    }));
    let granted = ask(&open, "OPTIONS", preflight);
    assert!(granted.starts_with("http/1.1 200 ") || granted.starts_with("http/1.1 204 "), "{granted}");
    assert!(granted.contains("access-control-allow-methods: get, head") && granted.contains("range"), "{granted}");
    assert!(ask(&open, "OPTIONS", "").starts_with("http/1.1 405 "));
    let one = to("https://a.example");
    let answer = ask(&one, "GET", "Origin: https://a.example\r\n");
    assert!(answer.contains("access-control-allow-origin: https://a.example\r\n") && answer.contains("origin\r\n"));
    let answer = ask(&one, "GET", "Origin: https://b.example\r\n");
    assert!(!answer.contains("access-control") && answer.contains("vary: origin"), "{answer}");
    assert!(!ask(&one, "OPTIONS", &preflight.replace("a.example", "b.example")).contains("allow-origin"));
}

#[test]
fn digests_that_grids_ask_for_are_given() {
    let served = serve(Limits::default());
    let path = served.top.join("ten");
    let hour = std::time::SystemTime::now() - std::time::Duration::from_secs(3_600);
    fs::File::options().write(true).open(&path).unwrap().set_modified(hour).unwrap();
    std::thread::park_timeout(std::time::Duration::from_millis(200));
    let digest = |wish: &str| {
        let answer = get(served.address, "/ten", &format!("Want-Digest: {wish}\r\n"));
        answer.field("digest").map(str::to_owned)
    };
    assert_eq!(digest("adler32").as_deref(), Some("adler32=0aff020e"));
    // The others are known by now, MD5 is not.
    assert_eq!(digest("md5, ADLER32;q=0.3").as_deref(), Some("adler32=0aff020e,md5=eB5eJF1ptWaXm4bijSPyxw=="));
    assert_eq!(digest("MD5;q=1").as_deref(), Some("md5=eB5eJF1ptWaXm4bijSPyxw=="));
    assert_eq!(digest("sha-256").as_deref(), Some("sha-256=hNiYd/DUBB77a/kaFvAkjy/Vc+avBcGflr7bn4gveII="));
    assert_eq!(digest("unixsum"), None);
    // RFC 9530 calls it deprecated.
    let answer = get(served.address, "/ten", "Want-Repr-Digest: md5=1\r\n");
    assert_eq!(answer.field("repr-digest"), None);
}

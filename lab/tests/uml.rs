//! The second engine with a real kernel. A missing one skips, and fails under CI.
//!
//! Searches as `haul-lab run` does: `$HAUL_LAB_KERNEL`, the user's cache, package `user-mode-linux`.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use haul_lab::lab::Engine;
use haul_lab::request::{Request, Task};
use haul_lab::topology::Topology;
use haul_lab::uml::{self, Clock, GuestJob, GuestStatus, RunInUml, UmlError, kernel};

const WAN: &str = "hosts = { client = { preset = 'stock' }, server = { preset = 'stock' } }\n\
    [[links]]\nname = 'wan'\nends = ['client', 'server']\nrate = '10Mbit'\nrtt = '200ms'\n";

struct Said {
    status: Result<GuestStatus, UmlError>,
    stdout: String,
    stderr: String,
}

/// Prefers virtual time, and tells why it skips.
fn kernel() -> Option<(PathBuf, Clock)> {
    let places = kernel::Places::of_user(None);
    let virtual_time = kernel::find(&places, true).map(|found| (found.path, Clock::Virtual { start_s: 1_800_000_000 }));
    match virtual_time.or_else(|_| kernel::find(&places, false).map(|found| (found.path, Clock::Real))) {
        Ok(found) => Some(found),
        Err(error) => {
            assert!(std::env::var("CI").is_err(), "CI must have a kernel: {error}");
            eprintln!("skipped: {error}");
            None
        }
    }
}

fn run(topology: &str, script: &str, limit: Duration, stop: bool) -> Option<Said> {
    let (kernel, clock) = kernel()?;
    let words = ["bash", "-c", script].map(|word| std::ffi::OsString::from(word).into());
    let request = Request {
        topology: topology.to_owned(),
        engine: if clock == Clock::Real { Engine::Uml } else { Engine::Virtual },
        host: "client".to_owned(),
        task: Task::Command(words.to_vec()),
        with: Vec::new(),
        captures: Default::default(),
        figures: false,
        terminal_columns: None,
        file_bytes: 0,
        directory: PathBuf::new(),
    };
    let program = PathBuf::from(env!("CARGO_BIN_EXE_haul-lab"));
    let mut job = GuestJob::of_request(&program, &request);
    job.environment = vec![("GREETING".to_owned(), "hello there".to_owned())];
    job.directory = "/".to_owned();
    let what = RunInUml {
        kernel,
        program,
        clock,
        memory: uml::memory_for(&Topology::parse(topology).unwrap(), uml::available_memory().bytes),
        job,
        limit,
    };
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let status = uml::run(&what, &AtomicBool::new(stop), &mut stdout, &mut stderr);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Some(Said { status, stdout: text(stdout), stderr: text(stderr) })
}

/// The server's closed port 9 refuses after one round trip.
const ONE_ROUND_TRIP: &str =
    "a=$(date +%s%N); (: < /dev/tcp/10.99.0.2/9) 2> /dev/null; b=$(date +%s%N); echo $(((b - a) / 1000))";

#[test]
fn a_command_sees_the_network_it_was_promised() {
    let script = format!(
        "echo \"$GREETING\"; echo aside >&2; getent ahostsv4 server | head -1; {ONE_ROUND_TRIP}; \
         cat /proc/sys/net/ipv4/tcp_rmem; sleep 100 & exit 7"
    );
    let Some(said) = run(WAN, &script, Duration::from_secs(120), false) else { return };
    assert_eq!(said.status.unwrap(), GuestStatus::Exited(7), "{}", said.stderr);
    let lines: Vec<&str> = said.stdout.lines().collect();
    assert_eq!(lines[0], "hello there");
    assert!(lines[1].starts_with("10.99.0.2 "), "{lines:?}");
    let round_trip_us: u64 = lines[2].parse().unwrap();
    // In real time the host decides. Virtual time is exact, but for 64 bytes at 10 Mbit/s both ways.
    let most = if kernel().unwrap().1 == Clock::Real { 20_000_000 } else { 201_000 };
    assert!((200_000..most).contains(&round_trip_us), "{round_trip_us} us");
    assert_eq!(lines[3], "4096\t131072\t6291456");
    assert_eq!(said.stderr, "aside\n");
}

#[test]
fn a_link_goes_down_and_comes_back() {
    let events = "[[events]]\nat = '1s'\nlink = 'wan'\ndown = true\n[[events]]\nat = '3s'\nlink = 'wan'\ndown = false\ndelay = '10ms'\n";
    let script = format!("sleep 1.5; {ONE_ROUND_TRIP}; sleep 1; for i in {{1..10}}; do {ONE_ROUND_TRIP}; done");
    let Some(said) = run(&format!("{WAN}{events}"), &script, Duration::from_secs(120), false) else { return };
    assert_eq!(said.status.unwrap(), GuestStatus::Exited(0), "{}", said.stderr);
    let times: Vec<u64> = said.stdout.lines().map(|line| line.parse().unwrap()).collect();
    assert!(times[0] > 900_000, "{times:?}");
    // A busy host delays some; the shortest shows the new delay.
    let least = times[1..].iter().min().unwrap();
    assert!((20_000..200_000).contains(least), "{times:?}");
}

#[test]
fn a_command_that_cannot_run_and_one_that_hangs_are_told_apart() {
    let Some(said) = run(WAN, "exec nothing-of-this-name", Duration::from_secs(120), false) else { return };
    assert_eq!(said.status.unwrap(), GuestStatus::Exited(127));
    let started = Instant::now();
    let Some(said) = run(WAN, "read < <(sleep infinity)", Duration::from_secs(5), false) else { return };
    assert!(matches!(said.status, Err(UmlError::TooLong(_))), "{:?}", said.status);
    assert!(started.elapsed() < Duration::from_secs(60));
    let Some(said) = run(WAN, "sleep infinity", Duration::from_secs(60), true) else { return };
    assert!(matches!(said.status, Err(UmlError::Interrupted)), "{:?}", said.status);
    let left = ["/dev/shm", "/tmp"].iter().flat_map(|parent| Path::new(parent).read_dir()).flatten().flatten();
    let ours = format!("haul-lab-uml-{}-", std::process::id());
    assert!(left.filter(|entry| entry.file_name().to_string_lossy().starts_with(&ours)).count() <= 2);
}

#[test]
fn classes_and_segments_stand_in_a_real_kernel() {
    let text = "hosts = { client = {}, r = { router = true }, server = {} }\n\
        segments = [{ name = 'lan', hosts = ['client', 'r'], rate = '10Mbit' }]\n\
        links = [{ name = 'wan', ends = ['r', 'server'], rate = '10Mbit', rtt = '100ms', diffserv = {}, jitter = '2ms', \
        reorder = '1%', burst = { loss = '0.1%', length = 2 } }]";
    let Some(said) = run(text, &ONE_ROUND_TRIP.replace("10.99.0.2", "server"), Duration::from_secs(120), false) else {
        return;
    };
    assert_eq!(said.status.unwrap(), GuestStatus::Exited(0), "{}", said.stderr);
    assert_eq!(said.stderr, "");
    let round_trip_us: u64 = said.stdout.trim().parse().unwrap();
    assert!(round_trip_us >= 100_000, "{round_trip_us} us");
}

#[test]
fn the_doctor_says_which_kernel_each_engine_would_take() {
    let Some((kernel, clock)) = kernel() else { return };
    let doctor = |kernel: &Path| {
        let mut doctor = std::process::Command::new(env!("CARGO_BIN_EXE_haul-lab"));
        let output = doctor.arg("doctor").env(kernel::KERNEL_VARIABLE, kernel).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let (there, absent) = (doctor(&kernel), doctor(Path::new("/no/such/kernel")));
    let (path, can_skip) = (kernel.display(), if clock == Clock::Real { "lacking" } else { "ok     " });
    assert!(there.contains(&format!("ok       engine uml           {path} (HAUL_LAB_KERNEL)\n")), "{there}");
    assert!(there.contains(&format!("{can_skip}  engine virtual ")), "{there}");
    let words = "lacking  engine virtual       the kernel /no/such/kernel of HAUL_LAB_KERNEL: there is no such file\n";
    assert!(absent.contains(words), "{absent}");
}

/// Names are free for the next point at once, although the kernel removes a namespace later.
#[test]
fn all_points_of_a_sweep_stand_in_one_kernel() {
    let Some((kernel, clock)) = kernel() else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("sweep.toml");
    let text = "name = 'sweep'\ntitle = 'Two delays'\nrepeat = 1\ntimeout = '1min'\n\
        topology = '''hosts = { client = {}, server = {} }\n\
        links = [{ name = 'wan', ends = ['client', 'server'], rate = '10Mbit', delay = '{delay}' }]'''\n\
        sweep = { delay = ['5ms', '10ms'] }\ndata = { size = '10kB' }\ntools = [{ rival = 'scp' }]\n";
    std::fs::write(&file, text).unwrap();
    let engine = if clock == Clock::Real { "uml" } else { "virtual" };
    let run = std::process::Command::new(env!("CARGO_BIN_EXE_haul-lab"))
        .args(["experiment", "--engine", engine, "--kernel"])
        .args([&kernel, &file])
        .arg("--results")
        .arg(dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stderr);
    assert_eq!(said.matches("making and calibrating").count(), 2, "{said}");
    assert!(!said.contains("did not start"), "{said}");
}

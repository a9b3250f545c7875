//! Files appended to while they are copied.

use std::fs::{self, File};
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use haul_e2e::{Lab, at, code, needs, plant};

const LISTED_BYTES: usize = 8 << 20;

/// Far more than was there, so no copy waits for its end.
const MOST_APPENDED: usize = 40_000;

#[test]
fn a_recording_that_goes_on_is_copied_as_it_was_listed_and_the_next_copy_brings_the_rest() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let (here, there) = (lab.data("home").join("scan"), lab.data("alpha").join("scan"));
    plant::file(&here.join("vdif"), LISTED_BYTES as u64, 1);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut recording = File::options().append(true).open(here.join("vdif")).expect("own file");
            for _ in 0..MOST_APPENDED {
                recording.write_all(&[7; 1000]).expect("space");
                std::thread::sleep(Duration::from_micros(500));
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let plain = lab.cp().arg(format!("{}/", here.display())).arg(at("alpha", &there)).run();
        let growing = lab.cp().arg("--growing").arg(format!("{}/", here.display())).arg(at("alpha", &there)).run();
        is_over.store(true, Ordering::Relaxed);
        plain.expect(code::PARTIAL).says(&["it grew while it was read", "--growing"]);
        growing.expect(code::OK).says(&["vdif grew meanwhile", "what was there when it was listed"]);
    });
    let (all, copied) = (fs::read(here.join("vdif")).expect("own"), fs::read(there.join("vdif")).expect("it came"));
    assert!(copied.len() >= LISTED_BYTES && copied.len() < all.len(), "{} of {}", copied.len(), all.len());
    assert!(all.starts_with(&copied), "it is a beginning of the file");
    let rest = lab.cp().arg(format!("{}/", here.display())).arg(at("alpha", &there)).run().expect(code::OK);
    assert!(fs::read(there.join("vdif")).expect("it came") == all);
    assert!(rest.count("bytes_moved") < LISTED_BYTES as u64 / 2, "{rest}");
}

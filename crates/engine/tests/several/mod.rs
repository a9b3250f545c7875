//! Several paths of one job: does it use them all, share what is shared, and live on when one dies?

use super::simulated::flow::Control;
use super::simulated::link::Link;
use super::simulated::several::{Outcome, Several};

#[test]
fn look() {
    let show = |name: &str, outcome: Outcome| {
        println!("== {name}\n{}", outcome.course());
    };
    let only = std::env::var("LOOK").unwrap_or_default();
    let cases: Vec<(&str, Box<dyn Fn() -> Several>)> = vec![
        ("twins", Box::new(|| Several::over(&[Link::new(500.0, 10), Link::new(500.0, 10)]))),
        ("unequal", Box::new(|| Several::over(&[Link::new(500.0, 10), Link::new(200.0, 80).loss(1e-4)]))),
        ("long", Box::new(|| Several::over(&[Link::new(1000.0, 228), Link::new(1000.0, 150)]))),
        ("one", Box::new(|| Several::sharing(Link::new(500.0, 20), 1))),
        ("shared", Box::new(|| Several::sharing(Link::new(500.0, 20), 2))),
        (
            "onef",
            Box::new(|| Several::sharing(Link::new(100.0, 20), 1).foreign(0, Control::Cubic, 0, 1000).seconds(60)),
        ),
        (
            "sharedf",
            Box::new(|| Several::sharing(Link::new(100.0, 20), 2).foreign(0, Control::Cubic, 0, 1000).seconds(60)),
        ),
        (
            "onefl",
            Box::new(|| Several::sharing(Link::new(100.0, 20), 1).foreign(0, Control::Cubic, 10, 1000).seconds(60)),
        ),
        (
            "sharedfl",
            Box::new(|| Several::sharing(Link::new(100.0, 20), 2).foreign(0, Control::Cubic, 10, 1000).seconds(60)),
        ),
        (
            "blackhole",
            Box::new(|| Several::over(&[Link::new(500.0, 10), Link::new(500.0, 40)]).outage(1, 5_000, 15_000)),
        ),
        ("cut0", Box::new(|| Several::over(&[Link::new(500.0, 80), Link::new(500.0, 40)]).outage(0, 5_000, 15_000))),
    ];
    for (name, case) in cases {
        if only == name || only == "all" {
            show(name, case().run());
        }
    }
}

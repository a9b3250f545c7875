//! `docs/use/tour.md`, typed by somebody with an empty home and an ssh account at `dtn`.

use std::fs;
use std::path::Path;

use haul_e2e::typist::Typist;
use haul_e2e::{Lab, needs, page};

#[test]
fn the_tour_goes_as_its_page_says() {
    needs!(Namespaces, Haul, Tool("script"), Tool("curl"));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/use/tour.md");
    let text = fs::read_to_string(&path).expect("it is in the repository");
    let lab = Lab::of_machines(&["dtn"], &[]);
    let mut typist = Typist::at(&[("", lab.home()), ("dtn", lab.host("dtn"))]);
    let results: Vec<_> = page::steps(&text)
        .into_iter()
        .map(|step| {
            let seen = typist.types(&step);
            (step, seen)
        })
        .collect();
    page::compare(&path, &results);
}

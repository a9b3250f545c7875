//! The beginning of each manual page.

use roff::{Roff, roman};

pub fn title(name: &str, section: u8, about: &str) -> Roff {
    let mut roff = Roff::new();
    let (upper, number) = (name.to_uppercase(), section.to_string());
    let date = if DATE.is_empty() { "\"\"" } else { DATE };
    roff.control("TH", [upper.as_str(), &number, date, concat!("haul ", env!("CARGO_PKG_VERSION")), "haul Manual"]);
    // Flags and paths stay unbroken, lines unstretched.
    roff.control("nh", []);
    roff.control("ad", ["l"]);
    roff.control("SH", ["NAME"]);
    roff.text([roman(format!("{name} - {about}"))]);
    roff
}

const DATE: &str = env!("HAUL_COMMIT_DATE");

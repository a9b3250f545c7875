//! The network classes for a program: one object, promised in `docs/use/json.md`.

use haul_transfer::networks_shown::{OneAddress, ShownValue, Table, ValueSource};
use serde::Serialize;

use crate::json::line::to_line;
use crate::json::values::SCHEMA;

#[derive(Serialize)]
struct TableLine {
    event: &'static str,
    schema: u32,
    version: &'static str,
    classes: Vec<ClassLine>,
    own_subnets: Vec<String>,
}

#[derive(Serialize)]
struct ClassLine {
    name: String,
    /// null: it is built in.
    file: Option<String>,
    holds_for: Vec<String>,
    values: Vec<ValueLine>,
}

#[derive(Serialize)]
struct AddressLine {
    event: &'static str,
    schema: u32,
    version: &'static str,
    address: String,
    class: String,
    because: String,
    round_trip_may_decide: bool,
    values: Vec<ValueLine>,
    route: Vec<String>,
}

#[derive(Serialize)]
struct ValueLine {
    key: String,
    value: Option<String>,
    /// file, built-in, haul or kernel
    source: &'static str,
    class: Option<String>,
    file: Option<String>,
    line: Option<usize>,
    granted: Option<String>,
    refused: Option<String>,
}

pub fn table(table: &Table) -> String {
    let class = |class: &haul_transfer::networks_shown::ShownClass| ClassLine {
        name: class.name.clone(),
        file: class.file.as_ref().map(|file| file.display().to_string()),
        holds_for: class.members.clone(),
        values: class.values.iter().map(value).collect(),
    };
    to_line(&TableLine {
        event: "networks",
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        classes: table.classes.iter().map(class).collect(),
        own_subnets: table.own_subnets.clone(),
    })
}

pub fn address(shown: &OneAddress) -> String {
    to_line(&AddressLine {
        event: "network",
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        address: shown.address.to_string(),
        class: shown.class.clone(),
        because: shown.fits.clone(),
        round_trip_may_decide: shown.by_distance,
        values: shown.values.iter().map(value).collect(),
        route: shown.route.clone(),
    })
}

fn value(shown: &ShownValue) -> ValueLine {
    let (source, class, file, line) = match &shown.source {
        ValueSource::File { class, file, line } => {
            ("file", Some(class.clone()), Some(file.display().to_string()), Some(*line))
        }
        ValueSource::BuiltIn { class } => ("built-in", Some(class.clone()), None, None),
        ValueSource::Haul => ("haul", None, None, None),
        ValueSource::Kernel => ("kernel", None, None, None),
    };
    ValueLine {
        key: shown.key.clone(),
        value: shown.value.clone(),
        source,
        class,
        file,
        line,
        granted: shown.granted.clone(),
        refused: shown.short.clone(),
    }
}

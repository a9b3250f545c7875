//! `--include`, `--exclude`, `--filter` and their lists, in the order typed.

use std::ffi::OsString;

use clap::ArgMatches;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filter {
    Rule { include: bool, pattern: OsString },
    File { include: bool, file: OsString },
    Written(OsString),
}

/// A command's filters; their order decides which wins.
pub fn of_command(matches: &ArgMatches) -> Vec<Filter> {
    let of_sub = matches.subcommand().filter(|(name, _)| ["cp", "diff"].contains(name));
    of_sub.map(|(_, sub)| in_order(sub)).unwrap_or_default()
}

fn in_order(matches: &ArgMatches) -> Vec<Filter> {
    let mut found = Vec::new();
    type Meant = fn(OsString) -> Filter;
    let kinds: [(&str, Meant); 5] = [
        ("exclude", |pattern| Filter::Rule { include: false, pattern }),
        ("include", |pattern| Filter::Rule { include: true, pattern }),
        ("exclude_from", |file| Filter::File { include: false, file }),
        ("include_from", |file| Filter::File { include: true, file }),
        ("filter", Filter::Written),
    ];
    for (id, filter) in kinds {
        let indices = matches.indices_of(id).into_iter().flatten();
        let values = matches.get_many::<OsString>(id).into_iter().flatten().cloned();
        found.extend(indices.zip(values).map(|(index, value)| (index, filter(value))));
    }
    found.sort_by_key(|(index, _)| *index);
    found.into_iter().map(|(_, filter)| filter).collect()
}

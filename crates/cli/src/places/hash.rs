//! `haul hash`: hashes files where they lie, in the form of b3sum, sha256sum and their like.

use std::ffi::OsString;
use std::ops::ControlFlow;
use std::process::ExitCode;

use clap::{Args, ValueHint};
use haul_transfer::hash_list::format_line;
use haul_transfer::place::{Algorithm, Told, Verb};
use serde::Serialize;

use crate::far_side::flags::Reach;
use crate::flags::values::AlgorithmName;
use crate::json::line::to_line;
use crate::json::values::{Named, hex, named};
use crate::places::manifest::ManifestLines;
use crate::places::paper::Paper;
use crate::places::question::{Asked, FAILED, Printer, Whereabouts, run_on};
use crate::process::ending;

/// `haul hash`
#[derive(Debug, Args)]
#[command(after_help = HASH_HELP)]
pub struct Hash {
    /// Files, and directories whose files are hashed
    #[arg(value_name = "PATH", required = true, value_hint = ValueHint::AnyPath)]
    pub paths: Vec<OsString>,
    /// Which hash
    #[arg(short = 'a', long, value_name = "NAME", default_value = "blake3")]
    pub algorithm: AlgorithmName,
    /// Lines with the name of the hash, as BSD and 'sha256sum --tag' write them
    #[arg(long, conflicts_with = "json")]
    pub tag: bool,
    /// A manifest of haul, of one directory or file: with sizes, times, and a closing line that has the hash of the tree
    #[arg(short = 'm', long, conflicts_with_all = ["tag", "json"])]
    pub manifest: bool,
    /// A JSON object a line
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub reach: Reach,
}

const HASH_HELP: &str = "\
The files are read at the far side; only their hashes travel. A path is printed
as it is named there, so 'haul hash -a sha256 host:data | ssh host sha256sum
-c' finds the same files. Links in a directory are left out. A server of sftp
or of the web hashes nothing: it sends every byte, and a note says so.

'haul hash -m DIR' writes what 'haul cp -r --manifest-out FILE DIR/ TARGET'
writes, and 'haul verify FILE DIR' reads it.";

pub fn run(typed: &Hash) -> ExitCode {
    let algorithm = Algorithm::from(typed.algorithm);
    if typed.manifest {
        return match ManifestLines::new(&typed.paths, algorithm) {
            Ok(mut lines) => {
                let asked = Asked { verb: Verb::Hash { algorithm }, json: false, reach: &typed.reach };
                run_on(&typed.paths, asked, &mut lines, FAILED)
            }
            Err(error) => ending::failed(&error, false),
        };
    }
    let asked = Asked { verb: Verb::Hash { algorithm }, json: typed.json, reach: &typed.reach };
    let (tag, at) = (typed.tag.then_some(algorithm), Whereabouts::default());
    run_on(&typed.paths, asked, &mut Hashes { json: typed.json, tag, at }, FAILED)
}

struct Hashes {
    json: bool,
    tag: Option<Algorithm>,
    at: Whereabouts,
}

impl Printer for Hashes {
    fn at(&mut self) -> &mut Whereabouts {
        &mut self.at
    }

    fn told(&mut self, told: Told, paper: &mut Paper) -> ControlFlow<()> {
        let Told::Hash { path, hash, .. } = told else { return ControlFlow::Continue(()) };
        let path = self.at.path(path.as_bytes());
        if self.json {
            let line = HashLine { place: self.at.place_name(), path: named(&path), hash: hex(&hash) };
            return paper.put(to_line(&line).as_bytes());
        }
        paper.line(&format_line(&hash, &path, self.tag))
    }
}

#[derive(Serialize)]
struct HashLine {
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<String>,
    #[serde(flatten)]
    path: Named,
    hash: String,
}

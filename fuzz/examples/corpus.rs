//! Copies kept inputs between the repository and a fuzzer's directories.
//!
//! ```text
//! cargo run -p haul-fuzz --example corpus -- unpack DIR       DIR/TARGET/...: where a search begins
//! cargo run -p haul-fuzz --example corpus -- pack DIR BYTES   keeps the shortest of DIR/TARGET/*, BYTES for each target at most
//! ```

#![forbid(unsafe_code)]

use std::path::Path;
use std::{fs, io};

fn main() -> io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    for (target, _) in haul_fuzz::TARGETS {
        match words[..] {
            ["unpack", dir] => unpack(&Path::new(dir).join(target), target)?,
            ["pack", dir, most] => pack(&Path::new(dir).join(target), target, most.parse().map_err(io::Error::other)?)?,
            _ => return Err(io::Error::other("say: unpack DIR, or: pack DIR BYTES")),
        }
    }
    Ok(())
}

fn unpack(dir: &Path, target: &str) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let inputs = haul_fuzz::corpus::kept(target)?.into_iter().chain(haul_fuzz::seeds::of(target));
    inputs.enumerate().try_for_each(|(number, input)| fs::write(dir.join(format!("kept-{number}")), input))
}

fn pack(dir: &Path, target: &str, most: usize) -> io::Result<()> {
    let mut inputs = fs::read_dir(dir)?.map(|entry| fs::read(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    inputs.sort_by_key(|input| (input.len(), input.clone()));
    inputs.dedup();
    let mut bytes = 0;
    inputs.retain(|input| {
        bytes += input.len();
        bytes <= most
    });
    haul_fuzz::corpus::keep(target, &inputs)
}

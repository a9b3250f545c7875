//! Writes what each target begins with: `cargo run -p haul-fuzz --example seeds -- DIR` makes `DIR/TARGET/seed-N`.

#![forbid(unsafe_code)]

use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let to = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("fuzz/corpus"), PathBuf::from);
    for (target, _) in haul_fuzz::TARGETS {
        std::fs::create_dir_all(to.join(target))?;
        for (number, seed) in haul_fuzz::seeds::of(target).iter().enumerate() {
            std::fs::write(to.join(target).join(format!("seed-{number}")), seed)?;
        }
    }
    Ok(())
}

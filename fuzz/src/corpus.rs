//! Inputs that long searches found, a compressed file for each target. Inside, each has its length before it (32 bits,
//! little-endian).

use std::path::{Path, PathBuf};
use std::{fs, io};

const UNPACKED_MAX: usize = 16 << 20;

/// The kept inputs of a target, if any.
pub fn kept(target: &str) -> io::Result<Vec<Vec<u8>>> {
    match fs::read(file(target)) {
        Ok(packed) => unpack(&packed),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Replaces the kept inputs.
pub fn keep(target: &str, inputs: &[Vec<u8>]) -> io::Result<()> {
    fs::write(file(target), pack(inputs)?)
}

fn file(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(format!("{target}.zst"))
}

fn pack(inputs: &[Vec<u8>]) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    for input in inputs {
        all.extend(u32::try_from(input.len()).map_err(io::Error::other)?.to_le_bytes());
        all.extend_from_slice(input);
    }
    zstd::bulk::compress(&all, 19)
}

fn unpack(packed: &[u8]) -> io::Result<Vec<Vec<u8>>> {
    let all = zstd::bulk::decompress(packed, UNPACKED_MAX)?;
    let (mut rest, mut inputs) = (&all[..], Vec::new());
    while let Some((length, after)) = rest.split_first_chunk() {
        let length = u32::from_le_bytes(*length) as usize;
        let (input, after) = after.split_at_checked(length).ok_or(io::ErrorKind::UnexpectedEof)?;
        inputs.push(input.to_vec());
        rest = after;
    }
    Ok(inputs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_unpacked() {
        let inputs = [b"".to_vec(), b"one".to_vec(), vec![7; 100_000]];
        assert_eq!(unpack(&pack(&inputs).unwrap()).unwrap(), inputs);
        assert_eq!(unpack(&pack(&[]).unwrap()).unwrap(), Vec::<Vec<u8>>::new());
    }
}

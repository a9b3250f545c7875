//! Tokens that the operator has revoked: a number on each line of a file beside the list of keys.

use std::collections::HashSet;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use haul_transfer::own;
use haul_web::token::Number;

use crate::authority;
use crate::lookout::Say;
use crate::version::Version;

pub(crate) struct Revoked {
    path: PathBuf,
    say: Say,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    numbers: HashSet<Number>,
    version: Option<Version>,
    /// The last refusal, which is logged once. A refused file makes every token void.
    refused: Option<String>,
}

impl Revoked {
    pub(crate) fn beside(list: &Path, say: Say) -> Revoked {
        Revoked { path: file_beside(list), say, held: Mutex::default() }
    }

    /// Reads the file again if it has changed. Without a file no token is revoked.
    pub(crate) fn contains(&self, number: Number) -> bool {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        match authority::read_own(&self.path, held.version) {
            Ok(None) => {}
            Ok(Some((version, text))) => {
                let (numbers, wrong) = parse(&text);
                for line in wrong {
                    (self.say)(&format!("{}: line {line} is no number of a token", self.path.display()), true);
                }
                *held = Held { numbers, version: Some(version), refused: None };
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => *held = Held::default(),
            Err(error) => {
                let why = error.to_string();
                if held.refused.as_ref() != Some(&why) {
                    (self.say)(&format!("{}: {why}; no token counts", self.path.display()), true);
                }
                *held = Held { refused: Some(why), ..Held::default() };
            }
        }
        held.refused.is_some() || held.numbers.contains(&number)
    }
}

pub(crate) fn file_beside(list: &Path) -> PathBuf {
    list.with_file_name("revoked_tokens")
}

/// Adds a number. False: the file has it already.
pub(crate) fn add(file: &Path, number: Number) -> io::Result<bool> {
    // The file that was judged is written, whatever has its name meanwhile.
    let mut file = own::open_to_append(file).map_err(authority::with_remedy)?;
    let text = authority::text_of(&mut file)?;
    if parse(&text).0.contains(&number) {
        return Ok(false);
    }
    let begin = if text.is_empty() || text.ends_with(b"\n") { "" } else { "\n" };
    file.write_all(format!("{begin}{number}\n").as_bytes())?;
    file.sync_all()?;
    Ok(true)
}

fn parse(text: &[u8]) -> (HashSet<Number>, Vec<usize>) {
    let (mut numbers, mut wrong) = (HashSet::new(), Vec::new());
    for (at, line) in String::from_utf8_lossy(text).lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        let Some(word) = line.split_whitespace().next() else { continue };
        match Number::parse(word) {
            Some(number) => drop(numbers.insert(number)),
            None => wrong.push(at + 1),
        }
    }
    (numbers, wrong)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_number_in_the_file_is_revoked_and_a_file_that_others_may_write_revokes_all() {
        let dir = tempfile::tempdir().unwrap();
        let said: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = Arc::clone(&said);
        let say: Say = Arc::new(move |text: &str, _| log.lock().unwrap().push(text.to_owned()));
        let revoked = Revoked::beside(&dir.path().join("authorized_keys"), say);
        let (one, two) = (Number::parse("00000000000000a1").unwrap(), Number::parse("00000000000000b2").unwrap());
        assert!(!revoked.contains(one), "there is no file");
        let file = dir.path().join("revoked_tokens");
        assert!(add(&file, one).unwrap() && !add(&file, one).unwrap());
        assert!(revoked.contains(one) && !revoked.contains(two));
        fs::write(&file, "# left us\n00000000000000b2 bob\noops\n").unwrap();
        assert!(!revoked.contains(one) && revoked.contains(two));
        assert!(said.lock().unwrap()[0].contains("line 3 is no number"), "{said:?}");
        fs::write(&file, "00000000000000a1").unwrap();
        assert!(add(&file, two).unwrap() && revoked.contains(one) && revoked.contains(two));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(revoked.contains(Number::parse("00000000000000c3").unwrap()));
        assert!(add(&file, one).is_err());
        fs::remove_file(&file).unwrap();
        assert!(!revoked.contains(one));
    }
}

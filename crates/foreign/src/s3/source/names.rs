//! The names of one directory, in order.
//!
//! A store lists keys by their bytes: `a.txt` before the content of `a/`. A walk wants `a`, then `a.txt`. So a name is held back
//! while an earlier directory, or a link with its ending, may come. Where the listing is too long to wait, the store is asked.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use crate::s3::limits::LOOKAHEAD;
use crate::s3::listing::{Listed, Listing, has_any};
use crate::s3::store::Store;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::s3) struct Seen {
    pub(in crate::s3) is_object: bool,
    pub(in crate::s3) is_link: bool,
    pub(in crate::s3) is_directory: bool,
    /// The name came before.
    pub(in crate::s3) is_late: bool,
    pub(in crate::s3) size: u64,
}

/// Keys that may come late, although their names stand earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Late {
    Directory,
    Link,
}

impl Late {
    fn ending(self) -> &'static [u8] {
        match self {
            Late::Directory => b"/",
            Late::Link => LINK_ENDING,
        }
    }
}

/// rclone's ending for the name of a link.
pub(in crate::s3) const LINK_ENDING: &[u8] = b".rclonelink";

#[derive(Debug)]
pub(in crate::s3) struct Names {
    store: Arc<Store>,
    /// The key of the directory, with its slash; empty for the bucket.
    prefix: Vec<u8>,
    listing: Listing,
    held: BTreeMap<Vec<u8>, Seen>,
    /// The listing's progress, without the prefix.
    cursor: Vec<u8>,
    is_over: bool,
    last: Option<Vec<u8>>,
    links: bool,
    /// Prefixes that the store was asked about. Each begins the next.
    asked: Vec<(Vec<u8>, Late, bool)>,
}

impl Names {
    pub(in crate::s3) fn of(store: &Arc<Store>, prefix: Vec<u8>, links: bool) -> Names {
        let listing = Listing::of_directory(store, prefix.clone());
        Names {
            store: Arc::clone(store),
            prefix,
            listing,
            held: BTreeMap::new(),
            cursor: Vec::new(),
            is_over: false,
            last: None,
            links,
            asked: Vec::new(),
        }
    }

    pub(in crate::s3) fn next(&mut self) -> io::Result<Option<(Vec<u8>, Seen)>> {
        loop {
            let Some((name, _)) = self.held.first_key_value() else {
                if self.is_over {
                    return Ok(None);
                }
                self.read_on()?;
                continue;
            };
            let name = name.clone();
            self.asked.retain(|(asked, ..)| name.starts_with(asked));
            match self.may_come_before(&name) {
                None => {
                    let seen = self.held.remove(&name).expect("it is held");
                    return Ok(Some(self.hand_out(name, seen)));
                }
                Some(_) if self.held.len() < LOOKAHEAD => self.read_on()?,
                Some((early, late)) => {
                    let key = [&self.prefix[..], &early, late.ending()].concat();
                    let exists = match late {
                        Late::Directory => has_any(&self.store, &key)?,
                        Late::Link => self.store.head(&key)?.is_some(),
                    };
                    self.asked.push((early.clone(), late, exists));
                    if exists {
                        let seen = Seen {
                            is_directory: late == Late::Directory,
                            is_link: late == Late::Link,
                            ..Seen::default()
                        };
                        return Ok(Some(self.hand_out(early, seen)));
                    }
                }
            }
        }
    }

    fn hand_out(&mut self, name: Vec<u8>, seen: Seen) -> (Vec<u8>, Seen) {
        let is_late = self.last.as_ref().is_some_and(|last| *last >= name);
        if !is_late {
            self.last = Some(name.clone());
        }
        (name, Seen { is_late, ..seen })
    }

    /// A name that the listing may still bring before this one.
    fn may_come_before(&self, name: &[u8]) -> Option<(Vec<u8>, Late)> {
        if self.is_over {
            return None;
        }
        let kinds = if self.links { &[Late::Directory, Late::Link][..] } else { &[Late::Directory] };
        let beginnings = (1..name.len()).flat_map(|end| kinds.iter().map(move |late| (end, *late)));
        let mut open = beginnings.filter(|(end, late)| {
            let (early, rest) = name.split_at(*end);
            let is_passed = || [early, late.ending()].concat() <= self.cursor;
            let is_asked = || self.asked.iter().any(|(asked, of, _)| asked == early && of == late);
            rest < late.ending() && !is_passed() && !is_asked()
        });
        open.next().map(|(end, late)| (name[..end].to_vec(), late))
    }

    fn read_on(&mut self) -> io::Result<()> {
        let page = self.listing.next_page()?;
        self.is_over = page.is_empty();
        for entry in page {
            let beneath = entry.key()[self.prefix.len()..].to_vec();
            let bare_link = beneath.strip_suffix(LINK_ENDING).filter(|bare| self.links && !bare.is_empty());
            let (name, late) = match (&entry, bare_link) {
                (Listed::Prefix(_), _) => (beneath.strip_suffix(b"/").unwrap_or(&beneath), Some(Late::Directory)),
                (Listed::Object { .. }, Some(bare)) => (bare, Some(Late::Link)),
                (Listed::Object { .. }, None) => (&beneath[..], None),
            };
            let was_asked = |late| self.asked.iter().any(|(asked, of, exists)| *exists && asked == name && *of == late);
            match (&entry, late) {
                // The mark of the directory itself.
                (Listed::Object { size: 0, .. }, None) if name.is_empty() => {}
                (_, Some(late)) if was_asked(late) => {}
                (_, Some(Late::Directory)) => self.held.entry(name.to_vec()).or_default().is_directory = true,
                (_, Some(Late::Link)) => self.held.entry(name.to_vec()).or_default().is_link = true,
                (Listed::Prefix(_), None) => {}
                (Listed::Object { size, .. }, None) => {
                    let seen = self.held.entry(name.to_vec()).or_default();
                    (seen.is_object, seen.size) = (true, *size);
                }
            }
            self.cursor = beneath;
        }
        Ok(())
    }
}

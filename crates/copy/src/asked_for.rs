//! Holds a sender on another host to what the job asks for: names, filter rules, kinds of entries.

use haul_job::{Entries, Error, Job};
use haul_store::{Extent, printable};
use haul_wire::manifest::{Item, ItemKind};

use haul_channel::convert;

/// A job's demands on its sender.
pub struct AskedFor {
    paths: haul_store::AskedFor,
    hard_links: bool,
    symlinks: bool,
    entries: Entries,
}

impl AskedFor {
    /// Reads the demands of a job.
    ///
    /// # Errors
    /// [`haul_job::Fault::Usage`]: a filter rule cannot be understood.
    pub fn of(job: &Job) -> Result<Self, Error> {
        let selection = &job.selection;
        let filter = convert::filter(&selection.rules)?;
        Ok(Self {
            paths: haul_store::AskedFor::new(&job.source_paths(), job.files_from.clone(), filter)
                .dirs(selection.entries.dirs),
            hard_links: selection.hard_links,
            symlinks: !selection.follow_links,
            entries: selection.entries,
        })
    }

    /// Refuses, say, a `.bashrc` beside the data, or a second name for it.
    ///
    /// # Errors
    /// [`haul_job::Fault::Protocol`]: this was not asked for.
    pub fn check(&mut self, item: &Item) -> Result<(), Error> {
        let path = item.path.as_bytes();
        let mut covers = |path, is_dir| self.paths.extent(path, is_dir) != Extent::Nothing;
        let covered = match &item.kind {
            ItemKind::File { .. } => covers(path, false),
            ItemKind::Symlink { .. } => self.symlinks && covers(path, false),
            ItemKind::Directory | ItemKind::DirectoryEnd { complete: false } => covers(path, true),
            // Else `--delete` would take what lies beside the paths of a list for gone.
            ItemKind::DirectoryEnd { complete: true } => self.paths.may_be_complete(path),
            ItemKind::Special(special) => {
                (if special.is_device() { self.entries.devices } else { self.entries.specials }) && covers(path, false)
            }
            ItemKind::HardLink { first } | ItemKind::FurtherName { first, .. } => {
                let first = first.as_bytes();
                self.hard_links && first != path && covers(first, false) && covers(path, false)
            }
            ItemKind::Skipped { .. } | ItemKind::Failed { .. } => true,
        };
        match covered {
            true => Ok(()),
            false => Err(Error::broke_the_protocol(format!("it sends {}, which was not asked for", printable(path)))),
        }
    }
}

#[cfg(test)]
mod tests {
    use haul_job::{Carriage, Endpoint, Far, Here, Place, Selection, SshOptions};
    use haul_wire::RelPath;
    use haul_wire::manifest::Special;

    use super::*;

    fn asked_for(source: &str, change: impl FnOnce(&mut Selection)) -> AskedFor {
        let mut selection = Selection::default();
        change(&mut selection);
        let place = Place::Far(Far::Ssh { user: None, host: "there".into(), port: None });
        let sources = vec![Endpoint { place, path: source.into() }];
        let target = Endpoint { place: Place::Here(Here::Disk), path: b"to".to_vec() };
        let job = Job {
            movers: Vec::new(),
            files_from: None,
            sources,
            target,
            selection,
            carriage: Carriage::default(),
            ssh: SshOptions::default(),
        };
        AskedFor::of(&job).unwrap()
    }

    #[test]
    fn no_device_and_no_contents_of_a_directory_come_unless_the_job_asks() {
        let item = |path: &str, kind| Item {
            path: RelPath::new(path.into()).unwrap(),
            kind,
            attributes: haul_wire::manifest::Attributes::default(),
        };
        let device = item("d/null", ItemKind::Special(Special::Character { major: 1, minor: 3 }));
        let fifo = item("d/fifo", ItemKind::Special(Special::Fifo));
        let comes = |entries: Entries, item: &Item| asked_for("d", |job| job.entries = entries).check(item).is_ok();
        let (none, devices) = (Entries::default(), Entries { devices: true, ..Entries::default() });
        let specials = Entries { specials: true, ..none };
        assert_eq!([none, devices, specials].map(|entries| comes(entries, &device)), [false, true, false]);
        assert_eq!([none, devices, specials].map(|entries| comes(entries, &fifo)), [false, false, true]);
        let dirs = Entries { dirs: true, ..specials };
        assert!(!comes(dirs, &fifo) && comes(dirs, &item("d", ItemKind::Directory)));
        let end = item("d", ItemKind::DirectoryEnd { complete: true });
        assert!(comes(none, &end) && !comes(dirs, &end));
        let mut contents = asked_for("d/", |job| job.entries = dirs);
        assert!(contents.check(&item("", ItemKind::DirectoryEnd { complete: true })).is_ok());
        assert!(contents.check(&item("sub", ItemKind::Directory)).is_ok());
        assert!(contents.check(&item("sub/fifo", ItemKind::Special(Special::Fifo))).is_err());
        assert!(contents.check(&item("sub", ItemKind::DirectoryEnd { complete: true })).is_err());
    }
}

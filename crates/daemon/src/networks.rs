//! The daemon's network classes, read again when their files change. A wrong file changes nothing.

use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use haul_job::{Error, Fault};
use haul_net::Policies;
use haul_net::policy::OwnNetworks;
use haul_transfer::{Surroundings, network_classes, networks_observed};

use crate::limits::{NETWORKS_LOOK, OBSERVED_WRITE};
use crate::log::Log;
use crate::version::Version;

pub(crate) struct NetworkFiles {
    files: Vec<PathBuf>,
    versions: Vec<Option<Version>>,
    own: OwnNetworks,
    looked: Instant,
    policies: Arc<Policies>,
    observed: Option<PathBuf>,
    written: Instant,
}

impl NetworkFiles {
    /// A file that an option names must exist.
    pub(crate) fn open(named: Option<&PathBuf>, log: &Arc<Log>) -> Result<NetworkFiles, Error> {
        let bad = |why: String| Error::new(Fault::Usage, why).try_this("haul-networks(5) shows what a class may hold");
        let surroundings = Surroundings::of_process();
        let observed = networks_observed::file(&surroundings);
        let mut files = surroundings.network_files;
        if let (Some(named), Some(first)) = (named, files.first_mut()) {
            if !named.exists() {
                return Err(bad(format!("there is no file {} of network classes", named.display())));
            }
            first.clone_from(named);
        }
        let versions = versions(&files);
        let networks = network_classes::load(&files).map_err(|error| bad(error.to_string()))?;
        for (file, _) in files.iter().zip(&versions).filter(|(_, version)| version.is_some()) {
            log.say(&format!("network classes of {} can be used", file.display()));
        }
        let own = networks.own().clone();
        let policies = Arc::new(telling(Policies::new(networks), log));
        let (looked, written) = (Instant::now(), Instant::now());
        Ok(NetworkFiles { files, versions, own, looked, policies, observed, written })
    }

    pub(crate) fn policies(&self) -> Arc<Policies> {
        Arc::clone(&self.policies)
    }

    pub(crate) fn write_down(&mut self, at_once: bool, log: &Log) {
        if !at_once && self.written.elapsed() < OBSERVED_WRITE {
            return;
        }
        self.written = Instant::now();
        let new = self.policies.take_observed();
        let Some(file) = self.observed.as_ref().filter(|_| !new.is_empty()) else { return };
        if let Err(error) = networks_observed::add(file, &new) {
            log.warn(&format!("cannot write down what was observed of networks, {}: {error}", file.display()));
            // The error is logged once.
            self.observed = None;
        }
    }

    /// Looks at the files and this host's networks, now and then or `at_once`. True: the classes have changed.
    pub(crate) fn look(&mut self, at_once: bool, log: &Log) -> bool {
        if !at_once && self.looked.elapsed() < NETWORKS_LOOK {
            return false;
        }
        self.looked = Instant::now();
        let (versions, own) = (versions(&self.files), OwnNetworks::of_host());
        let (files_changed, own_changed) = (versions != self.versions, own != self.own);
        if !files_changed && !own_changed {
            return false;
        }
        (self.versions, self.own) = (versions, own);
        match network_classes::load(&self.files) {
            Ok(networks) => {
                self.policies.replace(networks);
                if files_changed {
                    log.say("the network classes were read again: they hold for connections that come from now on");
                }
                true
            }
            Err(error) => {
                if files_changed {
                    log.warn(&format!("{error}; the network classes from before hold"));
                }
                false
            }
        }
    }
}

fn versions(files: &[PathBuf]) -> Vec<Option<Version>> {
    files.iter().map(|file| fs::metadata(file).ok().map(|metadata| Version::of(&metadata))).collect()
}

/// Logs once what the kernel does not grant a class.
pub(crate) fn telling(policies: Policies, log: &Arc<Log>) -> Policies {
    let (log, told) = (Arc::clone(log), Mutex::new(HashSet::new()));
    policies.telling(move |granted| {
        for setting in granted.falls_short() {
            let is_new = told.lock().unwrap_or_else(PoisonError::into_inner).insert((
                granted.class.clone(),
                setting.what,
                setting.asked.clone(),
            ));
            if is_new {
                log.warn(&format!("warning: {setting}"));
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};

    use haul_net::policy::{ClassList, CongestionControl, Dscp, NetworkClass};
    use haul_net::{Networks, Policy};

    use super::*;

    fn log() -> (Arc<Log>, Arc<Mutex<Vec<String>>>) {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let written = Arc::clone(&lines);
        (
            Arc::new(Log::new(false, crate::log::Form::Text, Box::new(move |line| written.lock().unwrap().push(line)))),
            lines,
        )
    }

    #[test]
    fn what_the_kernel_does_not_grant_of_a_class_stands_in_the_log_once() {
        let (log, lines) = log();
        let policy = Policy {
            congestion_control: Some(CongestionControl::named("no-such")),
            dscp: Dscp::new(8),
            ..Policy::default()
        };
        let file = Some(std::path::Path::new("networks.toml").into());
        let class = NetworkClass { name: "inside".into(), policy, file, ..NetworkClass::default() };
        let mut list = ClassList::default();
        list.add(class, &["127.0.0.0/8".parse().unwrap()], &[]).unwrap();
        let policies = telling(Policies::new(Networks::only(vec![list])), &log);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        for _ in 0..3 {
            let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            policies.begins(&socket, IpAddr::from(Ipv4Addr::LOCALHOST));
        }
        let said = lines.lock().unwrap().join("");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains("congestion control: no-such asked for"), "{said}");
        assert!(said.contains("network class inside"), "{said}");
    }

    #[test]
    fn a_file_that_became_wrong_changes_nothing_and_one_that_is_mended_holds() {
        let dir = tempfile::tempdir().unwrap();
        let (file, (log, lines)) = (dir.path().join("networks.toml"), log());
        let write = |text: &str| fs::write(&file, text).unwrap();
        write("[class.one]\nnetworks = [\"198.51.100.0/24\"]\n");
        let mut files = NetworkFiles::open(Some(&file), &log).unwrap();
        let name = |files: &NetworkFiles| {
            let networks = files.policies.networks();
            let found = networks.find(&networks.peer_at("198.51.100.1".parse().unwrap()));
            found.name().map(str::to_owned)
        };
        let mut look = |text: &str| {
            write(text);
            files.looked -= NETWORKS_LOOK;
            files.look(false, &log);
            name(&files)
        };
        assert_eq!(look("[class.one]\nlanes = 0\nnetworks = [\"198.51.100.0/24\"]\n").as_deref(), Some("one"));
        assert_eq!(look("[class.another]\nnetworks = [\"198.51.100.0/24\"]\n").as_deref(), Some("another"));
        let said = lines.lock().unwrap().join("");
        assert!(said.contains("line 2: class one: lanes") && said.contains("from before hold"), "{said}");
        assert!(said.contains("were read again"), "{said}");
    }
}

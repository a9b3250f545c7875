//! Reads what an operator lets senders ask of the network: `/etc/haul/policy.toml`, and the user's own file, which can only
//! narrow it. docs/operate/policy.md has the format.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use haul_engine::service::allowed::{Allowed, Bounds};
use haul_net::PublicKey;
use haul_net::policy::Prefix;
use haul_sys::{account, process};
use serde::Deserialize;

pub use super::policy_file::BadPolicy;
use super::policy_file::read;
use super::priority_time::PriorityTime;
use super::toml_words;

pub(crate) const SYSTEM_FILE: &str = "/etc/haul/policy.toml";

const MAX_HOOK_TIME: Duration = Duration::from_secs(60);
const HOOK_TIME: Duration = Duration::from_secs(5);

/// A host's policies, the operator's first.
#[derive(Clone, Debug, Default)]
pub struct ClassPolicy {
    levels: Vec<Level>,
    /// A broken file forbids all that it might forbid.
    broken: Option<String>,
}

#[derive(Clone, Debug)]
struct Level {
    path: PathBuf,
    file: File,
}

/// The rules' sender.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sending {
    /// Account; `None`: this process's.
    pub user: Option<String>,
    /// A daemon's client.
    pub key: Option<PublicKey>,
}

/// One sender's policies.
#[derive(Clone, Debug, Default)]
pub struct Permits {
    policy: Arc<ClassPolicy>,
    sending: Sending,
    time: PriorityTime,
}

/// Programs for changes of class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookCommands {
    /// Program, arguments.
    pub on_raise: Vec<String>,
    /// Program, arguments.
    pub on_release: Vec<String>,
    /// Time before a hook is killed.
    pub time_limit: Duration,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    default: Option<Terms>,
    rule: Vec<Rule>,
    hooks: Option<Hooks>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
struct Terms {
    classes: Option<Vec<Class>>,
    priority_rate_mbit: Option<f64>,
    priority_time_s: Option<u64>,
    priority_share_percent: Option<u8>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
struct Rule {
    user: Option<String>,
    key: Option<String>,
    to: Option<String>,
    classes: Option<Vec<Class>>,
    priority_rate_mbit: Option<f64>,
    priority_time_s: Option<u64>,
    priority_share_percent: Option<u8>,
    #[serde(skip)]
    means: Option<Fits>,
}

#[derive(Clone, Debug, Default)]
struct Fits {
    key: Option<PublicKey>,
    to: Option<Prefix>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Class {
    Background,
    Normal,
    Priority,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
struct Hooks {
    on_raise: Vec<String>,
    on_release: Vec<String>,
    time_limit_s: Option<u64>,
}

impl Terms {
    fn bounds(&self) -> Bounds {
        let lacks = |class| self.classes.as_ref().is_some_and(|classes| !classes.contains(&class));
        Bounds {
            no_priority: lacks(Class::Priority),
            no_background: lacks(Class::Background),
            priority_bytes_per_s: self.priority_rate_mbit.map(|mbit| (mbit * 1e6 / 8.0) as u64),
            priority_us: self.priority_time_s.map(|s| s.saturating_mul(1_000_000)),
            priority_permille: self.priority_share_percent.map(|percent| u16::from(percent) * 10),
        }
    }

    fn check(&self) -> Result<(), String> {
        if self.priority_rate_mbit.is_some_and(|mbit| !(mbit > 0.0 && mbit.is_finite())) {
            return Err("priority-rate-mbit is a number above 0".into());
        }
        if self.priority_share_percent.is_some_and(|percent| !(1..=100).contains(&percent)) {
            return Err("priority-share-percent is a number from 1 to 100".into());
        }
        Ok(())
    }
}

impl Rule {
    fn terms(&self) -> Terms {
        Terms {
            classes: self.classes.clone(),
            priority_rate_mbit: self.priority_rate_mbit,
            priority_time_s: self.priority_time_s,
            priority_share_percent: self.priority_share_percent,
        }
    }

    fn fits(&self, sending: &Sending, peer: Option<IpAddr>) -> bool {
        let Some(Fits { key, to }) = &self.means else { return false };
        let of_user = self.user.as_ref().is_none_or(|name| is_user(name, sending));
        let of_key = key.is_none_or(|key| sending.key == Some(key));
        of_user && of_key && to.is_none_or(|to| peer.is_some_and(|peer| to.contains(peer)))
    }
}

fn is_user(name: &str, sending: &Sending) -> bool {
    match &sending.user {
        Some(user) => user == name,
        None => account::named(name).ok().flatten().is_some_and(|account| account.uid == process::effective_user()),
    }
}

impl File {
    fn parse(text: &str) -> Result<Self, String> {
        let mut file: File = toml::from_str(text).map_err(|error| toml_words::why(&error, text))?;
        file.default.as_ref().map_or(Ok(()), Terms::check)?;
        for (number, rule) in (1..).zip(&mut file.rule) {
            let failed = |why: String| format!("rule {number}: {why}");
            rule.terms().check().map_err(failed)?;
            let key = rule.key.as_ref().map(|key| key.parse::<PublicKey>().map_err(|why| failed(why.to_string())));
            let to = rule.to.as_ref().map(|to| to.parse::<Prefix>().map_err(|why| failed(why.to_string())));
            rule.means = Some(Fits { key: key.transpose()?, to: to.transpose()? });
        }
        if let Some(hooks) = &file.hooks {
            for (name, command) in [("on-raise", &hooks.on_raise), ("on-release", &hooks.on_release)] {
                match command.first() {
                    None => return Err(format!("[hooks] lacks {name}: what is raised has to be released")),
                    Some(program) if !program.starts_with('/') => {
                        return Err(format!("[hooks] {name}: {program} is no absolute path"));
                    }
                    Some(_) => {}
                }
            }
        }
        Ok(file)
    }

    fn bounds(&self, sending: &Sending, peer: Option<IpAddr>) -> Bounds {
        match (self.rule.iter().find(|rule| rule.fits(sending, peer)), &self.default) {
            (Some(rule), _) => rule.terms().bounds(),
            (None, Some(default)) => default.bounds(),
            // Rules grant priority only to those whom they name.
            (None, None) => Bounds { no_priority: !self.rule.is_empty(), ..Bounds::default() },
        }
    }
}

impl ClassPolicy {
    /// Reads these files; a missing one forbids nothing.
    pub fn load(files: &[PathBuf]) -> Self {
        let mut policy = Self::default();
        for path in files {
            match Self::read(path) {
                Ok(Some(level)) => policy.levels.push(level),
                Ok(None) => {}
                Err(bad) => policy.broken = Some(bad.to_string()),
            }
        }
        policy
    }

    /// Checks a file for `--check`. `None`: missing.
    pub fn check(path: &Path) -> Result<Option<String>, BadPolicy> {
        Ok(Self::read(path)?.map(|level| level.told()))
    }

    fn read(path: &Path) -> Result<Option<Level>, BadPolicy> {
        let Some(text) = read(path)? else { return Ok(None) };
        let file = File::parse(&text).map_err(|why| BadPolicy::of(path, why))?;
        Ok(Some(Level { path: path.to_owned(), file }))
    }

    fn allowed(&self, sending: &Sending, peer: Option<IpAddr>) -> Allowed {
        if let Some(why) = &self.broken {
            return Allowed::new(Bounds { no_priority: true, no_background: true, ..Bounds::default() }, why.clone());
        }
        let bounds =
            self.levels.iter().map(|level| level.file.bounds(sending, peer)).fold(Bounds::default(), Bounds::and);
        let files: Vec<String> = self.levels.iter().map(|level| level.path.display().to_string()).collect();
        Allowed::new(bounds, format!("the policy {} says so", files.join(" or ")))
    }

    fn limits_time(&self) -> bool {
        let of = |file: &File| {
            let of_default = file.default.as_ref().and_then(|terms| terms.priority_time_s);
            of_default.is_some() || file.rule.iter().any(|rule| rule.priority_time_s.is_some())
        };
        self.levels.iter().any(|level| of(&level.file))
    }

    /// The named programs.
    pub fn programs(&self) -> impl Iterator<Item = PathBuf> {
        let hooks = self.levels.iter().filter_map(|level| level.file.hooks.as_ref());
        let commands = hooks.flat_map(|hooks| [&hooks.on_raise, &hooks.on_release]);
        commands.filter_map(|command| command.first().map(PathBuf::from))
    }

    /// The operator's hooks, else the user's.
    pub fn hooks(&self) -> Option<HookCommands> {
        if self.broken.is_some() {
            return None;
        }
        let hooks = self.levels.iter().find_map(|level| level.file.hooks.as_ref())?;
        let time_limit = hooks.time_limit_s.map_or(HOOK_TIME, Duration::from_secs).min(MAX_HOOK_TIME);
        Some(HookCommands { on_raise: hooks.on_raise.clone(), on_release: hooks.on_release.clone(), time_limit })
    }
}

impl Level {
    fn told(&self) -> String {
        let File { default, rule, hooks } = &self.file;
        let default = match (default, rule.is_empty()) {
            (Some(_), _) => "a default",
            (None, true) => "no default",
            (None, false) => "no default: priority is for those of a rule",
        };
        let hooks = if hooks.is_some() { ", hooks" } else { "" };
        format!("{}: {} rules, {default}{hooks}", self.path.display(), rule.len())
    }
}

impl Sending {
    fn file_name(&self) -> String {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        match (&self.key, &self.user) {
            (Some(key), _) => hex(&key.0),
            (None, Some(user)) => hex(user.as_bytes()),
            (None, None) => "own".to_owned(),
        }
    }
}

impl Permits {
    /// Reads these files for one sender; `state` has used priority time.
    pub fn of(files: &[PathBuf], state: Option<&Path>, sending: Sending) -> Self {
        let policy = ClassPolicy::load(files);
        let state = state.filter(|_| policy.limits_time());
        let time = PriorityTime::open(state, &sending.file_name());
        Self { policy: Arc::new(policy), sending, time }
    }

    /// Used priority time.
    pub fn time(&self) -> PriorityTime {
        self.time.clone()
    }

    /// Bounds for this peer.
    pub fn allowed(&self, peer: Option<IpAddr>) -> Allowed {
        self.policy.allowed(&self.sending, peer)
    }

    /// Programs for changes of class.
    pub fn hooks(&self) -> Option<HookCommands> {
        self.policy.hooks()
    }
}

#[cfg(test)]
mod tests {
    use haul_engine::service::ServiceClass::{Background, Normal, Priority};

    use super::*;

    fn policy(texts: &[&str]) -> (tempfile::TempDir, ClassPolicy) {
        let dir = tempfile::tempdir().unwrap();
        let files: Vec<PathBuf> = (0..texts.len()).map(|at| dir.path().join(format!("{at}.toml"))).collect();
        for (file, text) in files.iter().zip(texts) {
            std::fs::write(file, text).unwrap();
        }
        let policy = ClassPolicy::load(&files);
        (dir, policy)
    }

    fn peer(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn without_a_file_nothing_is_forbidden_and_with_a_broken_one_all_but_normal_is() {
        let free = ClassPolicy::load(&["/not-there/policy.toml".into()]).allowed(&Sending::default(), None);
        assert_eq!((free.class(Priority), free.class(Background)), (Priority, Background));
        let (_dir, broken) = policy(&["[defualt]\n"]);
        let allowed = broken.allowed(&Sending::default(), None);
        assert_eq!((allowed.class(Priority), allowed.class(Background)), (Normal, Normal));
        assert!(allowed.why().contains("cannot be used") && allowed.why().contains("defualt"), "{}", allowed.why());
    }

    #[test]
    fn the_first_rule_that_fits_counts_and_the_users_own_file_only_narrows() {
        let key = PublicKey([7; 32]);
        let site = format!(
            "[default]\nclasses = [\"background\", \"normal\"]\n\
             [[rule]]\nkey = \"{key}\"\nto = \"192.0.2.0/24\"\npriority-rate-mbit = 80\npriority-time-s = 60\n\
             [[rule]]\nuser = \"alice\"\nclasses = [\"normal\"]\n"
        );
        let (_dir, policy) =
            policy(&[&site, "[default]\npriority-rate-mbit = 800\nclasses = [\"normal\", \"priority\"]\n"]);
        let sending = Sending { user: Some("bob".into()), key: Some(key) };
        let there = policy.allowed(&sending, peer("192.0.2.7"));
        assert_eq!((there.class(Priority), there.priority_bytes_per_s(0)), (Priority, Some(10_000_000)));
        assert_eq!(there.class(Background), Normal, "the user's own file forbids it");
        assert_eq!(policy.allowed(&sending, peer("198.51.100.1")).class(Priority), Normal, "another network");
        let alice = Sending { user: Some("alice".into()), key: None };
        assert_eq!(policy.allowed(&alice, None).class(Background), Normal);
    }

    #[test]
    fn rules_without_a_default_leave_priority_to_those_whom_they_name() {
        let (_dir, policy) = policy(&["[[rule]]\nuser = \"alice\"\n"]);
        let of = |name: &str| policy.allowed(&Sending { user: Some(name.into()), key: None }, None).class(Priority);
        assert_eq!((of("alice"), of("bob")), (Priority, Normal));
    }

    #[test]
    fn a_file_that_makes_no_sense_is_refused_with_its_reason() {
        for (text, why) in [
            ("[default]\npriority-rate-mbit = 0\n", "above 0"),
            ("[default]\npriority-share-percent = 101\n", "1 to 100"),
            ("[default]\nclasses = [\"urgent\"]\n", "urgent"),
            ("[[rule]]\nto = \"10.1.2.3/8\"\n", "rule 1: 10.1.2.3/8 has bits"),
            ("[[rule]]\nkey = \"x\"\n", "rule 1"),
            ("[hooks]\non-raise = [\"/bin/true\"]\n", "on-release"),
            ("[hooks]\non-raise = [\"sh\"]\non-release = [\"sh\"]\n", "absolute"),
        ] {
            let refused = File::parse(text).unwrap_err();
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }
}

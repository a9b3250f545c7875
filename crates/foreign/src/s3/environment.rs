//! The environment and the files of Amazon's tools: `~/.aws/config` and `~/.aws/credentials`.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;

use crate::s3::limits::MAX_SETTINGS_BYTES;

/// The user's environment for Amazon's tools.
#[derive(Clone, Default)]
pub struct Environment {
    /// Variables that begin with `AWS_`, by name.
    pub variables: HashMap<String, String>,
    /// The user's home.
    pub home: Option<PathBuf>,
}

impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} variables", self.variables.len())
    }
}

impl Environment {
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    fn of_profile(&self, key: &str) -> Option<String> {
        let profile = self.get("AWS_PROFILE").unwrap_or("default");
        let section = if profile == "default" { profile.to_owned() } else { format!("profile {profile}") };
        let of_credentials = || {
            let path = self.file("AWS_SHARED_CREDENTIALS_FILE", "credentials")?;
            setting(&read(&path)?, profile, key)
        };
        self.of_config(&section, key).or_else(of_credentials)
    }

    fn of_config(&self, section: &str, key: &str) -> Option<String> {
        setting(&read(&self.file("AWS_CONFIG_FILE", "config")?)?, section, key)
    }

    fn file(&self, variable: &str, usual: &str) -> Option<PathBuf> {
        match self.get(variable) {
            Some(path) => Some(PathBuf::from(path)),
            None => Some(self.home.as_ref()?.join(".aws").join(usual)),
        }
    }

    /// The session that the profile names with `sso_session`, as `aws configure sso` writes it.
    pub(super) fn sso_session(&self) -> Option<SsoSession> {
        let name = self.of_profile("sso_session")?;
        let region = self.of_config(&format!("sso-session {name}"), "sso_region").filter(|region| is_region(region))?;
        let (account_id, role_name) = (self.of_profile("sso_account_id")?, self.of_profile("sso_role_name")?);
        Some(SsoSession { name, region, account_id, role_name })
    }
}

/// A login by SSO that several profiles share.
pub(super) struct SsoSession {
    pub(super) name: String,
    pub(super) region: String,
    pub(super) account_id: String,
    pub(super) role_name: String,
}

/// A region may come from an answer, and becomes part of a host's name.
pub(super) fn is_region(text: &str) -> bool {
    !text.is_empty() && text.len() <= 40 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn read(path: &PathBuf) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(MAX_SETTINGS_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Reads a setting as Amazon's tools do. Indented lines belong to the key above.
fn setting(text: &str, section: &str, key: &str) -> Option<String> {
    let mut is_ours = false;
    for line in text.lines() {
        let trimmed = line.trim();
        if let Some(name) = trimmed.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            is_ours = name.split_whitespace().eq(section.split_whitespace());
        } else if is_ours
            && !line.starts_with([' ', '\t', '#', ';'])
            && let Some((name, value)) = trimmed.split_once('=')
            && name.trim() == key
        {
            return Some(value.trim().to_owned()).filter(|value| !value.is_empty());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_those_of_their_section() {
        let text = "[default]\nregion = one\n[profile  two]\ns3 =\n  region = inner\n# region = no\nregion=2\n[services x]\nregion = 3";
        let region = |section: &str| setting(text, section, "region");
        assert_eq!((region("default").as_deref(), region("profile two").as_deref()), (Some("one"), Some("2")));
        assert_eq!(region("two"), None);
    }
}

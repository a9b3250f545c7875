//! The environment and the files of Amazon's tools: `~/.aws/config` and `~/.aws/credentials`.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::path::PathBuf;

use crate::http_client::url::Url;
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

    /// The profile that the user names.
    pub(super) fn named_profile(&self) -> Option<&str> {
        ["AWS_DEFAULT_PROFILE", "AWS_PROFILE"].into_iter().find_map(|name| self.get(name))
    }

    pub(super) fn profile(&self) -> &str {
        self.named_profile().unwrap_or("default")
    }

    /// A setting of a profile. The file of credentials comes first.
    pub(super) fn of_profile(&self, profile: &str, key: &str) -> Option<String> {
        let of_credentials = setting(&self.credentials_text().unwrap_or_default(), profile, key);
        of_credentials.or_else(|| self.of_config(&config_section(profile), key))
    }

    pub(super) fn has_profile(&self, profile: &str) -> bool {
        let has = |text: Option<String>, section: &str| {
            text.is_some_and(|text| text.lines().any(|line| is_head_of(line.trim(), section)))
        };
        has(self.credentials_text(), profile) || has(self.config_text(), &config_section(profile))
    }

    /// The usual region: a store of one's own ignores it, Amazon names the right one.
    pub(super) fn region(&self) -> String {
        let region = ["AWS_REGION", "AWS_DEFAULT_REGION"].into_iter().find_map(|name| self.get(name));
        let region = region.map(str::to_owned).or_else(|| self.of_profile(self.profile(), "region"));
        region.filter(|region| is_region(region)).unwrap_or_else(|| USUAL_REGION.to_owned())
    }

    /// Where a service is, if the user says so. `S3` and `STS` are services.
    pub(super) fn endpoint(&self, service: &str) -> io::Result<Option<Url>> {
        let of_service = format!("AWS_ENDPOINT_URL_{service}");
        let endpoint = [&of_service, "AWS_ENDPOINT_URL"].into_iter().find_map(|name| self.get(name));
        let endpoint = endpoint.map(str::to_owned).or_else(|| self.of_profile(self.profile(), "endpoint_url"));
        let Some(endpoint) = endpoint else { return Ok(None) };
        let url = Url::parse(endpoint.as_bytes()).filter(|url| !url.has_query());
        let why = || format!("AWS_ENDPOINT_URL is no URL of a server: {endpoint}");
        url.map(Some).ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, why()))
    }

    /// The session that the profile names with `sso_session`, as `aws configure sso` writes it.
    pub(super) fn sso_session(&self, profile: &str) -> Option<SsoSession> {
        let of_profile = |key| self.of_profile(profile, key);
        let name = of_profile("sso_session")?;
        let region = self.of_config(&format!("sso-session {name}"), "sso_region").filter(|region| is_region(region))?;
        let (account_id, role_name) = (of_profile("sso_account_id")?, of_profile("sso_role_name")?);
        Some(SsoSession { name, region, account_id, role_name })
    }

    fn of_config(&self, section: &str, key: &str) -> Option<String> {
        setting(&self.config_text()?, section, key)
    }

    fn config_text(&self) -> Option<String> {
        self.text_of("AWS_CONFIG_FILE", "config")
    }

    fn credentials_text(&self) -> Option<String> {
        self.text_of("AWS_SHARED_CREDENTIALS_FILE", "credentials")
    }

    fn text_of(&self, variable: &str, usual: &str) -> Option<String> {
        let path = match self.get(variable).map(|path| (path, path.strip_prefix("~/"))) {
            Some((_, Some(below_home))) => self.home.as_ref()?.join(below_home),
            Some((path, None)) => PathBuf::from(path),
            None => self.home.as_ref()?.join(".aws").join(usual),
        };
        let mut text = String::new();
        File::open(path).ok()?.take(MAX_SETTINGS_BYTES).read_to_string(&mut text).ok()?;
        Some(text)
    }
}

const USUAL_REGION: &str = "us-east-1";

fn config_section(profile: &str) -> String {
    if profile == "default" { profile.to_owned() } else { format!("profile {profile}") }
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

/// Reads a setting as Amazon's tools do. Indented lines belong to the key above.
fn setting(text: &str, section: &str, key: &str) -> Option<String> {
    let mut is_ours = false;
    for line in text.lines() {
        let trimmed = line.trim();
        if trimmed.starts_with('[') {
            is_ours = is_head_of(trimmed, section);
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

fn is_head_of(line: &str, section: &str) -> bool {
    let name = line.strip_prefix('[').and_then(|rest| rest.split(']').next());
    name.is_some_and(|name| name.split_whitespace().eq(section.split_whitespace()))
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

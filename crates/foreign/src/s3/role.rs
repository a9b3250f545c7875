//! Which roles a profile assumes, and whose credentials come first, as Amazon's tools read it.
//!
//! ```text
//!   role_arn, source_profile    -> that profile: role_arn, ... -> its keys, SSO, web identity or program
//!   role_arn, credential_source -> the environment, the container or the virtual machine
//! ```

use std::io;

use haul_store::LoginRefused;

use crate::s3::environment::Environment;
use crate::s3::limits::MAX_ROLES;

/// A role, as its profile describes it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Role {
    pub(super) profile: String,
    pub(super) arn: String,
    pub(super) session_name: Option<String>,
    pub(super) external_id: Option<String>,
    pub(super) duration_seconds: Option<u32>,
}

/// Who assumes the first role.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Base {
    Profile(String),
    Environment,
    Container,
    VirtualMachine,
}

/// The base assumes the first role, each role the next one. Without roles the base is the user's profile.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RoleChain {
    pub(super) base: Base,
    pub(super) roles: Vec<Role>,
}

impl RoleChain {
    pub(super) fn of(environment: &Environment) -> io::Result<RoleChain> {
        let mut profile = environment.profile().to_owned();
        let mut roles: Vec<Role> = Vec::new();
        let base = loop {
            // A source with keys gives these, and a role by web identity asks for no other credentials.
            if !roles.is_empty() && has_keys(environment, &profile) {
                break Base::Profile(profile);
            }
            let Some(role) = role_of(environment, &profile)? else { break Base::Profile(profile) };
            if roles.len() == MAX_ROLES {
                return Err(wrong(&profile, &format!("more than {MAX_ROLES} roles are assumed in a row")));
            }
            roles.push(role);
            match source_of(environment, &profile)? {
                Base::Profile(source) if source == profile && has_keys(environment, &source) => {
                    break Base::Profile(source);
                }
                Base::Profile(source) if roles.iter().any(|role| role.profile == source) => {
                    return Err(wrong(&profile, "source_profile leads back to a profile that assumes its role"));
                }
                Base::Profile(source) => profile = source,
                other => break other,
            }
        };
        roles.reverse();
        Ok(RoleChain { base, roles })
    }
}

fn has_keys(environment: &Environment, profile: &str) -> bool {
    ["aws_access_key_id", "aws_secret_access_key"].into_iter().any(|key| environment.of_profile(profile, key).is_some())
}

fn role_of(environment: &Environment, profile: &str) -> io::Result<Option<Role>> {
    let of_profile = |key| environment.of_profile(profile, key);
    let Some(arn) = of_profile("role_arn") else { return Ok(None) };
    if of_profile("web_identity_token_file").is_some() {
        return Ok(None);
    }
    if of_profile("mfa_serial").is_some() {
        let why = format!(
            "mfa_serial asks for a code, and haul cannot ask for one: log in with \
             `eval \"$(aws configure export-credentials --profile {profile} --format env)\"`"
        );
        return Err(wrong(profile, &why));
    }
    let duration_seconds = of_profile("duration_seconds").map(|text| text.parse());
    let duration_seconds =
        duration_seconds.transpose().map_err(|_| wrong(profile, "duration_seconds is no number of seconds"))?;
    Ok(Some(Role {
        profile: profile.to_owned(),
        arn,
        session_name: of_profile("role_session_name"),
        external_id: of_profile("external_id"),
        duration_seconds,
    }))
}

fn source_of(environment: &Environment, profile: &str) -> io::Result<Base> {
    let of_profile = |key| environment.of_profile(profile, key);
    match (of_profile("source_profile"), of_profile("credential_source").as_deref()) {
        (Some(source), None) if environment.has_profile(&source) => Ok(Base::Profile(source)),
        (Some(source), None) => Err(wrong(profile, &format!("there is no profile {source}, its source_profile"))),
        (None, Some("Environment")) => Ok(Base::Environment),
        (None, Some("EcsContainer")) => Ok(Base::Container),
        (None, Some("Ec2InstanceMetadata")) => Ok(Base::VirtualMachine),
        (None, Some(other)) => {
            let known = "Environment, EcsContainer and Ec2InstanceMetadata";
            Err(wrong(profile, &format!("credential_source is {other}; there are {known}")))
        }
        (Some(_), Some(_)) => Err(wrong(profile, "role_arn has source_profile and credential_source: keep one")),
        (None, None) => Err(wrong(profile, "role_arn needs source_profile or credential_source")),
    }
}

fn wrong(profile: &str, why: &str) -> io::Error {
    LoginRefused::because(format!("the profile {profile} gives no credentials: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(config: &str) -> String {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join(".aws")).unwrap();
        std::fs::write(home.path().join(".aws/config"), config).unwrap();
        let variables = [("AWS_PROFILE".to_owned(), "p".to_owned())].into();
        match RoleChain::of(&Environment { variables, home: Some(home.path().to_owned()) }) {
            Ok(RoleChain { base, roles }) => {
                let profiles: Vec<_> = roles.iter().map(|role| role.profile.as_str()).collect();
                format!("{base:?} {}", profiles.join(" ")).replace('"', "")
            }
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_profile_leads_to_its_roles_and_to_who_assumes_the_first() {
        let cases = [
            ("[profile p]\nregion = r", "Profile(p) "),
            ("[profile p]\nrole_arn = a\nsource_profile = q\n[profile q]\n", "Profile(q) p"),
            ("[profile p]\nrole_arn = a\nsource_profile = default\n[default]\n", "Profile(default) p"),
            (
                "[profile p]\nrole_arn = a\nsource_profile = q\n[profile q]\nrole_arn = b\ncredential_source = Environment",
                "Environment q p",
            ),
            ("[profile p]\nrole_arn = a\ncredential_source = EcsContainer", "Container p"),
            ("[profile p]\nrole_arn = a\ncredential_source = Ec2InstanceMetadata", "VirtualMachine p"),
            // Its own keys assume the role.
            ("[profile p]\nrole_arn = a\nsource_profile = p\naws_access_key_id = k", "Profile(p) p"),
            // Keys of a source come before its role.
            (
                "[profile p]\nrole_arn = a\nsource_profile = q\n[profile q]\nrole_arn = b\nmfa_serial = m\nsource_profile = p\naws_access_key_id = k",
                "Profile(q) p",
            ),
            ("[profile p]\nrole_arn = a\nweb_identity_token_file = f", "Profile(p) "),
        ];
        for (config, expected) in cases {
            assert_eq!(chain(config), expected, "{config}");
        }
    }

    #[test]
    fn a_profile_that_cannot_be_followed_is_refused() {
        let cases = [
            ("[profile p]\nrole_arn = a", "needs source_profile"),
            ("[profile p]\nrole_arn = a\nsource_profile = p\ncredential_source = Environment", "keep one"),
            ("[profile p]\nrole_arn = a\nsource_profile = q", "no profile q"),
            ("[profile p]\nrole_arn = a\nsource_profile = p", "leads back"),
            (
                "[profile p]\nrole_arn = a\nsource_profile = q\n[profile q]\nrole_arn = a\nsource_profile = p",
                "leads back",
            ),
            ("[profile p]\nrole_arn = a\ncredential_source = Moon", "Moon"),
            ("[profile p]\nrole_arn = a\nmfa_serial = m\nsource_profile = p", "export-credentials --profile p"),
            ("[profile p]\nrole_arn = a\nduration_seconds = 1h\nsource_profile = p", "duration_seconds"),
        ];
        for (config, expected) in cases {
            assert!(chain(config).contains(expected), "{config}: {}", chain(config));
        }
        let long = |number: usize| format!("role_arn = a\nsource_profile = q{}\n[profile q{0}]\n", number);
        let config = |roles: usize| format!("[profile p]\n{}", (0..roles).map(long).collect::<String>());
        assert!(chain(&config(MAX_ROLES)).starts_with("Profile"), "{}", chain(&config(MAX_ROLES)));
        assert!(chain(&config(MAX_ROLES + 1)).contains("in a row"));
    }
}

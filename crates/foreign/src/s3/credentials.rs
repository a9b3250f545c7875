//! Who we are to a store: credentials found like Amazon's tools, renewed in time, and their signatures (Signature Version 4).
//!
//! ```text
//!   environment -> roles of the profile -> web identity -> SSO -> keys of the profile -> program -> container -> virtual machine
//! ```
//! The first of them that is set up counts. Where it fails, nobody else's credentials take its place.

use std::fmt;
use std::io::{self, ErrorKind};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use haul_store::LoginRefused;
use http::{HeaderName, Uri, request};
use reqsign_aws_v4::{
    Credential, ECSCredentialProvider, EnvCredentialProvider, IMDSv2CredentialProvider, ProcessCredentialProvider,
    ProfileCredentialProvider, RequestSigner, SSOCredentialProvider,
};
use reqsign_core::time::Timestamp;
use reqsign_core::{Context, ProvideCredential, SignRequest as _, SigningCredential as _};

use crate::http_client::client::Sign;
use crate::http_client::url::{Origin, Url};
use crate::s3::environment::Environment;
use crate::s3::reqsign_io::{at_once, context};
use crate::s3::role::{Base, RoleChain};
use crate::s3::sts::{Sts, WebIdentity};

pub(super) struct Signer {
    environment: Environment,
    context: Context,
    known: Mutex<Option<Credential>>,
    signer: RequestSigner,
    origin: Origin,
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signer(...)")
    }
}

impl Signer {
    pub(super) fn new(environment: &Environment, origin: Origin, region: &str) -> Signer {
        let signer = RequestSigner::new("s3", region);
        let context = context(environment);
        Signer { environment: environment.clone(), context, known: Mutex::default(), signer, origin }
    }

    /// Drops credentials that the store no longer knows.
    pub(super) fn forget(&self) {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn credential(&self) -> io::Result<Credential> {
        // One thread renews them while others wait.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.as_ref().filter(|known| known.is_valid_at(Timestamp::now() + RENEWED_BEFORE)) {
            return Ok(known.clone());
        }
        let found = self.find()?;
        *known = Some(found.clone());
        Ok(found)
    }

    fn find(&self) -> io::Result<Credential> {
        if let Some(found) = self.ask("the environment", &EnvCredentialProvider::new())? {
            return Ok(found);
        }
        let environment = &self.environment;
        if let Some(profile) = environment.named_profile().filter(|profile| !environment.has_profile(profile)) {
            return Err(LoginRefused::because(format!("there is no profile {profile} in the files of Amazon's tools")));
        }
        let RoleChain { base, roles } = RoleChain::of(environment)?;
        if !roles.is_empty() {
            let sts = Sts::of(environment)?;
            return roles.iter().try_fold(self.of_base(&base)?, |credential, role| sts.assume(role, &credential));
        }
        if let Some(found) = self.of_profile(environment.profile(), WithVariables::Yes)? {
            return Ok(found);
        }
        if let Some(found) = self.ask("the container", &ECSCredentialProvider::default())? {
            return Ok(found);
        }
        // Any other host has no such service, which is no reason to tell.
        if let Ok(Some(found)) = self.ask("the virtual machine", &IMDSv2CredentialProvider::default()) {
            return Ok(found);
        }
        Err(LoginRefused::because(
            "there are no credentials: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run `aws configure`",
        ))
    }

    fn of_base(&self, base: &Base) -> io::Result<Credential> {
        let (name, found) = match base {
            Base::Profile(profile) => (format!("the profile {profile}"), self.of_profile(profile, WithVariables::No)?),
            Base::Environment => {
                let name = "the environment";
                (name.to_owned(), self.ask(name, &EnvCredentialProvider::new())?)
            }
            Base::Container => {
                let name = "the container";
                (name.to_owned(), self.ask(name, &ECSCredentialProvider::default())?)
            }
            Base::VirtualMachine => {
                let name = "the virtual machine";
                (name.to_owned(), self.ask(name, &IMDSv2CredentialProvider::default())?)
            }
        };
        found.ok_or_else(|| LoginRefused::because(format!("{name} has no credentials to assume a role with")))
    }

    fn of_profile(&self, profile: &str, variables: WithVariables) -> io::Result<Option<Credential>> {
        if let Some(identity) = self.web_identity(profile, variables)? {
            return Sts::of(&self.environment)?.assume_by_token(&identity).map(Some);
        }
        if let Some(found) = self.ask("SSO", &sso(&self.environment, profile))? {
            return Ok(Some(found));
        }
        if let Some(found) = self.ask("the profile", &ProfileCredentialProvider::new().with_profile(profile))? {
            return Ok(Some(found));
        }
        self.ask("the credential_process", &ProcessCredentialProvider::new().with_profile(profile))
    }

    fn web_identity(&self, profile: &str, variables: WithVariables) -> io::Result<Option<WebIdentity>> {
        let found = |variable, key| {
            let of_variable = self.environment.get(variable).filter(|_| variables == WithVariables::Yes);
            of_variable.map(str::to_owned).or_else(|| self.environment.of_profile(profile, key))
        };
        let Some(token_file) = found("AWS_WEB_IDENTITY_TOKEN_FILE", "web_identity_token_file") else { return Ok(None) };
        let arn = found("AWS_ROLE_ARN", "role_arn")
            .ok_or_else(|| LoginRefused::because("the web identity has no role: set AWS_ROLE_ARN or role_arn"))?;
        let session_name = found("AWS_ROLE_SESSION_NAME", "role_session_name");
        Ok(Some(WebIdentity { arn, token_file: token_file.into(), session_name }))
    }

    fn ask(
        &self,
        name: &str,
        provider: &impl ProvideCredential<Credential = Credential>,
    ) -> io::Result<Option<Credential>> {
        at_once(provider.provide_credential(&self.context))?
            .map_err(|error| LoginRefused::because(format!("{name} gives no credentials: {error}")))
    }
}

/// Whether variables tell of the web identity. They belong to the user's own profile.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WithVariables {
    Yes,
    No,
}

/// The token of a session lies below the SHA-1 of its name. Of a profile without one it lies below that of `sso_start_url`, and the
/// provider asks for nothing else of that URL.
fn sso(environment: &Environment, profile: &str) -> SSOCredentialProvider {
    let provider = SSOCredentialProvider::new().with_profile(profile);
    let Some(session) = environment.sso_session(profile) else { return provider };
    provider
        .with_start_url(session.name)
        .with_region(session.region)
        .with_account_id(session.account_id)
        .with_role_name(session.role_name)
}

/// Names the sum behind the body. The signature says that one comes.
pub(super) const TRAILER: HeaderName = HeaderName::from_static("x-amz-trailer");

/// `reqsign` signs with what is good for another 10 s, and a signed request arrives within that time. The rest is for the time
/// between the look and the signature.
const RENEWED_BEFORE: Duration = Duration::from_secs(15);

impl Sign for Signer {
    fn sign(&self, url: &Url, head: &mut request::Parts, whole: Option<&[u8]>) -> io::Result<()> {
        // Each request has the session's token: no other host may see it.
        if *url.origin() != self.origin {
            let why = format!("the store leads to another host, {}", url.origin());
            return Err(io::Error::new(ErrorKind::PermissionDenied, why));
        }
        let of_request = std::mem::take(&mut head.uri);
        let whole_uri = format!("{}{}", self.origin, url.target());
        head.uri = whole_uri.parse::<Uri>().map_err(|error| io::Error::new(ErrorKind::InvalidInput, error))?;
        // TLS proves the body, or else the signature, except on this host: nobody is in between, and hashing takes a third of an
        // upload's processor time.
        let sum = match whole {
            Some(body) if !self.origin.is_tls && !self.origin.is_loopback() => {
                hex(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, body).as_ref())
            }
            None if head.headers.contains_key(TRAILER) => "STREAMING-UNSIGNED-PAYLOAD-TRAILER".to_owned(),
            _ => "UNSIGNED-PAYLOAD".to_owned(),
        };
        head.headers.insert("x-amz-content-sha256", sum.parse().expect("hex is a value"));
        let credential = self.credential()?;
        // Proxies may change other fields (Accept-Encoding, User-Agent).
        let all = std::mem::take(&mut head.headers);
        let (signed_ones, others): (Vec<_>, Vec<_>) =
            all.into_iter().filter_map(|(name, value)| Some((name?, value))).partition(|(name, _)| is_signed(name));
        head.headers.extend(signed_ones);
        let signed = at_once(self.signer.sign_request(&self.context, head, Some(&credential), None))?;
        head.uri = of_request;
        head.headers.extend(others);
        signed.map_err(|error| io::Error::new(ErrorKind::PermissionDenied, format!("cannot sign a request: {error}")))
    }
}

/// Host and the store's own fields have to be signed.
fn is_signed(name: &HeaderName) -> bool {
    *name == http::header::HOST || *name == http::header::CONTENT_TYPE || name.as_str().starts_with("x-amz-")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

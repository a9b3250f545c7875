//! Who we are to a store: credentials found like Amazon's tools, renewed in time, and their signatures (Signature Version 4).
//!
//! ```text
//!   environment -> profile files -> SSO -> web identity -> program -> container -> virtual machine (IMDSv2)
//! ```
//! `reqsign` speaks to all of these. Its async functions need no runtime: our files, programs and servers answer on the asking
//! thread.

use std::fmt;
use std::future::Future;
use std::io::{self, ErrorKind, Read as _};
use std::pin::pin;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use haul_store::LoginRefused;
use http::{HeaderName, Uri, request};
use reqsign_aws_v4::{
    AssumeRoleWithWebIdentityCredentialProvider, Credential, ECSCredentialProvider, EnvCredentialProvider,
    IMDSv2CredentialProvider, ProcessCredentialProvider, ProfileCredentialProvider, RequestSigner,
    SSOCredentialProvider,
};
use reqsign_core::time::Timestamp;
use reqsign_core::{
    CommandExecute, CommandOutput, Context, FileRead, HttpSend, ProvideCredentialDyn, SignRequest as _,
    SigningCredential as _, StaticEnv,
};

use crate::http_client::client::{Ask, Client, Settings, Sign};
use crate::http_client::credentials::Credentials;
use crate::http_client::outgoing::Content;
use crate::http_client::url::{Origin, Url};
use crate::s3::environment::Environment;
use crate::s3::limits::{MAX_CREDENTIALS_BYTES, MAX_SETTINGS_BYTES, METADATA_SERVICE_PATIENCE};

type Provider = Box<dyn ProvideCredentialDyn<Credential = Credential>>;

pub(super) struct Signer {
    context: Context,
    providers: Vec<(&'static str, Provider)>,
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
        let env = StaticEnv { home_dir: environment.home.clone(), envs: environment.variables.clone() };
        let context =
            Context::new().with_env(env).with_file_read(Files).with_http_send(Servers).with_command_execute(Programs);
        let providers: Vec<(&'static str, Provider)> = vec![
            ("the environment", Box::new(EnvCredentialProvider::new())),
            ("the profile", Box::new(ProfileCredentialProvider::default())),
            ("SSO", Box::new(sso(environment))),
            ("the web identity", Box::new(AssumeRoleWithWebIdentityCredentialProvider::default())),
            ("the credential_process", Box::new(ProcessCredentialProvider::default())),
            ("the container", Box::new(ECSCredentialProvider::default())),
            ("the virtual machine", Box::new(IMDSv2CredentialProvider::default())),
        ];
        let signer = RequestSigner::new("s3", region);
        Signer { context, providers, known: Mutex::default(), signer, origin }
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
        let mut first = None;
        for (name, provider) in &self.providers {
            match at_once(provider.provide_credential_dyn(&self.context))? {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => {}
                Err(error) if first.is_none() && *name != "the virtual machine" => {
                    first = Some(format!("; {name} gives none: {error}"));
                }
                Err(_) => {}
            }
        }
        let why = format!(
            "there are no credentials{}: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run `aws configure`",
            first.unwrap_or_default()
        );
        Err(LoginRefused::because(why))
    }
}

/// The token of a session lies below the SHA-1 of its name. Of a profile without one it lies below that of `sso_start_url`, and the
/// provider asks for nothing else of that URL.
fn sso(environment: &Environment) -> SSOCredentialProvider {
    let provider = SSOCredentialProvider::default();
    let Some(session) = environment.sso_session() else { return provider };
    provider
        .with_start_url(session.name)
        .with_region(session.region)
        .with_account_id(session.account_id)
        .with_role_name(session.role_name)
}

/// Names the sum behind the body. The signature says that one comes.
pub(super) const TRAILER: HeaderName = HeaderName::from_static("x-amz-trailer");

/// A signed request arrives within this time before their end.
const RENEWED_BEFORE: Duration = Duration::from_secs(10);

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

fn at_once<T>(future: impl Future<Output = T>) -> io::Result<T> {
    match pin!(future).poll(&mut std::task::Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => Ok(done),
        Poll::Pending => Err(io::Error::other("the credentials are looked for in another way than haul knows")),
    }
}

fn failed(error: io::Error) -> reqsign_core::Error {
    reqsign_core::Error::unexpected(error.to_string())
}

#[derive(Debug)]
struct Files;

impl FileRead for Files {
    async fn file_read(&self, path: &str) -> reqsign_core::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path).map_err(failed)?;
        file.take(MAX_SETTINGS_BYTES).read_to_end(&mut bytes).map_err(failed)?;
        Ok(bytes)
    }
}

/// Runs `credential_process` of a profile: the user's own program.
#[derive(Debug)]
struct Programs;

impl CommandExecute for Programs {
    async fn command_execute<'a>(
        &'a self,
        program: &'a str,
        args: &'a [&'a str],
    ) -> reqsign_core::Result<CommandOutput> {
        let mut command = Command::new(program);
        let output = command.args(args).stdin(Stdio::null()).output().map_err(failed)?;
        Ok(CommandOutput { status: output.status.code().unwrap_or(-1), stdout: output.stdout, stderr: output.stderr })
    }
}

/// Services of a virtual machine, a container, STS, SSO.
#[derive(Debug)]
struct Servers;

impl HttpSend for Servers {
    async fn http_send(&self, request: http::Request<Bytes>) -> reqsign_core::Result<http::Response<Bytes>> {
        ask_service(request).map_err(failed)
    }
}

fn ask_service(request: http::Request<Bytes>) -> io::Result<http::Response<Bytes>> {
    let (head, body) = request.into_parts();
    let url = Url::parse(head.uri.to_string().as_bytes());
    let url = url.ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "it has no URL that haul can ask"))?;
    let mut settings = Settings::usual(1, Credentials::default());
    if !url.origin().is_tls {
        settings.silence = METADATA_SERVICE_PATIENCE;
    }
    let client = Client::new(url.origin().clone(), settings);
    let dropped = [http::header::HOST, http::header::CONTENT_LENGTH];
    let fields = head.headers.iter().filter(|(name, _)| !dropped.contains(name));
    let fields = fields.map(|(name, value)| (name.clone(), value.clone())).collect();
    let content = if body.is_empty() { Content::Nothing } else { Content::Whole(body) };
    let ask = Ask { fields, content, redirects: false, ..Ask::new(head.method, &url) };
    let mut answer = client.ask(&ask)?;
    let body = answer.body.read_to_end(MAX_CREDENTIALS_BYTES)?;
    let mut response = http::Response::new(Bytes::from(body));
    (*response.status_mut(), *response.headers_mut()) = (answer.head.status, answer.head.headers);
    Ok(response)
}

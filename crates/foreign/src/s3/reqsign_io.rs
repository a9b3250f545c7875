//! Files, programs and servers for `reqsign`. Its async functions need no runtime: all of these answer on the asking thread.

use std::future::Future;
use std::io::{self, ErrorKind, Read as _};
use std::pin::pin;
use std::process::{Command, Stdio};
use std::task::{Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use reqsign_core::{CommandExecute, CommandOutput, Context, FileRead, HttpSend, StaticEnv};

use crate::http_client::client::{Ask, Client, Settings};
use crate::http_client::credentials::Credentials;
use crate::http_client::outgoing::Content;
use crate::http_client::url::Url;
use crate::s3::environment::Environment;
use crate::s3::limits::{MAX_CREDENTIALS_BYTES, MAX_SETTINGS_BYTES, METADATA_SERVICE_PATIENCE};

pub(super) fn context(environment: &Environment) -> Context {
    let env = StaticEnv { home_dir: environment.home.clone(), envs: environment.variables.clone() };
    Context::new().with_env(env).with_file_read(Files).with_http_send(Servers).with_command_execute(Programs)
}

pub(super) fn at_once<T>(future: impl Future<Output = T>) -> io::Result<T> {
    match pin!(future).poll(&mut std::task::Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => Ok(done),
        Poll::Pending => Err(io::Error::other("the credentials are looked for in another way than haul knows")),
    }
}

pub(super) fn failed(error: &io::Error) -> reqsign_core::Error {
    reqsign_core::Error::unexpected(error.to_string())
}

#[derive(Debug)]
struct Files;

impl FileRead for Files {
    async fn file_read(&self, path: &str) -> reqsign_core::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path).map_err(|error| failed(&error))?;
        file.take(MAX_SETTINGS_BYTES).read_to_end(&mut bytes).map_err(|error| failed(&error))?;
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
        let output = command.args(args).stdin(Stdio::null()).output().map_err(|error| failed(&error))?;
        Ok(CommandOutput { status: output.status.code().unwrap_or(-1), stdout: output.stdout, stderr: output.stderr })
    }
}

/// Services of a virtual machine, a container, SSO.
#[derive(Debug)]
struct Servers;

impl HttpSend for Servers {
    async fn http_send(&self, request: http::Request<Bytes>) -> reqsign_core::Result<http::Response<Bytes>> {
        let is_near = request.uri().scheme_str() == Some("http");
        ask_service(request, is_near.then_some(METADATA_SERVICE_PATIENCE)).map_err(|error| failed(&error))
    }
}

pub(super) fn ask_service(
    request: http::Request<Bytes>,
    patience: Option<Duration>,
) -> io::Result<http::Response<Bytes>> {
    let (head, body) = request.into_parts();
    let url = Url::parse(head.uri.to_string().as_bytes());
    let url = url.ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "it has no URL that haul can ask"))?;
    let mut settings = Settings::usual(1, Credentials::default());
    settings.silence = patience.unwrap_or(settings.silence);
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

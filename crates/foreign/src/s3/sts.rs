//! Roles for credentials, or for the token of a web identity, from Amazon's Security Token Service.
//!
//! ```text
//!   AWS_ENDPOINT_URL_STS, AWS_ENDPOINT_URL, endpoint_url of the profile   -> that server
//!   none of them                                                         -> https://sts.REGION.amazonaws.com
//!   sts_regional_endpoints = legacy, in an old region                    -> https://sts.amazonaws.com
//! ```

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use haul_store::LoginRefused;
use http::header::AUTHORIZATION;
use http::{Uri, request};
use reqsign_aws_v4::{
    AssumeRoleCredentialProvider, AssumeRoleWithWebIdentityCredentialProvider, Credential, RequestSigner,
    StaticCredentialProvider,
};
use reqsign_core::{Context, HttpSend, ProvideCredential, SignRequest, Signer};

use crate::http_client::url::Url;
use crate::s3::environment::Environment;
use crate::s3::limits::MAX_SAID_CHARS;
use crate::s3::reqsign_io::{ask_service, at_once, context, failed};
use crate::s3::role::Role;

/// A role that the token in a file stands for.
pub(super) struct WebIdentity {
    pub(super) arn: String,
    pub(super) token_file: PathBuf,
    pub(super) session_name: Option<String>,
}

pub(super) struct Sts {
    context: Context,
    region: String,
    is_global: bool,
    endpoint: Option<Url>,
    failure: Failure,
}

/// The server's failure to answer, which `reqsign` does not pass on.
type Failure = Arc<Mutex<Option<io::Error>>>;

impl Sts {
    pub(super) fn of(environment: &Environment) -> io::Result<Sts> {
        let (region, endpoint) = (environment.region(), environment.endpoint("STS")?);
        let failure = Failure::default();
        let service = Service { endpoint: endpoint.clone(), failure: Arc::clone(&failure) };
        let is_global = wants_global(environment) && REGIONS_OF_GLOBAL.contains(&region.as_str());
        Ok(Sts { context: context(environment).with_http_send(service), region, is_global, endpoint, failure })
    }

    /// Asks for a role, for an hour unless its profile says otherwise.
    pub(super) fn assume(&self, role: &Role, credential: &Credential) -> io::Result<Credential> {
        let mut source = StaticCredentialProvider::new(&credential.access_key_id, &credential.secret_access_key);
        if let Some(token) = &credential.session_token {
            source = source.with_session_token(token);
        }
        let region = if self.is_global { REGION_OF_GLOBAL } else { &self.region };
        let signer = AtEndpoint { endpoint: self.endpoint.clone(), signer: RequestSigner::new("sts", region) };
        let signer = Signer::new(self.context.clone(), source, signer);
        let mut provider = AssumeRoleCredentialProvider::new(role.arn.clone(), signer)
            .with_role_session_name(role.session_name.clone().unwrap_or_else(|| SESSION_NAME.to_owned()))
            .with_region(self.region.clone());
        if !self.is_global {
            provider = provider.with_regional_sts_endpoint();
        }
        if let Some(id) = &role.external_id {
            provider = provider.with_external_id(id.clone());
        }
        if let Some(seconds) = role.duration_seconds {
            provider = provider.with_duration_seconds(seconds);
        }
        self.ask(&provider, &format!("the role {} of the profile {}", role.arn, role.profile))
    }

    pub(super) fn assume_by_token(&self, identity: &WebIdentity) -> io::Result<Credential> {
        let name = identity.session_name.clone().unwrap_or_else(|| SESSION_NAME.to_owned());
        let mut provider = AssumeRoleWithWebIdentityCredentialProvider::new()
            .with_role_arn(&identity.arn)
            .with_web_identity_token_file(&identity.token_file)
            .with_role_session_name(name)
            .with_region(self.region.clone());
        if !self.is_global {
            provider = provider.with_regional_sts_endpoint();
        }
        self.ask(&provider, &format!("the role {} of the web identity", identity.arn))
    }

    fn ask(&self, provider: &impl ProvideCredential<Credential = Credential>, role: &str) -> io::Result<Credential> {
        let answer = at_once(provider.provide_credential(&self.context))?;
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        let error = match (answer, failure) {
            (Ok(Some(credential)), _) => return Ok(credential),
            (_, Some(failure)) => {
                let why = format!("cannot ask {} for {role}: {failure}", self.server());
                return Err(io::Error::new(failure.kind(), why));
            }
            (Ok(None), None) => "no answer".to_owned(),
            (Err(error), None) => error.to_string().chars().take(MAX_SAID_CHARS).collect(),
        };
        Err(LoginRefused::because(format!("{} does not give {role}: {error}", self.server())))
    }

    fn server(&self) -> String {
        self.endpoint.as_ref().map_or_else(|| "Amazon's STS".to_owned(), |url| url.origin().to_string())
    }
}

/// Names a session in the logs of an account.
const SESSION_NAME: &str = "haul";

fn wants_global(environment: &Environment) -> bool {
    let variable = environment.get("AWS_STS_REGIONAL_ENDPOINTS").map(str::to_owned);
    let setting = variable.or_else(|| environment.of_profile(environment.profile(), "sts_regional_endpoints"));
    setting.as_deref() == Some("legacy")
}

/// botocore 1.43, `LEGACY_GLOBAL_STS_REGIONS`: sessions of the global endpoint are not valid in younger regions.
const REGIONS_OF_GLOBAL: [&str; 15] = [
    "ap-northeast-1",
    "ap-south-1",
    "ap-southeast-1",
    "ap-southeast-2",
    "ca-central-1",
    "eu-central-1",
    "eu-north-1",
    "eu-west-1",
    "eu-west-2",
    "eu-west-3",
    "sa-east-1",
    "us-east-1",
    "us-east-2",
    "us-west-1",
    "us-west-2",
];

/// The global endpoint knows signatures for this region.
const REGION_OF_GLOBAL: &str = "us-east-1";

/// Signs requests for the user's own endpoint: the signature holds the name of the host.
#[derive(Debug)]
struct AtEndpoint {
    endpoint: Option<Url>,
    signer: RequestSigner,
}

impl SignRequest for AtEndpoint {
    type Credential = Credential;

    async fn sign_request(
        &self,
        context: &Context,
        head: &mut request::Parts,
        credential: Option<&Credential>,
        expires_in: Option<Duration>,
    ) -> reqsign_core::Result<()> {
        head.uri = at_endpoint(self.endpoint.as_ref(), &head.uri)?;
        self.signer.sign_request(context, head, credential, expires_in).await
    }
}

fn at_endpoint(endpoint: Option<&Url>, uri: &Uri) -> reqsign_core::Result<Uri> {
    let Some(endpoint) = endpoint else { return Ok(uri.clone()) };
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let at = format!("{}{}/{query}", endpoint.origin(), endpoint.path().trim_end_matches('/'));
    at.parse().map_err(|_| reqsign_core::Error::config_invalid("the endpoint of STS is no URL"))
}

#[derive(Debug)]
struct Service {
    endpoint: Option<Url>,
    failure: Failure,
}

impl HttpSend for Service {
    async fn http_send(&self, mut request: http::Request<Bytes>) -> reqsign_core::Result<http::Response<Bytes>> {
        // A signed request has its endpoint already.
        if !request.headers().contains_key(AUTHORIZATION) {
            *request.uri_mut() = at_endpoint(self.endpoint.as_ref(), request.uri())?;
        }
        ask_service(request, None).map_err(|error| {
            let passed_on = failed(&error);
            *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            passed_on
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sts(variables: &[(&str, &str)]) -> Sts {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Sts::of(&Environment { variables, home: None }).unwrap()
    }

    #[test]
    fn the_global_endpoint_is_asked_only_if_wanted_and_from_an_old_region() {
        let legacy = ("AWS_STS_REGIONAL_ENDPOINTS", "legacy");
        let (old, young) = (("AWS_REGION", "eu-west-3"), ("AWS_REGION", "eu-south-2"));
        assert!(!sts(&[]).is_global && !sts(&[old]).is_global && !sts(&[legacy, young]).is_global);
        assert!(sts(&[legacy]).is_global && sts(&[legacy, old]).is_global);
    }

    #[test]
    fn a_request_goes_below_the_users_endpoint() {
        let sts =
            sts(&[("AWS_ENDPOINT_URL", "http://store:9000"), ("AWS_ENDPOINT_URL_STS", "https://sts.example/at/")]);
        let asked =
            at_endpoint(sts.endpoint.as_ref(), &Uri::from_static("https://sts.eu-west-3.amazonaws.com/?Action=A"));
        assert_eq!(asked.unwrap(), "https://sts.example/at/?Action=A");
    }
}

//! Credentials by roles that a profile assumes.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use haul_foreign::{StoreEnvironment, open_objects};
use reqsign_core::time::Timestamp;
use tempfile::TempDir;

use crate::server::{Reply, Request, Server, environment, settings};

const IN_A_CENTURY: &str = "2126-01-01T00:00:00Z";

/// The caller of a signed request.
fn signer(request: &Request) -> String {
    let signed = request.field("authorization").unwrap_or_default();
    signed.split("Credential=").nth(1).and_then(|rest| rest.split('/').next()).unwrap_or_default().to_owned()
}

fn session(key: &str, expiration: &str) -> Reply {
    let keys = format!(
        "<AccessKeyId>{key}</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>token-{key}</SessionToken>"
    );
    let credentials = format!("<Credentials>{keys}<Expiration>{expiration}</Expiration></Credentials>");
    Reply::xml(
        200,
        &format!("<AssumeRoleResponse><AssumeRoleResult>{credentials}</AssumeRoleResult></AssumeRoleResponse>"),
    )
}

/// Gives each role to one caller, as `trusts` says: the role's name, and the access key that may assume it.
fn sts(trusts: &'static [(&'static str, &'static str)]) -> Server {
    Server::start(move |request, _| {
        let (caller, arn) = (signer(request), request.asks("RoleArn").unwrap_or_default().to_owned());
        let role = arn.rsplit('/').next().unwrap_or_default();
        let is_trusted = trusts.contains(&(role, &caller));
        Some(if is_trusted { session(&key_of(role), IN_A_CENTURY) } else { refused() })
    })
}

fn refused() -> Reply {
    Reply::xml(403, "<ErrorResponse><Error><Code>AccessDenied</Code><Message>not him</Message></Error></ErrorResponse>")
}

/// Real keys have at least 16 characters.
fn key_of(role: &str) -> String {
    format!("ASIA-OF-{role:_<10}").replace('-', "_").to_uppercase()
}

/// A store that knows one access key.
fn store_of(key: String) -> Server {
    let store = Server::start(move |request, _| {
        let is_ours = signer(request) == key && request.field("x-amz-security-token") == Some(&format!("token-{key}"));
        (!is_ours).then(|| Reply::error(403, "InvalidAccessKeyId"))
    });
    store.state.lock().unwrap().put(b"d/f", b"data");
    store
}

fn user(store: &Server, sts: &Server, config: &str, more: &[(&str, &str)]) -> (StoreEnvironment, TempDir) {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join(".aws")).unwrap();
    std::fs::write(home.path().join(".aws/config"), config).unwrap();
    let endpoint = format!("http://127.0.0.1:{}", store.port);
    let of_sts = format!("http://127.0.0.1:{}/bucket/sts", sts.port);
    let usual = [
        ("AWS_PROFILE", "p"),
        ("AWS_ENDPOINT_URL_S3", &endpoint),
        ("AWS_ENDPOINT_URL_STS", &of_sts),
        ("AWS_EC2_METADATA_DISABLED", "true"),
    ];
    let mut environment = environment(&[&usual[..], more].concat());
    if more.iter().all(|(name, _)| *name != "AWS_ACCESS_KEY_ID") {
        environment.variables.retain(|name, _| !name.contains("ACCESS_KEY"));
    }
    environment.home = Some(home.path().to_owned());
    (environment, home)
}

fn opened(environment: &StoreEnvironment) -> Result<(), String> {
    let opened = open_objects("bucket", &[b"d/".to_vec()], true, environment, settings);
    opened.map(|_| ()).map_err(|error| error.to_string())
}

const ROLE: &str = "role_arn = arn:aws:iam::123456789012:role";

#[test]
fn roles_are_assumed_one_after_the_other_from_the_keys_of_the_last_source() {
    let sts = sts(&[("first", "AKIA_OF_THE_USER"), ("second", "ASIA_OF_FIRST_____")]);
    let store = store_of(key_of("second"));
    let config = format!(
        "[profile p]\n{ROLE}/second\nsource_profile = q\nrole_session_name = night\nexternal_id = x-1\nduration_seconds = 900\n\
         [profile q]\n{ROLE}/first\nsource_profile = default\n\
         [default]\naws_access_key_id = AKIA_OF_THE_USER\naws_secret_access_key = s\n"
    );
    let (environment, _home) = user(&store, &sts, &config, &[("AWS_REGION", "eu-west-3")]);
    assert_eq!(opened(&environment), Ok(()));
    let asked = sts.seen();
    assert_eq!(asked.len(), 2);
    let of = |request: &Request, names: [&str; 3]| names.map(|name| request.asks(name).map(str::to_owned));
    let names = ["RoleSessionName", "ExternalId", "DurationSeconds"];
    assert_eq!(of(&asked[0], names), [Some("haul".to_owned()), None, Some("3600".to_owned())]);
    assert_eq!(of(&asked[1], names), ["night", "x-1", "900"].map(|value| Some(value.to_owned())));
    assert_eq!(asked[1].field("x-amz-security-token"), Some("token-ASIA_OF_FIRST_____"));
    assert!(asked[0].field("authorization").unwrap().contains("/eu-west-3/sts/aws4_request"));
}

#[test]
fn a_container_assumes_a_role() {
    let (sts, store) = (sts(&[("first", "ASIA_OF_CONTAINER")]), store_of(key_of("first")));
    let container = Server::start(|_, _| {
        let found = r#"{"AccessKeyId": "ASIA_OF_CONTAINER", "SecretAccessKey": "s", "Token": "t", "Expiration": "2126-01-01T00:00:00Z"}"#;
        Some(Reply::xml(200, found))
    });
    let config = format!("[profile p]\n{ROLE}/first\ncredential_source = EcsContainer\n");
    let of_container = format!("http://127.0.0.1:{}/bucket/credentials", container.port);
    let variables = [("AWS_CONTAINER_CREDENTIALS_FULL_URI", of_container.as_str())];
    let (environment, _home) = user(&store, &sts, &config, &variables);
    assert_eq!(opened(&environment), Ok(()));
}

#[test]
fn a_virtual_machine_assumes_a_role() {
    let (sts, store) = (sts(&[("first", "ASIA_OF_MACHINE__")]), store_of(key_of("first")));
    let machine = Server::start(|request, _| {
        let found = r#"{"Code": "Success", "AccessKeyId": "ASIA_OF_MACHINE__", "SecretAccessKey": "s", "Token": "t", "Expiration": "2126-01-01T00:00:00Z"}"#;
        Some(match request.key.as_slice() {
            b"latest/api/token" => Reply::xml(200, "token"),
            b"latest/meta-data/iam/security-credentials/" => Reply::xml(200, "of-machine"),
            _ => Reply::xml(200, found),
        })
    });
    let config = format!("[profile p]\n{ROLE}/first\ncredential_source = Ec2InstanceMetadata\n");
    let of_machine = format!("http://127.0.0.1:{}/bucket", machine.port);
    let variables =
        [("AWS_EC2_METADATA_SERVICE_ENDPOINT", of_machine.as_str()), ("AWS_EC2_METADATA_DISABLED", "false")];
    let (environment, _home) = user(&store, &sts, &config, &variables);
    assert_eq!(opened(&environment), Ok(()));
}

#[test]
fn a_program_of_the_source_profile_assumes_a_role() {
    let (sts, store) = (sts(&[("first", "ASIA_OF_PROGRAM__")]), store_of(key_of("first")));
    let kept = tempfile::NamedTempFile::new().unwrap();
    let found = r#"{"Version": 1, "AccessKeyId": "ASIA_OF_PROGRAM__", "SecretAccessKey": "s"}"#;
    std::fs::write(kept.path(), found).unwrap();
    let program = format!("credential_process = cat {}", kept.path().display());
    let config = format!("[profile p]\n{ROLE}/first\nsource_profile = q\n[profile q]\n{program}\n");
    let (environment, _home) = user(&store, &sts, &config, &[]);
    assert_eq!(opened(&environment), Ok(()));
}

#[test]
fn the_token_of_a_web_identity_in_the_profile_gives_a_role() {
    let token = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(token.path(), "of-web\n").unwrap();
    let sts = Server::start(|request, _| {
        let asked = String::from_utf8_lossy(&request.body).into_owned();
        let is_ours = request.method == "POST" && asked.contains("WebIdentityToken=of-web&");
        let answer = session(&key_of("first"), IN_A_CENTURY);
        let answer = String::from_utf8(answer.body).unwrap().replace("AssumeRole", "AssumeRoleWithWebIdentity");
        Some(if is_ours { Reply::xml(200, &answer) } else { refused() })
    });
    let store = store_of(key_of("first"));
    let config = format!("[profile p]\n{ROLE}/first\nweb_identity_token_file = {}\n", token.path().display());
    let (environment, _home) = user(&store, &sts, &config, &[]);
    assert_eq!(opened(&environment), Ok(()));
}

#[test]
fn keys_of_the_environment_come_before_a_role() {
    let sts = sts(&[]);
    let store = Server::start(|request, _| {
        (signer(request) != "AKIA_OF_ENVIRON__").then(|| Reply::error(403, "InvalidAccessKeyId"))
    });
    store.state.lock().unwrap().put(b"d/f", b"data");
    let config = format!("[profile p]\n{ROLE}/first\ncredential_source = Environment\n");
    let keys = [("AWS_ACCESS_KEY_ID", "AKIA_OF_ENVIRON__"), ("AWS_SECRET_ACCESS_KEY", "s")];
    let (environment, _home) = user(&store, &sts, &config, &keys);
    assert_eq!(opened(&environment), Ok(()));
    assert!(sts.seen().is_empty());
}

/// A session that ends in a few seconds is good for one request.
#[test]
fn a_session_is_renewed_before_it_ends() {
    let last = Mutex::new(0);
    let sts = Server::start(move |_, _| {
        let mut last = last.lock().unwrap();
        *last += 1;
        let soon = Timestamp::now() + Duration::from_secs(12);
        Some(session(&format!("ASIA_OF_NUMBER_{last:03}"), &soon.format_rfc3339_zulu()))
    });
    let store = Server::honest();
    store.state.lock().unwrap().put(b"d/f", b"data");
    let config = format!(
        "[profile p]\n{ROLE}/first\nsource_profile = p\naws_access_key_id = AKIA_OF_THE_USER\naws_secret_access_key = s\n"
    );
    let (environment, _home) = user(&store, &sts, &config, &[]);
    let opened = open_objects("bucket", &[b"d/".to_vec()], true, &environment, settings).unwrap();
    assert_eq!(opened.tree.items(haul_store::WalkOptions::default()).count(), 3);
    let callers: BTreeMap<String, usize> = store.seen().iter().map(|request| (signer(request), 1)).collect();
    assert_eq!(callers.len(), store.seen().len(), "{callers:?}");
    assert!(callers.len() >= 2, "{callers:?}");
}

#[test]
fn a_role_that_is_refused_is_named_and_no_other_credentials_take_its_place() {
    let store = Server::honest();
    let refusing = sts(&[]);
    let keys = "aws_access_key_id = AKIA_OF_THE_USER\naws_secret_access_key = s";
    let config = format!("[profile p]\n{ROLE}/first\nsource_profile = p\n{keys}\n");
    let (mut environment, _home) = user(&store, &refusing, &config, &[]);
    let why = opened(&environment).unwrap_err();
    assert!(why.contains("role/first of the profile p: AccessDenied: not him"), "{why}");
    environment.variables.insert("AWS_ENDPOINT_URL_STS".to_owned(), "http://127.0.0.1:1".to_owned());
    let why = opened(&environment).unwrap_err();
    assert!(why.contains("http://127.0.0.1:1") && why.contains("refused"), "{why}");
    environment.variables.insert("AWS_PROFILE".to_owned(), "absent".to_owned());
    let why = opened(&environment).unwrap_err();
    assert!(why.contains("no profile absent"), "{why}");
    assert!(store.seen().is_empty());
    assert!(!why.contains("AKIA"), "{why}");
}

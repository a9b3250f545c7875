//! Where a bucket is: endpoint and region, found like Amazon's own tools.
//!
//! ```text
//!   AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, endpoint_url of the profile   -> https://HOST/BUCKET/KEY
//!   none of them                                                        -> https://BUCKET.s3.REGION.amazonaws.com/KEY
//! ```

use std::io::{self, ErrorKind};

use crate::http_client::url::Origin;
use crate::s3::environment::Environment;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Access {
    pub(super) origin: Origin,
    /// The path in front of each key, with a final slash.
    pub(super) prefix: String,
    pub(super) bucket: String,
    pub(super) region: String,
    /// Amazon may name another region for the bucket.
    pub(super) is_amazon: bool,
}

impl Access {
    pub(super) fn find(bucket: &str, environment: &Environment) -> io::Result<Access> {
        check_bucket(bucket)?;
        let region = environment.region();
        let Some(url) = environment.endpoint("S3")? else { return Ok(Access::at_amazon(bucket, &region)) };
        let prefix = format!("{}/{bucket}/", url.path().trim_end_matches('/'));
        Ok(Access { origin: url.origin().clone(), prefix, bucket: bucket.to_owned(), region, is_amazon: false })
    }

    /// A name with a dot has no certificate below amazonaws.com.
    pub(super) fn at_amazon(bucket: &str, region: &str) -> Access {
        let domain = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
        let (host, prefix) = match bucket.contains('.') {
            true => (format!("s3.{region}.{domain}"), format!("/{bucket}/")),
            false => (format!("{bucket}.s3.{region}.{domain}"), "/".to_owned()),
        };
        let origin = Origin { is_tls: true, host, port: 443 };
        Access { origin, prefix, bucket: bucket.to_owned(), region: region.to_owned(), is_amazon: true }
    }
}

fn check_bucket(bucket: &str) -> io::Result<()> {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    let begins_well = bucket.starts_with(|first: char| first.is_ascii_alphanumeric());
    match begins_well && bucket.len() <= MAX_BUCKET_BYTES && bucket.bytes().all(is_good) && !bucket.contains("..") {
        true => Ok(()),
        false => Err(io::Error::new(
            ErrorKind::InvalidInput,
            format!("no bucket has the name \"{bucket}\": it has letters, digits, dots and dashes"),
        )),
    }
}

/// Old buckets of Amazon's have up to 255 characters, new ones 63.
const MAX_BUCKET_BYTES: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;

    fn found(bucket: &str, variables: &[(&str, &str)]) -> String {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        match Access::find(bucket, &Environment { variables, home: None }) {
            Ok(Access { origin, prefix, region, .. }) => format!("{origin}{prefix} {region}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_bucket_is_found_as_amazons_tools_find_it() {
        assert_eq!(found("b", &[]), "https://b.s3.us-east-1.amazonaws.com/ us-east-1");
        let region = ("AWS_REGION", "eu-west-3");
        assert_eq!(found("b.c", &[region]), "https://s3.eu-west-3.amazonaws.com/b.c/ eu-west-3");
        assert_eq!(found("b", &[("AWS_REGION", "cn-north-1")]), "https://b.s3.cn-north-1.amazonaws.com.cn/ cn-north-1");
        let endpoint = ("AWS_ENDPOINT_URL", "http://127.0.0.1:9000");
        assert_eq!(found("b", &[endpoint]), "http://127.0.0.1:9000/b/ us-east-1");
        let of_s3 = ("AWS_ENDPOINT_URL_S3", "https://store/at/");
        assert_eq!(found("b", &[endpoint, of_s3, region]), "https://store/at/b/ eu-west-3");
        assert!(found("b", &[("AWS_ENDPOINT_URL", "store:9000")]).contains("no URL"));
        assert_eq!(found("b", &[("AWS_REGION", "x.evil.example/")]), "https://b.s3.us-east-1.amazonaws.com/ us-east-1");
        for name in ["", "a/b", "-b", "a..b", "a b", "a@b"] {
            assert!(found(name, &[]).contains("no bucket"), "{name}");
        }
    }
}

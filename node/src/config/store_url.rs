//! Where the store is. Stands here until `storage::store` brings its own.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// A local directory or a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// `file:///absolute/dir`
    File(PathBuf),
    /// `s3://bucket[/prefix]`
    S3 {
        /// The bucket.
        bucket: String,
        /// Put before every key; empty or without slashes at its ends.
        prefix: String,
    },
}

impl FromStr for StoreUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let allowed = || "file:///absolute/dir or s3://bucket[/prefix]".to_owned();
        let url = url::Url::parse(text).map_err(|_e| allowed())?;
        if url.query().is_some() || url.fragment().is_some() {
            return Err(allowed());
        }
        match (url.scheme(), url.host_str()) {
            ("file", None) if text.starts_with("file:///") => {
                url.to_file_path().map(Self::File).map_err(|()| allowed())
            }
            ("s3", Some(bucket)) if url.port().is_none() && url.username().is_empty() => {
                Ok(Self::S3 { bucket: bucket.to_owned(), prefix: url.path().trim_matches('/').to_owned() })
            }
            _ => Err(allowed()),
        }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "file://{}", path.display()),
            Self::S3 { bucket, prefix } if prefix.is_empty() => write!(f, "s3://{bucket}"),
            Self::S3 { bucket, prefix } => write!(f, "s3://{bucket}/{prefix}"),
        }
    }
}

/// What the usual AWS environment says.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct S3Env {
    /// `AWS_ENDPOINT_URL`.
    pub endpoint: Option<String>,
    /// `AWS_REGION`, else `AWS_DEFAULT_REGION`.
    pub region: Option<String>,
    /// `AWS_ACCESS_KEY_ID`.
    pub access_key_id: Option<String>,
    /// `AWS_SECRET_ACCESS_KEY`. Never shown.
    pub secret_access_key: Option<String>,
    /// `AWS_SESSION_TOKEN`. Never shown.
    pub session_token: Option<String>,
    /// `AWS_ALLOW_HTTP`.
    pub allow_http: bool,
}

impl fmt::Debug for S3Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Env")
            .field("endpoint", &self.endpoint)
            .field("region", &self.region)
            .finish_non_exhaustive()
    }
}

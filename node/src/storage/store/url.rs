//! Which bucket: the value of `--store`, and what reaches an S3 bucket. Pure; parsed by `config`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Where the bucket is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// A folder, absolute: `file:///var/lib/weir/bucket`.
    File(PathBuf),
    /// `s3://bucket/prefix`.
    S3 {
        /// The bucket.
        bucket: String,
        /// What all keys begin with, without slashes at its ends; may be empty.
        prefix: String,
    },
}

/// A text that names no bucket.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{got:?} is not an object store: {why}; allowed are file:///absolute/folder and s3://bucket/prefix")]
pub struct UrlError {
    got: String,
    why: &'static str,
}

impl FromStr for StoreUrl {
    type Err = UrlError;
    fn from_str(s: &str) -> Result<Self, UrlError> {
        let bad = |why| UrlError { got: s.chars().take(200).collect(), why };
        let (scheme, _) = s.split_once("://").ok_or_else(|| bad("it has no scheme"))?;
        if !matches!(scheme, "file" | "s3") {
            return Err(bad("its scheme is unknown"));
        }
        let url = url::Url::parse(s).map_err(|_e| bad("it is not a URL"))?;
        if url.query().is_some() || url.fragment().is_some() {
            return Err(bad("it has a query or fragment"));
        }
        if !url.username().is_empty() || url.password().is_some() || url.port().is_some() {
            return Err(bad("credentials and ports do not belong into it"));
        }
        if scheme == "file" {
            let folder = url.to_file_path().map_err(|()| bad("it is not an absolute path"))?;
            return if folder.parent().is_some() {
                Ok(Self::File(folder))
            } else {
                Err(bad("the root folder cannot be a bucket"))
            };
        }
        let bucket = url.host_str().filter(|h| !h.is_empty()).ok_or_else(|| bad("it names no bucket"))?;
        let prefix = url.path().trim_matches('/').to_owned();
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'/');
        if !prefix.bytes().all(plain) || prefix.contains("//") {
            return Err(bad("its prefix may hold letters, digits, '-', '_', '.' and single '/'"));
        }
        Ok(Self::S3 { bucket: bucket.to_owned(), prefix })
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(folder) => match url::Url::from_file_path(folder) {
                Ok(url) => url.fmt(f),
                Err(()) => write!(f, "file://{}", folder.display()),
            },
            Self::S3 { bucket, prefix } if prefix.is_empty() => write!(f, "s3://{bucket}"),
            Self::S3 { bucket, prefix } => write!(f, "s3://{bucket}/{prefix}"),
        }
    }
}

/// How an S3 bucket is reached: what `config` found in the usual AWS environment. Secrets never show in `Debug`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct S3Env {
    /// Another endpoint than Amazon's; plain HTTP is allowed if it says so.
    pub endpoint: Option<String>,
    /// The region.
    pub region: Option<String>,
    /// With its secret; without both, the instance's or pod's own identity is used.
    pub access_key_id: Option<String>,
    /// See `access_key_id`.
    pub secret_access_key: Option<String>,
    /// For temporary credentials.
    pub session_token: Option<String>,
    /// Further `AWS_…` variables, passed on by name: web identity, container credentials.
    pub more: Vec<(String, String)>,
}

impl fmt::Debug for S3Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hidden = |s: &Option<String>| s.as_ref().map(|_| "…");
        f.debug_struct("S3Env")
            .field("endpoint", &self.endpoint)
            .field("region", &self.region)
            .field("access_key_id", &self.access_key_id)
            .field("secret_access_key", &hidden(&self.secret_access_key))
            .field("session_token", &hidden(&self.session_token))
            .field("more", &self.more.iter().map(|(name, _)| name).collect::<Vec<_>>())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_parse_and_print_as_given() {
        for (text, url) in [
            ("file:///var/bucket", StoreUrl::File("/var/bucket".into())),
            ("file:///with%20space", StoreUrl::File("/with space".into())),
            ("s3://b", StoreUrl::S3 { bucket: "b".into(), prefix: String::new() }),
            ("s3://b/x/y", StoreUrl::S3 { bucket: "b".into(), prefix: "x/y".into() }),
        ] {
            assert_eq!(text.parse(), Ok(url.clone()), "{text}");
            assert_eq!(url.to_string(), text);
        }
        let slash = StoreUrl::S3 { bucket: "b".into(), prefix: "x".into() };
        assert_eq!("s3://b/x/".parse(), Ok(slash));
    }

    #[test]
    fn other_texts_are_refused_by_name() {
        for text in [
            "",
            "/var/bucket",
            "bucket",
            "gs://b",
            "file://relative/path",
            "file:///",
            "s3://",
            "s3:///x",
            "s3://b/x?y=1",
            "s3://b/a//b",
            "s3://b/a b",
            "s3://key:secret@b",
            "s3://b:9000/x",
        ] {
            let parsed = text.parse::<StoreUrl>();
            let error = parsed.expect_err(text).to_string();
            assert!(error.contains("s3://bucket/prefix"), "{error}");
        }
    }

    #[test]
    fn secrets_do_not_print() {
        let env = S3Env {
            secret_access_key: Some("hunter2".into()),
            session_token: Some("tok".into()),
            more: vec![("AWS_X".into(), "hunter2".into())],
            ..S3Env::default()
        };
        let text = format!("{env:?}");
        assert!(!text.contains("hunter2") && !text.contains("tok\""), "{text}");
    }
}

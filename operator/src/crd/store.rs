//! Where records live.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// A place in an S3-compatible bucket.
#[derive(KubeSchema, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.prefix) == has(oldSelf.prefix) && (!has(self.prefix) || self.prefix == oldSelf.prefix)").message("objectStore.prefix cannot be changed: records would be left behind").field_path(".prefix"),
    validation = Rule::new("!has(self.credentials) || has(self.region) || has(self.endpoint)").message("objectStore.region is needed where there is no endpoint").field_path(".region")
)]
pub struct ObjectStore {
    /// The bucket, which must exist: 3 to 63 characters. Cannot be changed. It must honour put-if-absent
    /// (`If-None-Match: *`) and show at once what was written. Nodes probe that at their start.
    #[schemars(length(min = 3, max = 63))]
    #[x_kube(
        validation = Rule::new("self.matches('^[a-z0-9][a-z0-9.-]*[a-z0-9]$')").message("objectStore.bucket must be a bucket's name: 3 to 63 of a-z, 0-9, '.' and '-'"),
        validation = Rule::new("self == oldSelf").message("objectStore.bucket cannot be changed: records would be left behind")
    )]
    pub bucket: String,

    /// Put before every key, up to 200 characters, so that clusters can share a bucket. Default: none. Cannot be changed. Two
    /// clusters never share bucket and prefix: the second is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 200))]
    #[x_kube(validation = Rule::new("self.matches('^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*$')").message("objectStore.prefix must be segments of A-Z, a-z, 0-9, '_', '.' and '-', divided by single slashes, none at its ends"))]
    pub prefix: Option<String>,

    /// An S3-compatible server, http(s)://HOST[:PORT] of up to 500 characters. Default: AWS, by region. Restarts pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 500))]
    #[x_kube(validation = Rule::new("self.matches('^https?://[^/?#@ ]+$')").message("objectStore.endpoint must be http(s)://HOST[:PORT], without path and credentials"))]
    pub endpoint: Option<String>,

    /// The region, up to 64 characters. Default: us-east-1 if there is an endpoint, else none. Restarts pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9-]+$')").message("objectStore.region must be a-z, 0-9 and '-', such as eu-central-1"))]
    pub region: Option<String>,

    /// A Secret with access keys. Default: none; the pods' service account gets access by workload identity. A changed
    /// Secret restarts pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<Credentials>,

    /// Take over bucket and prefix from another StreamCluster that is gone: the cluster uid they hold
    /// (`status.clusterUid` there, or `cluster.json`), 32 hexadecimal digits. Its volumes must still exist. Once they are
    /// taken over (`status.clusterUid`) it cannot be changed or removed: they still name the other StreamCluster. Default:
    /// none. Restarts pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new("self.matches('^[0-9a-f]{32}$')").message("objectStore.adoptClusterUid must be 32 hexadecimal digits, lower case"))]
    pub adopt_cluster_uid: Option<String>,
}

/// Access keys in a Secret of this namespace.
#[derive(KubeSchema, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Credentials {
    /// The Secret's name, up to 253 characters.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')").message("credentials.secretName must be the name of a Secret: a-z, 0-9, '-' and '.'"))]
    pub secret_name: String,

    /// Key of the access key id, up to 253 characters. Default AWS_ACCESS_KEY_ID.
    #[serde(default = "access_key_id")]
    #[schemars(length(min = 1, max = 253))]
    pub access_key_id_key: String,

    /// Key of the secret access key, up to 253 characters. Default AWS_SECRET_ACCESS_KEY.
    #[serde(default = "secret_access_key")]
    #[schemars(length(min = 1, max = 253))]
    pub secret_access_key_key: String,

    /// Key of the session token, up to 253 characters. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub session_token_key: Option<String>,
}

impl Credentials {
    /// Which environment variable comes from which key.
    pub fn variables(&self) -> Vec<(&'static str, &str)> {
        let Self { secret_name: _, access_key_id_key, secret_access_key_key, session_token_key } = self;
        let mut all = vec![
            ("AWS_ACCESS_KEY_ID", access_key_id_key.as_str()),
            ("AWS_SECRET_ACCESS_KEY", secret_access_key_key.as_str()),
        ];
        all.extend(session_token_key.as_deref().map(|key| ("AWS_SESSION_TOKEN", key)));
        all
    }
}

fn access_key_id() -> String {
    "AWS_ACCESS_KEY_ID".to_owned()
}

fn secret_access_key() -> String {
    "AWS_SECRET_ACCESS_KEY".to_owned()
}

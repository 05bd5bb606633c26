//! Requests to the admin API.
//!
//! Invariant: the token goes to the admin listener it was given for and is shown nowhere.

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use weir_api::NodeId;
use weir_api::admin::{FenceNode, SetNode, TransferStream};

use super::failure::Failure;
use super::send::{Client, Repeat};
use crate::streams::StreamName;

/// Longest answer.
const ANSWER_MAX: usize = 64 << 20;

/// A client of the admin API.
#[derive(Debug, Clone)]
pub struct AdminClient {
    client: Client,
    token: Option<HeaderValue>,
}

impl AdminClient {
    /// With the token, if there is one.
    pub fn new(client: Client, token: Option<&str>) -> Result<Self, Failure> {
        let value = |t: &str| {
            let mut value = HeaderValue::from_str(&format!("Bearer {t}"))
                .map_err(|_e| Failure::Nonsense("the token has characters that none may have".into()))?;
            value.set_sensitive(true);
            Ok(value)
        };
        Ok(Self { client, token: token.map(value).transpose()? })
    }

    /// `GET /admin/cluster`, as the server writes it.
    pub async fn cluster(&self) -> Result<Bytes, Failure> {
        self.ask(Method::GET, "/admin/cluster".to_owned(), None).await
    }

    /// `GET /admin/nodes`.
    pub async fn nodes(&self) -> Result<Bytes, Failure> {
        self.ask(Method::GET, "/admin/nodes".to_owned(), None).await
    }

    /// `GET /admin/members`.
    pub async fn members(&self) -> Result<Bytes, Failure> {
        self.ask(Method::GET, "/admin/members".to_owned(), None).await
    }

    /// `GET /admin/nodes/{id}`.
    pub async fn node(&self, id: &NodeId) -> Result<Bytes, Failure> {
        self.ask(Method::GET, format!("/admin/nodes/{id}"), None).await
    }

    /// `POST /admin/nodes/{id}/fence`: an epoch that is over stays so.
    pub async fn fence(&self, id: &NodeId, body: &FenceNode) -> Result<Bytes, Failure> {
        let text = serde_json::to_vec(body).map_err(|e| Failure::Nonsense(e.to_string()))?;
        self.ask(Method::POST, format!("/admin/nodes/{id}/fence"), Some(text.into())).await
    }

    /// `DELETE /admin/nodes/{id}`: removing what is removed changes nothing.
    pub async fn remove(&self, id: &NodeId) -> Result<Bytes, Failure> {
        self.ask(Method::DELETE, format!("/admin/nodes/{id}"), None).await
    }

    /// `GET /admin/streams/{name}`.
    pub async fn stream(&self, name: &StreamName) -> Result<Bytes, Failure> {
        self.ask(Method::GET, format!("/admin/streams/{}", name.to_path()), None).await
    }

    /// `POST /admin/nodes/{id}`: setting a weight twice is setting it.
    pub async fn set_node(&self, id: &str, body: &SetNode) -> Result<Bytes, Failure> {
        let text = serde_json::to_vec(body).map_err(|e| Failure::Nonsense(e.to_string()))?;
        self.ask(Method::POST, format!("/admin/nodes/{}", path_segment(id)), Some(text.into())).await
    }

    /// `POST`, `GET` or `DELETE /admin/nodes/{id}/drain`: each may be sent again.
    pub async fn drain(&self, method: Method, id: &str) -> Result<Bytes, Failure> {
        self.ask(method, format!("/admin/nodes/{}/drain", path_segment(id)), None).await
    }

    /// `POST` or `DELETE /admin/transfer`. A second `DELETE` may find nothing to abort.
    pub async fn transfer(&self, method: Method, body: &TransferStream) -> Result<Bytes, Failure> {
        let text = serde_json::to_vec(body).map_err(|e| Failure::Nonsense(e.to_string()))?;
        self.ask(method, "/admin/transfer".to_owned(), Some(text.into())).await
    }

    async fn ask(&self, method: Method, target: String, body: Option<Bytes>) -> Result<Bytes, Failure> {
        let mut ask = self.client.ask(method, target, Repeat::Safe);
        if let Some(token) = &self.token {
            ask.headers.insert(AUTHORIZATION, token.clone());
        }
        if let Some(body) = body {
            ask.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            ask.body = body;
        }
        let answer = self.client.send(ask).await?;
        answer.body.whole(ANSWER_MAX).await.map_err(Failure::Unavailable)
    }
}

/// A node id in a path.
fn path_segment(id: &str) -> String {
    utf8_percent_encode(id, NON_ALPHANUMERIC).to_string().replace("%2D", "-").replace("%2E", ".")
}

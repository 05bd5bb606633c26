//! Calls between nodes: bytes to a path at an address, with a deadline, a secret and the cluster's name.
//!
//! Invariant: every call is answered, refused by a named reason, or ends at its deadline; its caller learns whether it
//! surely never left (`Unreachable`) or may have arrived (`Unknown`). Bodies, connections and calls in flight are bounded.
//! A node of another cluster, of another generation or without the secret is refused, by whichever side notices first.
//! Knows bytes and paths, not what they mean. Made and served by `run`; `metadata` and those above it call and answer.
//!
//! HTTP/2 with prior knowledge over `net`: one connection per address, made when needed (the name is resolved anew each
//! time), and a second one for bulk, behind which no heartbeat has to wait.

mod credentials;
mod link;
mod refusal;
mod server;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited, StreamBody};
use hyper::body::Frame;
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use weir_api::{ClusterUid, NodeId};

use crate::files::File;
use crate::tasks::Tasks;
use crate::tokens::Tokens;
use link::Link;
pub use refusal::{Refusal, RefusalCode};
pub use server::{Incoming, serve};

/// The most bytes of a call's body unless it says otherwise.
pub const BODY_MAX: usize = 1 << 20;
/// Addresses remembered before those without a connection are forgotten.
const LINKS: usize = 256;
/// A file is sent in pieces of this size.
const PIECE: usize = 128 << 10;

/// One kind of call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// Below `/peer/`.
    path: &'static str,
    request_max: usize,
    answer_max: usize,
    strangers: bool,
}

impl Call {
    /// A call at `/peer/<path>` with bodies of at most [`BODY_MAX`].
    pub const fn new(path: &'static str) -> Self {
        Self { path, request_max: BODY_MAX, answer_max: BODY_MAX, strangers: false }
    }

    /// The same with other bounds, in bytes.
    #[must_use]
    pub const fn bounded(self, request_max: usize, answer_max: usize) -> Self {
        Self { request_max, answer_max, ..self }
    }

    /// The same, open to those that have the secret and do not know their cluster yet.
    #[must_use]
    pub const fn for_strangers(self) -> Self {
        Self { strangers: true, ..self }
    }
}

/// Why a call has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// Not a byte of it left, or none that the other side acts upon.
    #[error("{address} is not reachable: {why}")]
    Unreachable {
        /// Whom it was for.
        address: String,
        /// Why not.
        why: String,
    },
    /// It may have been received and carried out.
    #[error("{address} has not answered: {why}")]
    Unknown {
        /// Whom it was for.
        address: String,
        /// What happened.
        why: String,
    },
    /// The other side, or this one on seeing whose it is, refused.
    #[error("{address} refuses: {refusal}")]
    Refused {
        /// Whom it was for.
        address: String,
        /// Why.
        refusal: Refusal,
    },
}

impl PeerError {
    /// It was surely not carried out.
    pub fn is_definite(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Refused { .. } => true,
            Self::Unknown { .. } => false,
        }
    }
}

type Body = UnsyncBoxBody<Bytes, io::Error>;
type Answer = Result<Bytes, Refusal>;

/// What carries out one kind of call.
#[derive(Clone)]
enum Handler {
    Whole(Arc<dyn Fn(NodeId, Bytes) -> BoxFuture<'static, Answer> + Send + Sync>),
    Streaming(Arc<dyn Fn(NodeId, Incoming) -> BoxFuture<'static, Answer> + Send + Sync>),
}

/// The handle. Clones share connections and handlers.
#[derive(Clone)]
pub struct Peers {
    inner: Arc<Inner>,
}

struct Inner {
    tasks: Tasks,
    tokens: Option<Tokens>,
    node: NodeId,
    generation: u64,
    cluster: Mutex<Option<ClusterUid>>,
    handlers: RwLock<HashMap<&'static str, (Call, Handler)>>,
    links: Mutex<HashMap<(String, bool), Arc<Link>>>,
    /// Tests: this node hears and says nothing.
    cut: watch::Sender<bool>,
}

impl Peers {
    /// The calls of `node`. Nobody is answered before [`Self::set_cluster`].
    pub fn new(node: NodeId, generation: u64, tokens: Option<Tokens>, tasks: &Tasks) -> Self {
        let inner = Inner {
            tasks: tasks.clone(),
            tokens,
            node,
            generation,
            cluster: Mutex::new(None),
            handlers: RwLock::default(),
            links: Mutex::default(),
            cut: watch::Sender::new(false),
        };
        Self { inner: Arc::new(inner) }
    }

    /// This node's cluster is known: only nodes of it are called and answered from now on.
    pub fn set_cluster(&self, cluster: Option<ClusterUid>) {
        *self.inner.cluster.lock() = cluster;
    }

    /// See [`Self::set_cluster`].
    pub fn cluster(&self) -> Option<ClusterUid> {
        *self.inner.cluster.lock()
    }

    /// Who calls.
    pub fn node(&self) -> &NodeId {
        &self.inner.node
    }

    /// Answers calls of this kind from now on, instead of who did so before.
    pub fn handle<F>(&self, call: Call, handler: impl Fn(NodeId, Bytes) -> F + Send + Sync + 'static)
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        let handler = Handler::Whole(Arc::new(move |from, body| Box::pin(handler(from, body))));
        self.inner.handlers.write().insert(call.path, (call, handler));
    }

    /// As [`Self::handle`], for a request that is read piece by piece.
    pub fn handle_streaming<F>(
        &self,
        call: Call,
        handler: impl Fn(NodeId, Incoming) -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = Answer> + Send + 'static,
    {
        let handler = Handler::Streaming(Arc::new(move |from, body| Box::pin(handler(from, body))));
        self.inner.handlers.write().insert(call.path, (call, handler));
    }

    /// Answers calls of these kinds no longer.
    pub fn forget(&self, calls: &[Call]) {
        let mut handlers = self.inner.handlers.write();
        for call in calls {
            handlers.remove(call.path);
        }
    }

    /// One call; its answer within `deadline`.
    pub async fn call(
        &self,
        address: &str,
        call: &Call,
        body: Bytes,
        deadline: Duration,
    ) -> Result<Bytes, PeerError> {
        if body.len() > call.request_max {
            let why =
                format!("{} is called with {} bytes, at most {}", call.path, body.len(), call.request_max);
            return Err(PeerError::Unreachable { address: address.to_owned(), why });
        }
        let body = Full::new(body).map_err(|never| match never {}).boxed_unsync();
        self.send(address, call, body, false, deadline).await
    }

    /// One call whose body is `head` and then `length` bytes of `file` from where it stands, and then the crc32c of
    /// them, four bytes, little endian. Over the connection for bulk.
    pub async fn call_streaming(
        &self,
        address: &str,
        call: &Call,
        head: Bytes,
        file: File,
        length: u64,
        deadline: Duration,
    ) -> Result<Bytes, PeerError> {
        let pieces = Pieces {
            head: Some(head),
            file: Some(file),
            left: length,
            crc: 0,
            tasks: self.inner.tasks.clone(),
        };
        let pieces = futures::stream::try_unfold(pieces, |mut pieces| async move {
            let piece = pieces.next().await?;
            Ok(piece.map(|piece| (Frame::data(piece), pieces)))
        });
        self.send(address, call, StreamBody::new(pieces).boxed_unsync(), true, deadline).await
    }

    async fn send(
        &self,
        address: &str,
        call: &Call,
        body: Body,
        bulk: bool,
        deadline: Duration,
    ) -> Result<Bytes, PeerError> {
        let end = Instant::now() + deadline;
        let unreachable = |why: String| PeerError::Unreachable { address: address.to_owned(), why };
        let unknown = |why: String| PeerError::Unknown { address: address.to_owned(), why };
        let refused = |refusal| PeerError::Refused { address: address.to_owned(), refusal };
        let request = credentials::request(&self.inner, address, call, body).map_err(unreachable)?;
        let link = self.link(address, bulk);
        let late = |_e| unreachable(format!("no connection within {deadline:?}"));
        let (mut sender, _place) =
            timeout_at(end, link.ready(&self.inner)).await.map_err(late)?.map_err(unreachable)?;
        let answered = async {
            let sent = sender.try_send_request(request).await;
            let response = sent.map_err(|mut e| match e.take_message() {
                Some(_) => unreachable("the connection has closed".to_owned()),
                None => unknown(link::chain(&e.into_error())),
            })?;
            let (head, body) = response.into_parts();
            credentials::check_answer(&self.inner, &head).map_err(refused)?;
            let whole = Limited::new(body, call.answer_max).collect().await;
            let whole = whole.map_err(|e| unknown(format!("its answer broke off: {e}")))?.to_bytes();
            match Refusal::from_answer(&head, &whole) {
                None => Ok(whole),
                Some(refusal) => Err(refused(refusal)),
            }
        };
        let mut cut = self.inner.cut.subscribe();
        tokio::select! {
            answered = timeout_at(end, answered) => match answered {
                Ok(answered) => answered,
                Err(_late) => Err(unknown(format!("no answer within {deadline:?}"))),
            },
            _ = cut.wait_for(|cut| *cut) => Err(unknown("the network is cut".to_owned())),
        }
    }

    fn link(&self, address: &str, bulk: bool) -> Arc<Link> {
        let mut links = self.inner.links.lock();
        if links.len() > LINKS {
            links.retain(|_, link| link.is_up());
        }
        let link = links.entry((address.to_owned(), bulk)).or_insert_with(|| Arc::new(Link::new(address)));
        link.clone()
    }

    /// For tests: cuts this node off from all others, or lets it back.
    #[cfg(test)]
    pub(crate) fn cut(&self, cut: bool) {
        self.inner.cut.send_replace(cut);
    }
}

/// The body of a streaming call.
struct Pieces {
    head: Option<Bytes>,
    /// Taken when the checksum was sent.
    file: Option<File>,
    left: u64,
    crc: u32,
    tasks: Tasks,
}

impl Pieces {
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        if let Some(head) = self.head.take() {
            return Ok(Some(head));
        }
        let Some(file) = self.file.take() else { return Ok(None) };
        if self.left == 0 {
            return Ok(Some(Bytes::copy_from_slice(&self.crc.to_le_bytes())));
        }
        let take = usize::try_from(self.left).unwrap_or(usize::MAX).min(PIECE);
        let read = move || {
            let mut piece = vec![0; take];
            io::Read::read_exact(&mut &file, &mut piece).map(|()| (file, piece))
        };
        let (file, piece) = self.tasks.blocking(read).await.map_err(io::Error::other)??;
        self.file = Some(file);
        self.left -= take as u64;
        self.crc = crc32c::crc32c_append(self.crc, &piece);
        Ok(Some(piece.into()))
    }
}

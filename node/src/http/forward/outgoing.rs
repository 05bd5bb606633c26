//! The body of a request on its way to the owner: known, or passed on as it comes.
//!
//! Invariant: a body that did not arrive whole does not look whole to the owner: unless the end was said, the request
//! is reset. At most [`AHEAD`] parts wait between the client and the owner's window. Used by `forward`.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;

/// Parts that wait.
const AHEAD: usize = 2;

/// See the file.
#[derive(Debug)]
pub(super) enum Outgoing {
    /// All of it.
    Whole(Option<Bytes>),
    /// What comes through the pipe.
    Piped { pipe: mpsc::Receiver<Option<Bytes>>, length: Option<u64>, ended: bool },
}

/// Where the client's bytes go in: `Some` part after part, then `None`.
pub(super) type Inlet = mpsc::Sender<Option<Bytes>>;

impl Outgoing {
    pub(super) fn whole(bytes: Bytes) -> Self {
        Self::Whole(Some(bytes).filter(|b| !b.is_empty()))
    }

    /// `length`: if it is known.
    pub(super) fn piped(length: Option<u64>) -> (Inlet, Self) {
        let (inlet, pipe) = mpsc::channel(AHEAD);
        (inlet, Self::Piped { pipe, length, ended: false })
    }

    /// Of the body, if it is known.
    pub(super) fn length(&self) -> Option<u64> {
        match self {
            Self::Whole(bytes) => Some(bytes.as_ref().map_or(0, |b| b.len() as u64)),
            Self::Piped { length, .. } => *length,
        }
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|b| Ok(Frame::data(b)))),
            Self::Piped { ended: true, .. } => Poll::Ready(None),
            Self::Piped { pipe, ended, .. } => pipe.poll_recv(cx).map(|part| match part {
                Some(Some(bytes)) => Some(Ok(Frame::data(bytes))),
                Some(None) => {
                    *ended = true;
                    None
                }
                None => {
                    Some(Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the client's body broke off")))
                }
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_none(),
            Self::Piped { ended, .. } => *ended,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64)),
            Self::Piped { .. } => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn a_piped_body_is_whole_only_if_its_end_was_said() {
        for said in [true, false] {
            let (inlet, body) = Outgoing::piped(None);
            inlet.send(Some(Bytes::from_static(b"abc"))).await.unwrap();
            if said {
                inlet.send(None).await.unwrap();
            }
            drop(inlet);
            assert_eq!(
                body.collect().await.map(|b| b.to_bytes()).ok().as_deref(),
                said.then_some(&b"abc"[..])
            );
        }
    }
}

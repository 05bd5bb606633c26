//! A server that does nothing: takes each request's body and answers 204, through everything that serves real requests.
//!
//! It shows what HTTP itself costs here, which is the most that appends can come to. Called by `cli::bench` alone.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use tokio_util::sync::CancellationToken;

use super::body::{self, Body, Budget};
use super::error::Reject;
use super::framing::Framing;
use super::serve::{Service, serve_with};
use super::{HttpLimits, Incoming, dress};
use crate::net::TcpListener;
use crate::tasks::Tasks;

struct Noop {
    limits: HttpLimits,
    stop: CancellationToken,
    bodies: Budget,
}

impl Service for Noop {
    fn limits(&self) -> &HttpLimits {
        &self.limits
    }

    fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    async fn answer(&self, request: Request<Incoming>, refused: Option<Framing>) -> Response<Body> {
        let (head, mut body) = request.into_parts();
        let deadline: Duration = self.limits.body_timeout;
        let taken = match refused {
            Some(framing) => Err(Reject::Framing(framing)),
            None => body::take(&mut body, self.limits.max_body, deadline, &self.bodies).await,
        };
        let mut response = taken.map_or_else(Reject::into_response, |_bytes| {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            response
        });
        dress(&head.method, &mut response);
        response
    }

    fn leave(&self) {}
}

/// Serves until `stop` is cancelled.
pub async fn serve_noop(listener: TcpListener, limits: HttpLimits, stop: CancellationToken, tasks: Tasks) {
    let bodies = Budget::new(limits.max_bodies);
    serve_with(listener, Arc::new(Noop { limits, stop, bodies }), tasks).await;
}

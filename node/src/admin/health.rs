//! Whether the process runs, and whether clients should be sent here.

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde_json::json;

use super::problem;
use crate::readiness::Readiness;

/// The process answers: that is all a restart could help with.
pub(super) fn live() -> Response<Full<Bytes>> {
    problem::json(StatusCode::OK, &json!({"live": true}))
}

pub(super) fn ready(readiness: &Readiness) -> Response<Full<Bytes>> {
    let status = readiness.status();
    let code = if status.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    problem::json(code, &status)
}

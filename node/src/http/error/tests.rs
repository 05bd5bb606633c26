//! Every refusal becomes its status, its fields and a body that names the part.

use weir_api::Offset;

use super::*;

fn status_and_headers(error: StreamError) -> (u16, HeaderMap) {
    let (parts, _body) = Reject::from(error).into_response().into_parts();
    (parts.status.as_u16(), parts.headers)
}

#[test]
fn every_stream_error_has_its_status() {
    for (error, status) in [
        (StreamError::NotFound, 404),
        (StreamError::Gone, 410),
        (StreamError::ConfigMismatch, 409),
        (StreamError::TypeMismatch { expected: "a/b".into() }, 409),
        (StreamError::Closed { next: Offset(7) }, 409),
        (StreamError::SeqConflict, 409),
        (StreamError::ProducerFenced { epoch: 3 }, 403),
        (StreamError::ProducerGap { expected: 1, received: 5 }, 409),
        (StreamError::ProducerStart, 400),
        (StreamError::Invalid("x".into()), 400),
        (StreamError::TooLarge { max: 1 }, 413),
        (StreamError::BeforeStart { start: Offset(1) }, 410),
        (ForkError::SourceMissing.into(), 404),
        (ForkError::SourceDeleted.into(), 409),
        (ForkError::TypeMismatch { expected: "a/b".into() }.into(), 409),
        (ForkError::BeyondTail { tail: Offset(1) }.into(), 400),
        (ForkError::SubBeyondTail { left: 1 }.into(), 400),
        (ForkError::TooManyExtents { extents: 2, max: 1 }.into(), 409),
        (StreamError::Limit("x".into()), 429),
        (StreamError::unavailable("x"), 503),
        (StreamError::OutcomeUnknown, 504),
    ] {
        assert_eq!(status_and_headers(error.clone()).0, status, "{error:?}");
    }
}

#[test]
fn what_may_be_tried_again_says_when_and_what_may_not_does_not() {
    let retry = |error| status_and_headers(error).1.get(RETRY_AFTER).cloned();
    assert_eq!(retry(StreamError::Unavailable { why: "x".into(), retry_after_s: 7 }).unwrap(), "7");
    assert_eq!(retry(StreamError::Unavailable { why: "x".into(), retry_after_s: 0 }).unwrap(), "1");
    assert!(retry(StreamError::Limit("x".into())).is_some());
    assert_eq!(retry(StreamError::OutcomeUnknown), None);
    assert_eq!(retry(StreamError::NotFound), None);
    for reject in [Reject::Busy("x"), Reject::ReadTimeout] {
        let response = reject.into_response();
        assert_eq!(response.status(), 503);
        assert!(response.headers().contains_key(RETRY_AFTER));
    }
}

#[test]
fn what_a_writer_needs_to_go_on_is_in_the_headers() {
    let (_, closed) = status_and_headers(StreamError::Closed { next: Offset(7) });
    assert_eq!(closed["stream-closed"], "true");
    assert_eq!(closed["stream-next-offset"], "00000000000000000007");
    let (_, fenced) = status_and_headers(StreamError::ProducerFenced { epoch: 3 });
    assert_eq!(fenced["producer-epoch"], "3");
    let (_, gap) = status_and_headers(StreamError::ProducerGap { expected: 1, received: 5 });
    assert_eq!(
        (&gap["producer-expected-seq"], &gap["producer-received-seq"]),
        (&"1".parse().unwrap(), &"5".parse().unwrap())
    );
}

#[test]
fn the_body_is_a_problem_document_that_names_the_field() {
    let response = Reject::bad("Stream-TTL", "what is allowed").into_response();
    assert_eq!(response.headers()[CONTENT_TYPE], "application/problem+json");
    let body = futures::executor::block_on(http_body_util::BodyExt::collect(response.into_body()));
    let body: serde_json::Value = serde_json::from_slice(&body.expect("infallible").to_bytes()).unwrap();
    let expected = serde_json::json!({
        "title": "Bad Request", "status": 400, "detail": "what is allowed", "field": "Stream-TTL"
    });
    assert_eq!(body, expected);
}

#[test]
fn a_reserved_name_is_answered_in_the_form_of_control_requests() {
    let response = Reject::from(NameError::Reserved).into_response();
    assert_eq!(response.status(), 404);
    assert_eq!(response.headers()[CONTENT_TYPE], "application/json");
    let other = Reject::from(NameError::Empty).into_response();
    assert_eq!(other.status(), 400);
}

#[test]
fn what_leaves_the_connection_in_doubt_closes_it() {
    for reject in [
        Reject::TooLarge { max: 1 },
        Reject::BodyTimeout,
        Reject::BodyBroken("x".into()),
        Reject::Framing(Framing::TwoLengths),
    ] {
        let response = reject.into_response();
        assert_eq!(response.headers()[CONNECTION], "close", "{}", response.status());
    }
}

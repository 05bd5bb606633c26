//! The requests of S3 that object_store makes: put, get (with ranges), head, delete, bulk delete, list.

use std::fmt::Write as _;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use percent_encoding::percent_decode_str;

use super::faults::{Fate, Outage};
use super::{BUCKET, Shared};

type Answer = Result<Response<Full<Bytes>>, io::Error>;

const MODIFIED: &str = "Fri, 01 Jan 2027 00:00:00 GMT";

/// Answers one request; an error cuts the connection.
pub(super) async fn answer(shared: Arc<Shared>, request: Request<Incoming>) -> Answer {
    let (outage, pause) = {
        let faults = shared.faults.lock().unwrap().clone();
        let pause = faults.pause(&mut shared.rng.lock().unwrap());
        (faults.outage, pause)
    };
    match outage {
        Some(Outage::Errors) => return error(StatusCode::SERVICE_UNAVAILABLE, "SlowDown"),
        Some(Outage::Cuts) => return Err(cut()),
        Some(Outage::Hangs) => {
            shared.unanswered.fetch_add(1, Ordering::SeqCst);
            std::future::pending().await
        }
        None => {}
    }
    if let Some(pause) = pause {
        tokio::time::sleep(pause).await;
    }
    let path = percent_decode_str(request.uri().path()).decode_utf8_lossy().into_owned();
    let key = path.trim_start_matches('/').strip_prefix(BUCKET).map(|k| k.trim_start_matches('/').to_owned());
    let Some(key) = key else { return error(StatusCode::NOT_FOUND, "NoSuchBucket") };
    let query = request.uri().query().unwrap_or_default().to_owned();
    match (request.method().clone(), key.as_str()) {
        (Method::GET, "") => list(&shared, &query),
        (Method::POST, "") => delete_many(&shared, request).await,
        (Method::PUT, _) => put(&shared, key, request).await,
        (Method::GET | Method::HEAD, _) => get(&shared, &key, &request),
        (Method::DELETE, _) => {
            shared.note(format_args!("delete {key}"));
            shared.objects.lock().unwrap().remove(&key);
            respond(Response::builder().status(StatusCode::NO_CONTENT), Bytes::new())
        }
        _ => error(StatusCode::NOT_IMPLEMENTED, "NotImplemented"),
    }
}

async fn put(shared: &Arc<Shared>, key: String, request: Request<Incoming>) -> Answer {
    *shared.puts.lock().unwrap() += 1;
    let held = shared.faults.lock().unwrap().held;
    if held.is_some_and(|part| key.contains(part)) {
        shared.unanswered.fetch_add(1, Ordering::SeqCst);
        std::future::pending::<()>().await;
    }
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(|_e| cut())?.to_bytes();
    let (fate, overwrites) = {
        let faults = shared.faults.lock().unwrap();
        (faults.fate(&mut shared.rng.lock().unwrap()), faults.overwrites)
    };
    let if_absent = head.headers.contains_key(header::IF_NONE_MATCH) && !overwrites;
    let etag = etag(&body);
    if fate != Fate::Fine {
        shared.note(format_args!("put of {key}: {fate:?}"));
    }
    match fate {
        Fate::Failed => error(StatusCode::INTERNAL_SERVER_ERROR, "InternalError"),
        Fate::Conflict => error(StatusCode::CONFLICT, "ConditionalRequestConflict"),
        Fate::Late(after) => {
            shared.store_late(after, key, body, if_absent);
            error(StatusCode::INTERNAL_SERVER_ERROR, "InternalError")
        }
        Fate::Ambiguous { cut: true } => {
            shared.store(&key, body, if_absent);
            Err(cut())
        }
        Fate::Ambiguous { cut: false } => {
            shared.store(&key, body, if_absent);
            error(StatusCode::INTERNAL_SERVER_ERROR, "InternalError")
        }
        Fate::Fine if shared.store(&key, body, if_absent) => {
            respond(Response::builder().header(header::ETAG, etag), Bytes::new())
        }
        Fate::Fine => error(StatusCode::PRECONDITION_FAILED, "PreconditionFailed"),
    }
}

fn get(shared: &Shared, key: &str, request: &Request<Incoming>) -> Answer {
    let Some(whole) = shared.objects.lock().unwrap().get(key).cloned() else {
        return error(StatusCode::NOT_FOUND, "NoSuchKey");
    };
    let head = |b: http::response::Builder| {
        b.header(header::ETAG, etag(&whole)).header(header::LAST_MODIFIED, MODIFIED)
    };
    if request.method() == Method::HEAD {
        return respond(head(Response::builder()).header(header::CONTENT_LENGTH, whole.len()), Bytes::new());
    }
    let Some(range) = request.headers().get(header::RANGE).and_then(|v| v.to_str().ok()) else {
        return respond(head(Response::builder()), whole.clone());
    };
    let Some((from, to)) = span(range, whole.len()) else {
        return error(StatusCode::RANGE_NOT_SATISFIABLE, "InvalidRange");
    };
    let content_range = format!("bytes {from}-{}/{}", to - 1, whole.len());
    let builder = Response::builder().status(StatusCode::PARTIAL_CONTENT);
    respond(head(builder).header(header::CONTENT_RANGE, content_range), whole.slice(from..to))
}

/// `bytes=a-b`, `bytes=a-` or `bytes=-n` as a half-open span.
fn span(range: &str, len: usize) -> Option<(usize, usize)> {
    let (from, to) = range.strip_prefix("bytes=")?.split_once('-')?;
    let span = match (from, to) {
        ("", last) => (len.saturating_sub(last.parse().ok()?), len),
        (from, "") => (from.parse().ok()?, len),
        (from, to) => (from.parse().ok()?, len.min(to.parse::<usize>().ok()? + 1)),
    };
    (span.0 < span.1).then_some(span)
}

async fn delete_many(shared: &Shared, request: Request<Incoming>) -> Answer {
    let body = request.into_body().collect().await.map_err(|_e| cut())?.to_bytes();
    let body = String::from_utf8_lossy(&body).into_owned();
    let mut objects = shared.objects.lock().unwrap();
    for part in body.split("<Key>").skip(1) {
        if let Some((key, _)) = part.split_once("</Key>") {
            objects.remove(key);
        }
    }
    respond(Response::builder(), "<DeleteResult></DeleteResult>".into())
}

fn list(shared: &Shared, query: &str) -> Answer {
    let parameter = |name: &str| {
        let found = query.split('&').filter_map(|p| p.split_once('=')).find(|(n, _)| *n == name);
        found.map(|(_, v)| percent_decode_str(v).decode_utf8_lossy().into_owned())
    };
    let prefix = parameter("prefix").unwrap_or_default();
    let delimiter = parameter("delimiter").unwrap_or_default();
    let after = parameter("continuation-token").or_else(|| parameter("start-after")).unwrap_or_default();
    let most: usize = parameter("max-keys").and_then(|n| n.parse().ok()).unwrap_or(1000);
    let objects = shared.objects.lock().unwrap();
    let (mut entries, mut common, mut last, mut cut_off) = (String::new(), Vec::new(), "", false);
    let mut count = 0;
    for (key, body) in objects.iter().filter(|(k, _)| k.starts_with(&prefix) && **k > after) {
        if count == most {
            cut_off = true;
            break;
        }
        last = key;
        let rest = &key[prefix.len()..];
        if let Some(end) = rest.find(&delimiter).filter(|_| !delimiter.is_empty()) {
            let folder = key[..prefix.len() + end + delimiter.len()].to_owned();
            if common.last() != Some(&folder) {
                common.push(folder);
                count += 1;
            }
            continue;
        }
        count += 1;
        write!(
            entries,
            "<Contents><Key>{key}</Key><LastModified>2027-01-01T00:00:00.000Z</LastModified>\
             <ETag>{}</ETag><Size>{}</Size></Contents>",
            etag(body),
            body.len()
        )
        .expect("a string takes all");
    }
    for folder in common {
        write!(entries, "<CommonPrefixes><Prefix>{folder}</Prefix></CommonPrefixes>").expect("as above");
    }
    let token = if cut_off {
        format!("<NextContinuationToken>{last}</NextContinuationToken>")
    } else {
        String::new()
    };
    let xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult><Name>{BUCKET}</Name><Prefix>{prefix}</Prefix>\
         <KeyCount>{count}</KeyCount><MaxKeys>{most}</MaxKeys><IsTruncated>{cut_off}</IsTruncated>{token}{entries}\
         </ListBucketResult>"
    );
    respond(Response::builder().header(header::CONTENT_TYPE, "application/xml"), xml.into())
}

/// FNV-1a: enough for a tag.
fn etag(body: &[u8]) -> String {
    let hash =
        body.iter().fold(0xCBF2_9CE4_8422_2325_u64, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01B3));
    format!("\"{hash:016x}-{}\"", body.len())
}

fn respond(builder: http::response::Builder, body: Bytes) -> Answer {
    Ok(builder.body(Full::new(body)).expect("well formed"))
}

fn error(status: StatusCode, code: &str) -> Answer {
    let xml = format!("<Error><Code>{code}</Code><Message>a test's fault</Message></Error>");
    respond(Response::builder().status(status).header(header::CONTENT_TYPE, "application/xml"), xml.into())
}

fn cut() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "cut on purpose")
}

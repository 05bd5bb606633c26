//! Stream names right and wrong.

use super::case::{Case, head, put};

pub(super) fn table() -> Vec<Case> {
    let bad = |name: &str| put(&format!("/v1/stream/{name}")).text().is(400).names("name");
    let mut rows = vec![
        put("n").text().is(201),
        put("n/a/b/c").text().is(201),
        put("n%2Fa%2Fb%2Fc").text().is(200),
        put("n/%C3%A9t%C3%A9").text().is(201),
        head("n/%c3%a9t%c3%a9").is(200),
        put("n/with%20space").text().is(201),
        put("n/with:colon@and+plus~tilde").text().is(201),
        put("n/...").text().is(201),
        put("n/__ds").text().is(201),
        put("__ds/x").text().is(404),
        head("__ds").is(404),
        put(&"x".repeat(1024)).text().is(201),
        bad(&"x".repeat(1025)),
        bad(&"%78".repeat(1025)),
    ];
    let wrong =
        ["", "n/", "n//a", "/n", "n/.", "n/..", "n/../m", "n/%2e%2e/m", "%2E", "n%00", "n/%0A", "n/%7F"];
    rows.extend(wrong.map(bad));
    rows.extend(["n/%", "n/%2", "n/%zz", "n/%FF", "n/%C3"].map(bad));
    rows
}

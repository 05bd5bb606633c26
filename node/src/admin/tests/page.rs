//! The page's files, and who may ask the listener at all.

use super::*;

#[tokio::test]
async fn the_page_is_served_without_a_token_and_may_run_nothing_but_its_own() {
    let f = with_token(fixture(Ok(())), false);
    for (path, kind, holds) in [
        ("/", "text/html; charset=utf-8", "<title>Weir"),
        ("/page.css", "text/css; charset=utf-8", "prefers-color-scheme: dark"),
        ("/page.js", "text/javascript; charset=utf-8", "admin/cluster"),
        ("/icon.svg", "image/svg+xml", "<svg"),
    ] {
        let told = f.get(path).await;
        assert_eq!((told.status, told.headers[CONTENT_TYPE].to_str().unwrap()), (200, kind));
        assert!(told.body.contains(holds), "{path}");
        let policy = told.headers["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
        assert!(!policy.contains("unsafe") && policy.contains("frame-ancestors 'none'"), "{policy}");
        assert_eq!(told.headers["x-content-type-options"], "nosniff");
        assert_eq!(f.ask("HEAD", path, &[], b"").await.status, 200);
        f.ask("POST", path, &[], b"").await.problem(401, "unauthorized");
        fixture(Ok(())).ask("POST", path, &[], b"").await.problem(405, "method-not-allowed");
        // No file asks for anything from elsewhere, nor has script or style where the policy forbids them.
        let markup = told.body.replace("http://www.w3.org/2000/svg", "");
        assert!(
            !markup.contains("://") && !markup.contains("<style") && !markup.contains(" style="),
            "{path}"
        );
    }
    for path in ["/index.html", "/page/page.js", "/page.jsx", "/favicon.ico"] {
        f.get(path).await.problem(401, "unauthorized");
        fixture(Ok(())).get(path).await.problem(404, "no-such-path");
    }
}

#[tokio::test]
async fn pages_of_other_origins_get_nothing_done() {
    let own = fixture(Ok(()));
    let token = format!("Bearer {TOKEN}");
    let guarded = with_token(fixture(Ok(())), false);
    let json = ("content-type", "application/json");
    for f in [&own, &guarded] {
        let ask = async |method, path, origin, host| {
            let headers = [json, ("authorization", token.as_str()), ("origin", origin), ("host", host)];
            f.ask(method, path, &headers, br#"{"slots": 1}"#).await
        };
        for origin in
            ["http://evil.example", "http://127.0.0.1:8080", "http://127.0.0.1", "null", "", "file://"]
        {
            for (method, path) in [("GET", "/"), ("GET", "/admin/nodes"), ("POST", "/admin/nodes/node-0")] {
                let told = ask(method, path, origin, "127.0.0.1:9090").await;
                assert!(told.problem(403, "foreign-origin").contains(origin), "{origin}");
            }
        }
        assert!(f.proposed.lock().is_empty());
        for origin in ["http://127.0.0.1:9090", "https://127.0.0.1:9090"] {
            assert_eq!(ask("POST", "/admin/nodes/node-0", origin, "127.0.0.1:9090").await.status, 200);
        }
    }
    // Its own name does not help a page that resolves it to this listener.
    let rebound = [("origin", "http://evil.example:9090"), ("host", "evil.example:9090")];
    for path in ["/", "/page.js", "/admin/nodes"] {
        own.ask("GET", path, &rebound, b"").await.problem(421, "foreign-host");
    }
}

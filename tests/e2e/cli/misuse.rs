//! Wrong input: what it exits with, and the first line that it says.

use weir_tests::cli::Weir;

use super::node;

/// What a wrong name or value is answered with, first line: nothing of it needs a server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_with_the_line_itself_is_told_before_anything_is_sent() {
    let weir = Weir::new("127.0.0.1:1");
    let invalid =
        |value: &str, at: &str, why: &str| format!("error: invalid value '{value}' for '{at}': {why}");
    let name = "<NAME>";
    let missing = "error: the following required arguments were not provided:".to_owned();
    let table: Vec<(&[&str], String)> = vec![
        (
            &["read", "http://h:1/v1/stream/a"],
            invalid("http://h:1/v1/stream/a", name, "this is a URL; type instead: a --server http://h:1"),
        ),
        (
            &["append", "/v1/stream/a", "x"],
            invalid("/v1/stream/a", name, "the path is not part of the name; type instead: a"),
        ),
        (
            &["head", "/a/"],
            invalid("/a/", name, "a name neither begins nor ends with a slash; type instead: a"),
        ),
        (
            &["create", "__ds/x"],
            invalid("__ds/x", name, "names beginning with the segment '__ds' are reserved"),
        ),
        (
            &["read", "a", "--offset", "13"],
            invalid(
                "13",
                "--offset <OFFSET>",
                "an offset has 20 digits; type instead: 00000000000000000013, or -1 for the beginning",
            ),
        ),
        (
            &["read", "a", "--offset=end"],
            invalid("end", "--offset <OFFSET>", "the end is written now; type instead: --offset now"),
        ),
        (
            &["head", "a", "--server", "localhost:4437"],
            invalid(
                "localhost:4437",
                "--server <URL>",
                "the scheme is missing; type instead: http://localhost:4437",
            ),
        ),
        (
            &["create", "a", "--content-type", "json"],
            invalid("json", "--content-type <TYPE>", "type instead: application/json"),
        ),
        (
            &["create", "a", "--ttl", "soon"],
            invalid(
                "soon",
                "--ttl <TIME>",
                "allowed: whole seconds, or a number with a unit (s, m, h, d), as 90, 10m, 7d",
            ),
        ),
        (
            &["create", "a", "--expires-at", "tomorrow"],
            invalid(
                "tomorrow",
                "--expires-at <TIME>",
                "allowed: an RFC 3339 time with a zone, as 2027-01-31T12:00:00Z",
            ),
        ),
        (
            &["append", "a", "--batch-size", "1GiB"],
            invalid(
                "1GiB",
                "--batch-size <SIZE>",
                "a whole number of bytes or with a unit (KiB, MiB, GiB, TiB) from 1 to 16MiB",
            ),
        ),
        (
            &["head", "a", "--timeout", "5"],
            invalid("5", "--timeout <TIME>", "a whole number with a unit (ms, s, m, h, d) from 100ms to 7d"),
        ),
        (
            &["read", "a", "--transport", "websocket"],
            "error: invalid value 'websocket' for '--transport <HOW>'".to_owned(),
        ),
        (&["admin", "slots", "node-0", "-1"], "error: unexpected argument '-1' found".to_owned()),
        (
            &["admin", "slots", "node-0", "many"],
            invalid("many", "<N>", "\"many\" is not a slots value: a whole number from 0 to 1000000"),
        ),
        (&["read"], missing.clone()),
        (&["append"], missing.clone()),
        (&["rm"], missing.clone()),
        (&["fork", "a"], missing),
        (&["reed", "a"], "error: unrecognized subcommand 'reed'".to_owned()),
        (&["read", "a", "--folow"], "error: unexpected argument '--folow' found".to_owned()),
        (
            &["append", "a", "x", "--file", "y"],
            "error: the argument '[DATA]...' cannot be used with '--file <FILE>'".to_owned(),
        ),
        (
            &["append", "a", "x", "--producer-epoch", "1"],
            "error: the following required arguments were not provided:".to_owned(),
        ),
        (
            &["create", "a", "--ttl", "1", "--expires-at", "2027-01-31T12:00:00Z"],
            "error: the argument '--ttl <TIME>' cannot be used with '--expires-at <TIME>'".to_owned(),
        ),
    ];
    for (args, first) in table {
        let ended = weir.run(args).await;
        assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""), "{args:?}: {}", ended.err);
        assert_eq!(ended.err.lines().next().unwrap_or_default(), first, "{args:?}");
    }
    let near = weir.run(&["reed", "a"]).await.err;
    assert!(near.contains("a similar subcommand exists: 'read'"), "{near}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_server_refuses_is_told_with_what_to_do_next() {
    let (_scratch, _node, weir) = node().await;
    weir.run(&["create", "text", "--content-type", "text/plain", "--data", "x"]).await.ok();
    weir.run(&["create", "json", "--content-type", "application/json"]).await.ok();
    weir.run(&["create", "it's", "--content-type", "text/plain", "--closed"]).await.ok();
    weir.run(&["append", "text", "b", "--seq", "b"]).await.ok();
    weir.run(&["append", "text", "c", "--producer", "p", "--producer-epoch", "5"]).await.ok();
    let table: &[(&[&str], i32, &str)] = &[
        (&["read", "missing"], 7, "weir: no such stream: missing\n  create it with: weir create missing\n"),
        (
            &["append", "missing two", "x"],
            7,
            "weir: no such stream: missing two\n  create it with: weir create 'missing two'\n",
        ),
        (
            &["tail", "missing", "-n", "3"],
            7,
            "weir: no such stream: missing\n  create it with: weir create missing\n",
        ),
        (&["close", "missing"], 7, "weir: no such stream: missing\n  create it with: weir create missing\n"),
        (
            &["rm", "missing"],
            7,
            "weir: no such stream: missing\n  to pass over what is not there: --missing-ok\n",
        ),
        (
            &["create", "text"],
            8,
            "weir: text: the stream exists with another content type, expiry, closed state or fork source; PUT repeats \
             only what it was created with\n  see what is there with: weir head text\n",
        ),
        (
            &["append", "it's", "x"],
            9,
            "weir: it's is closed: it takes no more\n  read it with: weir read 'it'\\''s'\n",
        ),
        (
            &["append", "text", "x", "--seq", "a"],
            8,
            "weir: text: Stream-Seq is not above the last accepted one\n",
        ),
        (
            &["append", "text", "x", "y", "--seq", "c"],
            2,
            "weir: --seq goes with one request, and this input takes several\n  append less at once, or raise \
             --batch-size\n",
        ),
        (
            &["append", "text", "x", "--producer", "p", "--producer-epoch", "4"],
            8,
            "weir: text: Producer-Epoch: a newer epoch of the producer has written: epoch 5\n  to go on as that epoch: \
             --producer-epoch 5; to begin anew: a higher one\n",
        ),
        (
            &["append", "text", "x", "--content-type", "text/csv"],
            8,
            "weir: text: Content-Type: the stream's content type is text/plain\n",
        ),
        (&["append", "text", ""], 2, "weir: DATA 1 is empty: there is nothing to append\n"),
        (
            &["append", "json", "1", "hello"],
            2,
            "weir: DATA 2 is not JSON: expected value at line 1 column 1\n  the stream is application/json; a text is \
             written with quotes: '\"text\"'\n",
        ),
        (
            &["read", "text", "--json-lines"],
            2,
            "weir: --json-lines: the stream is text/plain, which has no elements\n  leave --json-lines out: its bytes \
             are put out as they are\n",
        ),
        (
            &["append", "text", "--file", "/nowhere"],
            1,
            "weir: /nowhere: No such file or directory (os error 2)\n",
        ),
        (&["append", "text", "--file", "/"], 1, "weir: /: is a directory\n"),
        (
            &["admin", "nodes", "--token-file", "/nowhere"],
            2,
            "weir: --token-file: /nowhere: No such file or directory (os error 2)\n",
        ),
    ];
    for (args, code, says) in table {
        let ended = weir.run(args).await;
        assert_eq!((ended.code, ended.err.as_str()), (Some(*code), *says), "{args:?}: {}", ended.out);
        assert_eq!(ended.out, "", "{args:?}");
    }
    let head = weir.run(&["head", "json", "--json"]).await.ok();
    assert!(head.contains("\"nextOffset\":\"00000000000000000000\""), "nothing was sent: {head}");
    let garbage = weir.run_with(&["append", "json", "--lines"], b"1\n2\nthree\n").await;
    assert_eq!(garbage.code, Some(2));
    assert!(garbage.err.starts_with("weir: line 3 is not JSON: "), "{}", garbage.err);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_server_it_says_where_it_looked_and_exits_10() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let mut weir = Weir::new(&address);
    weir.admin = format!("http://{address}");
    let first = format!("weir: cannot connect to http://{address}: Connection refused (os error 111)");
    for args in [
        &["create", "a"][..],
        &["append", "a", "x"],
        &["read", "a", "--follow"],
        &["tail", "a"],
        &["ls"],
        &["rm", "a"],
        &["admin", "cluster"],
    ] {
        let ended = weir.run(&[args, &["--timeout", "200ms"]].concat()).await;
        assert_eq!((ended.code, ended.out.as_str()), (Some(10), ""), "{args:?}: {}", ended.err);
        assert_eq!(ended.err.lines().next().unwrap_or_default(), first, "{args:?}");
        assert!(ended.err.contains("is a node running"), "{args:?}: {}", ended.err);
    }
    weir.server = "not a url".to_owned();
    let ended = weir.run(&["head", "a"]).await;
    assert_eq!(
        (ended.code, ended.err.as_str()),
        (Some(2), "weir: environment variable WEIR_SERVER: give http://HOST:PORT\n")
    );
}

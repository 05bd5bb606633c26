//! Long transfers, and what may happen to them: nothing is lost and nothing doubled.

use std::time::Duration;

use rustix::process::Signal;
use weir_tests::cli::Weir;
use weir_tests::files::Scratch;
use weir_tests::front::Front;
use weir_tests::node::{Node, Setup};
use weir_tests::wait;

use super::{at, node};

const PATIENCE: Duration = Duration::from_secs(60);

/// Lines that differ, about `bytes` of them.
fn lines(bytes: usize) -> String {
    let mut text = String::new();
    let mut n = 0_u64;
    while text.len() < bytes {
        text.push_str(&format!("line {n} {:016x}\n", n.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
        n += 1;
    }
    text
}

/// The stream's end.
async fn end(weir: &Weir, name: &str) -> u64 {
    let head = weir.run(&["head", name, "--json"]).await.ok();
    let head: serde_json::Value = serde_json::from_str(&head).unwrap();
    head["nextOffset"].as_str().unwrap().parse().unwrap()
}

async fn lead_to(front: &Front, node: &mut Node) {
    front.lead_to(Some(&node.addresses().await.unwrap().client));
}

async fn follows_over_restarts(transport: &'static str, kind: &str) {
    let scratch = Scratch::new();
    let setup = Setup::new(scratch.path("data")).flag("long-poll-timeout", "1s");
    let mut node = setup.start().await.unwrap();
    let front = Front::start().await;
    lead_to(&front, &mut node).await;
    let weir = Weir::new(&front.address);
    weir.run(&["create", "log", "--content-type", kind]).await.ok();
    let follow = ["read", "log", "--follow", "--json", "--transport", transport];
    let mut reader = weir.start(&follow);
    let mut all = String::new();
    for round in 0..5 {
        let more: String = (0..20).map(|n| format!("{}\n", round * 1000 + n)).collect();
        // Numbered, so that what a killed node leaves unknown can be sent again.
        let producer = format!("round-{round}");
        let appended =
            weir.run_with(&["append", "log", "--lines", "--producer", &producer], more.as_bytes()).await;
        assert_eq!(appended.code, Some(0), "{}", appended.err);
        assert_eq!(String::from_utf8(reader.read(more.len()).await).unwrap(), more, "round {round}");
        all.push_str(&more);
        front.lead_to(None);
        if round % 2 == 0 {
            node.kill();
        } else {
            node.terminate(PATIENCE).await.unwrap();
        }
        node = setup.start().await.unwrap();
        lead_to(&front, &mut node).await;
    }
    weir.run(&["close", "log"]).await.ok();
    let ended = reader.end().await;
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), ""), "{}", ended.err);
    let last = end(&weir, "log").await;
    assert!(ended.err.contains(&format!("\"nextOffset\":\"{}\"", at(last))), "{}", ended.err);
    let again = weir.run(&["read", "log", "--follow", "--quiet"]).await.ok();
    assert_eq!(again, all);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_follows_over_restarts_and_kills_of_the_node() {
    follows_over_restarts("long-poll", "text/plain").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_follows_json_over_restarts_and_kills_of_the_node() {
    follows_over_restarts("long-poll", "application/json").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_of_events_follows_over_restarts_and_kills_of_the_node() {
    follows_over_restarts("sse", "application/octet-stream").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_of_json_events_follows_over_restarts_and_kills_of_the_node() {
    follows_over_restarts("sse", "application/json").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_is_told_to_stop_says_where_to_go_on() {
    let (_scratch, _node, weir) = node().await;
    weir.run(&["create", "log", "--content-type", "text/plain", "--data", "hello\n"]).await.ok();
    for signal in [Signal::INT, Signal::TERM] {
        let mut reader = weir.start(&["read", "log", "--follow"]);
        assert_eq!(reader.read(6).await, b"hello\n");
        reader.signal(signal);
        let ended = reader.end().await;
        assert_eq!((ended.code, ended.err), (Some(0), format!("next offset {} (the end)\n", at(6))));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_ends_quietly_when_nobody_reads_its_output() {
    let (scratch, _node, weir) = node().await;
    let file = scratch.path("input");
    std::fs::write(&file, lines(8 << 20)).unwrap();
    weir.run(&["create", "big", "--content-type", "text/plain"]).await.ok();
    weir.run(&["append", "big", "--file", file.to_str().unwrap()]).await.ok();
    for args in [&["read", "big"][..], &["read", "big", "--follow"]] {
        let mut reader = weir.start(args);
        reader.read(10).await;
        reader.hang_up();
        let ended = reader.end().await;
        assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{args:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_that_was_killed_half_way_goes_on_when_it_is_run_again() {
    let scratch = Scratch::new();
    let setup = Setup::new(scratch.path("data"));
    let mut node = setup.start().await.unwrap();
    let direct = Weir::new(&node.addresses().await.unwrap().client);
    let front = Front::start().await;
    lead_to(&front, &mut node).await;
    let weir = Weir::new(&front.address);
    let (input, text) = (scratch.path("input"), lines(3 << 20));
    std::fs::write(&input, &text).unwrap();
    let input = input.to_str().unwrap();
    for (name, more) in [("bytes", &[][..]), ("lines", &["--lines"]), ("closed", &["--close"])] {
        weir.run(&["create", name, "--content-type", "text/plain"]).await.ok();
        let args = [&["append", name, "--file", input, "--producer", "job-7", "--batch-size", "64KiB"], more]
            .concat();
        // Killed by the user in the middle, and then the node is killed under it.
        let mut reached = 0;
        for _ in 0..2 {
            front.pass(1 << 20);
            let job = weir.start(&args);
            let further = || async { Ok(Some(end(&direct, name).await).filter(|n| *n > reached)) };
            reached = wait::until("the append to get somewhere", PATIENCE, further).await.unwrap();
            job.kill().await;
        }
        assert!(reached < text.len() as u64, "it was killed in the middle");
        front.pass(u64::MAX);
        let done = weir.run(&args).await.ok();
        assert!(
            done.starts_with("appended ") && done.contains(" were there already; next offset "),
            "{done}"
        );
        let read = weir.run(&["read", name, "--quiet"]).await.ok();
        assert!(read == text, "{name}: {} bytes instead of {}", read.len(), text.len());
        // A run after a success appends nothing.
        let again = weir.run(&args).await.ok();
        assert!(again.starts_with(&format!("all of it is in {name} already: 3.0 MiB")), "{again}");
        assert_eq!(again.trim_end().ends_with("; closed"), name == "closed", "{again}");
        assert_eq!(end(&weir, name).await, text.len() as u64);
    }
    // The same job with an input that is not the same does no harm and says so.
    let other = scratch.path("other");
    for (changed, says) in [
        (format!("{text}more\n"), "which is shorter than the same requests of this input"),
        (text[..1 << 20].to_owned(), "and this input makes 16"),
    ] {
        std::fs::write(&other, changed).unwrap();
        let args = [
            "append",
            "bytes",
            "--file",
            other.to_str().unwrap(),
            "--producer",
            "job-7",
            "--batch-size",
            "64KiB",
        ];
        let refused = weir.run(&args).await;
        assert_eq!(refused.code, Some(8), "{}", refused.err);
        assert!(refused.err.contains(says), "{}", refused.err);
        assert_eq!(end(&weir, "bytes").await, text.len() as u64);
    }
    // Nor is it said to be closed when the closing request has the number of what is there.
    let refused = weir.run_with(&["append", "bytes", "--producer", "job-7", "--close"], b"").await;
    assert_eq!(refused.code, Some(8), "{}{}", refused.out, refused.err);
    assert!(refused.err.contains("and this input makes 0"), "{}", refused.err);
    weir.run(&["append", "bytes", "it is open"]).await.ok();
    drop(node);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_outlives_its_node_if_a_producer_makes_it_safe() {
    let scratch = Scratch::new();
    let setup = Setup::new(scratch.path("data"));
    let mut node = setup.start().await.unwrap();
    let front = Front::start().await;
    lead_to(&front, &mut node).await;
    let weir = Weir::new(&front.address);
    let (input, text) = (scratch.path("input"), lines(3 << 20));
    std::fs::write(&input, &text).unwrap();
    weir.run(&["create", "log", "--content-type", "text/plain"]).await.ok();
    front.pass(1 << 20);
    let job = weir.start(&[
        "append",
        "log",
        "--file",
        input.to_str().unwrap(),
        "--producer",
        "job",
        "--batch-size",
        "64KiB",
    ]);
    let direct = Weir::new(&node.addresses().await.unwrap().client);
    let some = || async { Ok(Some(end(&direct, "log").await).filter(|n| *n > 0)) };
    wait::until("the append to get somewhere", PATIENCE, some).await.unwrap();
    front.lead_to(None);
    node.kill();
    node = setup.start().await.unwrap();
    lead_to(&front, &mut node).await;
    front.pass(u64::MAX);
    let ended = job.end().await;
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let read = weir.run(&["read", "log", "--quiet"]).await.ok();
    assert!(read == text, "{} bytes instead of {}", read.len(), text.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pipe_is_appended_as_it_comes() {
    let (_scratch, _node, weir) = node().await;
    weir.run(&["create", "log", "--content-type", "text/plain"]).await.ok();
    let reader = weir.start(&["tail", "log", "-n", "1000", "--quiet"]);
    let mut job = weir.start(&["append", "log", "--lines"]);
    for (text, reached) in [("one\n", 4), ("two\nthr", 8), ("ee\n", 14)] {
        job.write(text).await;
        let there = || async { Ok(Some(end(&weir, "log").await).filter(|n| *n == reached)) };
        wait::until("what was written to be appended", PATIENCE, there).await.unwrap();
    }
    let ended = job.end().await;
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{}", ended.out);
    assert!(ended.out.starts_with("appended 14 bytes to log in 3 requests"), "{}", ended.out);
    weir.run(&["close", "log"]).await.ok();
    assert_eq!(reader.end().await.ok(), "one\ntwo\nthree\n");
}

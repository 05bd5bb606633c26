//! What needs no process; real ones are in `tests/e2e/dev.rs`.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::Path;

use super::super::ExitCode;
use super::folder::{Folder, Kept};
use super::logs::Tail;
use super::plan::{self, Plan, Ports};
use super::screen::{self, Shown};
use super::{Routing, base_port};
use crate::config;

fn ports(client: u16, peer: u16, admin: u16) -> Ports {
    Ports { client, peer, admin }
}

#[test]
fn nodes_keep_their_ports_and_take_others_where_these_are_gone() {
    let all = plan::candidates(3, &[]);
    assert_eq!(all, BTreeSet::from([4437, 4438, 9090, 4447, 4448, 9091, 4457, 4458, 9092]));
    assert_eq!(
        plan::choose(3, &[], &all),
        [ports(4437, 4438, 9090), ports(4447, 4448, 9091), ports(4457, 4458, 9092)]
    );
    // Somebody has 4447, and what a node had comes before what it would have.
    let kept = [ports(4437, 0, 9090), ports(50_000, 50_001, 50_002)];
    let mut free = plan::candidates(3, &kept);
    assert!(free.contains(&50_001) && !free.contains(&0) && !free.contains(&4447), "{free:?}");
    free.remove(&50_001);
    assert_eq!(
        plan::choose(3, &kept, &free),
        [ports(4437, 0, 9090), ports(50_000, 0, 50_002), ports(4457, 4458, 9092)]
    );
    // No port is given twice.
    let twice = [ports(5000, 5001, 5002), ports(5000, 5003, 5004)];
    assert_eq!(plan::choose(2, &twice, &plan::candidates(2, &twice))[1], ports(0, 5003, 5004));
}

#[test]
fn a_base_port_leaves_room_for_nine_nodes() {
    for (text, right) in
        [("0", true), ("1024", true), ("65453", true), ("65454", false), ("80", false), ("x", false)]
    {
        assert_eq!(base_port(text).is_ok(), right, "{text}");
    }
    assert_eq!(plan::fixed(5000, 2), ports(5020, 5021, 5022));
    assert!(plan::fixed(plan::BASE_MAX, 8).all().iter().all(|p| *p > plan::BASE_MAX));
}

#[test]
fn a_configuration_file_is_one_that_serve_takes() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("with a space and \"quotes\" and ä");
    fs::create_dir(&folder).unwrap();
    let plan = Plan {
        nodes: 3,
        slots: [4u64, 1, 1].map(|n| n.try_into().unwrap()).to_vec(),
        routing: Some(Routing::Forward),
    };
    for node in 0..3 {
        let settings = plan.settings(&folder, node, ports(5000, 5001, 5002), &[0, 6001]);
        let file = folder.join("node.toml");
        fs::write(&file, plan::file(&settings)).unwrap();
        // As `serve` reads it, in an environment that says otherwise.
        let hidden = plan::variables(&settings);
        let environment = |name: &str| {
            let other = name.starts_with("WEIR_") && name != "WEIR_LEASE";
            (other && !hidden.contains(&name.to_owned()) && name == "WEIR_SLOTS").then(|| "9".into())
        };
        let args = <config::SettingArgs as clap::Args>::augment_args(clap::Command::new("serve"));
        let matches = args.get_matches_from(["serve", "--config", file.to_str().unwrap()]);
        let args = <config::SettingArgs as clap::FromArgMatches>::from_arg_matches(&matches).unwrap();
        let config = config::load(&args, &environment).unwrap().config;
        assert_eq!(config.node_id.to_string(), format!("node-{node}"));
        assert_eq!(config.data_dir, folder.join(format!("node-{node}")));
        assert_eq!(config.store, config::StoreUrl::File(folder.join("store")));
        assert_eq!((config.slots.get(), config.cluster_size), (if node == 0 { 4 } else { 1 }, 3));
        assert_eq!((config.bootstrap, config.routing), (node == 0, config::RoutingMode::Forward));
        assert_eq!(config.join, ["127.0.0.1:6001"]);
        assert_eq!(config.peer_listen.port(), 5001);
    }
}

#[test]
fn flags_that_every_node_has_of_its_own_are_refused() {
    let plan = Plan { nodes: 1, slots: Vec::new(), routing: None };
    let settings = plan.settings(Path::new("/x"), 0, Ports::ANY, &[]);
    let more = |flag: &str| vec!["--lease".to_owned(), "1s".to_owned(), flag.to_owned()];
    assert_eq!(plan::clash(&settings, &more("--data-dir=/y")), Some("--data-dir=/y"));
    assert_eq!(plan::clash(&settings, &more("--config")), Some("--config"));
    assert_eq!(plan::clash(&settings, &more("--node-timeout=5s")), None);
    assert_eq!(plan::clash(&settings, &more("--log-level=debug")), None, "a flag holds before the file");
}

#[test]
fn a_folder_has_one_user_and_is_not_taken_from_others() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new/folder");
    let folder = Folder::open(&path).unwrap();
    assert_eq!(folder.kept().unwrap(), None);
    let stop = Folder::open(&path).unwrap_err();
    assert_eq!(stop.code, ExitCode::InUse);
    assert!(stop.message.contains(&format!("process {}", std::process::id())), "{stop:?}");
    let kept = Kept::new(vec![ports(1, 2, 3)]);
    folder.keep(&kept).unwrap();
    drop(folder);
    let folder = Folder::open(&path).unwrap();
    assert_eq!(folder.kept().unwrap(), Some(kept));
    fs::write(path.join("dev.json"), "{}").unwrap();
    assert_eq!(folder.kept().unwrap_err().code, ExitCode::Foreign);

    fs::write(dir.path().join("letter.txt"), "dear").unwrap();
    let stop = Folder::open(dir.path()).unwrap_err();
    assert!(stop.code == ExitCode::Usage && stop.message.contains("holds"), "{stop:?}");
    assert!(!dir.path().join("lock").exists());
}

#[test]
fn beginning_anew_deletes_the_cluster_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let folder = Folder::open(dir.path()).unwrap();
    folder.keep(&Kept::new(vec![Ports::ANY])).unwrap();
    fs::create_dir_all(dir.path().join("node-0/metadata")).unwrap();
    fs::create_dir_all(dir.path().join("store/g0")).unwrap();
    for file in ["node-0.toml", "node-0.log", "mine.txt"] {
        fs::write(dir.path().join(file), "x").unwrap();
    }
    let data = crate::data_dir::DataDir::open(&dir.path().join("node-0")).unwrap();
    let stop = folder.clear().unwrap_err();
    assert!(stop.code == ExitCode::InUse && stop.message.contains("node-0"), "{stop:?}");
    assert!(dir.path().join("store/g0").exists(), "nothing is deleted where a node is at work");
    drop(data);
    folder.clear().unwrap();
    let left: BTreeSet<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, BTreeSet::from(["lock".into(), "mine.txt".into()]));
}

#[test]
fn logs_are_shown_by_whole_lines_without_control_characters() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let mut file = fs::File::create(&path).unwrap();
    file.write_all(b"one\ntw").unwrap();
    let mut tail = Tail::new("node-0".to_owned(), path.clone());
    let mut read = || {
        let mut out = Vec::new();
        while tail.read(&mut out).unwrap() {}
        String::from_utf8(out).unwrap()
    };
    assert_eq!(read(), "node-0 | one\n");
    assert_eq!(read(), "");
    file.write_all(b"o\x1b[2J\n").unwrap();
    assert_eq!(read(), "node-0 | two\u{fffd}[2J\n");
    // Emptied by whoever started the node again.
    file.set_len(0).unwrap();
    let mut again = fs::File::options().append(true).open(&path).unwrap();
    again.write_all(b"x\n").unwrap();
    assert_eq!(read(), "node-0 | x\n");
    assert!(!Tail::at_end("n".to_owned(), path).read(&mut Vec::new()).unwrap());
}

fn three() -> Vec<Shown> {
    let node = |n: u16| Shown {
        id: format!("node-{n}"),
        ports: ports(4437 + n * 10, 4438 + n * 10, 9090 + n),
        pid: 100 + u32::from(n),
        config: format!("/x/node-{n}.toml"),
        log: format!("/x/node-{n}.log"),
    };
    (0..3).map(node).collect()
}

#[test]
fn the_screen_says_where_nodes_are_and_what_to_try() {
    let text = screen::ready("/x", "weir", &three(), true);
    for part in [
        "3 nodes, ready; all they keep is in /x",
        "node-1  http://127.0.0.1:4447  http://127.0.0.1:9091/  101",
        "weir create notes --content-type text/plain && weir append notes 'first ' --server http://127.0.0.1:4457",
        "weir admin stream notes\n",
        "kill -9 102",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let elsewhere = screen::ready("/x", "/b/weir", &three()[1..2], false);
    assert!(elsewhere.contains("/b/weir admin stream notes --admin http://127.0.0.1:9091"), "{elsewhere}");
    let json: serde_json::Value = serde_json::from_str(&screen::json("/x", &three())).unwrap();
    assert_eq!(json["nodes"][2]["client"], "http://127.0.0.1:4457");
    assert_eq!(json["nodes"][2]["config"], "/x/node-2.toml");
    let ended =
        |running, of| screen::ended("node-1", 7, "exit code 4", running, of, "weir serve --config /x");
    assert!(
        ended(2, 3).contains("node-1 (process 7) has ended: exit code 4. The others take"),
        "{}",
        ended(2, 3)
    );
    assert!(ended(1, 3).contains("Too few") && ended(0, 1).contains("when it is back"));
}

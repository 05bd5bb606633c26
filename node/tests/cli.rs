//! The binary's command line as a user meets it: exit codes, and errors that say what to change.

use std::process::{Command, Output};

fn weir(args: &[&str], env: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.env_clear().envs(env.iter().copied()).args(args).output().expect("the binary runs")
}

/// Exit code, stdout, stderr.
fn told(args: &[&str], env: &[(&str, &str)]) -> (i32, String, String) {
    let out = weir(args, env);
    let text = |b: Vec<u8>| String::from_utf8(b).expect("output is text");
    (out.status.code().expect("it exits by itself"), text(out.stdout), text(out.stderr))
}

#[test]
fn version_names_version_and_formats() {
    let (code, out, err) = told(&["version"], &[]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.starts_with(&format!("weir {}\n", env!("CARGO_PKG_VERSION"))), "{out}");
    assert!(out.contains("formats 1 to 1"), "{out}");
}

#[test]
fn help_goes_to_stdout_and_exits_0() {
    for args in [&["--help"][..], &["serve", "--help"], &["serve", "-h"], &["config", "--help"]] {
        let (code, out, err) = told(args, &[]);
        assert_eq!((code, err.as_str()), (0, ""), "{args:?}");
        assert!(out.contains("Exit codes:"), "{args:?}: {out}");
    }
    let (_, out, _) = told(&["serve", "--help"], &[]);
    let out = out.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in ["Examples:", "Addresses:", "Storage:", "[default: 10s]", "[env: WEIR_NODE_TIMEOUT]", "8MiB"]
    {
        assert!(out.contains(part), "{part} not in {out}");
    }
}

#[test]
fn usage_errors_exit_2_and_name_the_flag() {
    for (args, named) in [
        (&["serve", "--slot", "1"][..], "--slot"),
        (&["serve", "--slots"], "--slots"),
        (&["serve", "--slots", "1", "--slots", "2"], "--slots"),
        (&["serve", "extra"], "extra"),
        (&["sevre"], "serve"),
        (&[], "Usage"),
    ] {
        let (code, out, err) = told(args, &[]);
        assert_eq!((code, out.as_str()), (2, ""), "{args:?}");
        assert!(err.contains(named), "{args:?}: {err}");
    }
}

#[test]
fn configuration_errors_exit_2_in_one_line() {
    for (args, env, line) in [
        (
            &["--slots", "many"][..],
            &[][..],
            "weir: --slots: \"many\" is not allowed; allowed: a whole number from 0",
        ),
        (
            &[],
            &[("WEIR_LEASE", "5")],
            "weir: environment variable WEIR_LEASE: \"5\" is not allowed; allowed: ",
        ),
        (&["--config", "/nowhere"], &[], "weir: /nowhere: "),
        (
            &["--admin-listen", "0.0.0.0:9090"],
            &[],
            "weir: --admin-listen: 0.0.0.0:9090 is not a loopback address",
        ),
    ] {
        for command in ["serve", "config"] {
            let (code, out, err) = told(&[&[command], args].concat(), env);
            assert_eq!((code, out.as_str()), (2, ""), "{args:?}: {err}");
            assert!(err.starts_with(line) && err.lines().count() == 1, "{err}");
        }
    }
}

#[test]
fn several_nodes_need_a_store_that_they_share() {
    for args in [&["serve", "--join", "a:1"][..], &["serve", "--cluster-size=3", "--bootstrap"]] {
        let (code, _, err) = told(args, &[]);
        assert_eq!(code, 2, "{err}");
        assert!(err.contains("--store"), "{err}");
    }
}

#[test]
fn config_prints_values_with_origins_and_no_secrets() {
    let env = [("WEIR_NODE_ID", "demo-1"), ("AWS_SECRET_ACCESS_KEY", "hush"), ("AWS_REGION", "eu-1")];
    let (code, out, err) = told(&["config", "--slots", "3"], &env);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("slots = 3  # --slots"), "{out}");
    assert!(out.contains("node-id = \"demo-1\"  # environment variable WEIR_NODE_ID"), "{out}");
    assert!(out.contains("AWS_REGION: eu-1") && !out.contains("hush"), "{out}");
    let (code, out, _) = told(&["config", "--json"], &env);
    assert_eq!(code, 0);
    assert!(out.contains("\"WEIR_NODE_ID\"") || out.contains("WEIR_NODE_ID"), "{out}");
    assert!(!out.contains("hush"));
}

#[test]
fn a_variable_that_is_no_text_is_named() {
    use std::os::unix::ffi::OsStrExt as _;
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let out = command
        .env_clear()
        .env("WEIR_NODE_ID", std::ffi::OsStr::from_bytes(b"\xff"))
        .arg("config")
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&out.stderr).contains("WEIR_NODE_ID"));
}

#[test]
fn completions_know_commands_and_flags() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (code, out, err) = told(&["completions", shell], &[]);
        assert_eq!((code, err.as_str()), (0, ""), "{shell}");
        for word in ["append", "producer-epoch", "json-lines"] {
            assert!(out.contains(word), "{word} for {shell}");
        }
    }
    let (code, _, err) = told(&["completions", "sh"], &[]);
    assert_eq!(code, 2);
    assert!(err.contains("[possible values: bash, elvish, fish, powershell, zsh]"), "{err}");
}

#[test]
fn a_bash_completion_is_a_script_that_bash_takes() {
    let (_, script, _) = told(&["completions", "bash"], &[]);
    let checked = Command::new("bash").args(["-n", "-c", &script]).output().expect("bash is there");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

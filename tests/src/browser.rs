//! Chromium without a window, driven over its DevTools protocol through a pipe: no driver, no port, no WebSocket.
//!
//! Invariant: the process ends with its handle; whatever the page complains of (scripts that throw, requests or styles
//! that its policy forbids) is kept for the test to look at.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::files::Scratch;
use crate::node::PATIENCE;

/// Commands come on descriptor 3 and answers leave on 4, which are stdin and stdout here.
const PIPED: &str = r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >&2"#;

/// One browser with one page.
pub struct Browser {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    session: Option<String>,
    number: u64,
    complaints: VecDeque<String>,
    scratch: Scratch,
}

/// `WEIR_CHROMIUM`, else the first that is in the path.
fn program() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os("WEIR_CHROMIUM") {
        return Ok(named.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let named = ["chromium", "chromium-browser", "google-chrome"];
    let mut all = named.iter().flat_map(|name| std::env::split_paths(&path).map(move |dir| dir.join(name)));
    all.find(|file| file.is_file()).context("no Chromium: `.ci/setup tests` installs it")
}

impl Browser {
    /// Starts it, with an empty profile.
    pub async fn start() -> Result<Self> {
        let scratch = Scratch::new();
        let mut command = Command::new("sh");
        command.args(["-c", PIPED]).arg(program()?).arg("--headless=new").arg("--remote-debugging-pipe");
        command.arg(format!("--user-data-dir={}", scratch.path("profile").display()));
        // It shows pages of this test alone, and root has no use for its sandbox.
        command.args(["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]);
        command.args(["--no-first-run", "--disable-background-networking", "--disable-extensions"]);
        command.args([
            "--disable-component-update",
            "--disable-sync",
            "--window-size=1280,1100",
            "about:blank",
        ]);
        let errors = std::fs::File::create(scratch.path("stderr"))?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors).kill_on_drop(true);
        let mut child = command.spawn()?;
        let commands = child.stdin.take().context("piped")?;
        let answers = BufReader::new(child.stdout.take().context("piped")?);
        let (session, complaints) = (None, VecDeque::new());
        let mut this = Self { child, commands, answers, session, number: 0, complaints, scratch };
        let made = this.call("Target.createTarget", json!({"url": "about:blank"})).await?;
        let attach = json!({"targetId": made["targetId"], "flatten": true});
        let attached = this.call("Target.attachToTarget", attach).await?;
        this.session = Some(attached["sessionId"].as_str().context("a session")?.to_owned());
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            this.call(domain, json!({})).await?;
        }
        Ok(this)
    }

    /// One command of the protocol, and its result.
    pub async fn call(&mut self, method: &str, params: Value) -> Result<Value> {
        self.number += 1;
        let mut command = json!({"id": self.number, "method": method, "params": params});
        if let Some(session) = &self.session {
            command["sessionId"] = json!(session);
        }
        let answered = tokio::time::timeout(PATIENCE, async {
            self.commands.write_all(format!("{command}\0").as_bytes()).await?;
            loop {
                let mut message = Vec::new();
                let read = self.answers.read_until(0, &mut message).await?;
                ensure!(read > 0, "Chromium ended: {:?}\n{}", self.child.try_wait(), self.errors());
                message.pop();
                let message: Value = serde_json::from_slice(&message)?;
                if message["id"] == self.number {
                    return Ok(message);
                }
                self.heard(&message);
            }
        });
        let mut answer =
            answered.await.with_context(|| format!("{method} takes too long\n{}", self.errors()))??;
        match answer.get("error") {
            Some(error) => bail!("{method}: {error}"),
            None => Ok(answer["result"].take()),
        }
    }

    fn errors(&self) -> String {
        std::fs::read_to_string(self.scratch.path("stderr")).unwrap_or_default()
    }

    fn heard(&mut self, event: &Value) {
        let params = &event["params"];
        let said = match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => &params["exceptionDetails"],
            // What is refused or away is the page's to deal with.
            Some("Log.entryAdded")
                if params["entry"]["level"] == "error" && params["entry"]["source"] != "network" =>
            {
                &params["entry"]
            }
            _ => return,
        };
        self.complaints.push_back(said.to_string());
    }

    /// Shows a page.
    pub async fn open(&mut self, url: &str) -> Result<()> {
        let shown = self.call("Page.navigate", json!({"url": url})).await?;
        ensure!(shown.get("errorText").is_none(), "{url}: {}", shown["errorText"]);
        Ok(())
    }

    /// The value of an expression in the page.
    pub async fn value(&mut self, expression: &str) -> Result<Value> {
        let params = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let mut told = self.call("Runtime.evaluate", params).await?;
        ensure!(told.get("exceptionDetails").is_none(), "{expression}: {}", told["exceptionDetails"]);
        Ok(told["result"]["value"].take())
    }

    /// Waits until an expression gives what is wanted.
    pub async fn until(&mut self, expression: &str, wanted: impl Into<Value>) -> Result<()> {
        let wanted = wanted.into();
        let end = tokio::time::Instant::now() + PATIENCE;
        loop {
            let now = self.value(expression).await?;
            if now == wanted {
                return Ok(());
            }
            if tokio::time::Instant::now() > end {
                let page = self.value("document.body.innerText").await?;
                bail!(
                    "{expression} is {now}, not {wanted}, after {PATIENCE:?}; the page:\n{}",
                    page.as_str().unwrap_or("?")
                );
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Types into the field that has the focus.
    pub async fn type_text(&mut self, text: &str) -> Result<()> {
        self.call("Input.insertText", json!({"text": text})).await.map(drop)
    }

    /// Presses Enter.
    pub async fn enter(&mut self) -> Result<()> {
        for kind in ["keyDown", "keyUp"] {
            let key = json!({"type": kind, "key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"});
            self.call("Input.dispatchKeyEvent", key).await?;
        }
        Ok(())
    }

    /// Light or dark, as the system would have it.
    pub async fn scheme(&mut self, scheme: &str) -> Result<()> {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", json!({"features": features})).await.map(drop)
    }

    /// A picture of the page, as base64 of a PNG.
    pub async fn picture(&mut self) -> Result<String> {
        let taken = self.call("Page.captureScreenshot", json!({"captureBeyondViewport": true})).await?;
        Ok(taken["data"].as_str().context("a picture")?.to_owned())
    }

    /// What the page has complained of since the last time.
    pub fn complaints(&mut self) -> Vec<String> {
        self.complaints.drain(..).collect()
    }

    /// Ends it in order; a handle that is dropped kills it.
    pub async fn close(mut self) -> Result<()> {
        self.session = None;
        // It may be gone before it answers.
        drop(self.call("Browser.close", json!({})).await);
        tokio::time::timeout(PATIENCE, self.child.wait()).await.context("Chromium does not end")??;
        Ok(())
    }
}

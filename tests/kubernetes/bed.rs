//! The test bed: its API server, its commands, and the operator and the bucket that all tests share.
//!
//! Invariant: whatever a test breaks of the bed is mended when its [`Undo`] goes, also by a panic; and no test begins before
//! all hosts are ready and the operator runs.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use weir_tests::client::Client as Http;
use weir_tests::wait;

use crate::cluster::restarts;
use crate::watched::LIMIT;

/// Where the operator is.
pub(crate) const OPERATOR: &str = "weir-system";
/// Where the bucket is.
pub(crate) const BUCKET: &str = "weir-tests";
/// What selects the operator's pods.
pub(crate) const OPERATOR_LABELS: &str = "app.kubernetes.io/name=weir-operator";

#[derive(Clone)]
pub(crate) struct Bed {
    pub(crate) client: Client,
    program: PathBuf,
}

impl Bed {
    /// The bed that runs, whole.
    pub(crate) async fn get() -> Result<Self> {
        let program = std::env::var_os("WEIR_BED").map(PathBuf::from).context(
            "there is no Kubernetes to test on: `make kubernetes` starts a test bed and runs these tests on it",
        )?;
        // One that another test has installed does as well.
        drop(rustls::crypto::ring::default_provider().install_default());
        let client = Client::try_default().await.context("a client by KUBECONFIG, which `bed run` sets")?;
        let this = Self { client, program };
        this.whole().await?;
        this.bucket().await?;
        this.run(&["volumes"]).await?;
        Ok(this)
    }

    /// Waits until all hosts are ready, and the operator is there.
    pub(crate) async fn whole(&self) -> Result<()> {
        let hosts = || async {
            let all = Api::<Node>::all(self.client.clone()).list(&ListParams::default()).await?;
            Ok(all.iter().all(is_ready).then_some(()))
        };
        wait::until("all hosts to be ready", LIMIT, hosts).await?;
        wait::until("the operator to run", LIMIT, || self.has(OPERATOR, "weir-operator")).await
    }

    /// Whether all that a deployment wants is there.
    async fn has(&self, namespace: &str, name: &str) -> Result<Option<()>> {
        let api: Api<Deployment> = Api::namespaced(self.client.clone(), namespace);
        let found = api.get_opt(name).await?;
        let status = found.and_then(|d| Some((d.metadata.generation, d.spec?.replicas?, d.status?)));
        Ok(status.and_then(|(generation, wanted, status)| {
            let fresh = status.observed_generation == generation && status.updated_replicas == Some(wanted);
            (fresh && status.available_replicas == Some(wanted)).then_some(())
        }))
    }

    /// The S3 server of `deploy/quickstart.yaml`, once for all tests, on the operator's host.
    async fn bucket(&self) -> Result<()> {
        if self.has(BUCKET, "bucket").await?.is_some() {
            return Ok(());
        }
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/quickstart.yaml");
        let mut ours = self.read(Path::new(file)).await?;
        ours.retain(|o| o["kind"] != "StreamCluster");
        let host = self.operator_host().await?;
        for object in &mut ours {
            let field = if object["kind"] == "Namespace" { "name" } else { "namespace" };
            object["metadata"][field] = json!(BUCKET);
            if object["kind"] == "Deployment" {
                object["spec"]["template"]["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": host});
            }
        }
        ensure!(ours.len() > 3, "no S3 server in {file}: {ours:?}");
        for object in &ours {
            self.apply(object).await?;
        }
        wait::until("the S3 server", LIMIT, || self.has(BUCKET, "bucket")).await
    }

    /// The objects of a manifest.
    pub(crate) async fn read(&self, file: &Path) -> Result<Vec<Value>> {
        let path = file.to_str().context("a path")?;
        let text = self.kubectl(&["create", "--dry-run=client", "-o", "json", "-f", path]).await?;
        let mut all = Vec::new();
        for object in serde_json::Deserializer::from_str(&text).into_iter::<Value>() {
            let object = object?;
            all.extend(object["items"].as_array().cloned().unwrap_or_else(|| vec![object]));
        }
        Ok(all)
    }

    /// `kubectl apply --server-side`.
    pub(crate) async fn apply(&self, object: &Value) -> Result<()> {
        self.apply_with(object, &[]).await
    }

    /// What the API server says to an object, whoever has made one of that name; nothing is made.
    pub(crate) async fn try_out(&self, object: &Value) -> Result<()> {
        self.apply_with(object, &["--dry-run=server", "--force-conflicts"]).await
    }

    async fn apply_with(&self, object: &Value, flags: &[&str]) -> Result<()> {
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), object.to_string())?;
        let path = file.path().to_str().context("a path")?;
        let args = [&["apply", "--server-side", "-f", path], flags].concat();
        self.kubectl(&args).await.map(drop)
    }

    /// Runs `bed` with these arguments; gives what it printed.
    pub(crate) async fn run(&self, args: &[&str]) -> Result<String> {
        let program = self.program.to_str().context("WEIR_BED is a path")?;
        output(program, args).await
    }

    /// The same, and another command when what is returned goes.
    pub(crate) async fn run_until(&self, args: &[&str], undo: &[&str]) -> Result<Undo> {
        let program = self.program.clone();
        let undo = Undo { program, args: undo.iter().map(ToString::to_string).collect(), armed: true };
        self.run(args).await?;
        Ok(undo)
    }

    /// A helm command that has to be run whatever happens.
    pub(crate) fn helm_at_last(&self, args: &[&str]) -> Undo {
        Undo { program: "helm".into(), args: args.iter().map(ToString::to_string).collect(), armed: true }
    }

    pub(crate) async fn kubectl(&self, args: &[&str]) -> Result<String> {
        output("kubectl", args).await
    }

    pub(crate) async fn helm(&self, args: &[&str]) -> Result<String> {
        output("helm", args).await
    }

    /// The host on which the operator runs, and the bucket too.
    pub(crate) async fn operator_host(&self) -> Result<String> {
        let pods = self.operator_pods().await?;
        pods.iter().find_map(|p| p.spec.as_ref()?.node_name.clone()).context("a host of the operator")
    }

    pub(crate) async fn operator_pods(&self) -> Result<Vec<Pod>> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), OPERATOR);
        Ok(api.list(&ListParams::default().labels(OPERATOR_LABELS)).await?.items)
    }

    /// Ends the operator's processes at once; its Deployment makes others.
    pub(crate) async fn kill_operator(&self) -> Result<()> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), OPERATOR);
        let at_once = DeleteParams::default().grace_period(0);
        for pod in self.operator_pods().await? {
            // Before the object goes, or the process might live on for a moment; one may have ended by itself.
            if let Err(error) = self.run(&["pod", "kill", OPERATOR, &pod.name_any()]).await {
                println!("{error}");
            }
            match api.delete(&pod.name_any(), &at_once).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                done => drop(done?),
            }
        }
        Ok(())
    }

    /// The operator's present process, and the writes to the API server that it counts.
    pub(crate) async fn operator_writes(&self) -> Result<(String, u64)> {
        let http = Http::new(&address("weir-operator", OPERATOR, 8080), Duration::from_secs(10));
        let said = || async { Ok(http.get_text("/metrics").await.ok()) };
        let text = wait::until("the operator's metrics", LIMIT, said).await?;
        let line = text.lines().find_map(|l| l.strip_prefix("weir_operator_api_writes_total "));
        let count = line.context("the operator counts its writes")?.trim().parse()?;
        let pods = self.operator_pods().await?;
        let processes: Vec<_> = pods.iter().map(|p| format!("{:?} {}", p.uid(), restarts(p))).collect();
        Ok((processes.join(", "), count))
    }

    /// `kubectl patch --type merge` of an object of a kind that is in a namespace.
    pub(crate) async fn patch<K>(&self, namespace: &str, name: &str, patch: &Value) -> Result<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
        K::DynamicType: Default,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), namespace);
        Ok(api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?)
    }
}

/// A Service's or pod's name that needs no search path.
pub(crate) fn address(name: &str, namespace: &str, port: u16) -> String {
    format!("{name}.{namespace}.svc.{}:{port}", cluster_domain())
}

/// The domain of the bed's names.
pub(crate) fn cluster_domain() -> String {
    told("WEIR_BED_CLUSTER_DOMAIN")
}

/// The one family of addresses that the bed has, as Services spell it.
pub(crate) fn ip_family() -> &'static str {
    match told("WEIR_BED_IP_FAMILY").as_str() {
        "ipv4" => "IPv4",
        "ipv6" => "IPv6",
        other => panic!("{other} is no family of addresses"),
    }
}

fn told(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| panic!("`bed run` sets {variable}"))
}

/// `HOST:PORT` of a literal address, as URLs have it.
pub(crate) fn at(ip: &str, port: u16) -> String {
    let ip: IpAddr = ip.parse().unwrap_or_else(|e| panic!("{ip}: {e}"));
    SocketAddr::from((ip, port)).to_string()
}

fn is_ready(host: &Node) -> bool {
    let conditions = host.status.as_ref().and_then(|s| s.conditions.as_ref());
    let cordoned = host.spec.as_ref().and_then(|s| s.unschedulable) == Some(true);
    !cordoned && conditions.is_some_and(|all| all.iter().any(|c| c.type_ == "Ready" && c.status == "True"))
}

/// Mends what a test broke of the bed, at the latest when it goes.
#[must_use]
pub(crate) struct Undo {
    program: PathBuf,
    args: Vec<String>,
    armed: bool,
}

impl Undo {
    /// Mends it now.
    pub(crate) async fn now(mut self) -> Result<()> {
        let args: Vec<_> = self.args.iter().map(String::as_str).collect();
        output(self.program.to_str().context("a path")?, &args).await?;
        self.armed = false;
        Ok(())
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        if self.armed {
            let status = Command::new(&self.program).args(&self.args).stdin(Stdio::null()).status();
            println!("undone: {} {}: {status:?}", self.program.display(), self.args.join(" "));
        }
    }
}

/// What a program prints, if it succeeds.
async fn output(program: &str, args: &[&str]) -> Result<String> {
    let what = || format!("{program} {}", args.join(" "));
    let mut command = tokio::process::Command::new(program);
    command.args(args).stdin(Stdio::null()).kill_on_drop(true);
    let output =
        tokio::time::timeout(LIMIT, command.output()).await.with_context(what)?.with_context(what)?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {}\n{said}", what(), output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

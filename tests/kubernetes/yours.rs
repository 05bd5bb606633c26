//! `make up CONTEXT=… REGISTRY=…`, as somebody does who has a cluster: the bed is that cluster, with a registry in it. And
//! `make down CONTEXT=…`, which takes away what came with it and nothing else.
//!
//! It installs another operator in place of the one that all tests share, so the tests that need that one come before (they
//! are run by name), and the shared one is put back whatever happens.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};
use tempfile::TempDir;
use weir_tests::wait;

use crate::bed::{Bed, OPERATOR};
use crate::cluster::restarts;
use crate::watched::LIMIT;

const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
const QUICKSTART: &str = "weir-quickstart";
/// Somebody else's cluster, of which the operator is told to keep off.
const OTHER: &str = "weir-other";
/// As `.ci/kubernetes start` installs it.
const SHARED: [&str; 3] = ["operator", "--set", r"nodeSelector.kubernetes\.io/hostname=node-a"];

/// Somebody's machine: their tools and their settings.
struct Somebody {
    bed: Bed,
    /// The registry, and bases of images in it.
    settings: Vec<(String, String)>,
    folder: TempDir,
}

impl Somebody {
    /// `said` is what `bed registry` prints: `export NAME=VALUE…`.
    fn new(bed: &Bed, said: &str) -> Result<Self> {
        let words = said.split_whitespace().filter_map(|word| word.split_once('='));
        let settings: Vec<_> = words.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        ensure!(settings.len() == 3, "{said}");
        let folder = tempfile::tempdir()?;
        let at = folder.path().display();
        let storage =
            format!("[storage]\ndriver = \"vfs\"\ngraphroot = \"{at}/images\"\nrunroot = \"{at}/run\"\n");
        std::fs::write(folder.path().join("storage.conf"), storage)?;
        Ok(Self { bed: bed.clone(), settings, folder })
    }

    fn registry(&self) -> Result<&str> {
        let found = self.settings.iter().find(|(name, _)| name == "REGISTRY");
        Ok(&found.context("a registry")?.1)
    }

    /// Whether it succeeded, and all that it said.
    async fn make(&self, args: &[&str]) -> Result<(bool, String)> {
        let mut command = tokio::process::Command::new("make");
        command.args(["--no-print-directory", "-C", REPOSITORY]).args(args);
        command.envs(self.settings.iter().map(|(name, value)| (name, value)));
        command.env("CONTAINERS_STORAGE_CONF", self.folder.path().join("storage.conf"));
        command.env("BUILDAH_ISOLATION", "chroot").env("IMAGE_TOOL", "buildah");
        command.env("BUILD_ARGS", "--tls-verify=false");
        // Of the make that runs these tests.
        command.env_remove("MAKEFLAGS").env_remove("MAKELEVEL");
        command.stdin(Stdio::null()).kill_on_drop(true);
        let done =
            tokio::time::timeout(2 * LIMIT, command.output()).await.context("make takes too long")??;
        let said = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
        println!("make {}\n{said}", args.join(" "));
        Ok((done.status.success(), said.into_owned()))
    }

    async fn up(&self, registry: &str) -> Result<(bool, String)> {
        self.make(&["up", "CONTEXT=weir-bed", &format!("REGISTRY={registry}")]).await
    }

    /// Each pod of the quickstart: its process, and its image.
    async fn pods(&self) -> Result<Vec<(String, String)>> {
        let api: Api<Pod> = Api::namespaced(self.bed.client.clone(), QUICKSTART);
        let ours = ListParams::default().labels("app.kubernetes.io/instance=quickstart");
        let all = api.list(&ours).await?;
        let one = |pod: &Pod| {
            let process = format!("{} {:?} {}", pod.name_any(), pod.uid(), restarts(pod));
            let image = pod.spec.as_ref().and_then(|s| s.containers[0].image.clone());
            (process, image.unwrap_or_default())
        };
        Ok(all.iter().map(one).collect())
    }

    /// Namespaces and names of all StreamClusters.
    async fn clusters(&self) -> Result<String> {
        self.bed.kubectl(&["get", "streamclusters", "-A", "-o", "name"]).await
    }

    async fn has_operator(&self) -> Result<bool> {
        let releases = self.bed.helm(&["-n", OPERATOR, "list", "-q"]).await?;
        Ok(releases.lines().any(|name| name == "weir-operator"))
    }

    async fn has_namespace(&self, name: &str) -> Result<bool> {
        Ok(Api::<Namespace>::all(self.bed.client.clone()).get_opt(name).await?.is_some())
    }
}

/// The hosts look for this name on themselves, where nobody is.
async fn images_that_hosts_cannot_pull_are_told_at_once(somebody: &Somebody) -> Result<()> {
    let unreachable = somebody.registry()?.replace("localhost", "127.0.0.1");
    let (done, said) = somebody.up(&unreachable).await?;
    ensure!(!done && said.contains("an image cannot be pulled"), "{said}");
    ensure!(said.contains("ErrImagePull") && said.contains("connection refused"), "{said}");
    Ok(())
}

async fn weir_comes_up(somebody: &Somebody) -> Result<()> {
    let registry = somebody.registry()?;
    let (done, said) = somebody.up(registry).await?;
    ensure!(done && said.contains("and read it back"), "{said}");
    ensure!(said.contains("kubectl config use-context weir-bed"), "{said}");
    ensure!(said.contains("make down CONTEXT=weir-bed"), "{said}");
    let pods = somebody.pods().await?;
    let theirs = format!("{registry}/weir:");
    ensure!(pods.len() == 3 && pods.iter().all(|p| p.1.starts_with(&theirs)), "{pods:?}");
    let (done, said) = somebody.up(registry).await?;
    ensure!(done, "{said}");
    ensure!(somebody.pods().await? == pods, "the second `make up` of the same restarts pods");
    Ok(())
}

fn other() -> [Value; 2] {
    let spec = json!({"objectStore": {"bucket": "none"}});
    let metadata = json!({"name": "other", "namespace": OTHER, "annotations": {"weir.dev/paused": "true"}});
    [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OTHER}}),
        json!({"apiVersion": "weir.dev/v1alpha1", "kind": "StreamCluster", "metadata": metadata, "spec": spec}),
    ]
}

async fn weir_goes_but_for_what_others_need(somebody: &Somebody) -> Result<()> {
    for object in other() {
        somebody.bed.apply(&object).await?;
    }
    let (done, said) = somebody.make(&["down", "CONTEXT=weir-bed"]).await?;
    ensure!(done && said.contains("the operator stays, for it looks after other clusters: "), "{said}");
    ensure!(said.contains("weir-other/other") && somebody.has_operator().await?, "{said}");
    ensure!(!somebody.has_namespace(QUICKSTART).await?, "{said}");

    somebody.bed.kubectl(&["delete", "namespace", OTHER]).await?;
    let left = somebody.clusters().await?;
    let (done, said) = somebody.make(&["down", "CONTEXT=weir-bed"]).await?;
    ensure!(done, "{said}");
    // A test that failed leaves its cluster to look at.
    if !left.trim().is_empty() {
        ensure!(somebody.has_operator().await?, "it went although there are {left}: {said}");
        return Ok(());
    }
    ensure!(said.contains("delete crd streamclusters.weir.dev"), "{said}");
    let gone = || async { Ok((!somebody.has_namespace(OPERATOR).await?).then_some(())) };
    wait::until("the operator's namespace to go", LIMIT, gone).await?;
    let crds: Api<CustomResourceDefinition> = Api::all(somebody.bed.client.clone());
    ensure!(crds.get_opt("streamclusters.weir.dev").await?.is_some(), "the CRD went: {said}");
    // What is gone is no reason to fail.
    let (done, said) = somebody.make(&["down", "CONTEXT=weir-bed"]).await?;
    ensure!(done && said.contains("there is no operator"), "{said}");
    Ok(())
}

mod long {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "needs the test bed: make test-cluster"]
    async fn make_up_gives_weir_to_a_cluster_that_pulls_and_make_down_takes_it_back() {
        let bed = Bed::get().await.unwrap();
        let said = bed.run(&["registry"]).await.unwrap();
        let somebody = Somebody::new(&bed, &said).unwrap();
        // Of a `make up` before.
        bed.kubectl(&["delete", "namespace", QUICKSTART, "--ignore-not-found"]).await.unwrap();
        let back = bed.run_until(&["volumes"], &SHARED).await.unwrap();
        images_that_hosts_cannot_pull_are_told_at_once(&somebody).await.unwrap();
        weir_comes_up(&somebody).await.unwrap();
        weir_goes_but_for_what_others_need(&somebody).await.unwrap();
        back.now().await.unwrap();
        bed.whole().await.unwrap();
    }
}

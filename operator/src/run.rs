//! From arguments to a running operator, and back to none.
//!
//! Invariant: the controller runs only while the lease is held; whoever loses it ends the process, and Kubernetes starts
//! another. Stopping: no new passes, those under way are finished, the lease is let go. Called by `main`.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::Parser;
use kube::runtime::events::{Recorder, Reporter};
use kube::{Client, Config, CustomResourceExt as _};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::admin::Admin;
use crate::apply::Hands;
use crate::controller;
use crate::crd::{self, StreamCluster};
use crate::health;
use crate::lease::{Election, LONGEST, Terms};
use crate::metrics::Metrics;
use crate::names;

const EXAMPLES: &str = "\
Examples:
  weir-operator --image registry.example/weir:0.1.0
      In a pod: StreamClusters of all namespaces
  weir-operator --image registry.example/weir:0.1.0 --namespace streams
      Only those of one namespace: a Role is enough. Without the right to read hosts, which needs a ClusterRole, a pod on a
      lost host waits for Kubernetes
  weir-operator --image weir:dev --kubeconfig --no-leader-election
      From a shell, with the current context of the kubeconfig; nodes must be reachable from here

SIGTERM and SIGINT stop it in order: passes under way are finished and the lease is let go.

Exit codes:
  0  stopped as asked
  1  failed, or lost the lease; the message says which
  2  the command line is wrong";

/// Runs Weir clusters on Kubernetes from StreamCluster resources (weir.dev/v1alpha1).
#[derive(Debug, Clone, Parser)]
#[command(version, after_help = EXAMPLES)]
pub struct Args {
    /// Image of clusters that name none when they are made; they keep it
    #[arg(long, value_name = "IMAGE", env = "WEIR_OPERATOR_IMAGE")]
    pub image: String,
    /// Watch this namespace alone [default: all]
    #[arg(long, value_name = "NAMESPACE", env = "WEIR_OPERATOR_WATCH_NAMESPACE")]
    pub namespace: Option<String>,
    /// Where health and metrics are
    #[arg(long, value_name = "IP:PORT", default_value = "[::]:8080", env = "WEIR_OPERATOR_LISTEN")]
    pub listen: SocketAddr,
    /// Namespace of the lease; in a pod, its own
    #[arg(long, value_name = "NAMESPACE", default_value = "default", env = "POD_NAMESPACE")]
    pub lease_namespace: String,
    /// Name of the lease
    #[arg(long, value_name = "NAME", default_value = "weir-operator", env = "WEIR_OPERATOR_LEASE")]
    pub lease_name: String,
    /// Seconds that a lease holds without being renewed, 5 to 300; longer where the API server is slow
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(5..=LONGEST),
        env = "WEIR_OPERATOR_LEASE_SECONDS")]
    pub lease_seconds: u64,
    /// Name of this process in the lease and in events; in a pod, its name
    #[arg(long, value_name = "NAME", env = "POD_NAME")]
    pub identity: Option<String>,
    /// Act without a lease: for one process alone
    #[arg(long)]
    pub no_leader_election: bool,
    /// Use the kubeconfig in place of the pod's service account
    #[arg(long)]
    pub kubeconfig: bool,
    /// error, warn, info, debug or trace; by module with commas
    #[arg(long, value_name = "FILTER", default_value = "info,kube=warn", env = "WEIR_OPERATOR_LOG_LEVEL")]
    pub log_level: String,
    /// Log lines on stderr as text or json
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = ["text", "json"],
        env = "WEIR_OPERATOR_LOG_FORMAT")]
    pub log_format: String,
}

/// Parses, runs, and says how it ended.
pub fn main() -> ExitCode {
    let args = Args::parse();
    if let Err(e) = log(&args) {
        return failed(&e);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let ran = runtime.context("starting the runtime").and_then(|runtime| {
        let ran = runtime.block_on(run(args));
        // A name that is being looked up keeps nobody who has lost the lease.
        runtime.shutdown_background();
        ran
    });
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => failed(&e),
    }
}

fn failed(e: &anyhow::Error) -> ExitCode {
    tracing::error!("{e:#}");
    ExitCode::FAILURE
}

fn log(args: &Args) -> anyhow::Result<()> {
    let filter = tracing_subscriber::EnvFilter::try_new(&args.log_level)
        .with_context(|| format!("--log-level {:?}", args.log_level))?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match args.log_format.as_str() {
        "json" => lines.json().init(),
        _ => lines.init(),
    }
    Ok(())
}

async fn run(args: Args) -> anyhow::Result<()> {
    #[cfg(feature = "fault-points")]
    crate::fault::check()?;
    // Built together with the node there are two to choose from, and rustls panics unless told.
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        tracing::debug!("cryptography is chosen already");
    }
    let config = match args.kubeconfig {
        true => Config::from_kubeconfig(&kube::config::KubeConfigOptions::default()).await?,
        // Config::infer prefers a kubeconfig, which a pod should not have.
        false => Config::incluster_env().context("no service account: not in a pod? see --kubeconfig")?,
    };
    let client = Client::try_from(config)?;
    let stop = CancellationToken::new();
    let metrics = Metrics::default();
    let listener = health::bind(args.listen).await?;
    let mut tasks = JoinSet::new();
    tasks.spawn({
        let stop = stop.clone();
        async move {
            signalled().await;
            stop.cancel();
        }
    });
    let serving = CancellationToken::new();
    tasks.spawn(health::serve(listener, metrics.clone(), serving.clone()));
    check_definition(&client).await;
    let identity = args.identity.clone().unwrap_or_else(|| format!("pid-{}", std::process::id()));
    let reporter = Reporter { controller: names::MANAGER.to_owned(), instance: Some(identity.clone()) };
    let hands = Hands {
        recorder: Recorder::new(client.clone(), reporter),
        admin: Admin::new(),
        metrics: metrics.clone(),
        client: client.clone(),
    };
    let context = Arc::new(controller::Context::new(hands, args.image.clone()));
    let control = |stop| controller::run(client.clone(), context, args.namespace.clone(), stop);
    let control = |stop: CancellationToken| async move {
        control(stop.clone()).await;
        match stop.is_cancelled() {
            true => Ok(()),
            false => Err(anyhow!("the watches have ended")),
        }
    };
    let outcome = if args.no_leader_election {
        metrics.lead(true);
        control(stop.clone()).await
    } else {
        let terms = Terms {
            namespace: args.lease_namespace.clone(),
            name: args.lease_name.clone(),
            identity,
            duration: Duration::from_secs(args.lease_seconds),
        };
        lead(&Election::new(client.clone(), terms), &metrics, control, &stop).await
    };
    serving.cancel();
    tasks.abort_all();
    outcome
}

/// Waits for the lease, controls while it is held.
async fn lead<F: Future<Output = anyhow::Result<()>>>(
    election: &Election,
    metrics: &Metrics,
    control: impl FnOnce(CancellationToken) -> F,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    tracing::info!("waiting for the lease");
    let Some(since) = election.won(stop).await else { return Ok(()) };
    tracing::info!("leading");
    metrics.lead(true);
    let (lost, outcome) = tokio::select! {
        why = election.hold(since) => (true, Err(anyhow!(why))),
        // Nothing is under way any more.
        outcome = control(stop.clone()) => (false, outcome),
    };
    metrics.lead(false);
    if !lost {
        election.release().await;
    }
    outcome
}

async fn signalled() {
    let (Ok(mut term), Ok(mut int)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        tracing::error!("signals cannot be waited for");
        return;
    };
    tokio::select! {
        _ = term.recv() => tracing::info!("SIGTERM: stopping"),
        _ = int.recv() => tracing::info!("SIGINT: stopping"),
    }
}

/// Says so if the cluster has another definition than this operator was built with: fields may be missing.
async fn check_definition(client: &Client) {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    let api: kube::Api<CustomResourceDefinition> = kube::Api::all(client.clone());
    let own = crd::definition();
    let digest =
        |c: &CustomResourceDefinition| c.metadata.annotations.clone().unwrap_or_default().remove(crd::SCHEMA);
    let looked = tokio::time::timeout(Duration::from_secs(10), api.get_opt(StreamCluster::crd_name())).await;
    match looked {
        Ok(Ok(Some(installed))) if digest(&installed) == digest(&own) => {}
        Ok(Ok(Some(_))) => {
            tracing::warn!(
                "the installed StreamCluster definition is of another version: install the operator's own"
            );
        }
        Ok(Ok(None)) => tracing::warn!("there is no StreamCluster definition; waiting for it"),
        Ok(Err(error)) => {
            tracing::info!(%error, "the StreamCluster definition cannot be read, so it is not compared")
        }
        Err(_elapsed) => tracing::warn!("the API server does not answer"),
    }
}

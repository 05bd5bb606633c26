//! A full disk: the node says so, goes on when there is space again, and has lost nothing.

use std::io::Write;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use weir_tests::files::Scratch;
use weir_tests::load::{Load, Shape};
use weir_tests::node::{PATIENCE, Setup};
use weir_tests::rng::{Rng, seed};

/// A small file system of its own; unmounted with the handle.
struct SmallDisk(std::path::PathBuf);

impl SmallDisk {
    fn mount(at: std::path::PathBuf, megabytes: u32) -> Option<Self> {
        std::fs::create_dir_all(&at).unwrap();
        let size = format!("size={megabytes}m");
        let done = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&at).status();
        done.is_ok_and(|s| s.success()).then_some(Self(at))
    }

    /// Fills it to the last byte; gives the file that does.
    fn fill(&self) -> std::path::PathBuf {
        let ballast = self.0.join("ballast");
        let mut file = std::fs::File::create(&ballast).unwrap();
        let mut chunk = vec![1u8; 1 << 20];
        while !chunk.is_empty() {
            if file.write(&chunk).is_err() {
                chunk.truncate(chunk.len() / 2);
            }
        }
        ballast
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let done = Command::new("umount").arg("-l").arg(&self.0).status();
        if !done.is_ok_and(|s| s.success()) {
            eprintln!("{} is still mounted", self.0.display());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_loses_nothing_and_sticks_nothing() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let scratch = Scratch::new();
    let Some(disk) = SmallDisk::mount(scratch.path("disk"), 512) else {
        println!("skipped: no permission to mount a tmpfs");
        return;
    };
    full_disk(&disk, &mut rng).await.with_context(|| format!("WEIR_SEED={seed}")).unwrap();
}

/// The node's stderr is on that disk too: not even a line of log may stop it.
async fn full_disk(disk: &SmallDisk, rng: &mut Rng) -> Result<()> {
    let setup =
        Setup::new(disk.0.join("data")).flag("long-poll-timeout", "300ms").flag("request-timeout", "3s");
    let load = Load::new(rng.below(1 << 30), Shape::default());
    let mut node = setup.start().await?;
    let address = node.addresses().await?.client;
    let running = load.run(&address, rng);
    load.progress(0, 100).await?;
    let ballast = disk.fill();
    // Preallocated space may carry it for a while: large appends use it up.
    let pressed = load.press_until_refused(&address, rng, PATIENCE).await;
    // It may end at any moment from here on, for its metadata log is on that disk too: then nothing else counts.
    let unready = match pressed {
        Ok(()) => node.unready_for(&["store", "segments", "backlog", "lease"]).await.map(drop),
        Err(e) => Err(e),
    };
    std::fs::remove_file(ballast)?;
    let served_on = async {
        unready.context("a full disk")?;
        node.ready(PATIENCE).await.context("space is back")?;
        running.stop().await;
        load.touch_all(&address, rng).await
    };
    let served_on = served_on.await;
    if node.try_exit()?.is_none() {
        served_on?;
        node.kill();
    } else {
        // Ending is an answer too, if it says why; when even that line found no space, the log ends with its block.
        let said = node.log();
        let why = said.contains("space") || said.contains("ENOSPC") || said.len().is_multiple_of(4096);
        ensure!(why, "ended without the reason:\n{}", node.log_tail());
    }
    load.history.died();
    let mut node = setup.start().await?;
    let address = node.addresses().await?.client;
    load.verify(&address, rng).await?;
    load.touch_all(&address, rng).await
}

//! How those who wait for something about one stream hear of it.
//!
//! Invariant: who listens before looking misses nothing. Followers (long-polls, event streams) wait for news and are
//! counted, so that telling nobody costs nothing and telling many can be done in slices; operations wait for changes
//! of the stream's ownership. Shared by all that hold it through `registry`, whether the stream is open or not.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// See the file.
#[derive(Debug, Default)]
pub(super) struct Signal {
    /// Opened, resumed, gone.
    changes: Notify,
    /// That, and new durable records. Only followers wait here.
    news: Notify,
    followers: AtomicUsize,
    /// In the queue of `wakes`.
    pub(super) queued: AtomicBool,
}

/// Counts a follower who waits, or is about to.
#[derive(Debug)]
pub(super) struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Signal {
    /// Completes at the next change of ownership after it was first polled or enabled.
    pub(super) fn next(&self) -> Notified<'_> {
        self.changes.notified()
    }

    /// To be taken before [`Self::news`] is enabled and held while it is awaited.
    pub(super) fn follow(&self) -> Counted<'_> {
        self.followers.fetch_add(1, Ordering::AcqRel);
        Counted(&self.followers)
    }

    /// Completes at the next news or change after it was enabled; sometimes for no reason.
    pub(super) fn news(&self) -> Notified<'_> {
        self.news.notified()
    }

    /// How many wait for news.
    pub(super) fn followers(&self) -> usize {
        self.followers.load(Ordering::Acquire)
    }

    /// The stream opened, resumed, or is gone from here.
    pub(super) fn wake(&self) {
        self.changes.notify_waiters();
        self.news.notify_waiters();
    }

    /// Tells all followers at once.
    pub(super) fn tell(&self) {
        self.news.notify_waiters();
    }

    /// Tells the `n` that have waited the longest.
    pub(super) fn tell_some(&self, n: usize) {
        for _ in 0..n {
            self.news.notify_one();
        }
    }
}

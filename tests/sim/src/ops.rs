//! The administrator: carries out orders over the admin API, as the operator or a person would.
//!
//! Invariant: a refusal is an answer; only what is tried is decided from outside, from the seed. Each call goes to some
//! node's admin listener and its answer into the trace. Run by `world` on a machine of its own.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use parking_lot::Mutex;
use weir_tests::rng::Rng;

use crate::http::{Client, Say};
use crate::place::ADMIN;
use crate::trace::{Fault, Recorder, What};

/// What is to be done.
#[derive(Debug, Clone)]
pub struct Order {
    /// The method.
    pub method: Method,
    /// Path.
    pub target: String,
    /// JSON, or nothing.
    pub body: String,
    /// Again, until it is taken or definitely refused, so often at most.
    pub tries: u32,
}

/// See the module.
#[derive(Default)]
pub struct Desk {
    orders: Mutex<VecDeque<Order>>,
    machines: Mutex<Vec<String>>,
    closed: Mutex<bool>,
}

impl Desk {
    /// A node may be asked at this machine.
    pub fn node(&self, machine: &str) {
        self.machines.lock().push(machine.to_owned());
    }

    /// To be done as soon as the one before is.
    pub fn order(&self, order: Order) {
        self.orders.lock().push_back(order);
    }

    /// Nothing more is done.
    pub fn close(&self) {
        *self.closed.lock() = true;
    }

    /// The administrator's life.
    pub async fn work(self: Arc<Self>, mut rng: Rng, recorder: Recorder) {
        let mut client = Client::default();
        while !*self.closed.lock() {
            let order = self.orders.lock().pop_front();
            match order {
                Some(order) => self.carry_out(order, &mut client, &mut rng, &recorder).await,
                None => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    async fn carry_out(&self, order: Order, client: &mut Client, rng: &mut Rng, recorder: &Recorder) {
        let Order { method, target, body, tries } = order;
        for _ in 0..tries {
            let machine = {
                let machines = self.machines.lock();
                machines[rng.index(machines.len())].clone()
            };
            // Without a token it answers who means this machine only.
            let mut headers = vec![("host", format!("localhost:{ADMIN}"))];
            if !body.is_empty() {
                headers.push(("content-type", "application/json".to_owned()));
            }
            let body = Bytes::from(body.clone());
            let say = Say { method: method.clone(), target: target.clone(), headers, body };
            let went = client.send(&format!("{machine}:{ADMIN}"), &say, Duration::from_secs(4)).await;
            let (said, status) = match &went.answer {
                Ok(a) => (String::from_utf8_lossy(&a.body).chars().take(200).collect(), a.status),
                Err(e) => (format!("{e:?}"), 0),
            };
            let text = format!("{method} {target} {} at {machine}: {status} {said}", say.body.escape_ascii());
            recorder.record(What::Fault(Fault::Other(text)));
            if (200..500).contains(&status) || *self.closed.lock() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }
}

//! Checks that concern several settings at once.
//!
//! Invariant: pure. Used by `super::load`.

use super::sources::Sources;
use super::units::{show_duration, show_size};
use super::{ConfigError, ServeConfig, StoreUrl};

fn no(text: String) -> Result<(), ConfigError> {
    Err(ConfigError::Together(text))
}

pub(super) fn together(c: &ServeConfig, s: &Sources) -> Result<(), ConfigError> {
    times(c, s)?;
    amounts(c, s)?;
    addresses(c, s)?;
    cluster(c, s)
}

fn times(c: &ServeConfig, s: &Sources) -> Result<(), ConfigError> {
    // A session fenced for silence must have lost its lease on its own, possibly slower, clock.
    if c.lease + c.lease / 10 < c.node_timeout {
        return Ok(());
    }
    let (lease, timeout) = (s.origin("lease"), s.origin("node-timeout"));
    no(format!(
        "{lease}: {} and a tenth of it must be below {timeout}: {}, or a silent node could still claim to be \
         current when its streams go to others",
        show_duration(c.lease),
        show_duration(c.node_timeout)
    ))
}

fn amounts(c: &ServeConfig, s: &Sources) -> Result<(), ConfigError> {
    let backlog = s.origin("wal-backlog-bytes");
    for (name, bytes) in [
        ("segment-bytes", c.segment_bytes),
        ("max-body", c.max_body),
        ("wal-object-bytes", c.wal_object_bytes),
    ] {
        if bytes >= c.wal_backlog_bytes {
            return no(format!(
                "{}: {} must be below {backlog}: {}, or the backlog fills before it is worked off",
                s.origin(name),
                show_size(bytes),
                show_size(c.wal_backlog_bytes)
            ));
        }
    }
    if c.segment_objects >= c.wal_backlog_objects {
        return no(format!(
            "{}: {} must be below {}: {}, or the backlog fills before it is worked off",
            s.origin("segment-objects"),
            c.segment_objects,
            s.origin("wal-backlog-objects"),
            c.wal_backlog_objects
        ));
    }
    Ok(())
}

fn addresses(c: &ServeConfig, s: &Sources) -> Result<(), ConfigError> {
    let listeners = [("listen", c.listen), ("peer-listen", c.peer_listen), ("admin-listen", c.admin_listen)];
    for (i, (name, address)) in listeners.iter().enumerate() {
        for (other, taken) in &listeners[..i] {
            let overlap =
                address.ip() == taken.ip() || address.ip().is_unspecified() || taken.ip().is_unspecified();
            if overlap && address.port() == taken.port() && address.port() != 0 {
                return no(format!("{}: {address} is taken by {}: {taken}", s.origin(name), s.origin(other)));
            }
        }
    }
    if c.admin_token_file.is_none() && !c.admin_listen.ip().is_loopback() {
        return no(format!(
            "{}: {} is not a loopback address; that needs --admin-token-file, because whoever reaches the admin API \
             may change the cluster",
            s.origin("admin-listen"),
            c.admin_listen
        ));
    }
    if c.cluster_size > 1 || !c.join.is_empty() {
        advertised(c)?;
    }
    if c.admin_token_file.is_none() && !c.peer_listen.ip().is_loopback() {
        return no(format!(
            "{}: {} is not a loopback address; that needs --admin-token-file, the secret that nodes show each other, \
             because whoever reaches this listener may change the cluster",
            s.origin("peer-listen"),
            c.peer_listen
        ));
    }
    Ok(())
}

fn advertised(c: &ServeConfig) -> Result<(), ConfigError> {
    for (name, address, given) in [
        ("advertise-url", c.listen, c.advertise_url.is_some()),
        ("peer-advertise", c.peer_listen, c.peer_advertise.is_some()),
    ] {
        if address.ip().is_unspecified() && !given {
            return no(format!(
                "--{name} is needed in a cluster of several nodes: others cannot reach {address}"
            ));
        }
    }
    Ok(())
}

fn cluster(c: &ServeConfig, s: &Sources) -> Result<(), ConfigError> {
    if c.cluster_size > 1 && c.join.is_empty() && !c.bootstrap {
        return no(format!(
            "{}: {} nodes: say --join HOST:PORT,… to join the others, or --bootstrap on the one node that founds the \
             cluster",
            s.origin("cluster-size"),
            c.cluster_size
        ));
    }
    let several = if c.join.is_empty() { "cluster-size" } else { "join" };
    if (c.cluster_size > 1 || !c.join.is_empty())
        && matches!(c.store, StoreUrl::File(_))
        && s.get("store").is_none()
    {
        return no(format!("{}: several nodes need a --store that all of them share", s.origin(several)));
    }
    if c.adopt_cluster_uid.is_some() && c.cluster_identity.is_none() {
        return no(format!(
            "{}: needs --cluster-identity, the identity that takes the bucket over",
            s.origin("adopt-cluster-uid")
        ));
    }
    Ok(())
}

//! Reconciles `StreamCluster` resources: pods, volumes, services, and what the nodes are told. Called by its binary.

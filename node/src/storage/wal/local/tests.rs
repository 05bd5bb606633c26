pub(super) mod cut;

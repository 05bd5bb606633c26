//! Runs from fixed seeds.

const SIM: &str = env!("CARGO_BIN_EXE_weir-sim");

#[test]
fn there_is_a_program() {
    assert!(std::path::Path::new(SIM).exists());
}

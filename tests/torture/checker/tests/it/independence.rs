//! What judges `diesel-locks` shares no code with it.

#[test]
fn checker_and_histories_do_not_depend_on_the_crate() {
    for manifest in [
        include_str!("../../Cargo.toml"),
        include_str!("../../../history/Cargo.toml"),
    ] {
        let (_, dependencies) = manifest.split_once("[dependencies]").expect("dependencies");
        let lines = dependencies.lines().map(str::trim);
        let code: Vec<_> = lines.filter(|line| !line.starts_with('#')).collect();
        assert!(
            code.iter().any(|line| line.starts_with("anyhow")),
            "{code:?}"
        );
        for line in code {
            assert!(!line.contains("diesel-locks"), "{line}");
            assert!(
                !line.contains("\"../..\"") && !line.contains("\"../../..\""),
                "{line}"
            );
        }
    }
}

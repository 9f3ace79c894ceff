//! Runs `cargo check` on programs, in a package of their own, offline.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use serde_json::Value;

/// Returns the errors of each program that does not compile, as the compiler shows them, by the program's name.
///
/// `set` names the package, whose `features` of this crate are on. Diesel has the features of all engines.
pub(crate) fn messages(
    set: &str,
    features: &[&str],
    programs: &BTreeMap<&str, &Path>,
) -> BTreeMap<String, String> {
    let manifest = write_package(set, features, programs);
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args(["check", "--offline", "--keep-going", "--bins"])
        .args(["--message-format", "json", "--quiet", "--manifest-path"])
        .arg(&manifest)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("CARGO_TARGET_DIR", target());
    // What the outer cargo said about its package would have dependencies built anew.
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(&*name);
        }
    }
    let output = cargo.output().expect("cargo runs");
    let lines = String::from_utf8(output.stdout).expect("JSON");
    let mut messages = BTreeMap::<String, String>::new();
    let mut checked = false;
    for line in lines.lines() {
        let line: Value = serde_json::from_str(line).expect("JSON");
        let of = line["manifest_path"].as_str().map(Path::new);
        let own = of == Some(manifest.as_path());
        checked |= line["reason"] == "build-finished";
        if line["message"]["level"] == "error" {
            let rendered = line["message"]["rendered"].as_str().expect("a text");
            assert!(own, "{rendered}");
            let program = line["target"]["name"].as_str().expect("a program");
            messages
                .entry(program.to_owned())
                .or_default()
                .push_str(rendered);
        }
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(checked, "cargo has checked nothing: {errors}");
    for program in messages.keys() {
        assert!(
            programs.contains_key(program.as_str()),
            "{program}: {messages:?}"
        );
    }
    messages
}

/// The directory in which this test was built, so that dependencies are checked once.
fn target() -> PathBuf {
    let own = Path::new(env!("CARGO_TARGET_TMPDIR"));
    own.parent().expect("in the target directory").to_owned()
}

/// The dependencies of programs with asynchronous connections.
const ASYNC: &str = "\
    diesel-async = { version = \"0.9\", features = [\"async-connection-wrapper\", \"bb8\", \"deadpool\"] }\n\
    tokio = { version = \"1.44\", default-features = false, features = [\"rt\"] }\n";

/// Writes the package, with the versions of dependencies that this workspace has. Returns the path of its manifest.
fn write_package(set: &str, features: &[&str], programs: &BTreeMap<&str, &Path>) -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR"));
    let package = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("compile-{set}"));
    fs::create_dir_all(&package).expect("a directory");
    let mut manifest = format!(
        "[workspace]\n\n\
         [package]\nname = \"compile-{set}\"\nedition = \"2024\"\nautobins = false\n\n\
         [dependencies]\n\
         diesel = {{ version = \"2.3\", default-features = false, features = [\"postgres\", \"mysql\", \"sqlite\", \"r2d2\"] }}\n\
         diesel-locks = {{ path = \"{}\", features = {features:?} }}\n\
         libsqlite3-sys = {{ version = \"0.38\", features = [\"bundled\"] }}\n",
        workspace.display()
    );
    if features.iter().any(|feature| feature.starts_with("async-")) {
        manifest.push_str(ASYNC);
    }
    for (name, path) in programs {
        let path = path.display();
        write!(
            manifest,
            "\n[[bin]]\nname = \"{name}\"\npath = \"{path}\"\n"
        )
        .expect("a string");
    }
    let path = package.join("Cargo.toml");
    fs::write(&path, manifest).expect("a manifest");
    fs::copy(workspace.join("Cargo.lock"), package.join("Cargo.lock")).expect("Cargo.lock");
    path
}

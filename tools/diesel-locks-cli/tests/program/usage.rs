//! Arguments that are wrong, help, and databases that can't be reached.

use std::fs::File;
use std::io::{self, PipeWriter};
use std::process::Stdio;

use program_support::testing::TempDir;

use crate::cli::Cli;

fn without_database() -> Cli {
    Cli { url: String::new() }
}

#[test]
fn database_that_is_not_there_is_said_and_not_created() {
    let directory = TempDir::new().expect("a directory");
    let path = directory.path().join("misspelt.db");
    let cli = Cli {
        url: path.display().to_string(),
    };
    for arguments in [&["list"][..], &["run", "--semaphore", "jobs", "--", "true"]] {
        let error = cli.refused(69, arguments);
        assert!(
            error.contains("misspelt.db\"; `diesel-locks migrate` creates it"),
            "{error}"
        );
    }
    assert!(!path.exists());
    assert!(
        without_database()
            .refused(2, &["list"])
            .contains("set DATABASE_URL")
    );
}

/// A pipe whose reader has ended.
fn unread() -> PipeWriter {
    io::pipe().expect("a pipe").1
}

#[test]
fn error_that_nobody_reads_has_its_exit_code() {
    let mut list = without_database().command(&["list"]);
    let status = list.stderr(unread()).status();
    assert_eq!(status.expect("it ends").code(), Some(2));
}

#[test]
fn output_that_can_not_be_written_is_an_error_unless_nobody_reads_it() {
    let mut command = without_database().command(&["completions", "bash"]);
    let mut completions = |output: Stdio| command.stdout(output).output().expect("it ends");
    assert_eq!(completions(unread().into()).status.code(), Some(0));
    if cfg!(target_os = "linux") {
        let full = File::create("/dev/full").expect("it is there");
        let output = completions(full.into());
        assert_eq!(output.status.code(), Some(1));
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(
            error.contains("can't write to standard output: "),
            "{error}"
        );
    }
}

#[cfg(all(feature = "postgres", feature = "mysql"))]
#[test]
fn server_that_can_not_be_reached_is_said_without_the_password() {
    for url in [
        "postgres://u:secret@127.0.0.1:1/d",
        "mysql://u:secret@127.0.0.1:1/d",
    ] {
        let cli = Cli {
            url: url.to_owned(),
        };
        for arguments in [&["list"][..], &["run", "--semaphore", "jobs", "--", "true"]] {
            let error = cli.refused(69, arguments);
            assert!(
                error.starts_with("can't connect to the database: ") && !error.contains("secret"),
                "{error}"
            );
        }
    }
    let help = Cli {
        url: "postgres://u:secret@h/d".to_owned(),
    }
    .text(&["--help"]);
    assert!(!help.contains("secret"), "{help}");
}

#[test]
fn wrong_arguments_are_named_with_their_limit() {
    for (arguments, named) in [
        (
            &["list", "--limit", "10001"][..],
            "10001 is not in 1..=10000",
        ),
        (
            &["run", "--semaphore", "a", "--lease", "60", "--", "true"],
            "'60' for '--lease",
        ),
        (&["run", "--semaphore", "a"], "required"),
        (
            &["run", "--semaphore", "a", "--permits", "0", "--", "true"],
            "0 is not in 1..=100000",
        ),
        (&["purge", "--older-than", "yesterday"], "yesterday"),
        (&["release", "a", "1"], "--fence"),
        (&["serve", "--token", "let me in"], "visible characters"),
        (&["serve", "--token", ""], "the token is empty"),
    ] {
        let output = without_database().output(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(named), "{error}");
    }
}

#[test]
fn help_has_the_exit_codes_and_completions_have_the_commands() {
    let cli = without_database();
    assert!(
        cli.text(&["--help"])
            .contains("75   `run`: no slot in time")
    );
    for shell in ["bash", "zsh", "fish"] {
        let script = cli.text(&["completions", shell]);
        assert!(script.contains("request-release"), "{script}");
    }
}

//! `run` in a terminal, which sends signals to all its processes.
#![cfg(target_os = "linux")]

use std::fs::File;
use std::io::Write;
use std::process::{Command, Stdio};

use program_support::testing::{Signal, TempDir, path_in};
use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::cli::{Cli, Running, run_arguments};

/// Counts SIGINT.
const SCRIPT: &str = "n=0; trap 'n=$((n+1)); echo $n > $OUT/count' INT; trap 'echo $n > $OUT/all; exit 4' TERM; \
     read line; echo $line > $OUT/line; while :; do sleep 0.02; done";

#[test]
fn command_reads_from_the_terminal_and_gets_its_interrupt_once() {
    let directory = TempDir::new().expect("a directory");
    let cli = Cli::new(&path_in(&directory, "app.db"));
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&terminal).expect("granted");
    unlockpt(&terminal).expect("unlocked");
    let name = ptsname(&terminal, Vec::new()).expect("a name");
    let end = open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).expect("its other end");
    let mut terminal = File::from(terminal);

    // Makes the terminal that of a new session.
    let mut command = Command::new("setsid");
    command
        .args(["--ctty", "env", "--default-signal"])
        .arg(env!("CARGO_BIN_EXE_diesel-locks"));
    command.args(run_arguments("jobs", &[], SCRIPT));
    command
        .env("DATABASE_URL", &cli.url)
        .stdin(Stdio::from(end));
    let run = Running::start(&mut command);
    terminal.write_all(b"typed\n").expect("written");
    assert_eq!(run.line("line"), "typed");
    terminal.write_all(b"\x03").expect("written");
    assert_eq!(run.line("count"), "1");
    // One that is passed on comes after all that were passed on before.
    run.signal(Signal::TERM);
    assert_eq!(run.line("all"), "1");
    assert_eq!(run.ended().0, Some(4));
}

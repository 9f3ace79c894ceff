//! Running commands to their end.

use std::io::{BufRead, BufReader, IsTerminal, Read, Write, stdin, stdout};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;

use anyhow::{Result, bail};
use nix::sys::signal::Signal;

use crate::cleanup::{ended, spawn, spawn_foreground};

/// How many lines of a failed test's message are repeated at the end.
const LINES_OF_MESSAGE: usize = 12;

/// The words of a text, for a command line.
pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split_whitespace()
}

/// Runs the command with the output of this process and without input.
pub(crate) fn run(command: &mut Command) -> Result<ExitStatus> {
    wait(spawn(command.stdin(Stdio::null()), Signal::SIGTERM)?)
}

/// [`run`] for a command that runs tests, with `name` before each line of its output: others may run at the same time.
/// Returns the names of those that failed and their messages too, a line each.
pub(crate) fn run_tests(name: &str, command: &mut Command) -> Result<(ExitStatus, Vec<String>)> {
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = spawn(command, Signal::SIGTERM)?;
    let printed = child.stdout.take();
    let failed = printed.map(|printed| copy_and_find_failures(name, printed, stdout()));
    Ok((wait(child)?, failed.unwrap_or_default()))
}

/// Copies what is read, and returns the names of the tests that failed, and what they panicked with.
fn copy_and_find_failures(name: &str, printed: impl Read, mut copy: impl Write) -> Vec<String> {
    let mut failed = Vec::new();
    // Lines that are left of the message that is being read.
    let mut left = 0;
    for line in BufReader::new(printed).split(b'\n').map_while(Result::ok) {
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end();
        // Nobody may listen any more: the tests still run to their end.
        let _ = writeln!(copy, "{name}: {text}");
        if let Some(name) = text.strip_suffix(" ... FAILED") {
            failed.push(format!(
                "failed: {}",
                name.strip_prefix("test ").unwrap_or(name)
            ));
        } else if text.starts_with("thread '") && text.contains(" panicked at ") {
            left = LINES_OF_MESSAGE;
        } else if text.is_empty() || text == "stack backtrace:" || text.starts_with("note: ") {
            left = 0;
        }
        if left > 0 {
            failed.push(format!("  {text}"));
            left -= 1;
        }
    }
    failed
}

/// Runs the command for the person at the terminal, who may type into it: Ctrl-C is the command's own business, and its exit
/// code says how it took it. Without a terminal it is the same as [`run`], but for the input, which is that of this process.
pub(crate) fn run_foreground(command: &mut Command) -> Result<ExitStatus> {
    wait(if stdin().is_terminal() {
        spawn_foreground(command)?
    } else {
        spawn(command, Signal::SIGTERM)?
    })
}

/// Runs the command silently and returns what it printed; its error messages become the error when it fails.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let (status, printed, errors) = capture(command)?;
    succeeded(command, status, printed, &errors)
}

/// As [`output`], with the error messages of this process.
pub(crate) fn printed(command: &mut Command) -> Result<String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = spawn(command, Signal::SIGTERM)?;
    let printed = child.stdout.take().map(read).unwrap_or_default();
    let status = wait(child)?;
    succeeded(command, status, printed, "see above")
}

fn succeeded(
    command: &Command,
    status: ExitStatus,
    printed: String,
    errors: &str,
) -> Result<String> {
    if !status.success() {
        let (printed, errors) = (printed.trim_end(), errors.trim_end());
        bail!("{command:?} failed ({status})\n{printed}{errors}");
    }
    Ok(printed)
}

/// Runs the command silently and returns how it ended, what it printed, and its error messages.
pub(crate) fn capture(command: &mut Command) -> Result<(ExitStatus, String, String)> {
    capture_until(command, Signal::SIGTERM)
}

/// As [`output`], for a short command that would leave something behind if a signal ended it: what it is stopped with has no
/// effect.
pub(crate) fn uninterrupted_output(command: &mut Command) -> Result<String> {
    let (status, printed, errors) = capture_until(command, Signal::SIGCONT)?;
    succeeded(command, status, printed, &errors)
}

fn capture_until(command: &mut Command, stop: Signal) -> Result<(ExitStatus, String, String)> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = spawn(command, stop)?;
    let (printed, errors) = (child.stdout.take(), child.stderr.take());
    let errors = thread::spawn(move || errors.map(read));
    let printed = printed.map(read).unwrap_or_default();
    let status = wait(child)?;
    let errors = errors.join().ok().flatten().unwrap_or_default();
    Ok((status, printed, errors))
}

/// The exit code that a shell would report.
pub(crate) fn code(status: ExitStatus) -> u8 {
    let signal = || status.signal().map(|signal| 128 + signal);
    let code = status.code().or_else(signal);
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

fn wait(mut child: Child) -> Result<ExitStatus> {
    let status = child.wait();
    ended(&child);
    Ok(status?)
}

fn read(mut pipe: impl Read) -> String {
    let mut bytes = Vec::new();
    // What came before a broken pipe is still worth showing.
    let _ = pipe.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use std::io::sink;

    use super::*;

    #[test]
    fn failed_tests_and_their_messages_are_found() {
        let printed = "running 3 tests\n\
            test one::two ... ok\n\
            test one::three - should panic ... FAILED\n\
            test src/lib.rs - (line 3) ... FAILED\n\
            \n\
            failures:\n\
            \n\
            ---- one::three stdout ----\n\
            printed\n\
            \n\
            thread 'one::three' (17) panicked at src/one.rs:10:10:\n\
            a connection: refused\n\
            stack backtrace:\n   \
               0: rust_begin_unwind\n\
            \n\
            test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out\n";
        assert_eq!(
            copy_and_find_failures("it", printed.as_bytes(), sink()),
            [
                "failed: one::three - should panic",
                "failed: src/lib.rs - (line 3)",
                "  thread 'one::three' (17) panicked at src/one.rs:10:10:",
                "  a connection: refused",
            ]
        );
    }
}

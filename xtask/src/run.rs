//! Running commands to their end.

use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;

use anyhow::{Result, bail};
use nix::sys::signal::Signal;

use crate::cleanup_process;
use crate::interrupt::{self, Current};
use crate::spawn::{pid, spawn};

/// Runs the command with the output of this process and without input.
pub(crate) fn run(command: &mut Command) -> Result<ExitStatus> {
    wait(start(command.stdin(Stdio::null()))?)
}

/// How many lines of a failed test's message are repeated at the end.
const LINES_OF_MESSAGE: usize = 12;

/// [`run`] for a command that runs tests. Returns the names of those that failed and their messages too, a line each, unless
/// a person watches.
pub(crate) fn run_tests(command: &mut Command) -> Result<(ExitStatus, Vec<String>)> {
    if std::io::stdout().is_terminal() {
        return Ok((run(command)?, Vec::new()));
    }
    let mut child = start(command.stdin(Stdio::null()).stdout(Stdio::piped()))?;
    let failed = child.stdout.take().map(copy_and_find_failures);
    Ok((wait(child)?, failed.unwrap_or_default()))
}

/// Prints what is read, and returns the names of the tests that failed, and what they panicked with.
fn copy_and_find_failures(printed: impl Read) -> Vec<String> {
    let mut failed = Vec::new();
    let mut lines = BufReader::new(printed);
    let mut line = Vec::new();
    // Lines that are left of the message that is being read.
    let mut left = 0;
    while lines
        .read_until(b'\n', &mut line)
        .is_ok_and(|read| read > 0)
    {
        // Nobody may listen any more: the tests still run to their end.
        let _ = std::io::stdout().write_all(&line);
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end();
        if let Some(name) = failed_test(text) {
            failed.push(format!("failed: {name}"));
        } else if text.starts_with("thread '") && text.contains(" panicked at ") {
            left = LINES_OF_MESSAGE;
        } else if text.is_empty() || text == "stack backtrace:" || text.starts_with("note: ") {
            left = 0;
        }
        if left > 0 {
            failed.push(format!("  {text}"));
            left -= 1;
        }
        line.clear();
    }
    failed
}

/// The name in a line of a test that failed, as the standard library's test harness prints it.
fn failed_test(line: &str) -> Option<&str> {
    let name = line.strip_suffix(" ... FAILED")?;
    Some(name.strip_prefix("test ").unwrap_or(name))
}

/// Runs the command for the person at the terminal, who may type into it.
///
/// Without a terminal it is the same as [`run`], but for the input, which is that of this process.
pub(crate) fn run_foreground(command: &mut Command) -> Result<ExitStatus> {
    if !std::io::stdin().is_terminal() {
        return wait(start(command)?);
    }
    // Only the foreground process group may read from a terminal, so the command stays in that of this process.
    let mut child = interrupt::start(|| {
        let child = spawn(command)?;
        let pid = pid(&child);
        Ok((child, Current::Foreground(pid)))
    })?;
    let status = child.wait();
    interrupt::ended();
    // Ctrl-C is the command's own business here: its exit code says how it took it.
    Ok(status?)
}

/// Runs the command silently and returns what it printed; its error messages become the error when it fails.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let (status, printed, errors) = capture(command)?;
    succeeded(command, status, printed, &errors)
}

/// As [`output`], for a short command that would leave something behind if a signal ended it.
pub(crate) fn uninterrupted_output(command: &mut Command) -> Result<String> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // The clean-up process sends what has no effect on a running process, then waits for its end.
    let child = spawn(command.process_group(0))?;
    let pid = pid(&child);
    cleanup_process::register_group(pid, Signal::SIGCONT);
    let output = child.wait_with_output();
    cleanup_process::unregister_group(pid);
    interrupt::check()?;
    let output = output?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    succeeded(
        command,
        output.status,
        printed,
        &String::from_utf8_lossy(&output.stderr),
    )
}

fn succeeded(
    command: &Command,
    status: ExitStatus,
    printed: String,
    errors: &str,
) -> Result<String> {
    if !status.success() {
        bail!(
            "{command:?} failed ({status})\n{}{}",
            printed.trim_end(),
            errors.trim_end()
        );
    }
    Ok(printed)
}

/// Runs the command silently and returns how it ended, what it printed, and its error messages.
pub(crate) fn capture(command: &mut Command) -> Result<(ExitStatus, String, String)> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = start(command)?;
    let errors = child
        .stderr
        .take()
        .map(|pipe| thread::spawn(move || read(pipe)));
    let printed = child.stdout.take().map(read).unwrap_or_default();
    let status = wait(child)?;
    let errors = errors
        .and_then(|thread| thread.join().ok())
        .unwrap_or_default();
    Ok((status, printed, errors))
}

/// The exit code that a shell would report.
pub(crate) fn code(status: ExitStatus) -> u8 {
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// Starts the command in a process group of its own, which ends with this process.
fn start(command: &mut Command) -> Result<Child> {
    interrupt::start(|| {
        let child = spawn(command.process_group(0))?;
        let pid = pid(&child);
        cleanup_process::register_group(pid, Signal::SIGTERM);
        Ok((child, Current::Group(pid)))
    })
}

fn wait(mut child: Child) -> Result<ExitStatus> {
    let status = child.wait();
    interrupt::ended();
    cleanup_process::unregister_group(pid(&child));
    interrupt::check()?;
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
            copy_and_find_failures(printed.as_bytes()),
            [
                "failed: one::three - should panic",
                "failed: src/lib.rs - (line 3)",
                "  thread 'one::three' (17) panicked at src/one.rs:10:10:",
                "  a connection: refused",
            ]
        );
    }
}

//! Running commands to their end.

use std::env;
use std::io::{BufRead, BufReader, IsTerminal, Read, Write, stdin, stdout};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Output, Stdio};

use anyhow::{Result, ensure};
use nix::sys::signal::Signal;

use crate::cleanup::{self, ended, spawn, spawn_foreground};

/// How many lines of a failed test's message are repeated at the end.
const LINES_OF_MESSAGE: usize = 12;

pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split_whitespace()
}

/// A command of words without spaces.
pub(crate) fn command(line: &str) -> Command {
    let mut words = words(line);
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words);
    command
}

/// Removes the variables whose names begin with one of these.
pub(crate) fn remove_variables(command: &mut Command, beginnings: &[&str]) {
    for (name, _) in env::vars_os() {
        let name_begins = |with: &&str| name.as_encoded_bytes().starts_with(with.as_bytes());
        if beginnings.iter().any(name_begins) {
            command.env_remove(name);
        }
    }
}

/// Runs the command with the output of this process and without input.
pub(crate) fn run(command: &mut Command) -> Result<ExitStatus> {
    Ok(wait(spawn(command.stdin(Stdio::null()), Signal::SIGTERM)?)?.status)
}

/// [`run`] for a command that has to succeed.
pub(crate) fn succeed(command: &mut Command) -> Result<()> {
    let status = run(command)?;
    has_succeeded(command, status)
}

fn has_succeeded(command: &Command, status: ExitStatus) -> Result<()> {
    // Not the arguments and variables, which may have a password.
    let name = command.get_program().display();
    ensure!(status.success(), "{name} failed ({status}), see above");
    Ok(())
}

/// [`run`] for a command that runs tests, with `name` before each line of its output: others may run at the same time.
/// Returns the names of those that failed and their messages too, a line each.
pub(crate) fn run_tests(name: &str, command: &mut Command) -> Result<(ExitStatus, Vec<String>)> {
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = spawn(command, Signal::SIGTERM)?;
    let printed = child.stdout.take();
    let failed = printed.map(|printed| copy_and_find_failures(name, printed, stdout()));
    Ok((wait(child)?.status, failed.unwrap_or_default()))
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
            let name = name.strip_prefix("test ").unwrap_or(name);
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
    }
    failed
}

/// Runs the command for the person at the terminal, who may type into it: Ctrl-C is the command's own business, and its exit
/// code says how it took it. Without a terminal it is the same as [`run`], but for the input, which is that of this process.
pub(crate) fn run_foreground(command: &mut Command) -> Result<ExitStatus> {
    let child = if stdin().is_terminal() {
        spawn_foreground(command)?
    } else {
        spawn(command, Signal::SIGTERM)?
    };
    Ok(wait(child)?.status)
}

/// Runs the command silently and returns what it printed; its error messages become the error when it fails.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = capture(command)?;
    let (printed, errors) = (text(&output.stdout), text(&output.stderr));
    let (name, status) = (command.get_program().display(), output.status);
    let messages = format!("{}{}", printed.trim_end(), errors.trim_end());
    ensure!(status.success(), "{name} failed ({status})\n{messages}");
    Ok(printed)
}

/// Whether a script of the shell succeeds.
pub(crate) fn succeeds(script: &str) -> bool {
    output(command("sh -c").arg(script)).is_ok()
}

/// As [`succeed`], for a command that a signal must not end halfway.
pub(crate) fn uninterrupted(command: &mut Command) -> Result<()> {
    command.stdin(Stdio::null()).process_group(0);
    let status = cleanup::uninterrupted(|| command.status())?;
    has_succeeded(command, status)
}

/// As [`output`], with the error messages of this process.
pub(crate) fn printed(command: &mut Command) -> Result<String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let output = wait(spawn(command, Signal::SIGTERM)?)?;
    has_succeeded(command, output.status)?;
    Ok(text(&output.stdout))
}

/// Runs the command silently and returns its error messages, however it ends.
pub(crate) fn errors(command: &mut Command) -> Result<String> {
    Ok(text(&capture(command)?.stderr))
}

fn capture(command: &mut Command) -> Result<Output> {
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    wait(spawn(command, Signal::SIGTERM)?)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The exit code that a shell would report.
pub(crate) fn code(status: ExitStatus) -> u8 {
    let signal = || status.signal().map(|signal| 128 + signal);
    let code = status.code().or_else(signal);
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// Waits for its end, and reads what it prints into pipes meanwhile.
fn wait(child: Child) -> Result<Output> {
    let process = child.id();
    let output = child.wait_with_output();
    ended(process);
    Ok(output?)
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

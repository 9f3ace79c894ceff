//! The program on a database of the test's own.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use program_support::testing::{Signal, TempDir, signal, wait_until};
use serde_json::Value;

/// Tests that call these functions of the module with the URL of a database on each engine.
macro_rules! on_engines {
    ($($test:ident),* $(,)?) => {
        mod sqlite {
            $(
                #[test]
                fn $test() {
                    let directory = program_support::testing::TempDir::new().expect("a directory");
                    super::$test(&program_support::testing::path_in(&directory, "app.db"));
                }
            )*
        }

        program_support::on_servers!($($test),*);
    };
}
pub(crate) use on_engines;

/// A database with the tables.
pub(crate) struct Cli {
    pub(crate) url: String,
}

impl Cli {
    pub(crate) fn new(url: &str) -> Self {
        let cli = Self {
            url: url.to_owned(),
        };
        assert_eq!(
            cli.json(&["migrate"])["ran"]
                .as_array()
                .expect("a list")
                .len(),
            3
        );
        cli
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_diesel-locks"));
        command
            .args(arguments)
            .env("DATABASE_URL", &self.url)
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn output(&self, arguments: &[&str]) -> Output {
        self.command(arguments)
            .output()
            .expect("the program starts")
    }

    /// What a command prints that succeeds.
    pub(crate) fn text(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        let printed = String::from_utf8(output.stdout).expect("UTF-8");
        assert!(
            output.status.success(),
            "{printed}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        printed
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let printed = self.text(&[&["--json"], arguments].concat());
        serde_json::from_str(&printed).expect("JSON")
    }

    /// Runs a command that fails with this exit code, without `--json` and with it. Returns its error, which is one line and
    /// equal in both.
    pub(crate) fn refused(&self, code: i32, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        let error = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(output.status.code(), Some(code), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        let error = error
            .trim_end()
            .strip_prefix("diesel-locks: ")
            .expect("the program's name")
            .to_owned();
        let output = self.output(&[&["--json"], arguments].concat());
        let json: Value = serde_json::from_slice(&output.stderr).expect("JSON");
        assert_eq!(json["code"], code);
        assert_eq!(
            json["error"].as_str().map(hidden_digits),
            Some(hidden_digits(&error))
        );
        error
    }

    /// The held slots of a semaphore.
    pub(crate) fn slots(&self, semaphore: &str) -> Vec<Value> {
        let listed = self.json(&["list", "slots", "--prefix", semaphore]);
        listed["slots"]["rows"].as_array().expect("a list").clone()
    }

    /// Starts `run` with a shell's script in a slot of the semaphore. `$OUT` is the directory for its files.
    pub(crate) fn run(&self, semaphore: &str, options: &[&str], script: &str) -> Running {
        let run = run_arguments(semaphore, options, script);
        Running::start(&mut self.command(&run))
    }
}

pub(crate) fn run_arguments<'a>(
    semaphore: &'a str,
    options: &[&'a str],
    script: &'a str,
) -> Vec<&'a str> {
    let run = ["run", "--semaphore", semaphore];
    [&run, options, &["--", "sh", "-c", script]].concat()
}

/// Times differ from one call to the next.
fn hidden_digits(text: &str) -> String {
    text.chars().filter(|c| !c.is_ascii_digit()).collect()
}

/// `diesel-locks run`. Killed when it is dropped.
pub(crate) struct Running {
    child: Option<Child>,
    out: TempDir,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let out = TempDir::new().expect("a directory");
        command.env("OUT", out.path()).stderr(Stdio::piped());
        Self {
            child: Some(command.stdout(Stdio::null()).spawn().expect("it starts")),
            out,
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    /// Ends the reader of standard error.
    pub(crate) fn stop_reading(&mut self) {
        self.child.as_mut().expect("it runs").stderr = None;
    }

    pub(crate) fn signal(&self, sent: Signal) {
        signal(self.id(), sent);
    }

    /// A file that the command writes.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.out.path().join(name)
    }

    /// Waits for a file of the command, and returns what is in it: a line.
    pub(crate) fn line(&self, name: &str) -> String {
        let read = || fs::read_to_string(self.file(name)).unwrap_or_default();
        wait_until(name, || read().ends_with('\n'));
        read().trim_end().to_owned()
    }

    /// Waits for the end. Returns the exit code, and what was written to standard error.
    pub(crate) fn ended(mut self) -> (Option<i32>, String) {
        let child = self.child.take().expect("it runs");
        let output = child.wait_with_output().expect("it ends");
        let messages = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), messages)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

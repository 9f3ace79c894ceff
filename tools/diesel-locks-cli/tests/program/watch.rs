//! `watch` in a terminal.
#![cfg(target_os = "linux")]

#[cfg(any(feature = "postgres", feature = "mysql"))]
mod servers;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use diesel::connection::SimpleConnection;
use program_support::connection::AnyConnection;
use program_support::database::Database;
use program_support::testing::{Signal, TempDir, path_in, signal, wait_until};
use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::cli::{Cli, on_engines};

on_engines!(
    slot_appears_and_disappears,
    last_picture_stays_until_the_database_answers_again,
);

/// `watch` in a terminal of its own. Killed when it is dropped.
struct Watching {
    child: Child,
    terminal: File,
    /// The other end.
    end: OwnedFd,
    written: Arc<Mutex<String>>,
}

impl Watching {
    fn start(cli: &Cli, rows: u16, arguments: &[&str]) -> Self {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&terminal).expect("granted");
        unlockpt(&terminal).expect("unlocked");
        let name = ptsname(&terminal, Vec::new()).expect("a name");
        let end = open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).expect("its other end");
        set_rows(&end, rows);
        let same = || Stdio::from(end.try_clone().expect("a copy"));
        // Makes the terminal that of a new session.
        let mut command = Command::new("setsid");
        command
            .arg("--ctty")
            .arg(env!("CARGO_BIN_EXE_diesel-locks"))
            .args(["watch", "--interval", "100ms"])
            .args(arguments)
            .env("DATABASE_URL", &cli.url);
        command.stdin(same()).stdout(same()).stderr(Stdio::null());
        let child = command.spawn().expect("it starts");
        let terminal = File::from(terminal);
        let written = Arc::new(Mutex::new(String::new()));
        let (mut read, all) = (terminal.try_clone().expect("a copy"), written.clone());
        thread::spawn(move || {
            let mut bytes = Vec::new();
            let mut part = [0; 4096];
            // An error when the other end is closed.
            while let Ok(count @ 1..) = read.read(&mut part) {
                bytes.extend(&part[..count]);
                *all.lock().expect("no panic") = String::from_utf8_lossy(&bytes).into_owned();
            }
        });
        Self {
            child,
            terminal,
            end,
            written,
        }
    }

    fn written(&self) -> String {
        self.written.lock().expect("no panic").clone()
    }

    /// The last picture that was drawn as a whole.
    fn picture(&self) -> String {
        let written = self.written();
        let drawn = written.rsplit_once("\u{1b}[?2026l");
        let begun = drawn.and_then(|(drawn, _)| drawn.rsplit_once("\u{1b}[?2026h\u{1b}[H"));
        begun.map_or(String::new(), |(_, picture)| {
            picture.replace("\u{1b}[2K", "").replace('\r', "")
        })
    }

    fn wait_for(&self, shown: &str) {
        wait_until(&format!("{shown} is shown"), || {
            self.picture().contains(shown)
        });
    }

    fn wait_for_end_of(&self, shown: &str) {
        wait_until(&format!("{shown} is not shown"), || {
            let picture = self.picture();
            !picture.is_empty() && !picture.contains(shown)
        });
    }

    fn press(&mut self, keys: &[u8]) {
        self.terminal.write_all(keys).expect("written");
    }

    fn quit(mut self) {
        self.press(b"q");
        self.assert_restored(0);
    }

    /// Waits for its end with this exit code, and for the terminal to be as before.
    fn assert_restored(mut self, code: i32) {
        let status = self.child.wait().expect("it ends");
        assert_eq!(status.code(), Some(code));
        wait_until("the alternate screen was left", || {
            let written = self.written();
            let left = written.rfind("\u{1b}[?1049l");
            left > written.rfind("\u{1b}[?1049h") && left > written.rfind("\u{1b}[?25l")
        });
        let modes = tcgetattr(&self.end).expect("modes").local_modes;
        assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO));
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn set_rows(terminal: &OwnedFd, rows: u16) {
    let size = Winsize {
        ws_row: rows,
        ws_col: 100,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(terminal, size).expect("a size");
}

fn slot_appears_and_disappears(url: &str) {
    let cli = Cli::new(url);
    let mut watch = Watching::start(&cli, 24, &["slots", "--prefix", "jobs"]);
    watch.wait_for("Held slots: none whose name begins with \"jobs\"");
    watch.wait_for(" UTC (database's clock), every 100ms; q quits");
    let others = cli.run("others", &[], "echo > $OUT/runs; exec sleep 600");
    others.line("runs");
    let run = cli.run("jobs", &["--holder", "web-2"], "exec sleep 600");
    watch.wait_for("held by web-2 since 2");
    assert!(!watch.picture().contains("others"));
    run.signal(Signal::TERM);
    watch.wait_for("Held slots: none");
    watch.press(b"xq");
    watch.assert_restored(0);
}

fn last_picture_stays_until_the_database_answers_again(url: &str) {
    let cli = Cli::new(url);
    cli.text(&["set-permits", "jobs", "3"]);
    let watch = Watching::start(&cli, 24, &["semaphores"]);
    watch.wait_for("3       3  jobs");
    let database = Database::from_url(url).expect("a URL");
    let mut conn = AnyConnection::open(&database).expect("a connection");
    conn.batch_execute("ALTER TABLE diesel_locks_slots RENAME TO hidden")
        .expect("renamed");
    watch.wait_for("not read since: the tables of diesel-locks are missing");
    assert!(watch.picture().contains("3       3  jobs"));
    conn.batch_execute("ALTER TABLE hidden RENAME TO diesel_locks_slots")
        .expect("renamed");
    watch.wait_for_end_of("not read since");
    cli.text(&["set-permits", "jobs", "4"]);
    watch.wait_for("4       4  jobs");
    watch.quit();
}

#[test]
fn picture_fits_the_window() {
    let directory = TempDir::new().expect("a directory");
    let cli = Cli::new(&path_in(&directory, "app.db"));
    for number in 1..=20 {
        cli.text(&["set-permits", &format!("s{number:02}"), "1"]);
    }
    let watch = Watching::start(&cli, 10, &["semaphores"]);
    // Four lines before the names, and this one.
    watch.wait_for("\n15 lines not shown: ");
    let picture = watch.picture();
    assert!(
        picture.contains("s05") && !picture.contains("s06"),
        "{picture}"
    );
    assert_eq!(picture.lines().count(), 10, "{picture}");
    set_rows(&watch.end, 40);
    watch.wait_for("s20");
    watch.quit();
}

#[test]
fn signals_restore_the_terminal() {
    let directory = TempDir::new().expect("a directory");
    let cli = Cli::new(&path_in(&directory, "app.db"));
    let start = || {
        let watch = Watching::start(&cli, 24, &[]);
        watch.wait_for("Semaphores: none");
        watch
    };
    let mut interrupted = start();
    interrupted.press(b"\x03");
    interrupted.assert_restored(130);
    let ended = start();
    signal(ended.child.id(), Signal::TERM);
    ended.assert_restored(143);
}

#[test]
fn failure_of_the_first_reading_leaves_the_terminal_alone() {
    let directory = TempDir::new().expect("a directory");
    let cli = Cli {
        url: path_in(&directory, "misspelt.db"),
    };
    let mut watch = Watching::start(&cli, 24, &[]);
    let status = watch.child.wait().expect("it ends");
    assert_eq!(status.code(), Some(69));
    assert_eq!(watch.written(), "");
}

#[test]
fn stopped_watch_leaves_the_terminal_until_it_continues() {
    let directory = TempDir::new().expect("a directory");
    let cli = Cli::new(&path_in(&directory, "app.db"));
    let mut watch = Watching::start(&cli, 24, &[]);
    watch.wait_for("Semaphores: none");
    // Ctrl-Z.
    watch.press(b"\x1a");
    let process = watch.child.id();
    wait_until("it is stopped", || {
        let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it is there");
        status.contains("State:\tT")
    });
    wait_until("the alternate screen was left", || {
        watch.written().ends_with("\u{1b}[?1049l")
    });
    cli.text(&["set-permits", "jobs", "3"]);
    signal(process, Signal::CONT);
    watch.wait_for("3       3  jobs");
    watch.quit();
}

#[test]
fn without_a_terminal_it_names_list() {
    let directory = TempDir::new().expect("a directory");
    let cli = Cli::new(&path_in(&directory, "app.db"));
    let error = cli.refused(2, &["watch"]);
    assert!(error.contains("`diesel-locks list --json`"), "{error}");
    let output = cli.output(&["watch", "--interval", "1ms"]);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("the shortest interval is 100ms"), "{error}");
}

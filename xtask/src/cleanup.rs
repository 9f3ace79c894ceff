//! Everything that this process starts ends with it, however it ends.
//!
//! A second process stops it, and removes its data. That process reads what to stop and remove from a pipe. The pipe closes when
//! this process closes it, at its ordinary end or after a signal, but also when it panics or is killed with SIGKILL. One way
//! to clean up, then, and no `unsafe` code for it.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio, exit};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};
use std::{env, fs};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::private::KILL;
use crate::run;

/// How long servers may take to start, those in containers with their data, and to end before they are killed.
const START_TIMEOUT: Duration = Duration::from_secs(120);
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// The interval between checks of their state.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The clean-up process, and what this process must not leave unread.
struct CleanUp {
    process: Child,
    pipe: ChildStdin,
    /// Those that are stopped at the end. They remain as zombies until this process, their parent, asks how they ended.
    servers: Vec<Child>,
}

static CLEAN_UP: Mutex<Option<CleanUp>> = Mutex::new(None);

/// Whether a command runs that shares the terminal with this process, and gets Ctrl-C by itself.
static FOREGROUND: AtomicBool = AtomicBool::new(false);

/// Starts the clean-up process, and handles signals.
pub(crate) fn start() -> Result<()> {
    let mut command = Command::new(env::current_exe()?);
    command.arg("cleanup-process").current_dir("/");
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    // In a group of its own, so that what is sent to this process's group does not reach it.
    let process = command.process_group(0).spawn();
    let mut process = process.context("cannot start the clean-up process")?;
    let pipe = process.stdin.take().context("a pipe")?;
    *lock() = Some(CleanUp {
        process,
        pipe,
        servers: Vec::new(),
    });
    // A shell starts background commands with SIGINT and SIGQUIT ignored. What this process handles is as usual again in the
    // programs that it starts, and SIGQUIT has to be: it stops PostgreSQL. SIGHUP just ends this process, unless `nohup` has started it.
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGQUIT])?;
    thread::spawn(move || {
        for number in signals.forever() {
            if number != SIGINT || !FOREGROUND.load(Ordering::SeqCst) {
                finish();
                eprintln!("xtask: stopped by signal {number}");
                exit(128 + number);
            }
        }
    });
    Ok(())
}

/// Stops and removes everything. Afterwards nothing can be started any more.
pub(crate) fn finish() {
    let Some(mut clean_up) = lock().take() else {
        return;
    };
    drop(clean_up.pipe);
    let ended = loop {
        for server in &mut clean_up.servers {
            let _ = server.try_wait();
        }
        match clean_up.process.try_wait() {
            Ok(None) => sleep(POLL_INTERVAL),
            ended => break ended,
        }
    };
    if !matches!(ended, Ok(Some(status)) if status.success()) {
        eprintln!("xtask: somebody killed the process that stops the servers: they may still run");
    }
}

fn lock() -> MutexGuard<'static, Option<CleanUp>> {
    CLEAN_UP.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does something with the clean-up process, and lets no signal end this process meanwhile.
fn with<T>(f: impl FnOnce(&mut CleanUp) -> T) -> T {
    if let Some(clean_up) = &mut *lock() {
        return f(clean_up);
    }
    // A signal has come: this process is about to exit.
    loop {
        thread::park();
    }
}

/// Runs a command that a signal must not end halfway.
pub(crate) fn uninterrupted<T>(run: impl FnOnce() -> T) -> T {
    with(|_| run())
}

impl CleanUp {
    /// When the clean-up process is gone, `finish` says so.
    fn tell(&mut self, line: &str) {
        let _ = writeln!(self.pipe, "{line}");
    }

    /// The clean-up process knows a process group by minus its number.
    fn spawn(&mut self, command: &mut Command, sign: &str, stop: Signal) -> Result<Child> {
        let child = command.spawn();
        let name = command.get_program().display();
        let child = child.with_context(|| format!("cannot run {name}"))?;
        self.tell(&format!("stop {sign}{} {stop}", child.id()));
        Ok(child)
    }
}

/// Starts a command in a process group of its own, which ends with this process: with `stop`, or else SIGKILL.
pub(crate) fn spawn(command: &mut Command, stop: Signal) -> Result<Child> {
    with(|it| it.spawn(command.process_group(0), "-", stop))
}

/// Starts a command in the process group of this process: only the foreground group may read from a terminal.
pub(crate) fn spawn_foreground(command: &mut Command) -> Result<Child> {
    FOREGROUND.store(true, Ordering::SeqCst);
    with(|it| it.spawn(command, "", Signal::SIGTERM))
}

pub(crate) fn ended(process: u32) {
    with(|it| it.tell(&format!("ended {process}")));
    FOREGROUND.store(false, Ordering::SeqCst);
}

/// What is there until this process ends: `container` and a name, or `directory` and a path. What still works in the directory
/// is ended.
pub(crate) fn register(kind: &str, name: impl Display) {
    with(|it| it.tell(&format!("{kind} {name}")));
}

/// Starts a server that is ended with `stop`, and waits until it answers `attempt`.
pub(crate) fn start_server<T>(
    command: &mut Command,
    stop: Signal,
    mut attempt: impl FnMut() -> Result<T>,
) -> Result<T> {
    let server = with(|it| -> Result<usize> {
        let child = it.spawn(command.stdin(Stdio::null()).process_group(0), "-", stop)?;
        it.servers.push(child);
        Ok(it.servers.len() - 1)
    })?;
    let start = Instant::now();
    loop {
        let answer = attempt();
        // After the answer, which may be that of another process that has taken the port.
        if let Ok(Some(status)) = with(|it| it.servers[server].try_wait()) {
            bail!("it has ended by itself ({status})");
        }
        match answer {
            Err(_) if start.elapsed() < START_TIMEOUT => sleep(POLL_INTERVAL),
            answer => return answer,
        }
    }
}

/// Has the server that was started last end in good order.
pub(crate) fn stop_last_server() -> Result<()> {
    let mut server = with(|it| it.servers.pop()).context("no server")?;
    killpg(Pid::from_raw(server.id().cast_signed()), Signal::SIGTERM)?;
    server.wait()?;
    ended(server.id());
    Ok(())
}

/// The clean-up process: reads what is registered until the pipe closes, then stops and removes it.
pub(crate) fn serve() -> ExitCode {
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // They are meant for the other process, which closes the pipe when it has dealt with them.
        let _ = signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)));
    }
    let mut targets = BTreeMap::new();
    let (mut containers, mut directories) = (Vec::new(), Vec::new());
    for line in io::stdin().lines().map_while(io::Result::ok) {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["stop", target, signal] => {
                if let (Ok(target), Ok(signal)) = (target.parse(), signal.parse()) {
                    targets.insert(target, signal);
                }
            }
            ["ended", pid] => {
                let pid: i32 = pid.parse().unwrap_or_default();
                targets.retain(|target: &i32, _| target.abs() != pid);
            }
            ["container", name] => containers.push(name.to_owned()),
            ["directory", path] => directories.push(path.to_owned()),
            _ => eprintln!("xtask: the clean-up process does not understand '{line}'"),
        }
    }
    stop(&targets, &containers);
    for directory in directories {
        if let Err(error) = remove(&directory) {
            eprintln!("xtask: cannot remove {directory}: {error}");
        }
    }
    ExitCode::SUCCESS
}

fn stop(targets: &BTreeMap<i32, Signal>, containers: &[String]) {
    // An error means that it has ended by itself.
    let send = |target: &i32, signal: Option<Signal>| kill(Pid::from_raw(*target), signal).is_ok();
    for (target, signal) in targets {
        send(target, Some(*signal));
    }
    for container in containers {
        let mut docker = run::command("docker rm --force");
        docker.arg(container);
        let _ = docker.stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
    let start = Instant::now();
    while start.elapsed() < STOP_TIMEOUT && targets.keys().any(|target| send(target, None)) {
        sleep(POLL_INTERVAL);
    }
    for target in targets.keys() {
        send(target, Some(Signal::SIGKILL));
    }
}

/// Removes a directory, after ending what works there and is in no group that was stopped, such as the servers of Patroni.
fn remove(directory: &str) -> io::Result<()> {
    let start = Instant::now();
    let mut signal = "quit";
    while is_sent(signal, directory) {
        sleep(POLL_INTERVAL);
        if start.elapsed() > STOP_TIMEOUT {
            signal = "kill";
        }
    }
    loop {
        match fs::remove_dir_all(directory) {
            // Without /proc, nobody has waited for the processes.
            Err(_) if start.elapsed() < STOP_TIMEOUT => sleep(POLL_INTERVAL),
            removed => return removed,
        }
    }
}

/// Fails if there is nothing left.
fn is_sent(signal: &str, directory: &str) -> bool {
    let mut kill = run::command("sh -c");
    let status = kill.args([KILL, "kill", directory, signal]).status();
    status.is_ok_and(|status| status.success())
}

//! The command `diesel-locks`, for operators.
#![forbid(unsafe_code)]

mod arguments;
mod clock;
mod database;
mod doctor;
mod failure;
mod list;
mod migrations;
mod operate;
mod output;
mod run;
mod serve;
mod watch;

use clap::{CommandFactory, Parser};
use serde_json::json;

use crate::arguments::{Arguments, Task};
use crate::database::Database;
use crate::failure::Failure;
use crate::output::{Report, print_error};

fn main() {
    let arguments = Arguments::parse();
    let as_json = arguments.json;
    let code = perform(arguments).unwrap_or_else(|failure| {
        let (line, code) = (failure.line(), failure.code());
        if as_json {
            print_error(json!({ "error": line, "code": code }));
        } else {
            print_error(format_args!("diesel-locks: {line}"));
        }
        code
    });
    // Without exit handlers, which can crash a thread that opens a connection.
    signal_hook::low_level::exit(code.into());
}

fn perform(arguments: Arguments) -> Result<u8, Failure> {
    let database = || Database::from_url(arguments.database_url.as_deref());
    let report = match arguments.task {
        Task::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(
                shell,
                &mut Arguments::command(),
                "diesel-locks",
                &mut script,
            );
            let script = String::from_utf8_lossy(&script).into_owned();
            Report::new(script.trim_end(), json!({ "script": script }))
        }
        Task::Exec { parent, command } => return Err(run::child::become_command(parent, &command)),
        Task::Run(options) => return run::run(&database()?, &options, arguments.json),
        Task::Migrate => migrations::migrate(&mut database()?.open_or_create()?)?,
        Task::Migrations(arguments::Migrations::Write { directory, engine }) => {
            let engine = engine.map_or_else(|| Ok(database()?.engine), Ok::<_, Failure>)?;
            migrations::write(engine, &directory)?
        }
        Task::Doctor => doctor::doctor(&database()?)?,
        Task::List(options) => list::list(&mut database()?.open()?, &options)?,
        Task::Watch(options) => return watch::watch(&database()?, options, arguments.json),
        Task::Serve(options) => return serve::serve(&database()?, options, arguments.json),
        Task::Release(grant) => operate::release(&mut database()?.open()?, &grant)?,
        Task::ReleaseAll { semaphore } => {
            operate::release_all(&mut database()?.open()?, &semaphore)?
        }
        Task::RequestRelease(grant) => operate::request_release(&mut database()?.open()?, &grant)?,
        Task::SetPermits { semaphore, permits } => {
            operate::set_permits(&mut database()?.open()?, &semaphore, permits)?
        }
        Task::Purge {
            older_than,
            objects,
        } => operate::purge(&mut database()?.open()?, older_than, objects)?,
        Task::RaiseFences { by } => operate::raise_fences(&mut database()?.open()?, by)?,
    };
    report.print(arguments.json)?;
    Ok(report.code)
}

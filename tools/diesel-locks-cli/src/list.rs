//! `list`: what is in the database, as far as the user may read it.

mod objects;
mod semaphores;
mod sequences;
pub(crate) mod slots;

use diesel_locks::limits::MAX_LISTED;
use diesel_locks::{Error, ListOptions};
use serde_json::{Map, Value, json};

use crate::arguments::{Kind, List};
use crate::database::{AnyConnection, LOCKED_TABLE};
use crate::failure::{Failure, described};
use crate::output::{Report, counted};

/// A list as it is printed.
struct Printed {
    /// Without a title. What is to be known if there is nothing to show.
    text: String,
    rows: Vec<Value>,
    not_shown: usize,
    /// Whether there may be others, which were not counted.
    may_be_more: bool,
}

/// The first of what was found.
fn print<T>(
    mut found: Vec<T>,
    limit: u32,
    text: impl FnOnce(&[T]) -> String,
    json: impl Fn(&T) -> Value,
) -> Printed {
    let count = found.len();
    found.truncate(limit as usize);
    Printed {
        text: text(&found),
        rows: found.iter().map(json).collect(),
        not_shown: count - found.len(),
        may_be_more: count >= MAX_LISTED as usize,
    }
}

pub(crate) fn list(conn: &mut AnyConnection, options: &List) -> Result<Report, Failure> {
    let all = [
        Kind::Semaphores,
        Kind::Slots,
        Kind::Objects,
        Kind::Sequences,
    ];
    let kinds = options.kind.map_or(all.to_vec(), |kind| vec![kind]);
    let mut texts = Vec::new();
    let mut json = Map::new();
    let mut refused = Vec::new();
    for &kind in &kinds {
        let (title, field) = titles(kind);
        match read(conn, kind, options) {
            Ok(list) => {
                texts.push(with_title(kind, &list, options));
                let rows = json!({ "rows": list.rows, "not_shown": list.not_shown, "may_be_more": list.may_be_more });
                json.insert(field.to_owned(), rows);
            }
            // The others are shown.
            Err(error) if is_refusal(&error) => {
                texts.push(format!("{title}: not shown: {}", described(&error)));
                json.insert(field.to_owned(), json!({ "error": described(&error) }));
                refused.push(error);
            }
            Err(error) => return Err(error.into()),
        }
    }
    match refused.pop() {
        Some(error) if refused.len() + 1 == kinds.len() => Err(error.into()),
        _ => Ok(Report::new(texts.join("\n\n"), Value::Object(json))),
    }
}

fn titles(kind: Kind) -> (&'static str, &'static str) {
    match kind {
        Kind::Semaphores => ("Semaphores", "semaphores"),
        Kind::Slots => ("Held slots", "slots"),
        Kind::Objects => ("Object locks", "object_locks"),
        Kind::Sequences => ("Sequences", "sequences"),
    }
}

fn read(conn: &mut AnyConnection, kind: Kind, options: &List) -> Result<Printed, Error> {
    // More than are shown, to count those that are not.
    let selected = || {
        ListOptions::new()
            .limit(MAX_LISTED)
            .name_prefix(&options.prefix)
    };
    conn.within(LOCKED_TABLE, |conn| match kind {
        Kind::Semaphores => semaphores::read(conn, &selected(), options.limit),
        Kind::Slots => slots::read(conn, &selected(), options.limit),
        Kind::Objects => objects::read(conn, &options.prefix, options.limit),
        Kind::Sequences => sequences::read(
            conn,
            &selected().key_prefix(&options.key_prefix),
            options.limit,
        ),
    })
}

/// Whether the user may not read the list, or the server does not show it.
fn is_refusal(error: &Error) -> bool {
    error.is_insufficient_privilege() || matches!(error, Error::LocksNotShown { .. })
}

fn with_title(kind: Kind, list: &Printed, options: &List) -> String {
    let (title, _) = titles(kind);
    if list.rows.is_empty() {
        // Other lists have no keys.
        let key_prefix = match kind {
            Kind::Sequences => &*options.key_prefix,
            _ => "",
        };
        let selected: Vec<_> = [("name", &*options.prefix), ("key", key_prefix)]
            .into_iter()
            .filter(|(_, prefix)| !prefix.is_empty())
            .map(|(what, prefix)| format!(" whose {what} begins with {prefix:?}"))
            .collect();
        return format!("{title}: none{}{}", selected.join(" and"), list.text);
    }
    let mut text = format!("{title}\n{}", list.text);
    if list.not_shown > 0 || list.may_be_more {
        let hidden = match list.not_shown {
            0 => "there may be more".to_owned(),
            some if list.may_be_more => format!("at least {some} not shown"),
            some => format!("{some} not shown"),
        };
        let raise = match options.limit {
            MAX_LISTED => String::new(),
            limit => format!(", or raise --limit ({})", counted(limit as usize, "row")),
        };
        text = format!("{text}\n  {hidden}: select by --prefix{raise}");
    }
    text
}

//! The threads of `timeline` hold the lock one after the other.

use std::process::Command;

#[test]
fn critical_sections_do_not_overlap_on_sqlite() {
    assert_one_after_another(&[]);
}

#[cfg(feature = "postgres")]
#[test]
fn critical_sections_do_not_overlap_on_postgres() {
    use program_test_support::OwnDatabase;
    let database = OwnDatabase::<diesel::PgConnection>::create("PG_DATABASE_URL");
    assert_one_after_another(&["--database-url", &database.url]);
}

#[cfg(feature = "mysql")]
#[test]
fn critical_sections_do_not_overlap_on_mysql() {
    use program_test_support::OwnDatabase;
    let database = OwnDatabase::<diesel::MysqlConnection>::create("MYSQL_DATABASE_URL");
    assert_one_after_another(&["--database-url", &database.url]);
}

fn assert_one_after_another(arguments: &[&str]) {
    let output = Command::new(env!("CARGO_BIN_EXE_timeline"))
        .args(arguments)
        .output()
        .expect("timeline starts");
    let log = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );

    let mut lines = log.lines();
    assert_eq!(lines.next(), Some("ms\tthread\tevent"));
    let mut holder = None;
    let mut held = Vec::new();
    for line in lines {
        let [millis, thread, event] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("not three columns: {line}");
        };
        millis.parse::<u64>().expect("milliseconds");
        match event {
            "acquired" => {
                assert_eq!(
                    holder, None,
                    "{thread} got the lock while another had it:\n{log}"
                );
                holder = Some(thread);
            }
            "commits" => {
                assert_eq!(holder.take(), Some(thread), "\n{log}");
                held.push(thread);
            }
            _ => {}
        }
    }
    held.sort_unstable();
    assert_eq!(held, ["1", "2", "3"], "\n{log}");
}

//! The threads of `timeline` hold the lock one after the other.

use std::process::Command;

use program_support::on_servers;

#[test]
fn critical_sections_do_not_overlap_on_sqlite() {
    assert_one_after_another(&[]);
}

fn critical_sections_do_not_overlap(url: &str) {
    assert_one_after_another(&["--database-url", url]);
}

on_servers!(critical_sections_do_not_overlap);

fn assert_one_after_another(arguments: &[&str]) {
    let output = Command::new(env!("CARGO_BIN_EXE_timeline"))
        .args(arguments)
        .output()
        .expect("timeline starts");
    let log = String::from_utf8_lossy(&output.stdout);
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{messages}");

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
                assert_eq!(holder, None, "{thread} has it too:\n{log}");
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

//! Processes of `scale` wait in turn, and hand over the slot.

use std::process::Command;

use program_support::on_servers;
use program_support::testing::Run;

#[test]
fn slot_is_handed_over_on_sqlite() {
    assert_handed_over(&[]);
}

fn slot_is_handed_over(url: &str) {
    assert_handed_over(&["--database-url", url]);
}

on_servers!(slot_is_handed_over);

fn assert_handed_over(database: &[&str]) {
    let run = |more: &[&str]| {
        let scenario = [
            "--processes",
            "3",
            "--hold-ms",
            "50",
            "--seconds",
            "5",
            "--json",
        ];
        let output = Command::new(env!("CARGO_BIN_EXE_scale"))
            .args([&scenario, more].concat())
            .output()
            .expect("scale starts");
        let run = Run::from(output);
        assert_eq!(run.code, Some(0), "{}", run.messages);
        run.outcome
    };
    let (measured, simulated) = (run(&[&["--measure"], database].concat()), run(&[]));
    for outcome in [measured, simulated] {
        for figure in ["handovers", "statements_per_second", "handover_ms_median"] {
            let value = outcome[figure].as_f64().expect("a number");
            assert!(value > 0.0, "{figure}: {outcome}");
        }
    }
}

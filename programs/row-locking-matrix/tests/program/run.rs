//! Runs the program and reads its output.

use std::process::Command;

use serde_json::Value;

/// The program with these arguments.
pub(crate) fn matrix(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_row-locking-matrix"));
    command.args(arguments);
    command
}

/// The output of a successful run.
#[derive(Debug)]
pub(crate) struct Run(Value);

impl Run {
    pub(crate) fn of(arguments: &[&str]) -> Self {
        let arguments = [&["--json"], arguments].concat();
        let output = matrix(&arguments).output();
        let output = output.expect("row-locking-matrix starts");
        let messages = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{messages}");
        let outcome: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(outcome["violations"], serde_json::json!([]), "{messages}");
        Self(outcome)
    }

    /// The number of engines.
    pub(crate) fn engines(&self) -> usize {
        self.0["engines"].as_array().expect("engines").len()
    }

    /// The verdicts of an engine at a level, in the order of strategies.
    pub(crate) fn verdicts(&self, engine: &str, isolation: &str) -> Vec<&str> {
        self.cells(engine)
            .filter(|cell| cell["isolation"] == isolation)
            .map(|cell| cell["verdict"].as_str().expect("a verdict"))
            .collect()
    }

    /// A field of a cell.
    pub(crate) fn number(&self, engine: &str, isolation: &str, strategy: &str, field: &str) -> u64 {
        self.cells(engine)
            .find(|cell| cell["isolation"] == isolation && cell["strategy"] == strategy)
            .and_then(|cell| cell[field].as_u64())
            .unwrap_or_else(|| panic!("no {field} of {engine}, {isolation}, {strategy}: {self:?}"))
    }

    /// The cells of an engine. `engine` is the start of its name.
    fn cells(&self, engine: &str) -> impl Iterator<Item = &Value> {
        let engines = self.0["engines"].as_array().expect("engines");
        let it = engines
            .iter()
            .find(|it| {
                it["engine"]
                    .as_str()
                    .is_some_and(|name| name.starts_with(engine))
            })
            .unwrap_or_else(|| panic!("no {engine}: {self:?}"));
        it["cells"].as_array().expect("cells").iter()
    }
}

//! Runs the program.

use std::process::Command;

/// Runs the program. Returns its exit code and output.
pub(crate) fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_lessons"))
        .args(arguments)
        .output()
        .expect("lessons starts");
    let mut printed = String::from_utf8_lossy(&output.stdout).into_owned();
    printed.push_str(&String::from_utf8_lossy(&output.stderr));
    (output.status.code(), printed)
}

/// All lessons come out as expected, and these words are among what is printed.
pub(crate) fn assert_as_expected(arguments: &[&str], words: &[&str]) {
    let (code, printed) = run(arguments);
    assert_eq!(code, Some(0), "{printed}");
    assert!(
        printed.contains("All results are as expected."),
        "{printed}"
    );
    for words in words {
        assert!(printed.contains(words), "{words}: {printed}");
    }
}

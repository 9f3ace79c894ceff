//! Invalid arguments.

use crate::run::matrix;

#[test]
fn unusable_arguments_are_refused() {
    for (arguments, reason) in [
        (["--database-url", "oracle://x"], "not oracle://"),
        (["--database-url", ":memory:"], "name a file"),
        (["--database-url", "/no/such/directory/x"], "can't connect"),
        (["--connections", "1"], "1 is not in 2..=200"),
        (["--numbers", "0"], "0 is not in 1..=1000000"),
    ] {
        let output = matrix(&arguments);
        assert!(!output.status.success(), "{arguments:?}");
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(message.contains(reason), "{message}");
    }
}

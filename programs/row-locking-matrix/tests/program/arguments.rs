//! Invalid arguments.

use program_test_support::assert_refused;

use crate::run::matrix;

#[test]
fn unusable_arguments_are_refused() {
    let cases = [
        (["--database-url", "oracle://x"], "not oracle://"),
        (["--database-url", ":memory:"], "name a file"),
        (["--database-url", "/no/such/directory/x"], "can't connect"),
        (["--connections", "1"], "1 is not in 2..=200"),
        (["--numbers", "0"], "0 is not in 1..=1000000"),
    ];
    assert_refused(|| matrix(&[]), &cases);
}

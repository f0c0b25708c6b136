//! The version of this program.

/// The version of this program, as it is reported to peers, clients and people. One string that
/// stands in the program as such: the compiler is not to make numbers of it, and the test of mixed
/// versions changes it there.
#[must_use]
pub fn program_version() -> &'static str {
    std::hint::black_box(env!("CARGO_PKG_VERSION"))
}

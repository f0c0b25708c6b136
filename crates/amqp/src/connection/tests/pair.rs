//! Client and server machines against each other.

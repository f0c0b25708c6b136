//! Links over loopback.

//! Only the build script does anything: it ends the build early if the C++ compiler is missing.

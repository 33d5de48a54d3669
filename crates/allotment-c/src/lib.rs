//! The C and C++ interface of Allotment: `include/allotment.h` says what each function does.

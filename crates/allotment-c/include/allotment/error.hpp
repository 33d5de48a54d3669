/* Errors as exceptions: see allotment.hpp. */
#ifndef ALLOTMENT_ERROR_HPP
#define ALLOTMENT_ERROR_HPP

#include "../allotment.h"

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <new>

namespace allot {

/* The exception that every fallible call throws. It names the allocator, the size, the cause and a
 * remedy. It derives from std::bad_alloc, so that code which catches that type keeps working. */
class error : public std::bad_alloc {
public:
    explicit error(const allot_error &cause) noexcept : cause_(cause) {}

    /* One line: "arena 'query': ...". */
    const char *what() const noexcept override { return cause_.message; }
    const allot_error &cause() const noexcept { return cause_; }
    allot_error_kind kind() const noexcept { return cause_.kind; }
    /* The bytes that were requested; for a bad alignment, the alignment. */
    std::size_t requested() const noexcept { return cause_.requested; }
    /* "arena", "pool", ... */
    const char *allocator() const noexcept { return cause_.allocator != nullptr ? cause_.allocator : ""; }
    /* The allocator's name, or empty. */
    const char *name() const noexcept { return cause_.name; }
    /* The errno if the operating system refused; otherwise 0. */
    int system_error() const noexcept { return cause_.system_error; }

private:
    allot_error cause_;
};

namespace detail {

enum class failure { of_allocator, of_length, of_memory };

/* Without exceptions, a failure prints a line and aborts. If only some translation units of a
 * program are compiled without exceptions, the linker keeps one copy of each inline function, from
 * either kind of unit. A copy from a unit without exceptions therefore throws too, by calling
 * throw_failure() if another unit has defined it. */
#ifdef __cpp_exceptions
[[noreturn, gnu::used, gnu::cold, gnu::noinline]] inline void throw_failure(failure what, const allot_error *cause)
{
    switch (what) {
    case failure::of_allocator:
        throw error(*cause);
    case failure::of_length:
        throw std::bad_array_new_length();
    case failure::of_memory:
        break;
    }
    throw std::bad_alloc();
}
#else
[[gnu::weak]] void throw_failure(failure what, const allot_error *cause);
#endif

[[noreturn, gnu::cold, gnu::noinline]] inline void fail_as(failure what, const allot_error *cause, const char *message)
{
#ifdef __cpp_exceptions
    (void)message;
    throw_failure(what, cause);
#else
    if (&throw_failure != nullptr) {
        throw_failure(what, cause);
    }
    std::fprintf(stderr, "allotment: %s\n", message);
    std::abort();
#endif
}

[[noreturn, gnu::cold, gnu::noinline]] inline void fail()
{
    const allot_error *cause = allot_last_error();
    fail_as(failure::of_allocator, cause, cause->message);
}

[[noreturn, gnu::cold, gnu::noinline]] inline void fail_length()
{
    fail_as(failure::of_length, nullptr, "the size of an array exceeds the address space; ask for fewer elements");
}

[[noreturn, gnu::cold, gnu::noinline]] inline void fail_memory()
{
    fail_as(failure::of_memory, nullptr, "out of memory for a string: free memory, or ask for fewer characters");
}

/* Passes on what a try_ call returned; throws if it is null. */
template <class T>
inline T *checked(T *pointer)
{
    if (ALLOT_UNLIKELY(pointer == nullptr)) {
        fail();
    }
    return pointer;
}

/* Checks a request before it goes to another resource: some of them do not notice that rounding the
 * size up to the alignment wraps around to 0. */
inline void check_size(std::size_t size, std::size_t align)
{
    constexpr std::size_t most = static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()) / 2;
    if (ALLOT_UNLIKELY(size > most || align > most)) {
        fail_length();
    }
}

template <class T>
inline std::size_t array_bytes(std::size_t count)
{
    if (count > static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()) / sizeof(T)) {
        fail_length();
    }
    return count * sizeof(T);
}

} // namespace detail
} // namespace allot

#endif

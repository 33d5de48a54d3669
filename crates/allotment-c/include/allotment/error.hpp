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

/* What every fallible call throws: an allocator, a size, a cause and a remedy. A std::bad_alloc, so that code which expects
 * that goes on to work. */
class error : public std::bad_alloc {
public:
    explicit error(const allot_error &cause) noexcept : cause_(cause) {}

    /* One line: "arena 'query': ...". */
    const char *what() const noexcept override { return cause_.message; }
    const allot_error &cause() const noexcept { return cause_; }
    allot_error_kind kind() const noexcept { return cause_.kind; }
    /* The bytes that could not be had. */
    std::size_t requested() const noexcept { return cause_.requested; }
    /* "arena", "pool", ... */
    const char *allocator() const noexcept { return cause_.allocator != nullptr ? cause_.allocator : ""; }
    /* The allocator's name, or empty. */
    const char *name() const noexcept { return cause_.name; }
    /* errno, where the operating system refused; else 0. */
    int system_error() const noexcept { return cause_.system_error; }

private:
    allot_error cause_;
};

namespace detail {

enum class failure { of_allocator, of_length, of_memory };

/* Without exceptions a failure ends the program, as those of the C calls without try_ do. But where only some units of a program
 * are compiled without, the linker keeps one copy of an inline function, of either: so these throw as well, by what a unit with
 * exceptions has defined. */
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
    fail_as(failure::of_length, nullptr, "an array has more bytes than an address can express");
}

[[noreturn, gnu::cold, gnu::noinline]] inline void fail_memory()
{
    fail_as(failure::of_memory, nullptr, "there is no memory");
}

/* A pointer that a try_ call returned. */
template <class T>
inline T *checked(T *pointer)
{
    if (ALLOT_UNLIKELY(pointer == nullptr)) {
        fail();
    }
    return pointer;
}

/* Where another resource is asked: not each of them sees that a size rounded up to the alignment would be 0 again. */
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
